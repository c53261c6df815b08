"""The asset factory: every stage and every evaluated step becomes assets with their checks. The lists stand elsewhere."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg

from rag_eval_pipeline.orchestration import lineage
from rag_eval_pipeline.orchestration.metadata import (
    column_schema,
    comparison_metadata,
    gate_metadata,
    quality_metadata,
    report_metadata,
    stored_metadata,
    sweep_metadata,
    table_metadata,
    waterfall_metadata,
)
from rag_eval_pipeline.orchestration.partitions import SUBJECTS
from rag_eval_pipeline.orchestration.subjects import refusals, subject_of
from rag_eval_pipeline.release import comparing, gating
from rag_eval_pipeline.release.checks import books, entitlement, thresholds
from rag_eval_pipeline.release.compared import COMPARED, Compared
from rag_eval_pipeline.release.evaluated import EVALUATED, PHASES, Evaluated, evaluate
from rag_eval_pipeline.release.evaluation import complete_manifest
from rag_eval_pipeline.release.publish import publish
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.release.report import write_report
from rag_eval_pipeline.stages import checks
from rag_eval_pipeline.stages.checks import Outcome
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.stages.stage import Stage
from rag_eval_pipeline.warehouse.fingerprint import code_fingerprint
from rag_eval_pipeline.warehouse.store import Stored
from rag_eval_pipeline.warehouse.table import Table, name_of

OWNERS = ["team:rag-eval"]
GROUPS = {phase: f"{number}_{phase}" for number, phase in enumerate(PHASES, 1)}
FRESH = dg.FreshnessPolicy.time_window(warn_window=timedelta(hours=26), fail_window=timedelta(days=7))
"""The nightly schedule makes what people read anew each day: late after two hours more, and stale after a week."""
HOW_TO_READ = (
    "Is it good, compared to what, what to do: in the metadata `measures` has every figure beside the baseline's, `picture` "
    "draws them, `what_to_do` names what got worse, the worst items and the commands. The check `thresholds` holds the rules of "
    "corpus.yaml against it; `release_delta` says which change is more than chance."
)
"""Of the page of a quality table, before what its measures mean: a long description is folded."""
LISTS = ("runs", "fused_runs", "ranked_runs", "contexts")
"""Tables that hold what a caller is given: entitlement is checked on each."""


def stage_assets() -> list[dg.AssetsDefinition]:
    """One op a stage, one asset a table."""
    return [_stage_asset(stage) for stage in STAGES]


def evaluated_assets() -> list[dg.AssetsDefinition]:
    """One op an evaluated step, one asset a table."""
    return [_evaluated_asset(step) for step in EVALUATED]


def _spec(
    schema: type[Table], reads: Sequence[str], phase: str, room: str, about: str, kinds: set[str], code: str
) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=name_of(schema),
        deps=list(dict.fromkeys(reads)),
        description=f"{schema.description}\n\n{about}",  # type: ignore[attr-defined]
        group_name=GROUPS[phase],
        kinds=kinds,
        owners=OWNERS,
        tags={"room": room},
        code_version=code,
        metadata={"dagster/column_schema": column_schema(schema)},
    )


def _check(name: str, table: str, about: str, *, blocking: bool) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(name=name, asset=table, description=about, blocking=blocking, partitions_def=SUBJECTS)


def _result(
    name: str, table: str, outcome: Outcome, severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
) -> dg.AssetCheckResult:
    found = {key: value for key, value in outcome.found.items() if value is not None}
    return dg.AssetCheckResult(
        asset_key=table,
        check_name=name,
        passed=outcome.passed,
        severity=severity,
        description=outcome.description,
        metadata=found,
    )


def _schema_checks(tables: Sequence[type[Table]]) -> list[dg.AssetCheckSpec]:
    about = "The stored file has the declared columns, types and keys, and no NULL where none may be."
    return [_check("schema", name_of(table), about, blocking=True) for table in tables]


def _stage_asset(stage: Stage) -> dg.AssetsDefinition:
    room = f"rag_eval_pipeline.stages.{stage.name}"
    code = code_fingerprint([f"{room}.transform", f"{room}.tables"])
    about = stage.description + (f"\n\nMeasured by `{stage.name}_quality`." if stage.has_quality else "")
    specs = [_spec(t, stage.reads, stage.phase, stage.name, about, set(stage.kinds), code) for t in stage.writes]
    columns = {name_of(t): lineage.lineage(lineage.of_stage(stage, t)) for t in stage.writes}
    check_specs = _schema_checks(stage.writes)
    if stage.expects:
        about = f"Total accounting: one row for each of {stage.expects[0]}'s {stage.expects[1]}s, whatever its status."
        check_specs.append(_check("complete", stage.tables[0], about, blocking=True))
    lists = [name for name in stage.tables if name in LISTS]
    about = "No list holds a document that the caller may not see. Never traded for anything."
    check_specs += [_check("entitlement", name, about, blocking=True) for name in lists]

    @dg.multi_asset(
        name=f"{stage.name}_room",
        specs=specs,
        check_specs=check_specs,
        partitions_def=SUBJECTS,
        op_tags={"room": stage.name},
    )
    def materialize(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        subject = subject_of(context)
        with refusals():
            stored, reused, runtime = subject.run(stage)
        counts = runtime.reused.get(stage.name)
        for schema, kept in zip(stage.writes, stored, strict=True):
            frame = subject.frame(kept.table)
            results = [_result("schema", kept.table, checks.schema(schema, frame))]
            if stage.expects and kept.table == stage.tables[0]:
                results.append(_result("complete", kept.table, checks.complete(stage, subject)))
            if kept.table in lists:
                results.append(_result("entitlement", kept.table, entitlement(subject, kept.table)))
            metadata = (
                table_metadata(schema, frame) | stored_metadata(schema, kept, subject, reused) | columns[kept.table]
            )
            if counts:
                metadata |= {"items_from_memo": counts[0], "items_computed": counts[1]}
            yield _materialized(kept, metadata, results)

    return materialize


def _evaluated_asset(step: Evaluated) -> dg.AssetsDefinition:
    room = step.room or step.name
    code = code_fingerprint(
        [f"rag_eval_pipeline.stages.{step.room}.quality" if step.room else "rag_eval_pipeline.attribution.ledger"]
    )
    about = f"{HOW_TO_READ}\n\n{step.description}" if step.room else step.description
    specs = [_spec(t, step.reads, step.phase, room, about, {"polars"}, code) for t in step.writes]
    columns = {name_of(t): lineage.lineage(lineage.of_evaluated(step, t)) for t in step.writes}
    check_specs = _schema_checks(step.writes)
    main = step.tables[0]
    if step.room:
        check_specs += [
            _check("accounting", main, "Expected items = Σ over status; every NULL has a reason.", blocking=True),
            _check("thresholds", main, "Absolute rules of corpus.yaml's gates on this room's metrics.", blocking=False),
        ]
    if "loss_waterfall" in step.tables:
        about = (
            "1 = Σ lost + recall@k of the ranking table to 1e-12, and no served unit failed a test (impossible = 0)."
        )
        check_specs.append(_check("books", "loss_waterfall", about, blocking=True))

    @dg.multi_asset(
        name=step.name, specs=specs, check_specs=check_specs, partitions_def=SUBJECTS, op_tags={"room": room}
    )
    def materialize(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        subject = subject_of(context)
        with refusals():
            stored, reused = evaluate(step, subject)
        for schema, kept in zip(step.writes, stored, strict=True):
            frame = subject.store.read(kept)
            results = [_result("schema", kept.table, checks.schema(schema, frame))]
            metadata: dict[str, Any] = {}
            if step.room:
                metadata |= quality_metadata(step.room, frame, subject)
                results.append(_result("accounting", kept.table, checks.accounting(frame, subject)))
                results.append(
                    _result("thresholds", kept.table, thresholds(step.room, frame, subject), dg.AssetCheckSeverity.WARN)
                )
            else:
                metadata |= table_metadata(schema, frame)
            if kept.table == "dedup_sweep":
                metadata |= sweep_metadata(frame)
            if kept.table == "loss_waterfall":
                metadata |= waterfall_metadata(frame, subject)
                results.append(_result("books", kept.table, books(subject, frame)))
            metadata |= stored_metadata(schema, kept, subject, reused) | columns[kept.table]
            yield _materialized(kept, metadata, results)

    return materialize


def _materialized(kept: Stored, metadata: dict[str, Any], results: list[dg.AssetCheckResult]) -> dg.MaterializeResult:
    return dg.MaterializeResult(
        asset_key=kept.table, metadata=metadata, data_version=dg.DataVersion(kept.content_hash), check_results=results
    )


@dg.asset(
    partitions_def=SUBJECTS,
    deps=[name for step in EVALUATED for name in step.tables],
    group_name=GROUPS["release"],
    kinds={"json"},
    owners=OWNERS,
    freshness_policy=FRESH,
    tags={"room": "release"},
    description="The manifest: which stored tables make this evaluation. Written only when every one of them is there; "
    "without it, half a run is invisible.",
)
def evaluation(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Look up every table by its id and name them in one file."""
    subject = subject_of(context)
    with refusals():
        manifest = complete_manifest(subject)
    subject.manifests.write(manifest)
    return dg.MaterializeResult(
        metadata={
            "tables": len(manifest.tables),
            "evaluation_id": manifest.evaluation_id,
            "git_revision": manifest.git_revision,
            **report_metadata(subject),
        },
        data_version=dg.DataVersion(manifest.evaluation_id),
    )


