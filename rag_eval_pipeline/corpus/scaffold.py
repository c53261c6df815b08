"""A new corpus folder to fill: corpus.yaml with every default said, and the folders of its layout.

Corpora made from public sets belong in `importers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rag_eval_pipeline.corpus.configuration import commented_default_yaml
from rag_eval_pipeline.corpus.keys import check_name

_QUERIES_HELP = """\
One JSON object a line. Files that you may put here (each switches on the measures it feeds):

queries.jsonl    {"query_id": "q1", "text": "How many days may I carry over?"}
evidence.jsonl   {"query_id": "q1", "evidence_id": "e1", "doc_id": "leave.txt", "quote": "Five days may be carried over."}
qrels.tsv        query-id<TAB>corpus-id<TAB>score
transcripts/<doc_id>.txt, tables/<doc_id>.html, pii.jsonl, duplicates.jsonl, principals.jsonl, claims.jsonl …

`rag-eval validate <corpus>@<version>` says what is wrong, with file and line. This file is ignored.
"""


SMOKE = """\
# A few queries that stand for all, for every pull request: rag-eval run <corpus>@<version>#smoke
# In proportion to evaluate.slices, chosen by hash: the same ones tomorrow, and mostly the same ones when the set has grown.
evaluate:
  subset: smoke
  subset_size: 50

gates:
  baseline: previous             # the smoke run before: in CI, that of the default branch
  rules:                         # so few queries show large drops only; the n that a rule needs is said by rag-eval init and gate
    - {metric: recall, k: 10, unit: evidence, max_drop: 0.15}
"""


def init_corpus(
    folder: Path, version: str = "v1", languages: tuple[str, ...] = ("en", "es"), rules: Sequence[str] | None = None
) -> list[Path]:
    """Make a corpus folder: corpus.yaml, gold/, pipelines/ with a smoke pipeline, and a first version's documents/.

    Args:
        folder: of the corpus.
        version: name of its first version.
        languages: of documents and questions.
        rules: release rules as YAML, one a line; None: the usual ones, as examples.

    Returns:
        The files and folders made.

    Raises:
        FileExistsError: the folder holds a corpus.yaml already; nothing is changed.
        KeyNameError: the folder's or the version's name is not allowed.
    """
    check_name(folder.name, "corpus")
    check_name(version, "version")
    settings = folder / "corpus.yaml"
    if settings.exists():
        raise FileExistsError(
            f"{folder.name}/corpus.yaml exists: choose another name, or add a version folder beside it"
        )
    made = [folder / "gold", folder / "pipelines", folder / version / "documents", folder / version / "gold"]
    for path in made:
        path.mkdir(parents=True, exist_ok=True)
    settings.write_text(commented_default_yaml(languages, rules), "utf-8")
    smoke = folder / "pipelines" / "smoke.yaml"
    if not smoke.exists():
        judged = any("unit: document" in rule for rule in rules or ())
        smoke.write_text(SMOKE.replace("unit: evidence", "unit: document") if judged else SMOKE, "utf-8")
    readme = folder / "gold" / ".README.md"
    readme.write_text(_QUERIES_HELP, "utf-8")
    return [settings, smoke, readme, *made]
