"""The tests of the text stages: source to pii, from anchors alone. Lists and blame stand in `ledger`.

One row a unit, with a Boolean a stage and what the ledger says of it. All by columns: nothing here walks over units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.measures.evidence import UNIT

TEXT_STAGES = ("source", "unanchored", "parsing", "cleaning", "dedup", "pii")
FOUND = ("exact", "aligned", "scattered")
PASSED = (*FOUND, "ok", "changed", "masked", "restored", "policy")
"""Statuses of an anchor that say nothing of a room's failure."""
LAYERS = ("parsed", "clean", "masked")
LAYER_OF = {"unanchored": "parsed", "parsing": "parsed", "cleaning": "clean", "dedup": "clean", "pii": "masked"}
CARRIER = [*UNIT, "carrier"]
SHARED = ("doc_id", "own", "present", "kept", "survivor", "counts")

ROWS: dict[str, Any] = {
    "query_id": pl.String,
    "evidence_id": pl.String,
    "stage": pl.String,
    "held": pl.Boolean,
    "state": pl.String,
    "rescued": pl.Boolean,
    "similarity": pl.Float64,
    "detail": pl.String,
}


def text_tests(
    units: pl.DataFrame, anchors: pl.DataFrame, frames: Mapping[str, pl.DataFrame]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Per unit the tests source to pii, and the ledger's rows of these stages.

    Args:
        units: evidence_units.
        anchors: evidence_anchors.
        frames: `blocks`, `dedup`, `dedup_edges`, `pii_spans` and `cleaned` are read for details, where they are there.

    Returns:
        query_id, evidence_id, a Boolean for each of `TEXT_STAGES`, scattered, and parsing_cause, cleaning_cause, pii_cause;
        and rows of `ROWS`, one a unit and stage.
    """
    carriers = _carriers(anchors)
    tests = _tests(units, carriers)
    similarity = _best(carriers, COUNTED, "parsed").select(*UNIT, "similarity")
    details = _Details(units, carriers, frames)
    rows = [
        tests.join(details.of(stage), on=UNIT, how="left", maintain_order="left")
        .join(similarity, on=UNIT, how="left", maintain_order="left")
        .select(
            *UNIT,
            pl.lit(stage).alias("stage"),
            pl.col(stage).alias("held"),
            _state(stage).alias("state"),
            (pl.col(stage) & ~pl.col(f"{stage}_own")).alias("rescued"),
            "similarity",
            pl.col("detail").fill_null("{}"),
        )
        for stage in TEXT_STAGES
    ]
    flags = [*UNIT, *TEXT_STAGES, "scattered", "parsing_cause", "cleaning_cause", "pii_cause"]
    return tests.select(flags), pl.concat(rows).select(pl.col(name).cast(dtype) for name, dtype in ROWS.items())


# --- carriers ---------------------------------------------------------------------------------------------------------

COUNTED = pl.col("present") & pl.col("counts")
KEPT = pl.col("present") & pl.col("kept")


def _carriers(anchors: pl.DataFrame) -> pl.DataFrame:
    """One row a carrier, with each layer's columns under the layer's name: held_parsed, there_clean and so on."""
    there = pl.col("positions").list.len().cast(pl.Int64) - pl.col("positions").list.count_matches(-1).cast(pl.Int64)
    told = anchors.with_columns(there.alias("there"), pl.col("positions").list.len().cast(pl.Int64).alias("size"))
    columns = ("held", "there", "size", "status", "spread", "broken", "broken_kinds", "positions", "low", "high")
    wide = told.filter(pl.col("layer") == "parsed").select(*CARRIER, *SHARED, "similarity", "cer")
    for layer in LAYERS:
        mine = told.filter(pl.col("layer") == layer).select(
            *CARRIER, *(pl.col(name).alias(f"{name}_{layer}") for name in columns)
        )
        wide = wide.join(mine, on=CARRIER, maintain_order="left")
    return wide.sort(CARRIER)


def _best(carriers: pl.DataFrame, among: pl.Expr, layer: str) -> pl.DataFrame:
    """Per unit the carrier that has most of it in a text; the first of equals. No row where none is `among` them."""
    order = [*UNIT, f"held_{layer}", f"there_{layer}", "carrier"]
    ranked = carriers.filter(among).sort(order, descending=[False, False, True, True, False])
    return ranked.unique(UNIT, keep="first", maintain_order=True)


def _tests(units: pl.DataFrame, carriers: pl.DataFrame) -> pl.DataFrame:
    read = COUNTED & (pl.col("held_parsed") | pl.col("held_clean"))
    spread = pl.when("held_parsed").then("spread_parsed").otherwise("spread_clean")
    cleaned = KEPT & pl.col("held_clean")
    holding = {
        "source": pl.col("present"),
        "parsing": read,
        "cleaning": COUNTED & pl.col("held_clean"),
        "dedup": cleaned,
        "pii": KEPT & pl.col("held_masked"),
    }
    alive = {"parsing": COUNTED, "cleaning": COUNTED, "dedup": KEPT, "pii": KEPT}
    aggregated = carriers.group_by(UNIT).agg(
        *(held.any().alias(stage) for stage, held in holding.items()),
        *((held & pl.col("own")).any().alias(f"{stage}_own") for stage, held in holding.items()),
        *(_untouched(alive[stage], LAYER_OF[stage]).any().alias(f"{stage}_untouched") for stage in alive),
        (COUNTED & pl.col("held_parsed")).any().alias("as_read"),
        (read.any() & ~(read & ~spread).any()).alias("scattered"),
        (cleaned.any() & ~(cleaned & (pl.col("status_masked") != "policy")).any()).alias("policy"),
    )
    tests = units.select(*UNIT, pl.col("anchored").alias("unanchored")).join(
        aggregated, on=UNIT, how="left", maintain_order="left"
    )
    flags = [name for name, dtype in tests.schema.items() if dtype == pl.Boolean]
    tests = tests.with_columns(pl.col(name).fill_null(False) for name in flags).with_columns(
        unanchored_own="unanchored"
    )
    first_read = pl.col("held_parsed").any().over(UNIT)
    reads = carriers.filter(COUNTED).filter(pl.col("held_parsed") | ~first_read)
    causes = {
        "parsing_cause": (_best(carriers, COUNTED, "parsed"), "parsed"),
        "cleaning_cause": (_best(reads, pl.lit(True), "clean"), "clean"),
        "pii_cause": (_best(carriers, cleaned, "masked"), "masked"),
    }
    for name, (best, layer) in causes.items():
        found = best.select(*UNIT, _cause(layer).alias(name))
        tests = tests.join(found, on=UNIT, how="left", maintain_order="left").with_columns(
            pl.col(name).fill_null("absent")
        )
    policy = pl.when("policy").then(pl.lit("policy")).otherwise("pii_cause")
    return tests.with_columns(policy.alias("pii_cause"))


def _untouched(alive: pl.Expr, layer: str) -> pl.Expr:
    """The text holds every character of the quote, in order and together."""
    every = pl.col(f"there_{layer}") == pl.col(f"size_{layer}")
    return alive & pl.col(f"held_{layer}") & every & ~pl.col(f"spread_{layer}")


def _cause(layer: str) -> pl.Expr:
    status = pl.col(f"status_{layer}")
    broken = (pl.col(f"broken_{layer}").list.len() > 0) & (pl.col(f"there_{layer}") > 0)
    missing = (status == "changed") & pl.lit(layer == "parsed")
    failed = pl.when(~status.is_in(PASSED)).then(status)  # the room failed on the document
    return (
        failed.when(missing).then(pl.lit("missing")).when(broken).then(pl.lit("token")).otherwise(pl.lit("characters"))
    )


def _state(stage: str) -> pl.Expr:
    lost = pl.lit("lost")
    if stage in {"unanchored", "parsing"}:
        lost = pl.when(~pl.col("unanchored")).then(pl.lit("unanchored")).otherwise(lost)
    if stage == "pii":
        lost = pl.when(pl.col("dedup") & (pl.col("pii_cause") == "policy")).then(pl.lit("policy")).otherwise(lost)
    held = pl.lit("held")
    if stage in {"parsing", "cleaning", "dedup", "pii"}:
        held = pl.when(f"{stage}_untouched").then(held).otherwise(pl.lit("degraded"))
    if stage == "parsing":
        held = pl.when(~pl.col("as_read")).then(pl.lit("restored")).otherwise(held)
    return pl.when(stage).then(held).otherwise(lost)


# --- details ----------------------------------------------------------------------------------------------------------


class _Details:
    """What the ledger says beside held and lost: ids, offsets, counts, kinds and entity types, never text."""

    def __init__(self, units: pl.DataFrame, carriers: pl.DataFrame, frames: Mapping[str, pl.DataFrame]) -> None:
        self._units, self._carriers, self._frames = units, carriers, frames

    def of(self, stage: str) -> pl.DataFrame:
        """query_id, evidence_id, detail (JSON) of one stage; no row for a unit that has nothing to tell there."""
        if stage == "source":
            return self._source()
        if stage == "dedup":
            return self._removed()
        layer = LAYER_OF[stage]
        best = _best(self._carriers, KEPT if stage == "pii" else COUNTED, layer)
        told = best.join(self._units.select(*UNIT, "n_chars"), on=UNIT, maintain_order="left")
        told = told.join(self._tokens(best, layer), on=UNIT, how="left", maintain_order="left")
        places = pl.col(f"positions_{layer}").list
        fields = [
            pl.col("doc_id"),
            pl.col("carrier"),
            pl.col(f"status_{layer}").alias("status"),
            pl.col(f"there_{layer}").alias("chars"),
            pl.col("n_chars"),
            pl.col(f"broken_{layer}").alias("broken_tokens"),
            pl.col("tokens_that_differ"),
            places.eval(pl.element().filter(pl.element() >= 0).min()).list.first().alias("start"),
            pl.when(places.max() >= 0).then(places.max() + 1).alias("end"),
        ]
        if stage in {"unanchored", "parsing"}:
            told = self._paged(told)
            nearest = pl.struct(start="low_parsed", end="high_parsed")
            at = pl.when(pl.col("status_parsed").is_in(["unanchored", "changed"])).then(nearest)
            fields += [pl.col("similarity"), pl.col("cer"), pl.col("page"), pl.col("page_end"), at.alias("nearest")]
        if stage == "cleaning":
            told = self._with_gone(told, "parsed", "clean", "removed")
            told = told.join(self._cleaners, on="doc_id", how="left", maintain_order="left")
            fields += [pl.col("cleaner"), pl.col("removed")]
        if stage == "pii":
            told = self._with_gone(told, "clean", "masked", "masked")
            told = told.join(self._types(told), on=UNIT, how="left", maintain_order="left")
            fields += [pl.col("masked"), pl.col("types").fill_null(pl.lit([], pl.List(pl.String))), pl.col("spans")]
        return told.select(*UNIT, pl.struct(fields).struct.json_encode().alias("detail"))

    def _source(self) -> pl.DataFrame:
        absent = pl.col("doc_id").filter(~pl.col("present")).unique().sort().alias("missing_documents")
        found = self._carriers.group_by(UNIT).agg(pl.len().cast(pl.Int64).alias("carriers"), absent)
        return found.select(*UNIT, pl.struct("carriers", "missing_documents").struct.json_encode().alias("detail"))

    def _removed(self) -> pl.DataFrame:
        """Carriers that dedup removed: for which survivor, in which cluster, how alike the two are."""
        removed = self._carriers.filter(pl.col("present") & ~pl.col("kept"))
        edges = self._frames.get("dedup_edges")
        schema = {"doc_a": pl.String, "doc_b": pl.String, "similarity": pl.Float64, "verified": pl.String}
        known = _columns(edges, schema)
        pair = [
            pl.min_horizontal("doc_id", "survivor").alias("doc_a"),
            pl.max_horizontal("doc_id", "survivor").alias("doc_b"),
        ]
        clusters = _columns(self._frames.get("dedup"), {"doc_id": pl.String, "cluster_id": pl.String})
        told = (
            removed.select(*CARRIER, "doc_id", "survivor", *pair)
            .join(known, on=["doc_a", "doc_b"], how="left", maintain_order="left")
            .join(clusters, on="doc_id", how="left", maintain_order="left")
        )
        item = pl.struct("doc_id", "survivor", "similarity", "verified", cluster="cluster_id")
        found = told.group_by(UNIT, maintain_order=True).agg(item.alias("removed"))
        return found.select(*UNIT, pl.struct("removed").struct.json_encode().alias("detail"))

    def _tokens(self, best: pl.DataFrame, layer: str) -> pl.DataFrame:
        """Critical tokens that differ: number in the unit's list, its kind, and what of it differs."""
        broken = best.select(*UNIT, token=f"broken_{layer}", differs=f"broken_kinds_{layer}").explode(
            "token", "differs"
        )
        kinds = self._units.select(*UNIT, "critical_kinds")
        told = broken.drop_nulls("token").join(kinds, on=UNIT, maintain_order="left")
        item = pl.struct("token", pl.col("critical_kinds").list.get(pl.col("token")).alias("kind"), "differs")
        differing = told.group_by(UNIT, maintain_order=True).agg(item.alias("tokens_that_differ"))
        none = pl.lit([], dtype=differing.schema["tokens_that_differ"])
        return (
            best.select(UNIT)
            .join(differing, on=UNIT, how="left", maintain_order="left")
            .with_columns(pl.col("tokens_that_differ").fill_null(none))
        )

    def _paged(self, told: pl.DataFrame) -> pl.DataFrame:
        """`told` with the first and the last page of the place in the parsed text, where the format has pages."""
        blocks = _columns(self._frames.get("blocks"), {"doc_id": pl.String, "start": pl.Int64, "page": pl.Int64})
        blocks = blocks.drop_nulls().sort("start").rename({"start": "block_start"})
        for name, place in (("page", pl.col("low_parsed")), ("page_end", pl.col("high_parsed") - 1)):
            asked = told.select(*UNIT, "doc_id", place.alias("place")).drop_nulls("place").sort("place")
            found = asked.join_asof(
                blocks, left_on="place", right_on="block_start", by="doc_id", check_sortedness=False
            ).select(*UNIT, pl.col("page").alias(name))
            told = told.join(found, on=UNIT, how="left", maintain_order="left")
        return told

    @property
    def _cleaners(self) -> pl.DataFrame:
        return _columns(self._frames.get("cleaned"), {"doc_id": pl.String, "cleaner": pl.String})

    @staticmethod
    def _with_gone(told: pl.DataFrame, before: str, after: str, name: str) -> pl.DataFrame:
        """`told` with ranges, in the text before, of the quote's characters that are gone after; spaces are bridged."""
        lost = told.filter(pl.col(f"there_{after}") < pl.col(f"there_{before}"))
        gone = (
            lost.select(*UNIT, old=f"positions_{before}", new=f"positions_{after}")
            .explode("old", "new")
            .with_columns(index=pl.int_range(pl.len()).over(UNIT))
            .filter((pl.col("old") >= 0) & (pl.col("new") < 0))
            .with_columns(
                jumps=((pl.col("index") != pl.col("index").shift(1) + 1) | (pl.col("old") < pl.col("old").shift(1)))
                .fill_null(True)
                .over(UNIT)
            )
            .with_columns(run=pl.col("jumps").cum_sum().over(UNIT))
            .group_by([*UNIT, "run"], maintain_order=True)
            .agg(pl.col("old").min().alias("low"), (pl.col("old").max() + 1).alias("high"))
            .group_by(UNIT, maintain_order=True)
            .agg(pl.concat_list("low", "high").alias(name))
        )
        none = pl.lit([], dtype=pl.List(pl.List(pl.Int64)))
        return told.join(gone, on=UNIT, how="left", maintain_order="left").with_columns(pl.col(name).fill_null(none))

    def _types(self, told: pl.DataFrame) -> pl.DataFrame:
        """Entity types and spans (in the clean text) that took something of the unit."""
        schema = {"doc_id": pl.String, "start": pl.Int64, "end": pl.Int64, "type": pl.String}
        spans = _columns(self._frames.get("pii_spans"), schema)
        ranges = told.select(*UNIT, "doc_id", "masked").explode("masked").drop_nulls("masked")
        touched = (
            ranges.select(*UNIT, "doc_id", low=pl.col("masked").list.get(0), high=pl.col("masked").list.get(1))
            .join(spans, on="doc_id")
            .filter((pl.col("start") < pl.col("high")) & (pl.col("low") < pl.col("end")))
            .select(*UNIT, "start", "end", "type")
            .unique()
            .sort([*UNIT, "start", "end", "type"])
        )
        return touched.group_by(UNIT, maintain_order=True).agg(
            pl.col("type").unique().sort().alias("types"), pl.struct("start", "end", "type").alias("spans")
        )


def _columns(frame: pl.DataFrame | None, schema: Mapping[str, Any]) -> pl.DataFrame:
    """Some columns of a table that may be absent, or may lack some of them."""
    if frame is None:
        return pl.DataFrame(schema=schema)
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in schema.items()
    )
