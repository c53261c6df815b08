"""The way into all importers: formats by name, their options checked, and a report of what was written.

How a format is read belongs in its module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from rag_eval_pipeline.corpus.faults import suggestion
from rag_eval_pipeline.corpus.importers import beir, langsmith, phoenix, ragas, spans, squad, trec
from rag_eval_pipeline.corpus.importers.asked import RUN, Asked, IntoReport, write_into, write_version
from rag_eval_pipeline.corpus.importers.presets import PRESETS
from rag_eval_pipeline.corpus.importers.writer import CorpusWriter, ImportFailedError
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.lines import Split

TRACES: dict[str, Callable[[Path], Iterator[Asked]]] = {
    "ragas": ragas.samples,
    "langsmith": langsmith.traces,
    "phoenix": phoenix.traces,
}
"""Formats that say what a system did, which may be laid beside documents that are there."""


def _version_of(traces: Callable[[Path], Iterator[Asked]]) -> Callable[..., None]:
    """A reader that makes of traces a version without documents: what retrievers returned are the chunks."""

    def read(source: Path, writer: CorpusWriter, *, run: str = RUN) -> None:
        write_version(traces(source), writer, run)

    return read


FORMATS: dict[str, Callable[..., None]] = {
    "beir": beir.read,
    "trec": trec.read,
    "squad": squad.read,
    "spans": spans.read,
    **{name: _version_of(traces) for name, traces in TRACES.items()},
}
"""Readers by format."""
COMMON = ("language", "split", "query_split", "pipeline_preset", "overwrite")
KS = {"beir": (1, 3, 5, 10, 100), "trec": (1, 3, 5, 10, 100)}


@dataclass(frozen=True)
class Report:
    """What an import wrote.

    Attributes:
        key: `<corpus>@<version>`.
        n_documents: documents.
        n_queries: queries.
        n_units: pieces of evidence, or relevant judgments where documents are judged.
        warnings: what was left out or changed, with counts.
    """

    key: str
    n_documents: int
    n_queries: int
    n_units: int
    warnings: tuple[str, ...] = ()


def import_corpus(
    format: str, src: Path | str, corpora: Path | str, corpus: str, version: str, **options: Any
) -> Report:
    """Write a public set as `<corpora>/<corpus>/<version>`, whole or not at all.

    Args:
        format: beir | trec | squad | spans | ragas | langsmith | phoenix.
        src: the set's folder (squad: its file; ragas, langsmith, phoenix: a file, or a folder of them).
        corpora: the folder of all corpora.
        corpus: name of the corpus; its corpus.yaml is written where it has none.
        version: name of the version.
        **options: `language` (of documents and queries), `split` (the set's own: beir picks qrels/<split>.tsv),
            `query_split` (dev | calibration | test | monitor; else `split` where it is one of them, else test),
            `pipeline_preset` (default | paper), `overwrite`, and the format's own: beir corpus_file, queries_file,
            qrels_file; trec documents, topics, qrels, runs; spans documents, questions; ragas, langsmith, phoenix run. None counts as not given.

    Raises:
        ImportFailedError: the set has another form, an option is unknown, or the version exists.
        KeyNameError: a name is not allowed; the message offers one.
    """
    given = {name: value for name, value in options.items() if value is not None}
    reader = _reader(format)
    own = [name for name in inspect.signature(reader).parameters if name not in {"source", "writer"}]
    if unknown := sorted(set(given) - {*own, *COMMON}):
        raise ImportFailedError(f"{format} has no option {unknown[0]!r}: {suggestion(unknown[0], [*own, *COMMON])}")
    source = Path(src)
    if not source.exists():
        raise ImportFailedError(f"{source} is not there: give the set's {'file' if format == 'squad' else 'folder'}")
    preset = given.get("pipeline_preset", "default")
    if preset not in PRESETS:
        raise ImportFailedError(f"unknown preset {preset!r}: {suggestion(preset, PRESETS)}")
    with CorpusWriter(
        Path(corpora),
        corpus,
        version,
        language=given.get("language"),
        split=_query_split(given),
        preset=preset,
        ks=KS.get(format, (1, 3, 5, 10)),
        overwrite=bool(given.get("overwrite", False)),
    ) as writer:
        reader(source, writer, **{name: given[name] for name in own if name in given})
    return Report(f"{corpus}@{version}", writer.documents, writer.queries, writer.units, tuple(writer.warnings))


def import_into(
    format: str,
    src: Path | str,
    corpora: Path | str,
    corpus: str,
    version: str,
    run: str = RUN,
    overwrite: bool = False,
) -> IntoReport:
    """Lay what a system did beside the documents and queries of a version that is there, as outputs/ and a pipeline.

    Args:
        format: ragas | langsmith | phoenix.
        src: a file, or a folder of them.
        corpora: the folder of all corpora.
        corpus: name of the corpus.
        version: name of the version.
        run: name of the ranking and of the pipeline.
        overwrite: replace outputs that are there.

    Raises:
        ImportFailedError: another form, no question that is a query, or outputs that are there.
    """
    if format not in TRACES:
        raise ImportFailedError(f"{format} can't be laid beside documents that are there; {', '.join(TRACES)} can")
    source = Path(src)
    if not source.exists():
        raise ImportFailedError(f"{source} is not there: give the export's file or folder")
    return write_into(TRACES[format](source), Path(corpora), Key(corpus, version), run, overwrite)


def _reader(format: str) -> Callable[..., None]:
    if format not in FORMATS:
        raise ImportFailedError(f"unknown format {format!r}: {suggestion(format, FORMATS)}")
    return FORMATS[format]


def _query_split(given: dict[str, Any]) -> str:
    known = get_args(Split)
    split = given.get("query_split", given.get("split", "test"))
    if "query_split" in given and split not in known:
        raise ImportFailedError(f"unknown query split {split!r}: {suggestion(split, known)}")
    return split if split in known else "test"
