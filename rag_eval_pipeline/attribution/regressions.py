"""What became of each piece of evidence between two evaluations: kept, recovered, newly lost, and what points at why.

Here: frames of two evaluations in, the tables `version_regressions` and `version_recall` out. Not here: which two are
compared and where the result is kept (`release.comparing`), which hashes differ (`changes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.attribution.changes import Changes, acting
from rag_eval_pipeline.measures.evidence import UNIT
from rag_eval_pipeline.measures.intervals import Plan
from rag_eval_pipeline.measures.paired import paired_intervals
from rag_eval_pipeline.warehouse.table import Table, boolean, conform, integer, number, string, strings, table

STATES = ("kept", "recovered", "newly_lost", "still_lost", "new_unit", "removed_unit")
CELL = ["retriever", "k"]
AROUND, LONGEST = 100, 400
"""Characters shown on each side of a unit, and in all."""

METADATA = (
    "media", "doc_class", "language", "locale", "title", "tenant", "acl", "published_at", "committed_at", "supersedes",
    "metadata",
)  # fmt: skip
"""What is declared of a document, apart from its bytes."""


@table(
    "version_regressions",
    "One row a unit, retriever and k of two evaluations: what became of it, where it was lost before and now, what changed. "
    "Units outside the books on both sides have no row.",
)
class VersionRegressions(Table):
    """Two fates of a unit in one row."""

    evaluation_before = string("Evaluation that is compared with", key=True)
    evaluation_id = string("Evaluation that is compared", key=True)
    query_id = string("Query", key=True)
    evidence_id = string("Evidence", key=True)
    retriever = string("Retriever, on both sides", key=True)
    k = integer("Cut-off, on both sides", key=True)
    version_before = string("corpus@version of evaluation_before")
    pipeline_before = string("Pipeline of evaluation_before")
    state = string(
        "kept (served on both sides) | recovered | newly_lost | still_lost | new_unit (in the books only now) | removed_unit "
        "(in the books only before)"
    )
    stage_before = string(
        "Stage that lost it first, before; served; ineligible outside the books; NULL: no such unit", null=True
    )
    cause_before = string("What happened there", null=True)
    rank_before = integer("Rank at which the final list held it", null=True)
    stage_now = string("The same now", null=True)
    cause_now = string("What happened there", null=True)
    rank_now = integer("Rank at which the final list holds it", null=True)
    doc_id = string("Document that gold names, now or else before")
    document_change = string(
        "added | removed | edited | unchanged, by the hash of its bytes | absent from both versions"
    )
    metadata_changed = boolean("What documents.jsonl declares of it changed: language, locale, tags, tenant, acl…")
    gold_changed = boolean(
        "The label itself changed: quote, document, critical tokens, grade, or who may see it. Where a quote is masked only its "
        "length and its tokens' places are compared"
    )
    config_changed = boolean(
        "Some room that can have acted on this loss has another config; NULL: not known", null=True
    )
    code_changed = boolean("The same of its code, own classes or libraries", null=True)
    model_changed = boolean("The same of its model or engine", null=True)
    changed_stages = strings("Rooms that can have acted on this loss and changed, with the parts that did")
    points_at = string(
        "Where to look: any of gold, document, config, code, model, inputs joined by +; else other documents, measuring, "
        "unknown or nothing; empty where it is kept"
    )
    text_doc_before = string("Document of the text before; newly lost units only", null=True)
    start_before = integer("First code point of the unit in its masked text", null=True)
    end_before = integer("One past the last", null=True)
    chunk_before = string("Chunk that had most of it", null=True)
    text_before = string("Masked text around the unit; NULL where none of it was left", privacy="masked", null=True)
    text_doc_now = string("Document of the text now; newly lost units only", null=True)
    start_now = integer("First code point of the unit in its masked text", null=True)
    end_now = integer("One past the last", null=True)
    chunk_now = string("Chunk that has most of it", null=True)
    text_now = string("Masked text around the unit; NULL where none of it is left", privacy="masked", null=True)


@table(
    "version_recall",
    "One row a retriever and k of two evaluations: evidence recall on both sides, and its paired change on what they share.",
)
class VersionRecall(Table):
    """What the regressions mean for recall."""

    evaluation_before = string("Evaluation that is compared with", key=True)
    evaluation_id = string("Evaluation that is compared", key=True)
    retriever = string("Retriever", key=True)
    k = integer("Cut-off", key=True)
    version_before = string("corpus@version of evaluation_before")
    pipeline_before = string("Pipeline of evaluation_before")
    status = string("paired | only_before (no such retriever or k now) | only_now | nothing_shared")
    recall_before = number("Recall of the waterfall, before", null=True)
    recall_now = number("Recall of the waterfall, now", null=True)
    shared_before = number("Recall before over units in the books on both sides", null=True)
    shared_now = number("Recall now over the same units", null=True)
    delta = number("shared_now - shared_before: mean over queries", null=True)
    low = number("Lower end of the paired 95 % interval of delta", null=True)
    high = number("Upper end", null=True)
    method = string("How the interval was made", null=True)
    n_queries = integer("Queries with a unit in the books on both sides")
    n_units = integer("Units in the books on both sides")
    kept = integer("Units served on both sides", unit="units")
    recovered = integer("Lost before, served now", unit="units")
    newly_lost = integer("Served before, lost now", unit="units")
    still_lost = integer("Lost on both sides", unit="units")
    new_units = integer("In the books only now", unit="units")
    removed_units = integer("In the books only before", unit="units")


@dataclass(frozen=True)
class Side:
    """One of the two evaluations.

    Attributes:
        version: corpus@version.
        pipeline: its name.
        evaluation_id: its id.
        frames: evidence_fate, evidence_units, evidence_anchors, evidence_pieces, loss_waterfall, documents, and where there
            are any, masked and chunks.
        clusters: query_id -> cluster, of queries that are not independent of each other.
        rules_hash: of the release rules under which it was made.
    """

    version: str
    pipeline: str
    evaluation_id: str
    frames: Mapping[str, pl.DataFrame]
    clusters: Mapping[str, str] = field(default_factory=dict)
    rules_hash: str = ""


def version_regressions(before: Side, now: Side, changes: Changes) -> pl.DataFrame:
    """The fate of every unit on both sides; rows for the retrievers and ks that both have.

    Args:
        before: evaluation that is compared with.
        now: evaluation that is compared.
        changes: what differs between them.

    Returns:
        Rows of `version_regressions`. For each retriever and k that both sides measured, each unit that is in the books on
        either side has exactly one row.
    """
    rows = _paired(before, now).filter(pl.col("state").is_not_null())
    rows = rows.join(_units(before, now), on=UNIT, how="left").join(_documents(before, now), on="doc_id", how="left")
    rows = rows.with_columns(pl.col("document_change").fill_null("absent"), pl.col("metadata_changed").fill_null(False))
    rows = _blamed(rows, changes)
    lost = rows.filter(pl.col("state") == "newly_lost").select(UNIT).unique()
    for side, suffix in ((before, "before"), (now, "now")):
        texts = _texts(side, lost).rename({name: f"{name}_{suffix}" for name in TEXT})
        rows = rows.join(texts, on=UNIT, how="left")
    shown = [f"{name}_{suffix}" for name in TEXT for suffix in ("before", "now")]
    rows = rows.with_columns(pl.when(pl.col("state") == "newly_lost").then(pl.col(name)).alias(name) for name in shown)
    return conform(VersionRegressions, _identified(rows, before, now).select(list(VersionRegressions.columns())))


def version_recall(before: Side, now: Side, level: float = 0.95) -> pl.DataFrame:
    """Recall on both sides by retriever and k, with the paired interval of its change.

    The change is taken over units that are in the books on both sides: the same population. Where populations differ,
    `recall_before` and `recall_now` (each over its own) may move apart from it. A retriever or k of one side alone has a row
    without a change.
    """
    recalls = [
        side.frames["loss_waterfall"]
        .filter(pl.col("slice_name") == "all")
        .select(*CELL, pl.col("recall").alias(name))
        .unique()
        for side, name in ((before, "recall_before"), (now, "recall_now"))
    ]
    cells = recalls[0].join(recalls[1], on=CELL, how="full", coalesce=True).sort(CELL)
    states = _paired(before, now)
    counts = states.group_by(CELL).agg((pl.col("state") == state).sum().cast(pl.Int64).alias(state) for state in STATES)
    both = states.filter(pl.col("state").is_in(STATES[:4]))
    served = {"a": pl.col("stage_before") == "served", "b": pl.col("stage_now") == "served"}
    queries = both.group_by(*CELL, "query_id").agg(
        *(expression.mean().alias(name) for name, expression in served.items()),
        pl.len().cast(pl.Int64).alias("units"),
    )
    found = _changes(queries, now.clusters, level)
    here, there = (set(side.frames["evidence_fate"].select(CELL).unique().iter_rows()) for side in (before, now))
    rows = []
    for cell in cells.to_dicts():
        name = (cell["retriever"], cell["k"])
        rows.append(cell | found.get(name, NOTHING_SHARED) | {"status": _status(name, here, there, found)})
    if not rows:
        return conform(VersionRecall, [])
    frame = pl.DataFrame(rows, infer_schema_length=None).join(counts, on=CELL, how="left")
    frame = frame.with_columns(pl.col(STATES).fill_null(0))
    frame = frame.rename({"new_unit": "new_units", "removed_unit": "removed_units"})
    return conform(VersionRecall, _identified(frame, before, now))


def version_diff(regressions: pl.DataFrame) -> pl.DataFrame:
    """Units by state × stage × cause × document change: what an on-call engineer opens first; equals the view `version_diff`.

    Stage and cause are those of the loss: now where it is lost now, else before; `served` where it is kept.

    Returns:
        retriever, k, state, stage, cause, document_change, points_at, units, queries, documents, metadata_changed (units).
    """
    lost_now = pl.col("state").is_in(["newly_lost", "still_lost", "new_unit", "kept"])
    keys = [*CELL, "state", "stage", "cause", "document_change", "points_at"]
    grouped = regressions.with_columns(
        pl.when(lost_now).then("stage_now").otherwise("stage_before").alias("stage"),
        pl.when(lost_now).then("cause_now").otherwise("cause_before").alias("cause"),
    )
    counted = grouped.group_by(keys).agg(
        pl.len().cast(pl.Int64).alias("units"),
        pl.col("query_id").n_unique().cast(pl.Int64).alias("queries"),
        pl.col("doc_id").n_unique().cast(pl.Int64).alias("documents"),
        pl.col("metadata_changed").sum().cast(pl.Int64).alias("metadata_changed"),
    )
    order = pl.col("state").replace_strict({state: place for place, state in enumerate(ORDER)}, return_dtype=pl.Int64)
    return counted.sort(
        [*CELL, order, pl.col("units"), *(pl.col(name) for name in keys[3:])],
        descending=[False, False, False, True, False, False, False, False],
    )


ORDER = ("newly_lost", "recovered", "still_lost", "new_unit", "removed_unit", "kept")


def _identified(rows: pl.DataFrame, before: Side, now: Side) -> pl.DataFrame:
    return rows.with_columns(
        pl.lit(before.evaluation_id).alias("evaluation_before"),
        pl.lit(now.evaluation_id).alias("evaluation_id"),
        pl.lit(before.version).alias("version_before"),
        pl.lit(before.pipeline).alias("pipeline_before"),
    )


def _paired(before: Side, now: Side) -> pl.DataFrame:
    """Both fates of every unit in one row, for retrievers and ks of both sides; state is NULL outside the books of both."""
    sides = []
    for side, suffix in ((before, "before"), (now, "now")):
        fate = side.frames["evidence_fate"]
        sides.append(
            fate.select(
                *UNIT,
                *CELL,
                pl.col("first_loss_stage").alias(f"stage_{suffix}"),
                pl.col("cause").alias(f"cause_{suffix}"),
                pl.col("rank").alias(f"rank_{suffix}"),
                pl.col("eligible").alias(f"eligible_{suffix}"),
                (pl.col("served") & pl.col("eligible")).alias(f"served_{suffix}"),
            )
        )
    old, new = sides
    shared = old.select(CELL).unique().join(new.select(CELL).unique(), on=CELL)
    rows = old.join(new, on=[*UNIT, *CELL], how="full", coalesce=True).join(shared, on=CELL, how="semi")
    was, is_ = pl.col("eligible_before").fill_null(False), pl.col("eligible_now").fill_null(False)
    served_before, served_now = pl.col("served_before").fill_null(False), pl.col("served_now").fill_null(False)
    return rows.with_columns(
        pl.when(was & is_ & served_before & served_now)
        .then(pl.lit("kept"))
        .when(was & is_ & served_now)
        .then(pl.lit("recovered"))
        .when(was & is_ & served_before)
        .then(pl.lit("newly_lost"))
        .when(was & is_)
        .then(pl.lit("still_lost"))
        .when(is_)
        .then(pl.lit("new_unit"))
        .when(was)
        .then(pl.lit("removed_unit"))
        .alias("state")
    )


LABEL = ("doc_id", "kind", "grade", "hop", "eligible", "n_chars", "critical_from", "critical_to")
MASK = "<[A-Z][A-Z_]*>"
"""A quote's personal part is masked, labelled or predicted: what is masked may differ though the label is the same."""


