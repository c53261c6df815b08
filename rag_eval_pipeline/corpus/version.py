"""Load a corpus version: settings, documents, gold and outputs, all validated before anything runs.

Each kind of file is read in its own module; here they meet. Nothing is computed from documents here beyond their hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from rag_eval_pipeline.corpus.checks import (
    anchor_evidence,
    check_documents,
    check_filters,
    check_leakage,
    check_offsets,
    check_ontology,
    check_queries,
)
from rag_eval_pipeline.corpus.configuration import Marks, load_settings
from rag_eval_pipeline.corpus.documents import FILES, load_documents
from rag_eval_pipeline.corpus.faults import CorpusError, Fault, Faults, suggestion
from rag_eval_pipeline.corpus.fingerprints import FileHasher, documents_hash, gold_hash
from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.labels import Labels, load_labels
from rag_eval_pipeline.corpus.layout import Layout, list_corpora, list_versions
from rag_eval_pipeline.corpus.outputs import load_outputs
from rag_eval_pipeline.corpus.partial import Given, given, stand_in, without_documents
from rag_eval_pipeline.corpus.references import load_references, load_tables
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.corpus.subsets import subset, without


@dataclass(frozen=True)
class CorpusVersion:
    """All that a user handed us for one key, validated.

    Attributes:
        key: what is evaluated.
        folder: the version's folder; documents lie in `folder / "documents"`.
        settings: corpus.yaml with the key's pipeline laid over.
        files: one row a document: the columns of the `documents` table that are known before a file is read.
        gold: labels.
        outputs: what the user's own system produced, by name (`outputs.OUTPUTS` says the columns).
        documents_hash: identity of the documents and documents.jsonl.
        output_hashes: sha256 by path below outputs/.
        warnings: what was odd but not refused.
        marks: where each key of the settings was written, for a stage's own errors about its section.
        begin: what its stages begin with: documents, or, where there are none, imported chunks or ranked lists.
    """

    key: Key
    folder: Path
    settings: Settings
    files: pl.DataFrame
    gold: Gold
    outputs: Mapping[str, pl.DataFrame]
    documents_hash: str
    output_hashes: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[Fault, ...] = ()
    marks: Marks = field(default_factory=Marks)
    begin: Given = "documents"

    @property
    def documents(self) -> Path:
        """The folder to which paths of documents are relative."""
        return self.folder / "documents"


def load_version(corpora: Path | str, key: str | Key, *, hash_cache: Path | None = None) -> CorpusVersion:
    """Load and validate one corpus version.

    Args:
        corpora: the folder of all corpora.
        key: `<corpus>@<version>[#<pipeline>]`.
        hash_cache: a file in which hashes of unchanged files are remembered.

    Raises:
        KeyNameError: the key is not allowed.
        CorpusError: something is wrong with the files; it holds every fault.
    """
    layout = Layout(Path(corpora), Key.parse(key))
    _must_exist(layout)
    faults = Faults()
    try:
        settings, marks = load_settings(layout, faults)
        with FileHasher(hash_cache) as hasher:
            begin = given(layout)
            files = load_documents(layout, hasher, faults) if begin == "documents" else pl.DataFrame(schema=FILES)
            frozen = documents_hash(files)
            gold, queries = _load_gold(layout, files, settings, faults)
            outputs, output_hashes = load_outputs(layout, queries, set(files["doc_id"]), hasher, faults)
            left_out = queries - set(gold.queries["query_id"])
            outputs = {
                name: without(frame, left_out) if "query_id" in frame.columns else frame
                for name, frame in outputs.items()
            }
            _check_imports(layout, settings, marks, faults)
            _check_answers(layout, settings, marks, faults)
            if begin != "documents":
                faults.refuse()
                settings = without_documents(settings, begin)
                files, outputs = stand_in(begin, outputs)
    except OSError as error:  # of a file that the corpus needs: no permission, or gone while we read
        if error.filename is None or not Path(error.filename).is_relative_to(layout.corpora):
            raise
        faults.unreadable(layout.name(Path(error.filename)), error)
        faults.refuse()
    faults.refuse()
    return CorpusVersion(
        key=layout.key,
        folder=layout.version,
        settings=settings,
        files=files,
        gold=gold,
        outputs=outputs,
        documents_hash=frozen,
        begin=begin,
        output_hashes=output_hashes,
        warnings=tuple(faults.warnings),
        marks=marks,
    )


def load_key_settings(corpora: Path | str, key: str | Key) -> Settings:
    """The settings of a key alone, without reading documents or gold.

    Raises:
        KeyNameError: the key is not allowed.
        CorpusError: the folder is missing, or a file of settings is wrong.
    """
    layout, faults = Layout(Path(corpora), Key.parse(key)), Faults()
    _must_exist(layout)
    settings, _ = load_settings(layout, faults)
    faults.refuse()
    return settings


def _must_exist(layout: Layout) -> None:
    faults = Faults()
    if not layout.corpus.is_dir():
        known = list_corpora(layout.corpora)
        faults.add(layout.key.corpus, None, "", "no such corpus", "a folder", suggestion(layout.key.corpus, known))
    elif not layout.version.is_dir():
        known = list_versions(layout.corpora, layout.key.corpus)
        faults.add(
            layout.name(layout.version), None, "", "no such version", "a folder", suggestion(layout.key.version, known)
        )
    elif not layout.stays(layout.version):
        faults.add(layout.name(layout.version), None, "", "a link that leaves the corpus", "a folder of the corpus")
    faults.refuse()


IMPORTED = {
    "parsing": "parsed.jsonl", "cleaning": "cleaned.jsonl", "dedup": "dedup.jsonl", "pii": "pii_spans.jsonl",
    "chunking": "chunks.jsonl", "embedding": "embeddings.parquet", "context": "contexts.jsonl",
}  # fmt: skip
"""Stage -> the file of outputs/ that `import: true` takes instead of running it."""


def _check_imports(layout: Layout, settings: Settings, marks: Marks, faults: Faults) -> None:
    """What a stage is told to import must be there."""
    for stage, name in IMPORTED.items():
        section = settings.pipeline.get(stage)
        wanted = isinstance(section, dict) and section.get("import") is True and section.get("enabled") is not False
        if wanted and not (layout.outputs / name).is_file():
            file, line = marks.at(("pipeline", stage, "import"))
            found = f"an import of {layout.name(layout.outputs / name)}, which is absent"
            faults.add(file, line, f"pipeline.{stage}.import", found, "that file", "add it, or remove `import`")


def _check_answers(layout: Layout, settings: Settings, marks: Marks, faults: Faults) -> None:
    """Imported answers must be there."""
    section, file_name = settings.pipeline.get("answering"), "answers.jsonl"
    wanted = isinstance(section, dict) and section.get("answerer") == "import"
    if wanted and not (layout.outputs / file_name).is_file():
        file, line = marks.at(("pipeline", "answering", "answerer"))
        found = f"an import of {layout.name(layout.outputs / file_name)}, which is absent"
        hint = "add it, or set `answerer: extractive`"
        faults.add(file, line, "pipeline.answering.answerer", found, "that file", hint)


def _load_gold(layout: Layout, files: pl.DataFrame, settings: Settings, faults: Faults) -> tuple[Gold, set[str]]:
    """Gold of the queries that are evaluated, and the ids of all."""
    labels = load_labels(layout, faults)
    references, transcripts = load_references(layout, files, faults)
    tables = load_tables(layout, faults)
    texts = dict(references.iter_rows())
    check_queries(labels, faults)
    check_filters(labels, files["metadata"], faults)
    check_documents(labels, files["doc_id"], faults)
    check_offsets(labels, texts, files["doc_id"], faults)
    anchor_evidence(labels["evidence"], texts, files["doc_id"], settings.ledger.normalise, faults)
    check_ontology(labels, faults)
    frames = {name: table.frame() for name, table in labels.items()}
    check_leakage(
        frames["queries"],
        frames["evidence"],
        frames["qrels"],
        settings.evaluate.rel_level,
        settings.evaluate.leakage == "refuse",
        _file_of(labels["queries"], layout),
        faults,
    )
    queries = set(frames["queries"]["query_id"])
    frames = subset(frames, settings.evaluate, files)
    # Texts of txt, md and csv files are documents, not labels: only transcripts count in the gold's identity.
    labelled = references.filter(pl.col("doc_id").is_in(sorted(transcripts)))
    present = {name for name, table in labels.items() if table.present}
    present |= {name for name, frame in (("tables", tables), ("references", labelled)) if frame.height}
    gold = Gold(
        **frames,
        tables=tables,
        references=references,
        present=frozenset(present),
        hash=gold_hash({**frames, "tables": tables, "references": labelled}),
    )
    return gold, queries


def _file_of(labels: Labels, layout: Layout) -> str:
    own = layout.name(layout.golds[1] / f"{labels.name}.jsonl")
    files = sorted({file for file, _ in labels.places.values()})
    return own if own in files or not files else files[0]


__all__ = ["CorpusError", "CorpusVersion", "load_key_settings", "load_version"]