def compared_assets() -> list[dg.AssetsDefinition]:
    """One op a compared step, one asset a table, each on `evaluation`."""
    return [_compared_asset(step) for step in COMPARED]


def _compared_asset(step: Compared) -> dg.AssetsDefinition:
    code = code_fingerprint(step.code)
    specs = [_spec(t, ["evaluation"], "release", step.name, step.description, {"polars"}, code) for t in step.writes]

    @dg.multi_asset(
        name=step.name,
        specs=specs,
        check_specs=_schema_checks(step.writes),
        partitions_def=SUBJECTS,
        op_tags={"room": step.name},
    )
    def materialize(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        subject = subject_of(context)
        with refusals():
            now = comparing.choose(subject.home, subject.key.text, subject.evaluation_id)
            found = comparing.baseline(subject.home, now)
            result = comparing.compare(subject.home, found.manifest, now) if found.manifest else None
        for schema, name in zip(step.writes, step.tables, strict=True):
            if result is None:
                yield _without_baseline(schema, found.sentence)
                continue
            kept, frame = result.stored[name], result.frame(name)
            metadata = comparison_metadata(name, frame, result)
            metadata |= {"baseline": found.sentence} | stored_metadata(schema, kept, subject, result.reused)
            yield _materialized(kept, metadata, [_result("schema", name, checks.schema(schema, frame))])

    return materialize


def _without_baseline(schema: type[Table], why: str) -> dg.MaterializeResult:
    """No rows, and the reason: nothing is compared, and nothing downstream is stopped."""
    outcome = Outcome(True, f"no rows to check; {why}", {"rows": 0})
    return dg.MaterializeResult(
        asset_key=name_of(schema),
        metadata={"rows": 0, "baseline": why},
        data_version=dg.DataVersion("no-baseline"),
        check_results=[_result("schema", name_of(schema), outcome)],
    )


@dg.asset(
    partitions_def=SUBJECTS,
    deps=[evaluation, *(name for step in COMPARED for name in step.tables)],
    group_name=GROUPS["release"],
    kinds={"duckdb"},
    owners=OWNERS,
    freshness_policy=FRESH,
    tags={"room": "release"},
    description="The DuckDB file for people, built beside the old one and swapped in. Source text is published as length "
    "and hash, masked text through the redactor.",
)
def duckdb_database(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Publish every evaluation that has a manifest."""
    subject = subject_of(context)
    with refusals():
        report = publish(subject.home)
    return dg.MaterializeResult(
        metadata={
            "evaluations": report.evaluations,
            "rows_added": report.rows_added,
            "rows_kept": report.rows_kept,
            "bytes": report.bytes,
            "open_with": dg.MetadataValue.md("`rag-eval sql`, or `duckdb data/rag_eval.duckdb`"),
        }
    )


@dg.asset(
    partitions_def=SUBJECTS,
    deps=[evaluation, *(name for step in COMPARED for name in step.tables)],
    group_name=GROUPS["release"],
    kinds={"html"},
    owners=OWNERS,
    freshness_policy=FRESH,
    tags={"room": "release"},
    description="One self-contained HTML file: the waterfall, the documents that cost most, stories of lost queries, the "
    "scorecard, provenance. Masked text only; opens offline.",
)
def report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Write the report of this evaluation."""
    subject = subject_of(context)
    with refusals():
        path = write_report(Evaluation.of(subject.home, subject.key.text, subject.evaluation_id))
    return dg.MaterializeResult(metadata={"report": dg.MetadataValue.path(str(path)), "bytes": path.stat().st_size})


@dg.asset(
    partitions_def=SUBJECTS,
    deps=[evaluation],
    check_specs=[
        _check(
            "release",
            "release_gate",
            "Every rule of corpus.yaml's gates holds by its one-sided 95 % bound. An error where a rule is broken; a warning where it "
            "could not be decided (too few items, no baseline, no rules).",
            blocking=True,
        )
    ],
    group_name=GROUPS["release"],
    kinds={"json"},
    owners=OWNERS,
    freshness_policy=FRESH,
    tags={"room": "release"},
    code_version=code_fingerprint(["rag_eval_pipeline.release.gates"]),
    description="May this be released? The pre-registered rules of corpus.yaml, decided on bounds against the baseline. It stands "
    "beside report and database, so that a red gate hides neither.",
)
def release_gate(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Decide, keep the verdict, and show it in the database, which may have been published before."""
    subject = subject_of(context)
    with refusals():
        gated = gating.gate(subject.home, subject.key.text, evaluation_id=subject.evaluation_id)
        publish(subject.home)
    broken = gated.decision.verdict == "fail"
    outcome = Outcome(gated.decision.verdict == "pass", gating.sentence(gated), gate_metadata(gated))
    severity = dg.AssetCheckSeverity.ERROR if broken else dg.AssetCheckSeverity.WARN
    return dg.MaterializeResult(
        metadata=gate_metadata(gated),
        data_version=dg.DataVersion(gated.gate_id or "none"),
        check_results=[_result("release", "release_gate", outcome, severity)],
    )


def all_assets() -> list[dg.AssetsDefinition]:
    """Every asset of the project."""
    return [*stage_assets(), *evaluated_assets(), evaluation, *compared_assets(), duckdb_database, report, release_gate]
