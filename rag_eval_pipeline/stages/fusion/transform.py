"""What the fusion room does: one list out of several lanes' lists, over the real and over the exact ones.

Searching belongs in `retrieval`. A fused lane may fuse fused lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rag_eval_pipeline.measures.lists import RUN, DepthUnit, cut, empty, order
from rag_eval_pipeline.stages.fusion.tables import ExactFusedRuns, FusedRuns
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform


class _FusionLane(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    lanes: tuple[str, ...] = Field(min_length=1)
    depth: int | None = Field(default=None, ge=1, description="Items kept; the section's depth where absent")
    depth_unit: DepthUnit = "chunks"

    @model_validator(mode="after")
    def _distinct(self) -> _FusionLane:
        if len(set(self.lanes)) != len(self.lanes):
            raise ValueError(f"lanes {list(self.lanes)}: a lane stands twice; give it a weight instead")
        return self


class RrfLane(_FusionLane):
    """Reciprocal rank fusion (Cormack et al. 2009): Σ weight / (k + rank)."""

    kind: Literal["rrf"] = "rrf"
    k: float = Field(default=60, ge=0)
    weights: tuple[float, ...] | None = Field(default=None, description="One a lane, in their order; 1 where absent")

    @model_validator(mode="after")
    def _one_weight_a_lane(self) -> RrfLane:
        if self.weights is not None and len(self.weights) != len(self.lanes):
            raise ValueError(f"{len(self.weights)} weights for {len(self.lanes)} lanes")
        if self.weights is not None and (min(self.weights) < 0 or max(self.weights) == 0):
            raise ValueError(f"weights {list(self.weights)}: none may be negative, one must be above 0")
        return self


class ConvexLane(_FusionLane):
    """alpha · norm(first lane) + (1 − alpha) · norm(second lane), scores normalised within each list.

    An item that a lane has not found gets that list's lowest normalised score (0 with `minmax`). A list whose scores are all
    equal is 1 throughout with `minmax`, 0 with `zscore`.
    """

    kind: Literal["convex"] = "convex"
    alpha: float = Field(default=0.5, ge=0, le=1)
    norm: Literal["minmax", "zscore"] = "minmax"

    @model_validator(mode="after")
    def _two(self) -> ConvexLane:
        if len(self.lanes) != 2:
            raise ValueError(f"convex mixes two lanes, found {list(self.lanes)}; use rrf for more")
        return self


FusionLane = Annotated[RrfLane | ConvexLane, Field(discriminator="kind")]


def _standard() -> dict[str, FusionLane]:
    return {"hybrid": RrfLane(lanes=("bm25", "dense"))}


class FusionConfig(BaseModel):
    """The lanes of section `retrieval` that fuse other lanes."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    lanes: dict[str, FusionLane] = Field(default_factory=_standard)
    depth: int = Field(default=100, ge=1)


CONFIG = FusionConfig


def run(frames: Mapping[str, pl.DataFrame], config: FusionConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """All fused lanes; the exact table has those of which some lane is searched by an approximate index."""
    real, exact = frames["runs"], frames["exact_runs"]
    approximate = set(exact["retriever"].unique())
    lists = {name: real.filter(pl.col("retriever") == name) for name in real["retriever"].unique()}
    truth = {**lists, **{name: exact.filter(pl.col("retriever") == name) for name in approximate}}
    fused, exact_fused = [empty()], [empty()]
    for done, name in enumerate(sequence(config.lanes), 1):
        lane = config.lanes[name]
        lists[name] = fuse(name, lane, lists, config.depth)
        truth[name] = lists[name]
        fused.append(lists[name])
        if approximate.intersection(lane.lanes):
            approximate.add(name)
            truth[name] = fuse(name, lane, truth, config.depth)
            exact_fused.append(truth[name])
        runtime.progress("fusion", done, len(config.lanes))
    return {
        "fused_runs": conform(FusedRuns, pl.concat(fused)),
        "exact_fused_runs": conform(ExactFusedRuns, pl.concat(exact_fused)),
    }


def sequence(lanes: Mapping[str, Any]) -> list[str]:
    """Names in an order in which each lane comes after the fused lanes that it reads.

    Raises:
        ValueError: fused lanes that read each other in a circle.
    """
    done: list[str] = []
    waiting = dict(lanes)
    while waiting:
        ready = [name for name, lane in waiting.items() if not waiting.keys() & set(lane.lanes)]
        if not ready:
            raise ValueError(
                f"fused lanes read each other in a circle: {sorted(waiting)}; take one out of another's `lanes`"
            )
        done += ready
        waiting = {name: lane for name, lane in waiting.items() if name not in ready}
    return done


def fuse(name: str, lane: RrfLane | ConvexLane, lists: Mapping[str, pl.DataFrame], depth: int = 100) -> pl.DataFrame:
    """One fused lane over lists by lane name. A lane without any list adds nothing."""
    parts = [lists.get(source, empty()) for source in lane.lanes]
    scores = _rrf(lane, parts) if isinstance(lane, RrfLane) else _convex(lane, parts)
    # Columns are added up in the order of the lanes, so the last bit doesn't depend on threads.
    total = scores[0]
    for number, other in enumerate(scores[1:], 1):
        total = total.join(other, on=["query_id", "chunk_id", "doc_id"], how="full", coalesce=True, suffix=f"_{number}")
    columns = [column for column in total.columns if column.startswith("part")]
    floors = _floors(lane, scores)
    for column, floor in zip(columns, floors, strict=True):
        total = total.join(floor.rename({"floor": f"{column}_floor"}), on="query_id", how="left").with_columns(
            pl.coalesce(column, f"{column}_floor", pl.lit(0.0)).alias(column)
        )
    summed = total.with_columns(score=sum((pl.col(column) for column in columns), pl.lit(0.0)), retriever=pl.lit(name))
    return cut(
        order(summed.with_columns(rank=pl.lit(0, pl.Int64)).select(list(RUN))), lane.depth or depth, lane.depth_unit
    )


def _rrf(lane: RrfLane, parts: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    weights = lane.weights or (1.0,) * len(parts)
    return [
        part.select("query_id", "chunk_id", "doc_id", part=weight / (lane.k + pl.col("rank")))
        for part, weight in zip(parts, weights, strict=True)
    ]


def _convex(lane: ConvexLane, parts: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    for source, part in zip(lane.lanes, parts, strict=True):
        if part["score"].null_count():
            raise ValueError(f"convex fusion needs scores, and lane {source} has none for some items; use kind: rrf")
    score, per_list = pl.col("score"), "query_id"
    low, spread = score.min().over(per_list), (score.max() - score.min()).over(per_list)
    if lane.norm == "minmax":
        norm = pl.when(spread > 0).then((score - low) / spread).otherwise(1.0)
    else:
        width = score.std(ddof=0).over(per_list)
        norm = pl.when(spread > 0).then((score - score.mean().over(per_list)) / width).otherwise(0.0)
    shares = (lane.alpha, 1 - lane.alpha)
    return [
        part.select("query_id", "chunk_id", "doc_id", part=share * norm)
        for part, share in zip(parts, shares, strict=True)
    ]


def _floors(lane: RrfLane | ConvexLane, scores: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """query_id, floor: what an item gets from a list that has not found it."""
    if isinstance(lane, ConvexLane) and lane.norm == "zscore":
        return [part.group_by("query_id").agg(floor=pl.col("part").min()) for part in scores]
    return [part.select("query_id").unique().with_columns(floor=pl.lit(0.0)) for part in scores]
