"""Ranking measures on frames: recall, hit, precision, rr, ndcg, ap, bpref and judged, with the band that ties allow.

Here: one run against one set of judgments, by query. Not here: means and intervals (release), evidence units (retrieval).

gain = max(grade, 0); relevant = grade ≥ `rel_level`. Equal to trec_eval under `tie_policy="trec"`.

Band: items that tie may stand in any order among themselves and nowhere else, so tie groups keep their places. Every
measure here but `judged` never falls when a higher grade moves before a lower one inside its group (exchange of
neighbours: recall, hit, precision and rr count relevant items at or before a place; each term of ap and bpref shrinks with
the number of others before it; discounts of ndcg fall with the place). So the exact extremes over all orders are grades
descending and grades ascending within each group. For `judged` they are judged items first and last.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl

TiePolicy = Literal["run", "trec", "id"]
Contract = Literal["strict", "zero", "lenient"]

AT_K = ("recall", "hit", "precision", "ndcg", "judged")
UNCUT = ("rr", "ap", "bpref")
MEASURES = (*AT_K, *UNCUT)
_LENIENT = frozenset({"recall", "hit", "rr"})
_DEEP = 2**62  # the cut-off of a measure that has none

SCHEMA = {
    "query_id": pl.String,
    "metric": pl.String,
    "k": pl.Int64,
    "value": pl.Float64,
    "status": pl.String,
    "low": pl.Float64,
    "high": pl.Float64,
    "tied_at_cutoff": pl.Boolean,
    "judged": pl.Int64,
    "retrieved": pl.Int64,
}


@dataclass(frozen=True)
class _Cut:
    """A measure and its cut-off; k = 0 means none."""

    measure: str
    k: int

    @property
    def depth(self) -> int:
        return self.k or _DEEP


def rank_measures(
    run: pl.DataFrame,
    qrels: pl.DataFrame,
    measures: Sequence[str] = MEASURES,
    ks: Iterable[int] = (1, 3, 5, 10, 20),
    tie_policy: TiePolicy = "run",
    rel_level: int = 1,
    contract: Contract = "strict",
    *,
    as_trec: bool = False,
    empty: Collection[str] = (),
    queries: Collection[str] | None = None,
    name: str = "run",
) -> pl.DataFrame:
    """Measures by query, one row for every expected query, measure and cut-off.

    Args:
        run: query_id, item_id, rank (policy `run`), score (policies `trec` and `id`; may be NULL under `run`).
        qrels: query_id, item_id, grade; negative grades have no gain.
        measures: names of `MEASURES`. `recall hit precision ndcg judged` are taken at every k of `ks`; `rr ap bpref` over
            the whole list, with k = 0 in the result. `rr@10`, `ap@100` cut one of these at its own depth; `ndcg@all` does not
            cut.
        ks: cut-offs.
        tie_policy: `run` as ranked, `trec` score as float32 then id descending, `id` score then id ascending. Ties are equal
            scores under the policy (under `run` also equal ranks, which stand by id).
        rel_level: least grade that is relevant, ≥ 1.
        contract: what k ≤ 0 and a query without gold give for recall, hit and rr: `strict` error and NULL, `zero` error and
            0.0, `lenient` 0.0 and NULL (rr 0.0). The pipeline is always strict.
        as_trec: queries with judgments but none relevant score 0, as trec_eval has it; strict is NULL `no_relevant`.
        empty: queries that were answered with an empty list: they score 0 with status `scored`, not `missing_run`.
        queries: all queries expected; by default those of run, qrels and `empty`.
        name: of the run, for error messages.

    Returns:
        Columns of `SCHEMA`, sorted by query, metric, k. `judged` and `retrieved` count items at or before the cut-off.

    Raises:
        ValueError: a k ≤ 0, an unknown measure or policy, a duplicate id, a NaN or missing score or rank, a NULL grade.
    """
    _check(tie_policy, contract, rel_level)
    cuts, zeros = _cuts(measures, ks, contract)
    run, qrels = _valid_run(run, tie_policy, name), _valid_qrels(qrels)
    expected = _expected(run, qrels, empty, queries, name)
    run, qrels = _encoded(run, qrels, expected, name)
    gold = _gold(qrels, len(expected), rel_level)
    lists = _lists(run, qrels, len(expected), tie_policy, rel_level)
    best, worst = lists.reordered(lists.gain, high=True), lists.reordered(lists.gain, high=False)
    names, in_run = expected["query_id"], expected["in_run"].to_numpy()
    frames = []
    for cut in cuts:
        band = (worst, best)
        if cut.measure == "judged":
            band = (lists.reordered(lists.judged, high=False), lists.reordered(lists.judged, high=True))
        found = [_VALUE[cut.measure](each, gold, cut.depth) for each in (lists, *band)]
        frames.append(_rows(names, in_run, lists, gold, cut, found, contract, as_trec))
    frames += [_zero_rows(names, cut) for cut in zeros]
    if not frames:
        return pl.DataFrame(schema=SCHEMA)
    return pl.concat(frames).sort("query_id", "metric", "k")


def trec_table(
    run: pl.DataFrame,
    qrels: pl.DataFrame,
    ks: Sequence[int] = (5, 10, 15, 20, 30, 100, 200, 500, 1000),
    success: Sequence[int] = (1, 5, 10),
    rel_level: int = 1,
) -> pl.DataFrame:
    """What `trec_eval` prints of our measures, by its names: columns measure, query_id, value; query `all` summarises.

    As trec_eval without -c: queries without judgments or without a list are left out, counts are summed, all else averaged.
    """
    common = pl.Series(sorted(set(run["query_id"]) & set(qrels["query_id"])), dtype=pl.String)
    run = run.filter(pl.col("query_id").is_in(common.implode()))
    qrels = qrels.filter(pl.col("query_id").is_in(common.implode()))
    wanted = ["recall", "precision", "ndcg", "ndcg@all", "rr", "ap", "bpref", *(f"ap@{k}" for k in ks)]
    rows = rank_measures(run, qrels, wanted, ks, "trec", rel_level, as_trec=True)
    hits = rank_measures(run, qrels, ["hit"], success, "trec", rel_level, as_trec=True)
    cut = {"recall": "recall_", "precision": "P_", "ndcg": "ndcg_cut_", "ap": "map_cut_", "hit": "success_"}
    whole = {"ndcg": "ndcg", "ap": "map", "rr": "recip_rank", "bpref": "bpref"}
    label = (
        pl.when(pl.col("k") == 0)
        .then(pl.col("metric").replace_strict(whole, default=""))
        .otherwise(pl.col("metric").replace_strict(cut, default="") + pl.col("k").cast(pl.String))
    )
    by_query = pl.concat([rows, hits]).select(measure=label, query_id="query_id", value="value")
    counts = _trec_counts(run, qrels, rel_level)
    means = by_query.group_by("measure").agg(pl.col("value").mean())
    sums = counts.group_by("measure").agg(pl.col("value").sum())
    number = pl.DataFrame({"measure": ["num_q"], "value": [float(len(common))]})
    total = pl.concat([means, sums, number]).select("measure", pl.lit("all").alias("query_id"), "value")
    return pl.concat([by_query, counts, total]).sort("query_id", "measure")


def _trec_counts(run: pl.DataFrame, qrels: pl.DataFrame, rel_level: int) -> pl.DataFrame:
    relevant = qrels.filter(pl.col("grade") >= rel_level).select("query_id", "item_id")
    found = run.join(relevant, on=["query_id", "item_id"], how="semi")
    frames = []
    for measure, frame in (("num_ret", run), ("num_rel", relevant), ("num_rel_ret", found)):
        counted = frame.group_by("query_id").agg(value=pl.len().cast(pl.Float64))
        everyone = run.select("query_id").unique().join(counted, on="query_id", how="left")
        frames.append(everyone.select(pl.lit(measure).alias("measure"), "query_id", pl.col("value").fill_null(0.0)))
    return pl.concat(frames)


def _check(tie_policy: str, contract: str, rel_level: int) -> None:
    if tie_policy not in ("run", "trec", "id"):
        raise ValueError(f"unknown tie policy {tie_policy!r}; use run, trec or id")
    if contract not in ("strict", "zero", "lenient"):
        raise ValueError(f"unknown contract {contract!r}; use strict, zero or lenient")
    if rel_level < 1:
        raise ValueError(f"rel_level must be at least 1, found {rel_level}")


def _cuts(measures: Sequence[str], ks: Iterable[int], contract: str) -> tuple[list[_Cut], list[_Cut]]:
    """Cut-offs to compute, and those ≤ 0 that the lenient contract scores 0."""
    ks = list(ks)
    found: dict[_Cut, None] = {}
    for text in measures:
        measure, _, depth = text.partition("@")
        if measure not in MEASURES or (depth and measure == "bpref") or (depth == "all" and measure == "judged"):
            raise ValueError(
                f"unknown ranking measure {text!r}; known are {', '.join(MEASURES)}, also as rr@10 or ndcg@all"
            )
        if depth == "all" or (not depth and measure in UNCUT):
            found[_Cut(measure, 0)] = None
            continue
        for k in [int(depth)] if depth else ks:
            if k <= 0 and not (contract == "lenient" and measure in _LENIENT):
                raise ValueError(f"{measure}@{k}: k must be positive")
            # k = 0 means "no cut" inside; a lenient 0 travels as -1 − 0 and is told apart by its sign
            found[_Cut(measure, k if k > 0 else k - 1)] = None
    return [cut for cut in found if cut.k >= 0], [cut for cut in found if cut.k < 0]


def _valid_qrels(qrels: pl.DataFrame) -> pl.DataFrame:
    qrels = qrels.select(
        pl.col("query_id").cast(pl.String), pl.col("item_id").cast(pl.String), pl.col("grade").cast(pl.Float64)
    )
    if odd := qrels.filter(pl.any_horizontal(pl.all().is_null()) | pl.col("grade").is_nan()).head(1).rows():
        raise ValueError(f"qrels: query {odd[0][0]!r}, id {odd[0][1]!r} has no grade")
    return qrels


def _valid_run(run: pl.DataFrame, policy: str, name: str) -> pl.DataFrame:
    key = "rank" if policy == "run" else "score"
    if key not in run.columns:
        raise ValueError(f"{name}: tie policy {policy!r} needs a column {key!r}; found {run.columns}")
    score = pl.col("score") if "score" in run.columns else pl.lit(None)
    rank = pl.col("rank") if "rank" in run.columns else pl.lit(None)
    run = run.select(
        pl.col("query_id").cast(pl.String),
        pl.col("item_id").cast(pl.String),
        rank=rank.cast(pl.Int64),
        score=score.cast(pl.Float64),
    )
    bad = pl.any_horizontal(pl.col("query_id", "item_id", key).is_null()) | pl.col("score").is_nan().fill_null(False)
    if odd := run.filter(bad).head(1).rows():
        query, item, found_rank, found_score = odd[0]
        raise ValueError(
            f"{name}: query {query!r}, id {item!r} has rank {found_rank} and score {found_score}; needs a number for {key}"
        )
    return run


def _expected(
    run: pl.DataFrame, qrels: pl.DataFrame, empty: Collection[str], queries: Collection[str] | None, name: str
) -> pl.DataFrame:
    """query_id, sorted, its number, and whether it has a list (possibly empty)."""
    answered = run.select("query_id").unique()
    blank = pl.DataFrame({"query_id": sorted(empty)}, schema={"query_id": pl.String})
    if clash := sorted(set(blank["query_id"]) & set(answered["query_id"])):
        raise ValueError(f"{name}: query {clash[0]!r} is said to have an empty list and has items")
    answered = pl.concat([answered, blank]).with_columns(in_run=pl.lit(True))
    if queries is None:
        everyone = pl.concat([answered.select("query_id"), qrels.select("query_id")]).unique()
    else:
        everyone = pl.DataFrame({"query_id": sorted(set(queries))}, schema={"query_id": pl.String})
    return (
        everyone.join(answered, on="query_id", how="left")
        .sort("query_id")
        .with_columns(pl.col("in_run").fill_null(False), query=pl.int_range(pl.len(), dtype=pl.Int64))
    )


def _encoded(
    run: pl.DataFrame, qrels: pl.DataFrame, expected: pl.DataFrame, name: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both with columns query and key, one number for a query and item: numbers sort and join much faster than names."""
    numbers = expected.select("query_id", "query")
    run = run.join(numbers, on="query_id", how="inner", maintain_order="left")
    qrels = qrels.join(numbers, on="query_id", how="inner", maintain_order="left")
    keyed = _keyed(run, qrels, _hashes)
    for frame, source in zip(keyed, (name, "qrels"), strict=True):
        _refuse_duplicates(frame, source)
    if _keys_collide(*keyed):
        return _keyed(run, qrels, _codes)
    return keyed


