"""What is computed beside the stages, as data: quality tables, evidence, the ledger, the scorecard.

One list, like the graph's: orchestration makes an asset of each entry, and prune, publish and the manifest read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from rag_eval_pipeline.attribution import evaluate as attribution
from rag_eval_pipeline.attribution.repairs.evaluate import repairs
from rag_eval_pipeline.attribution.repairs.tables import StageRepairs
from rag_eval_pipeline.attribution.tables import (
    EvidenceAnchors,
    EvidenceFate,
    EvidenceLedger,
    EvidencePieces,
    EvidenceUnits,
    LossWaterfall,
)
from rag_eval_pipeline.engine.kills import reached
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.release.compared import COMPARED
from rag_eval_pipeline.release.redaction import PiiPlaces, PiiTerms, personal
from rag_eval_pipeline.release.scorecard import Scorecard, scorecard
from rag_eval_pipeline.stages.cleaning.comparison import COMPARED as CLEANERS
from rag_eval_pipeline.stages.cleaning.comparison import CleanerCandidates, cleaner_candidates
from rag_eval_pipeline.stages.cleaning.findings import CleaningFindings, cleaning_findings
from rag_eval_pipeline.stages.comparison import CandidateSummary, summary
from rag_eval_pipeline.stages.dedup.sweep import DedupSweep, sweep_of
from rag_eval_pipeline.stages.graph import PRODUCER, STAGES
from rag_eval_pipeline.stages.judging.calibrating import JudgeCalibration, judge_calibration
from rag_eval_pipeline.stages.parsing.comparison import COMPARED as PARSERS
from rag_eval_pipeline.stages.parsing.comparison import ParserCandidates, parser_candidates
from rag_eval_pipeline.stages.parsing.spans import FidelitySpans, fidelity_spans
from rag_eval_pipeline.stages.stage import Stage
from rag_eval_pipeline.stages.subject import Subject, quality_table
from rag_eval_pipeline.warehouse.store import IdKind
from rag_eval_pipeline.warehouse.table import Table, name_of

PHASES = ("ingest", "prepare", "index", "retrieve", "answer", "release")
"""In pipeline order."""

EVIDENCE = ("evidence_units", "evidence_anchors", "evidence_pieces")


@dataclass(frozen=True)
class Evaluated:
    """Tables of an evaluation.

    Attributes:
        name: of the step.
        phase: group in the UI.
        description: for people.
        reads: tables that must be there.
        writes: tables, stored under the evaluation's id.
        run: subject -> frames by table name.
        room: the room whose quality this is, if any.
    """

    name: str
    phase: str
    description: str
    reads: tuple[str, ...]
    writes: tuple[type[Table], ...]
    run: Callable[[Subject], Mapping[str, pl.DataFrame]]
    room: str | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that it writes."""
        return tuple(name_of(table) for table in self.writes)


def _quality(stage: Stage) -> Evaluated:
    name = f"{stage.name}_quality"

    def run(subject: Subject) -> dict[str, pl.DataFrame]:
        extra = {table: subject.kept(table) for table in stage.measures if table in EVIDENCE}
        return {name: subject.measure(stage, extra)}

    return Evaluated(
        name=name,
        phase=_latest_phase(stage),
        description=f"How well {stage.name} did:\n\n{_meanings(stage)}",
        reads=tuple(dict.fromkeys((*stage.reads, *stage.tables, *stage.measures))),
        writes=(quality_table(stage.name),),
        run=run,
        room=stage.name,
    )


def _latest_phase(stage: Stage) -> str:
    """The last phase among what its measures read, so that no edge of the graph goes back to an earlier group."""
    phases = [PRODUCER[table].phase for table in stage.measures if table in PRODUCER]
    return max([stage.phase, *phases], key=PHASES.index)


def metrics_of(room: str) -> tuple[Metric, ...]:
    """The declarations of a room's measures."""
    stage = next(stage for stage in STAGES if stage.name == room)
    return stage.door("quality", "METRICS")  # type: ignore[return-value]


def declared() -> list[Metric]:
    """The declarations of all rooms' measures."""
    return [metric for stage in MEASURED for metric in metrics_of(stage.name)]