def _units(before: Side, now: Side) -> pl.DataFrame:
    """query_id, evidence_id, doc_id, gold_changed of the units of either side."""
    old, new = (side.frames["evidence_units"].select(*UNIT, *LABEL, "quote") for side in (before, now))
    both = old.join(new, on=UNIT, how="full", coalesce=True, suffix="_now")
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(f"{name}_now")) for name in LABEL)
    masked = pl.col("quote").str.contains(MASK) | pl.col("quote_now").str.contains(MASK)
    reworded = (pl.col("quote") != pl.col("quote_now")) & ~masked
    return both.select(
        *UNIT,
        pl.coalesce("doc_id_now", "doc_id").alias("doc_id"),
        (~same | reworded.fill_null(False)).alias("gold_changed"),
    )


def _documents(before: Side, now: Side) -> pl.DataFrame:
    """doc_id, document_change, metadata_changed of the documents of either version."""
    old, new = (_declared(side.frames["documents"]) for side in (before, now))
    both = old.join(new, on="doc_id", how="full", coalesce=True, suffix="_now")
    was, is_ = pl.col("content_hash").is_not_null(), pl.col("content_hash_now").is_not_null()
    return both.select(
        "doc_id",
        pl.when(was & ~is_)
        .then(pl.lit("removed"))
        .when(~was)
        .then(pl.lit("added"))
        .when(pl.col("content_hash") == pl.col("content_hash_now"))
        .then(pl.lit("unchanged"))
        .otherwise(pl.lit("edited"))
        .alias("document_change"),
        (was & is_ & (pl.col("declared") != pl.col("declared_now"))).alias("metadata_changed"),
    )


