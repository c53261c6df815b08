"""A small corpus that tests break in one place each."""

import json
from pathlib import Path

import pytest

from rag_eval_pipeline.corpus.faults import CorpusError
from rag_eval_pipeline.corpus.version import load_version

TEXT = "Leave policy.\nFive days may be carried over.\nThe fee is 8 USD. The fee is 8 USD.\n"


class Corpora:
    """A folder of corpora; `put` writes a file below corpus `c`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.put("v1/documents/leave.txt", TEXT)
        self.lines("gold/queries.jsonl", {"query_id": "q1", "text": "How many days?"})

    def put(self, name: str, content: str | bytes) -> Path:
        path = self.root / "c" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def lines(self, name: str, *rows: dict) -> Path:
        return self.put(name, "".join(json.dumps(row) + "\n" for row in rows))

    def evidence(self, **fields) -> None:
        self.lines("v1/gold/evidence.jsonl", {"query_id": "q1", "evidence_id": "e1", "doc_id": "leave.txt", **fields})

    def load(self, key: str = "c@v1", **options):
        return load_version(self.root, key, **options)

    def faults(self, key: str = "c@v1"):
        with pytest.raises(CorpusError) as caught:
            self.load(key)
        return caught.value.faults

    def fault(self, key: str = "c@v1"):
        faults = self.faults(key)
        assert len(faults) == 1, [str(fault) for fault in faults]
        return faults[0]


@pytest.fixture
def corpora(tmp_path):
    return Corpora(tmp_path)