def _meanings(stage: Stage) -> str:
    return "\n".join(f"- `{m.name}` ({m.better} is better): {m.description}" for m in metrics_of(stage.name))


MEASURED = tuple(stage for stage in STAGES if stage.has_quality)
QUALITY: tuple[Evaluated, ...] = tuple(_quality(stage) for stage in MEASURED)


def _fidelity(subject: Subject) -> dict[str, pl.DataFrame]:
    frames, gold = {name: subject.frame(name) for name in ("parsed", "blocks")}, subject.version.gold
    return {"fidelity_spans": fidelity_spans(frames, gold.references, gold.pii, subject.kept("pii_places"))}


def _findings(subject: Subject) -> dict[str, pl.DataFrame]:
    frames = {name: subject.frame(name) for name in ("parsed", "cleaned")}
    return {"cleaning_findings": cleaning_findings(frames, subject.version.gold, subject.kept("pii_places"))}


def compare_parsers(subject: Subject) -> dict[str, pl.DataFrame]:
    """The chosen parser and its candidates on the documents of a subject."""
    chosen = {name: subject.frame(name) for name in ("parsed", "blocks", "parsed_tables")}
    version, documents = subject.version, subject.frame("documents")
    rows = parser_candidates(documents, chosen, subject.asked("parsing"), version.gold, version.settings)
    return {"parser_candidates": rows}


def compare_cleaners(subject: Subject) -> dict[str, pl.DataFrame]:
    """The chosen cleaner and its candidates on the parsed documents of a subject."""
    chosen = {name: subject.frame(name) for name in ("parsed", "blocks", "cleaned")}
    version, documents = subject.version, subject.frame("documents")
    rows = cleaner_candidates(documents, chosen, subject.asked("cleaning"), version.gold, version.settings)
    return {"cleaner_candidates": rows}


def _candidates(subject: Subject) -> dict[str, pl.DataFrame]:
    rooms = {
        "parsing": (subject.kept("parser_candidates"), PARSERS),
        "cleaning": (subject.kept("cleaner_candidates"), CLEANERS),
    }
    return {"candidate_summary": summary(rooms)}


def _calibration(subject: Subject) -> dict[str, pl.DataFrame]:
    frames = {name: subject.frame(name) for name in ("answers", "answer_claims", "claim_verdicts", "judge_evals")}
    return {"judge_calibration": judge_calibration(frames, subject.version.gold)}


def _dedup_sweep(subject: Subject) -> dict[str, pl.DataFrame]:
    frames = {name: subject.frame(name) for name in ("cleaned", "documents")}
    return {"dedup_sweep": sweep_of(frames, subject.version.gold, subject.configs["dedup"])}


def _scorecard(subject: Subject) -> dict[str, pl.DataFrame]:
    measured = pl.concat([subject.kept(f"{stage.name}_quality") for stage in MEASURED])
    metrics = declared()
    clusters = subject.version.gold.queries.select("query_id", "cluster_id")
    return {"scorecard": scorecard(measured, metrics, subject.version.settings.evaluate.slices, clusters)}