def _keyed(run: pl.DataFrame, qrels: pl.DataFrame, number: Callable) -> tuple[pl.DataFrame, pl.DataFrame]:
    codes = number(pl.concat([run["item_id"], qrels["item_id"]]))
    spread = np.uint64(0x9E3779B97F4A7C15)  # odd, so that distinct queries stay distinct modulo 2^64
    query = np.concatenate([run["query"].to_numpy(), qrels["query"].to_numpy()]).astype(np.uint64)
    keys = codes + query * spread if number is _hashes else codes + (query << np.uint64(32))
    return (
        run.with_columns(key=pl.Series(keys[: len(run)])),
        qrels.with_columns(key=pl.Series(keys[len(run) :])),
    )


def _hashes(items: pl.Series) -> np.ndarray:
    return items.hash(seed=0).to_numpy()


def _codes(items: pl.Series) -> np.ndarray:
    return items.rank("dense").to_numpy().astype(np.uint64)


def _repeated(keys: np.ndarray) -> bool:
    ordered = np.sort(keys)
    return bool((ordered[1:] == ordered[:-1]).any())


def _refuse_duplicates(frame: pl.DataFrame, source: str) -> None:
    if not _repeated(frame["key"].to_numpy()):
        return
    suspects = frame.filter(pl.col("key").is_duplicated()).sort("query_id", "item_id")
    repeated = suspects.filter(pl.struct("query_id", "item_id").is_duplicated())
    if len(repeated):
        query, item = repeated.select("query_id", "item_id").row(0)
        raise ValueError(
            f"{source}: query {query!r} holds id {item!r} more than once; an id has one place in a ranking"
        )