def _declared(documents: pl.DataFrame) -> pl.DataFrame:
    return documents.select("doc_id", "content_hash", pl.struct(METADATA).struct.json_encode().alias("declared"))


def _blamed(rows: pl.DataFrame, changes: Changes) -> pl.DataFrame:
    """Rows with what changed in the rooms that can have acted on their loss, and where that points."""
    now_lost = pl.col("state").is_in(["newly_lost", "still_lost"]) | (
        (pl.col("state") == "new_unit") & (pl.col("stage_now") != "served")
    )
    rows = rows.with_columns(
        pl.when(now_lost).then("stage_now").otherwise("stage_before").fill_null("served").alias("_stage"),
        pl.when(now_lost).then("cause_now").otherwise("cause_before").fill_null("").alias("_cause"),
    )
    acted = [
        {"_stage": stage, "_cause": cause} | _flags(changes, acting(stage, cause or None))
        for stage, cause in rows.select("_stage", "_cause").unique().sort("_stage", "_cause").iter_rows()
    ]
    schema = {"_stage": pl.String, "_cause": pl.String, **FLAGS}
    rows = rows.join(pl.DataFrame(acted, schema=schema), on=["_stage", "_cause"], how="left")
    return rows.with_columns(_points_at(changes).alias("points_at"))


