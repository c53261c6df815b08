"""A subject: one corpus version under one pipeline. It knows the id of every table, finds or computes it, and keeps it.

The one place where graph, corpus, store and memo meet; Dagster's assets, the command line and the reports all ask here, so
they agree on what is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.faults import Faults
from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.version import CorpusVersion, load_version
from rag_eval_pipeline.engine.kills import reached
from rag_eval_pipeline.engine.limits import Limits
from rag_eval_pipeline.engine.plugins import is_import_path
from rag_eval_pipeline.judging.calibration import calibrated, labelled
from rag_eval_pipeline.stages.candidates import settings_of
from rag_eval_pipeline.stages.comparison import Asked
from rag_eval_pipeline.stages.graph import BY_NAME, PRODUCER, STAGES, configure, identity, inputs_of
from rag_eval_pipeline.stages.rules import check_rules, warn_of_empty_slices
from rag_eval_pipeline.stages.stage import Stage
from rag_eval_pipeline.warehouse.fingerprint import (
    ENGINE_VERSION,
    code_fingerprint,
    library_versions,
    plugin_fingerprint,
)
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline.warehouse.measurement import Measurements, document_of_table
from rag_eval_pipeline.warehouse.memo import Memo, digest
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.store import Store, Stored
from rag_eval_pipeline.warehouse.table import Table, conform, name_of, table

MEASURING = (
    "rag_eval_pipeline.attribution.ledger",
    "rag_eval_pipeline.attribution.units",
    "rag_eval_pipeline.attribution.repairs.evaluate",
    "rag_eval_pipeline.stages.parsing.spans",
    "rag_eval_pipeline.stages.dedup.sweep",
    "rag_eval_pipeline.stages.judging.calibrating",
    "rag_eval_pipeline.stages.parsing.comparison",
    "rag_eval_pipeline.stages.cleaning.comparison",
    "rag_eval_pipeline.stages.cleaning.findings",
)
"""Modules beside the quality of rooms whose code decides an evaluation's figures; named, not imported: most stand above."""

COMPARING = ("parsing", "cleaning")
"""Stages whose section may name candidates; each has a `comparison` door."""


class NotMaterializedError(LookupError):
    """A table is not there yet; the message says what to materialize."""


class FrozenError(ValueError):
    """A key has run and its documents were edited since."""