def _keys_collide(run: pl.DataFrame, qrels: pl.DataFrame) -> bool:
    """Whether two different (query, item) share a key in a way that would join wrongly."""
    if _repeated(run["key"].to_numpy()) or _repeated(qrels["key"].to_numpy()):
        return True
    met = run.select("key", "query", "item_id").join(qrels.select("key", "query", "item_id"), on="key", how="inner")
    differs = (pl.col("item_id") != pl.col("item_id_right")) | (pl.col("query") != pl.col("query_right"))
    return bool(met.select(differs.any()).item())


@dataclass(frozen=True)
class _Gold:
    """Judgments by query (arrays over queries), and ideal gains (arrays over items, by query, best first)."""

    judged: np.ndarray
    relevant: np.ndarray
    other: np.ndarray
    ideal: _Terms

    def has(self, measure: str) -> np.ndarray:
        """Whether the measure has a denominator."""
        return self.ideal.total > 0 if measure == "ndcg" else self.relevant > 0


@dataclass(frozen=True)
class _Terms:
    """Non-zero terms of a sum over a list: query, place from 1 and running sum of each; in order of query and place.

    Sums run term by term in list order, so equal terms give equal sums and a perfect list is exactly 1.
    """

    query: np.ndarray
    place: np.ndarray
    running: np.ndarray
    n_queries: int

    @classmethod
    def of(cls, query: np.ndarray, place: np.ndarray, terms: np.ndarray, n_queries: int) -> _Terms:
        counts = np.bincount(query, minlength=n_queries)
        ordinal = np.arange(len(query)) - (np.cumsum(counts) - counts)[query]
        by_ordinal = np.argsort(ordinal, kind="stable")
        edges = np.searchsorted(ordinal[by_ordinal], np.arange(counts.max(initial=0) + 1))
        running = np.zeros(len(query))
        total = np.zeros(n_queries)
        for low, high in itertools.pairwise(edges):
            at = by_ordinal[low:high]
            total[query[at]] += terms[at]
            running[at] = total[query[at]]
        return cls(query, place, running, n_queries)

    @property
    def total(self) -> np.ndarray:
        return self.up_to(_DEEP)

    def up_to(self, k: int) -> np.ndarray:
        """The sum over the first k places, by query."""
        counts = np.bincount(self.query, minlength=self.n_queries)
        within = np.bincount(self.query[self.place <= k], minlength=self.n_queries)
        last = np.cumsum(counts) - counts + within - 1
        result = np.zeros(self.n_queries)
        result[within > 0] = self.running[last[within > 0]]
        return result