FLAGS: dict[str, Any] = {
    "config_changed": pl.Boolean,
    "code_changed": pl.Boolean,
    "model_changed": pl.Boolean,
    "inputs_changed": pl.Boolean,
    "changed_stages": pl.List(pl.String),
}


def _flags(changes: Changes, rooms: frozenset[str]) -> dict[str, Any]:
    flags = {f"{part}_changed": changes.changed(part, rooms) for part in ("config", "code", "model", "inputs")}
    return flags | {"changed_stages": changes.named(rooms)}


def _points_at(changes: Changes) -> pl.Expr:
    """The words of `points_at`."""
    document = (pl.col("document_change") != "unchanged") & (pl.col("document_change") != "absent")
    reasons = {
        "gold": pl.col("gold_changed"),
        "document": document | pl.col("metadata_changed"),
        **{part: pl.col(f"{part}_changed").fill_null(False) for part in ("config", "code", "model", "inputs")},
    }
    joined = pl.concat_str(
        [pl.when(found).then(pl.lit(name)) for name, found in reasons.items()], separator=" + ", ignore_nulls=True
    )
    unknown = pl.any_horizontal(pl.col(f"{part}_changed").is_null() for part in ("config", "code", "model", "inputs"))
    rest = (
        pl.when(unknown)
        .then(pl.lit("unknown"))
        .when(pl.lit(changes.documents))
        .then(pl.lit("other documents"))
        .when(pl.lit(bool(changes.measuring)))
        .then(pl.lit("measuring"))
        .otherwise(pl.lit("nothing"))
    )
    return pl.when(pl.col("state") == "kept").then(pl.lit("")).when(joined != "").then(joined).otherwise(rest)