def _silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass
class Subject:
    """Corpus version × pipeline.

    Attributes:
        home: where data lives.
        version: the corpus version, loaded and validated.
        workers: worker processes of document-wise stages.
        progress: called with (stage, done, total).
    """

    home: Home
    version: CorpusVersion
    workers: int = 2
    progress: Callable[[str, int, int], None] = _silent
    _frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    _hashes: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def open(cls, home: Home, key: str | Key, **options: Any) -> Subject:
        """Load, validate and check that a key which has run still has the documents that it ran with.

        Raises:
            CorpusError: faults of the corpus and of its corpus.yaml, all of them.
            FrozenError: the documents changed since the key first ran.
        """
        subject = cls(home, load_version(home.corpora, key, hash_cache=home.hashes), **options)
        subject._check_rules()
        subject._check_candidates()
        recorded = subject.manifests.frozen(subject.version.key.subject)
        if recorded is not None and recorded != subject.version.documents_hash:
            name = subject.version.key.subject
            raise FrozenError(
                f"the documents of {name} changed after it first ran, and results under one name must speak of one set of "
                f"documents. Keep the old files and run the new ones as a new version: rag-eval bump {name} NEW_VERSION"
            )
        return subject

    @property
    def key(self) -> Key:
        """corpus@version[#pipeline]."""
        return self.version.key

    @cached_property
    def configs(self) -> dict[str, Any]:
        """Each stage's config."""
        return configure(self.version.settings, self.version.marks)

    @cached_property
    def store(self) -> Store:
        """Where tables lie."""
        return Store(self.home.store)

    @cached_property
    def manifests(self) -> Manifests:
        """Which tables make an evaluation."""
        return Manifests(self.home.manifests)

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Stage -> hash of its code, config, libraries and models: all that decides its output but its inputs."""
        return {name: digest(deciding) for name, deciding in self._deciding.items()}

    @cached_property
    def _deciding(self) -> dict[str, dict[str, Any]]:
        return {stage.name: self._decides(stage) for stage in STAGES}

    @cached_property
    def parts(self) -> dict[str, dict[str, str]]:
        """Stage -> hash of each part of what decides its output, so that two evaluations can say which part changed.

        Parts: `config` (its own and what it shares), `code` (ours, the user's classes, libraries), `model` (checksums,
        engines), and `input:<name>` for each outside input.
        """
        parts: dict[str, dict[str, str]] = {}
        for stage in STAGES:
            decides = self._deciding[stage.name]
            parts[stage.name] = {
                "config": digest([decides["config"], decides["shared"]]),
                "code": digest([decides[name] for name in ("code", "plugins", "libraries", "engine")]),
                "model": digest(decides["identity"]),
                **{f"input:{name}": self._input_hash(name) or "" for name in self._inputs(stage)},
            }
        return parts

    @cached_property
    def ids(self) -> dict[str, str]:
        """Stage -> pipeline_id of the tables that it writes."""
        ids: dict[str, str] = {}
        for stage in STAGES:
            ids[stage.name] = digest(
                {
                    "stage": stage.name,
                    "fingerprint": self.fingerprints[stage.name],
                    "reads": {name: ids[PRODUCER[name].name] for name in stage.reads},
                    "inputs": {name: self._input_hash(name) for name in self._inputs(stage)},
                }
            )
        return ids

    @cached_property
    def evaluation_id(self) -> str:
        """What decides every figure: key, tables, gold, how it is measured, and the code that measures."""
        return digest({"key": self.key.text, "ids": self.ids, "gold": self.version.gold.hash, **self.measuring})[:16]

    @cached_property
    def measuring(self) -> dict[str, Any]:
        """How it is measured: the settings, and the code of measures and ledger."""
        rooms = [f"rag_eval_pipeline.stages.{stage.name}.quality" for stage in STAGES if stage.has_quality]
        settings = self.version.settings
        return {
            "evaluate": settings.evaluate.model_dump(mode="json"),
            "ledger": settings.ledger.model_dump(mode="json"),
            "code": code_fingerprint([*rooms, *MEASURING]),
            "candidates": {
                stage: [[c.name, self._fingerprint_of(stage, c), self._hash_of(c)] for c in found]
                for stage, found in self._candidates.items()
            },
        }

    @cached_property
    def _candidates(self) -> dict[str, tuple[Any, ...]]:
        """Stage -> what is to be compared with what it is configured to do."""
        return {stage: self.configs[stage].candidates for stage in COMPARING}

    def asked(self, stage: str) -> list[Asked[Any, Any]]:
        """The candidates of a stage as they are to be run.

        Each has the memo of a pipeline with its settings: what was compared is not computed again once it is chosen.

        Raises:
            ValueError: a candidate's package or OCR engine is not installed.
        """
        found = []
        for candidate in self.configs[stage].candidates:
            config = settings_of(self.configs[stage], candidate)
            fingerprints = {**self.fingerprints, stage: self._fingerprint_of(stage, candidate)}
            output = self.version.outputs.get(candidate.output or "")
            runtime = replace(self.runtime(), fingerprints=fingerprints)
            found.append(Asked(candidate, config, runtime, output))
        return found

    def _fingerprint_of(self, stage: str, candidate: Any) -> str:
        return digest(self._decides(BY_NAME[stage], settings_of(self.configs[stage], candidate)))

    def _hash_of(self, candidate: Any) -> str | None:
        """Of the rows that it imports."""
        return self._input_hash(f"output:{candidate.output}")

    def _check_candidates(self) -> None:
        """Refuse candidates whose package is not installed, or whose output is absent, before anything runs."""
        faults = Faults()
        for stage, candidates in self._candidates.items():
            place = ("pipeline", stage, "candidates")
            for candidate in candidates:
                output = candidate.output
                if output is not None and output not in self.version.outputs:
                    told = f"{candidate.name}, an import of outputs/{output}.jsonl, which is absent"
                    faults.add(
                        *self.version.marks.at(place), ".".join(place), told, "that file", "add it, or remove the entry"
                    )
                    continue
                try:
                    identity(BY_NAME[stage], settings_of(self.configs[stage], candidate))
                except ValueError as error:
                    faults.add(
                        *self.version.marks.at(place), ".".join(place), candidate.name, "one that runs here", str(error)
                    )
        faults.refuse()

    def _check_rules(self) -> None:
        """Refuse release rules that can decide nothing; note slices that nothing of this version is in."""
        version, faults = self.version, Faults()
        lanes = [*self.configs["retrieval"].lanes, *self.configs["fusion"].lanes]
        check_rules(version.settings, STAGES, lanes, version.marks, faults)
        faults.refuse()
        warn_of_empty_slices(version.settings, version.gold, version.files, version.marks, faults)
        self._warn_of_unread_names(faults)
        self.version = replace(version, warnings=(*version.warnings, *faults.warnings))

    def _warn_of_unread_names(self, faults: Faults) -> None:
        if unread := BY_NAME["pii"].door("transform", "languages_without_model")(self.configs["pii"]):
            place = ("pipeline", "pii", "entities")
            faults.warn(
                *self.version.marks.at(place), ".".join(place), f"names, for which no model reads {', '.join(unread)}",
                "a model a language", f"give pipeline.pii.models, e.g. {{{unread[0]}: /path/to/model}}, or names in these "
                "documents stay unmasked",
            )  # fmt: skip

    def runtime(self) -> Runtime:
        """What a transform may use."""
        parsing = self.configs["parsing"]
        return Runtime(
            files=self.version.folder / "documents",
            workers=self.workers,
            limits=Limits(seconds=parsing.seconds, memory_mb=parsing.memory_mb),
            memo=Memo(self.home.memo),
            replies=self.home.replies,
            fingerprints=self.fingerprints,
            progress=self.progress,
        )

    def find(self, name: str) -> Stored | None:
        """A stage's table in the store, by the id computed from config, code and inputs."""
        return self.store.find(name, self.key.subject, self.ids[PRODUCER[name].name])

    def frame(self, name: str) -> pl.DataFrame:
        """A stage's table.

        Raises:
            NotMaterializedError: it is not there; the message says what to materialize.
        """
        if name not in self._frames:
            stored = self.find(name)
            if stored is None:
                stage = PRODUCER[name].name
                raise NotMaterializedError(
                    f"table {name} of {self.key.text} is not there for the present config and code. Materialize {name} "
                    f"(stage {stage}) first: in the UI select it with its upstream, or run `rag-eval run {self.key.text}`"
                )
            self._frames[name] = self.store.read(stored)
        return self._frames[name]

    def outside(self) -> dict[str, pl.DataFrame]:
        """Inputs that no stage makes: files, queries, principals, gold claims and the user's own outputs."""
        gold = self.version.gold
        return {
            "files": self.version.files,
            "queries": gold.queries,
            "principals": gold.principals,
            "nuggets": gold.claims.select("query_id", "claim_id", "text"),
            **{f"output:{name}": frame for name, frame in self.version.outputs.items()},
        }

    def run(self, stage: Stage) -> tuple[list[Stored], bool, Runtime]:
        """Find or compute a stage's tables; returns them, whether they were there, and the runtime with its counts.

        Raises:
            NotMaterializedError: a table that it reads is not there.
        """
        runtime = self.runtime()
        present = [self.find(name) for name in stage.tables]
        if all(present):
            return [stored for stored in present if stored], True, runtime
        if stage.name == "source":
            self.manifests.freeze(self.key.subject, self.version.documents_hash)
        reached(stage.name)
        known = {name: self.frame(name) for name in stage.reads} | self.outside()
        config = self.configs[stage.name]
        made = stage.door("transform", "run")(inputs_of(stage, known, config), config, runtime)
        if missing := set(stage.tables) - set(made):
            raise RuntimeError(f"stage {stage.name} did not write {sorted(missing)}")
        reached(f"{stage.name}:before_write")
        stored = [
            self.store.write(schema, made[name_of(schema)], self.key.subject, self.ids[stage.name])
            for schema in stage.writes
        ]
        reached(f"{stage.name}:after_write")
        return stored, False, runtime

    def measure(self, stage: Stage, extra: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        """The room's measurements, with identity and slices; `extra` holds the evidence tables."""
        frames = {name: self.frame(name) for name in (*stage.reads, *stage.tables)}
        frames |= {name: extra[name] if name in extra else self.frame(name) for name in stage.measures}
        gold, settings = self.version.gold, self.version.settings
        rows = stage.door("quality", "measure")(frames, gold, self.configs[stage.name], settings)
        rows = labelled(rows, lambda: self.calibrated_judges)
        return self.identified(stage.name, rows)

    @cached_property
    def calibrated_judges(self) -> dict[str, bool]:
        """Verifier or judge -> whether it is calibrated on this corpus."""
        frames = {name: self.frame(name) for name in ("answers", "answer_claims", "claim_verdicts", "judge_evals")}
        return calibrated(frames, self.version.gold.queries, self.version.gold.verdicts)

    def identified(self, stage: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Measured rows with the identity of this evaluation and the slices of their items."""
        gold = self.version.gold
        classes = _query_classes(gold, self.frame("documents"))
        queries = gold.queries.join(classes, on="query_id", how="left").select(
            pl.lit("query").alias("item_type"), pl.col("query_id").alias("item_id"),
            "intent", "language", "doc_class", "answerable", "tags", "split",
        )  # fmt: skip
        documents = self.frame("documents").select(
            pl.lit("document").alias("item_type"), pl.col("doc_id").alias("item_id"), "doc_class", "language"
        )
        tables = (
            rows.filter(pl.col("item_type") == "table")
            .select("item_type", "item_id", doc_id=document_of_table(pl.col("item_id")))
            .unique()
            .join(documents.rename({"item_id": "doc_id"}).drop("item_type"), on="doc_id")
            .drop("doc_id")
        )
        slices = pl.concat([queries, documents, tables], how="diagonal")
        full = rows.join(slices, on=["item_type", "item_id"], how="left").with_columns(
            pl.lit(self.key.subject).alias("corpus_version"),
            pl.lit(self.key.pipeline).alias("pipeline"),
            pl.lit(self.evaluation_id).alias("evaluation_id"),
            pl.lit(stage).alias("stage"),
        )
        return conform(quality_table(stage), full)

    def keep(self, schema: type[Table], frame: pl.DataFrame) -> Stored:
        """Store a table of this evaluation."""
        return self.store.write(schema, frame, self.key.subject, self.evaluation_id, "evaluation_id")

    def find_kept(self, name: str) -> Stored | None:
        """A table of this evaluation in the store."""
        return self.store.find(name, self.key.subject, self.evaluation_id, "evaluation_id")

    def kept(self, name: str) -> pl.DataFrame:
        """A table of this evaluation.

        Raises:
            NotMaterializedError: it is not there.
        """
        stored = self.find_kept(name)
        if stored is None:
            raise NotMaterializedError(
                f"table {name} of evaluation {self.evaluation_id} ({self.key.text}) is not there. Materialize {name} with "
                f"its upstream in the UI, or run `rag-eval run {self.key.text}`"
            )
        return self.store.read(stored)

    def _decides(self, stage: Stage, config: Any = None) -> dict[str, Any]:
        config = self.configs[stage.name] if config is None else config
        dumped = config.model_dump(mode="json", by_alias=True)
        room = f"rag_eval_pipeline.stages.{stage.name}"
        return {
            "config": dumped,
            "shared": {name: self.configs[name].model_dump(mode="json", by_alias=True) for name in stage.shares},
            "code": code_fingerprint([f"{room}.transform", f"{room}.tables"]),
            "plugins": {path: plugin_fingerprint(path) for path in sorted(_import_paths(dumped))},
            "libraries": library_versions(stage.libraries),
            "identity": identity(stage, config),
            "engine": ENGINE_VERSION,
        }

    def _inputs(self, stage: Stage) -> tuple[str, ...]:
        return stage.inputs_under(self.configs[stage.name])

    def _input_hash(self, name: str) -> str | None:
        if name not in self._hashes:
            self._hashes[name] = self._hashed(name)
        return self._hashes[name]

    def _hashed(self, name: str) -> str | None:
        table_name, _, column = name.partition(".")
        frame = self.outside().get(table_name)
        if frame is None:
            return None
        if column:
            frame = frame.select(frame.columns[0], column) if column != frame.columns[0] else frame.select(column)
        return hashlib.sha256(frame.write_ndjson().encode("utf-8", "surrogatepass")).hexdigest()


def quality_table(stage: str) -> type[Table]:
    """The schema of a room's quality table: the tidy base under the room's name."""
    schema = type(f"{stage.capitalize()}Quality", (Measurements,), {})
    return table(f"{stage}_quality", f"Measurements of the {stage} room: one row an item and metric.")(schema)


def _query_classes(gold: Gold, documents: pl.DataFrame) -> pl.DataFrame:
    """query_id, doc_class of queries all of whose labelled documents are of one class."""
    labelled = [
        gold.evidence.select("query_id", "doc_id"),
        gold.qrels.filter(pl.col("grade") > 0).select("query_id", "doc_id"),
    ]
    found = pl.concat(labelled).join(documents.select("doc_id", "doc_class"), on="doc_id")
    classes = found.group_by("query_id").agg(pl.col("doc_class").unique())
    return classes.filter(pl.col("doc_class").list.len() == 1).with_columns(pl.col("doc_class").list.first())


def _import_paths(value: Any) -> set[str]:
    """Every import path that a config names."""
    if isinstance(value, Mapping):
        return set().union(*(_import_paths(v) for v in value.values()), set())
    if isinstance(value, list | tuple):
        return set().union(*(_import_paths(v) for v in value), set())
    return {value} if isinstance(value, str) and is_import_path(value) else set()