@dataclass(frozen=True)
class _Lists:
    """All lists one after another (arrays over items); `n` is their length by query.

    `gain`, `relevant`, `other` (judged, not relevant, grade ≥ 0) and `judged` describe the item at each place; `group`
    numbers the tie groups through.
    """

    query: np.ndarray
    place: np.ndarray
    group: np.ndarray
    gain: np.ndarray
    relevant: np.ndarray
    other: np.ndarray
    judged: np.ndarray
    n: np.ndarray
    cache: dict[str, Any]

    @cached_property
    def _movable(self) -> np.ndarray:
        """Items of tie groups that hold a judged one: the order of any other group changes nothing."""
        if not (self.group[1:] == self.group[:-1]).any():
            return np.zeros(0, dtype=np.int64)
        sizes = np.bincount(self.group)
        matters = (sizes > 1) & (np.bincount(self.group[self.judged], minlength=len(sizes)) > 0)
        return np.flatnonzero(matters[self.group])

    def reordered(self, by: np.ndarray, high: bool) -> _Lists:
        """The lists with tied items by `by`, highest first or last."""
        at = self._movable
        if not len(at):
            return self
        value = by[at].astype(np.float64)
        order = at[np.lexsort((-value if high else value, self.group[at]))]

        def move(column: np.ndarray) -> np.ndarray:
            moved = column.copy()
            moved[at] = column[order]
            return moved

        return _Lists(
            query=self.query,
            place=self.place,
            group=self.group,
            gain=move(self.gain),
            relevant=move(self.relevant),
            other=move(self.other),
            judged=move(self.judged),
            n=self.n,
            cache={},
        )

    def _kept(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.cache:
            self.cache[name] = make()
        return self.cache[name]

    def _terms(self, at: np.ndarray, terms: np.ndarray) -> _Terms:
        return _Terms.of(self.query[at], self.place[at], terms, len(self.n))

    def _ones(self, flag: np.ndarray) -> _Terms:
        at = np.flatnonzero(flag)
        return self._terms(at, np.ones(len(at)))

    def hits(self) -> _Terms:
        """One for each relevant item."""
        return self._kept("hits", lambda: self._ones(self.relevant))

    def known(self) -> _Terms:
        """One for each judged item."""
        return self._kept("known", lambda: self._ones(self.judged))

    def gains(self) -> _Terms:
        """Discounted gains."""

        def make() -> _Terms:
            at = np.flatnonzero(self.gain > 0)
            return self._terms(at, _discounted(self.gain[at], self.place[at]))

        return self._kept("gains", make)

    def precisions(self) -> _Terms:
        """Precision at each relevant item."""
        hits = self.hits()
        return self._kept(
            "precisions", lambda: _Terms.of(hits.query, hits.place, hits.running / hits.place, hits.n_queries)
        )

    def preferences(self, gold: _Gold) -> _Terms:
        """Terms of bpref at each relevant item: 1 − min(n, R) / min(N, R).

        n = judged non-relevant items before it, N = all of them, R = relevant ones (Buckley and Voorhees 2004, as
        trec_eval has it); grades below 0 count as unjudged.
        """
        at = np.flatnonzero(self.relevant)
        query = self.query[at]
        starts = np.cumsum(self.n) - self.n
        running = np.concatenate([[0], np.cumsum(self.other)])
        before = running[at] - running[starts[query]]
        relevant, other = gold.relevant[query], gold.other[query]
        terms = np.ones(len(at))
        some = before > 0
        terms[some] = 1 - np.minimum(before, relevant)[some] / np.minimum(other, relevant)[some]
        return self._terms(at, terms)


def _discounted(gain: np.ndarray, place: np.ndarray) -> np.ndarray:
    return gain / np.log2(place + 1)


def _gold(qrels: pl.DataFrame, n_queries: int, rel_level: int) -> _Gold:
    qrels = qrels.sort("query", "grade", descending=[False, True])
    query, grade = qrels["query"].to_numpy(), qrels["grade"].to_numpy()
    useful = grade > 0
    counts = np.bincount(query[useful], minlength=n_queries)
    place = np.arange(useful.sum()) - (np.cumsum(counts) - counts)[query[useful]] + 1
    terms = _discounted(grade[useful], place)
    return _Gold(
        judged=np.bincount(query, minlength=n_queries),
        relevant=np.bincount(query[grade >= rel_level], minlength=n_queries),
        other=np.bincount(query[(grade >= 0) & (grade < rel_level)], minlength=n_queries),
        ideal=_Terms.of(query[useful], place, terms, n_queries),
    )


def _lists(run: pl.DataFrame, qrels: pl.DataFrame, n_queries: int, policy: str, rel_level: int) -> _Lists:
    """The run in its order with place, tie group, gain and flags."""
    if policy == "run":
        frame = _ties_by_id(run.sort("query", "rank"), ["query", "rank"], descending=False)
        tied = (pl.col("score") == pl.col("score").shift()).fill_null(False) | (
            pl.col("rank") == pl.col("rank").shift()
        )
    else:
        score = pl.col("score").cast(pl.Float32) if policy == "trec" else pl.col("score")
        # + 0.0 makes −0.0 equal to 0.0, as it is for a comparison in C
        frame = run.with_columns(score=score + 0.0).sort("query", "score", descending=[False, True])
        tied = pl.col("score") == pl.col("score").shift()
    same_query = pl.col("query") == pl.col("query").shift()
    frame = frame.with_columns(group=(~(tied & same_query).fill_null(False)).cum_sum().cast(pl.Int64))
    if policy != "run":
        frame = _ties_by_id(frame, ["group"], descending=policy == "trec")
    frame = frame.join(qrels.select("key", "grade"), on="key", how="left", maintain_order="left")
    query, grade = frame["query"].to_numpy(), frame["grade"].fill_null(np.nan).to_numpy()
    n = np.bincount(query, minlength=n_queries)
    return _Lists(
        query=query,
        place=np.arange(len(query)) - (np.cumsum(n) - n)[query] + 1,
        group=frame["group"].to_numpy(),
        gain=np.nan_to_num(np.maximum(grade, 0.0)),
        relevant=grade >= rel_level,
        other=(grade >= 0) & (grade < rel_level),
        judged=~np.isnan(grade),
        n=n,
        cache={},
    )


def _ties_by_id(frame: pl.DataFrame, by: list[str], descending: bool) -> pl.DataFrame:
    """Order neighbours that are equal in `by` by id; ids compare by their UTF-8 bytes, as strcmp does."""
    again = frame.select(pl.all_horizontal(pl.col(c) == pl.col(c).shift() for c in by).fill_null(False)).to_series()
    if not again.any():
        return frame
    tied = again | again.shift(-1, fill_value=False)
    at = np.flatnonzero(tied.to_numpy())
    source = np.arange(len(frame))
    ordered = frame.select(*by, "item_id").with_row_index("row").filter(tied)
    source[at] = ordered.sort(*by, "item_id", descending=[False] * len(by) + [descending])["row"].to_numpy()
    return frame[source]


def _share(numerator: np.ndarray, denominator: np.ndarray | int) -> np.ndarray:
    """Quotient, 0 over 0: such rows have no value, or count 0 as trec_eval has it."""
    denominator = np.broadcast_to(np.asarray(denominator, dtype=np.float64), numerator.shape)
    return np.divide(numerator, denominator, out=np.zeros(numerator.shape), where=denominator != 0)


def _recall(lists: _Lists, gold: _Gold, k: int) -> np.ndarray:
    return _share(lists.hits().up_to(k), gold.relevant)


def _hit(lists: _Lists, gold: _Gold, k: int) -> np.ndarray:
    return (lists.hits().up_to(k) > 0).astype(np.float64)


def _precision(lists: _Lists, gold: _Gold, k: int) -> np.ndarray:
    return _share(lists.hits().up_to(k), k if k < _DEEP else lists.n)


def _rr(lists: _Lists, gold: _Gold, k: int) -> np.ndarray:
    hits = lists.hits()
    result = np.zeros(len(lists.n))
    first = (hits.running == 1) & (hits.place <= k)
    result[hits.query[first]] = 1 / hits.place[first]
    return result


def _ap(lists: _Lists, gold: _Gold, k: int) -> np.ndarray:
    return _share(lists.precisions().up_to(k), gold.relevant)


def _ndcg(lists: _Lists, gold: _Gold, k: int) -> np.ndarray:
    return _share(lists.gains().up_to(k), gold.ideal.up_to(k))


def _bpref(lists: _Lists, gold: _Gold, k: int) -> np.ndarray:
    return _share(lists.preferences(gold).up_to(k), gold.relevant)


def _judged(lists: _Lists, gold: _Gold, k: int) -> np.ndarray:
    return _share(lists.known().up_to(k), np.minimum(lists.n, k))


_VALUE = {
    "recall": _recall, "hit": _hit, "precision": _precision, "rr": _rr, "ap": _ap, "ndcg": _ndcg, "bpref": _bpref,
    "judged": _judged,
}  # fmt: skip


def _tied_at(lists: _Lists, k: int) -> np.ndarray:
    """By query: whether a tie group reaches across k (no k: whether there is any tie)."""
    result = np.zeros(len(lists.n), dtype=bool)
    same = lists.group[1:] == lists.group[:-1]
    if k == 0:
        result[lists.query[1:][same]] = True
        return result
    deeper = np.flatnonzero(lists.n > k)
    cut = (np.cumsum(lists.n) - lists.n)[deeper] + k
    result[deeper] = same[cut - 1]
    return result


def _rows(
    names: pl.Series,
    in_run: np.ndarray,
    lists: _Lists,
    gold: _Gold,
    cut: _Cut,
    found: list[np.ndarray],
    contract: str,
    as_trec: bool,
) -> pl.DataFrame:
    """Rows of one measure at one k, with value and status by the rules for missing gold and missing lists."""
    no_gold = gold.judged == 0
    no_relevant = ~no_gold & ~gold.has(cut.measure) & (cut.measure != "judged")
    unlisted = (lists.n == 0) & ~no_gold & ~no_relevant
    status = np.select(
        [no_gold, no_relevant, ~in_run, unlisted & (cut.measure == "judged")],
        ["no_gold", "no_relevant", "missing_run", "empty_run"],
        "scored",
    )
    without_gold = _without_gold(cut.measure, contract)
    # An empty list has no share of judged items; every other measure of it is 0, and so `found` has it.
    blank = unlisted if cut.measure == "judged" else np.zeros_like(unlisted)
    value, low, high = found
    columns = {}
    # Rounding must not put a value outside its own band.
    for column, numbers in (("value", value), ("low", np.minimum(low, value)), ("high", np.maximum(high, value))):
        settled = np.where(no_gold | no_relevant, np.nan if without_gold is None else without_gold, numbers)
        settled = np.where(no_relevant & as_trec, 0.0, settled)
        columns[column] = pl.Series(np.where(blank, np.nan, settled)).fill_nan(None)
    return pl.DataFrame(
        {
            "query_id": names,
            "metric": pl.repeat(cut.measure, len(names), eager=True),
            "k": pl.repeat(cut.k, len(names), dtype=pl.Int64, eager=True),
            "value": columns["value"],
            "status": pl.Series(status.tolist(), dtype=pl.String),
            "low": columns["low"],
            "high": columns["high"],
            "tied_at_cutoff": _tied_at(lists, cut.k),
            "judged": lists.known().up_to(cut.depth).astype(np.int64),
            "retrieved": np.minimum(lists.n, cut.depth).astype(np.int64),
        },
        schema=SCHEMA,
    )


def _without_gold(measure: str, contract: str) -> float | None:
    if measure not in _LENIENT or contract == "strict":
        return None
    if contract == "zero":
        return 0.0
    return 0.0 if measure == "rr" else None


def _zero_rows(names: pl.Series, cut: _Cut) -> pl.DataFrame:
    """Rows of the lenient contract for k ≤ 0."""
    row = {"metric": cut.measure, "k": cut.k + 1, "value": 0.0, "status": "scored", "low": 0.0, "high": 0.0}
    row |= {"tied_at_cutoff": False, "judged": 0, "retrieved": 0}
    return names.to_frame("query_id").with_columns(pl.lit(v).alias(c) for c, v in row.items()).cast(SCHEMA)  # type: ignore[arg-type]