TEXT: dict[str, Any] = {
    "text_doc": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "chunk": pl.String,
    "text": pl.String,
}


def _texts(side: Side, units: pl.DataFrame) -> pl.DataFrame:
    """For each unit the masked text around it: where its anchor stands, else the chunk that has most of it."""
    placed = _places(side, units)
    pieces = side.frames["evidence_pieces"].join(units, on=UNIT, how="semi")
    best = (
        pieces.with_columns(pl.col("chars").list.len().alias("size"))
        .sort([*UNIT, "size", "carrier", "chunk_id"], descending=[False, False, True, False, False])
        .unique(UNIT, keep="first", maintain_order=True)
        .select(*UNIT, pl.col("chunk_id").alias("chunk"), pl.col("doc_id").alias("chunk_doc"))
    )
    found = units.join(placed, on=UNIT, how="left").join(best, on=UNIT, how="left")
    chunks = side.frames.get("chunks")
    if chunks is not None:
        texts = chunks.select(pl.col("chunk_id").alias("chunk"), pl.col("text").str.slice(0, LONGEST).alias("own"))
        found = found.join(texts, on="chunk", how="left")
    else:
        found = found.with_columns(pl.lit(None, dtype=pl.String).alias("own"))
    return found.with_columns(
        pl.coalesce("text", "own").alias("text"), pl.coalesce("text_doc", "chunk_doc").alias("text_doc")
    ).select(*UNIT, *TEXT)