EVALUATED: tuple[Evaluated, ...] = (
    Evaluated(
        name="pii_terms",
        phase="prepare",
        description="Every personal string, predicted or labelled, and where they stand in each text: what must not be "
        "seen outside the working store.",
        reads=("parsed", "cleaned", "masked", "pii_spans"),
        writes=(PiiTerms, PiiPlaces),
        run=personal,
    ),
    Evaluated(
        name="evidence",
        phase="prepare",
        description="Each labelled piece of evidence: who may see it, where it stands in every text, which chunks hold it.",
        reads=("documents", "parsed", "blocks", "cleaned", "dedup", "masked", "pii_spans", "chunks"),
        writes=(EvidenceUnits, EvidenceAnchors, EvidencePieces),
        run=attribution.evidence,
    ),
    Evaluated(
        name="fidelity",
        phase="prepare",
        description="Where each document was read worst: offsets, page, kind and size of the spans that differ from its "
        "reference text, with a few masked words around them.",
        reads=("parsed", "blocks", "pii_places"),
        writes=(FidelitySpans,),
        run=_fidelity,
    ),
    Evaluated(
        name="findings",
        phase="prepare",
        description="Where main text was removed, boilerplate left in, or signs make trouble: offsets, size, masked words "
        "around them.",
        reads=("parsed", "cleaned", "pii_places"),
        writes=(CleaningFindings,),
        run=_findings,
    ),
    Evaluated(
        name="sweep",
        phase="prepare",
        description="What dedup would find with other numbers of hash functions and other thresholds, scored by the labelled pairs.",
        reads=("cleaned", "documents"),
        writes=(DedupSweep,),
        run=_dedup_sweep,
    ),
    Evaluated(
        name="parser_comparison",
        phase="ingest",
        description="The parsers of `pipeline.parsing.candidates` on the same documents, the chosen one among them: status, "
        "error rates, tables and seconds by document. No rows without candidates.",
        reads=("documents", "parsed", "blocks", "parsed_tables"),
        writes=(ParserCandidates,),
        run=compare_parsers,
    ),
    Evaluated(
        name="cleaner_comparison",
        phase="prepare",
        description="The cleaners of `pipeline.cleaning.candidates` on the same parsed texts, the chosen one among them: what "
        "each removed, rightly and wrongly. No rows without candidates.",
        reads=("documents", "parsed", "blocks", "cleaned"),
        writes=(CleanerCandidates,),
        run=compare_cleaners,
    ),
    Evaluated(
        name="candidates",
        phase="prepare",
        description="Candidates by document class: means with intervals, and the paired difference to what the pipeline uses.",
        reads=("parser_candidates", "cleaner_candidates"),
        writes=(CandidateSummary,),
        run=_candidates,
    ),
    *QUALITY,
    Evaluated(
        name="calibration",
        phase="answer",
        description="Each verifier and judge against people's verdicts, over all and by slice, with intervals, and whether its "
        "figures count.",
        reads=("answers", "answer_claims", "claim_verdicts", "judge_evals"),
        writes=(JudgeCalibration,),
        run=_calibration,
    ),
    Evaluated(
        name="attribution",
        phase="answer",
        description="Where each piece of evidence was lost: the ledger by stage, its fate by k, and the waterfall whose "
        "books balance with the ranking table.",
        reads=(*EVIDENCE, *(table for stage in STAGES for table in stage.tables), "retrieval_quality"),
        writes=(EvidenceLedger, EvidenceFate, LossWaterfall),
        run=attribution.attribute,
    ),
    Evaluated(
        name="repairs",
        phase="answer",
        description="What each cause cost: the recall that comes back when a stage's output is repaired by gold and all "
        "that follows is run again; alone, on top of all others, and as a fair share.",
        reads=(*EVIDENCE, *(table for stage in STAGES for table in stage.tables), "evidence_fate"),
        writes=(StageRepairs,),
        run=repairs,
    ),
    Evaluated(
        name="scorecard",
        phase="release",
        description="Every measure's mean with its interval, counts by status and bounds, over all items and by slice.",
        reads=tuple(f"{stage.name}_quality" for stage in MEASURED),
        writes=(Scorecard,),
        run=_scorecard,
    ),
)


def schemas() -> dict[str, type[Table]]:
    """Every table's declaration, by name."""
    everything: list[Any] = [*STAGES, *EVALUATED, *COMPARED]
    return {name_of(table): table for step in everything for table in step.writes}


def kinds() -> dict[str, IdKind]:
    """Which id every table is stored under."""
    groups: tuple[tuple[IdKind, Any], ...] = (
        ("pipeline_id", STAGES),
        ("evaluation_id", EVALUATED),
        ("comparison_id", COMPARED),
    )
    return {name: kind for kind, steps in groups for step in steps for name in step.tables}


def evaluate(step: Evaluated, subject: Subject) -> tuple[list[Any], bool]:
    """Find or compute a step's tables; returns them and whether they were there."""
    present = [subject.find_kept(name) for name in step.tables]
    if all(present):
        return present, True
    reached(step.name)
    made = step.run(subject)
    reached(f"{step.name}:before_write")
    kept = [subject.keep(schema, made[name_of(schema)]) for schema in step.writes]
    reached(f"{step.name}:after_write")
    return kept, False