def _places(side: Side, units: pl.DataFrame) -> pl.DataFrame:
    """query_id, evidence_id, text_doc, start, end, text of the anchor that has most of a unit in its masked text."""
    there = pl.col("positions").list.eval(pl.element().filter(pl.element() >= 0))
    masked = side.frames.get("masked")
    schema = {"query_id": pl.String, "evidence_id": pl.String, "text_doc": pl.String, "start": pl.Int64, "end": pl.Int64,
              "text": pl.String}  # fmt: skip
    if masked is None:
        return pl.DataFrame(schema=schema)
    anchors = (
        side.frames["evidence_anchors"]
        .filter((pl.col("layer") == "masked") & pl.col("present") & pl.col("kept"))
        .join(units, on=UNIT, how="semi")
        .with_columns(there.alias("there"))
        .filter(pl.col("there").list.len() > 0)
        .with_columns(pl.col("there").list.len().alias("size"))
        .sort([*UNIT, "held", "size", "carrier"], descending=[False, False, True, True, False])
        .unique(UNIT, keep="first", maintain_order=True)
    )
    start, end = pl.col("there").list.min(), pl.col("there").list.max() + 1
    low = (start - AROUND).clip(lower_bound=0)
    cut = pl.min_horizontal(end + AROUND, low + LONGEST)
    found = anchors.join(masked.select("doc_id", pl.col("text").alias("whole")), on="doc_id")
    return found.select(
        *UNIT,
        pl.col("doc_id").alias("text_doc"),
        start.alias("start"),
        end.alias("end"),
        pl.concat_str(
            pl.when(low > 0).then(pl.lit("…")).otherwise(pl.lit("")),
            pl.col("whole").str.slice(low, cut - low),
            pl.when(cut < pl.col("whole").str.len_chars()).then(pl.lit("…")).otherwise(pl.lit("")),
        ).alias("text"),
    ).cast(schema)  # type: ignore[arg-type]


Cell = tuple[Any, ...]
NOTHING_SHARED: dict[str, Any] = {
    **dict.fromkeys(("shared_before", "shared_now", "delta", "low", "high", "method")),
    "n_queries": 0,
    "n_units": 0,
}


def _changes(queries: pl.DataFrame, clusters: Mapping[str, str], level: float) -> dict[Cell, dict[str, Any]]:
    """By retriever and k: recall on both sides of the shared units, and the paired interval of its change.

    Cells with the same queries are resampled together, so that many of them cost little more than one.
    """
    alike: dict[tuple[str, ...], list[tuple[Cell, pl.DataFrame]]] = {}
    for cell, rows in sorted(queries.group_by(CELL), key=lambda pair: pair[0]):
        ordered = rows.sort("query_id")
        alike.setdefault(tuple(ordered["query_id"].to_list()), []).append((cell, ordered))
    found: dict[Cell, dict[str, Any]] = {}
    for names, group in alike.items():
        together = [clusters.get(name) for name in names] if clusters else None
        a, b = (np.column_stack([rows[side].to_numpy() for _, rows in group]) for side in ("a", "b"))
        intervals = paired_intervals(b, a, clusters=together, low=0.0, high=1.0, plan=Plan(level))
        for place, ((cell, rows), interval) in enumerate(zip(group, intervals, strict=True)):
            was, is_ = float(a[:, place].mean()), float(b[:, place].mean())
            found[cell] = {
                "shared_before": was,
                "shared_now": is_,
                "delta": is_ - was,
                "low": interval.low,
                "high": interval.high,
                "method": interval.method,
                "n_queries": rows.height,
                "n_units": int(rows["units"].sum()),
            }
    return found


def _status(cell: Cell, here: set[Cell], there: set[Cell], found: Mapping[Cell, Any]) -> str:
    if cell not in there:
        return "only_before"
    if cell not in here:
        return "only_now"
    return "paired" if cell in found else "nothing_shared"
