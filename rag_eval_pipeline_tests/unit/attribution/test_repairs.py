"""Repairs: coalitions run as one would run them by hand, shares as their definition has them, ceilings by trying everything."""

from dataclasses import replace
from functools import cache
from itertools import combinations, permutations
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.attribution.repairs.evaluate import REPAIRS, Study
from rag_eval_pipeline.attribution.repairs.runner import NOBODY, Runner, Truths, same
from rag_eval_pipeline.attribution.repairs.shapley import every_coalition, exact, orders, prefixes, sampled
from rag_eval_pipeline.attribution.repairs.values import Asking, ceiling
from rag_eval_pipeline.attribution.units import build_units
from rag_eval_pipeline.stages.graph import BY_NAME, STAGES, inputs_of
from rag_eval_pipeline.stages.stage import Stage
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.sizes import examples
from rag_eval_pipeline_tests.small import QUICK, write_mixed
from rag_eval_pipeline_tests.walking import served_at

KS = (1, 3)

# Shapley -------------------------------------------------------------------------------------------------------------


@st.composite
def games(draw, most=5):
    """Players and a value for every coalition: two games side by side."""
    players = [f"p{number}" for number in range(draw(st.integers(1, most)))]
    number = st.integers(-20, 20)
    worth = {some: np.array([draw(number), draw(number)], dtype=float) for some in every_coalition(players)}
    return players, worth


def by_definition(players, worth):
    """The mean gain over all orders, one by one."""
    total = {player: np.zeros(2) for player in players}
    everything = list(permutations(players))
    for order in everything:
        for place, player in enumerate(order):
            before = frozenset(order[:place])
            total[player] += worth[before | {player}] - worth[before]
    return {player: value / len(everything) for player, value in total.items()}


@examples(100, 2_000)
@given(games())
def test_exact_shares_are_the_mean_gain_over_all_orders_and_add_up(game):
    players, worth = game
    shares = exact(players, worth.__getitem__)
    for player, value in by_definition(players, worth).items():
        assert shares[player].value == pytest.approx(value, abs=1e-12)
        assert shares[player].error is None
    total = sum(share.value for share in shares.values())
    assert np.abs(total - (worth[frozenset(players)] - worth[frozenset()])).max() <= 1e-12


@examples(60, 2_000)
@given(games(most=4))
def test_a_player_that_changes_nothing_has_exactly_nothing_and_leaves_the_others_theirs(game):
    players, worth = game
    wider = {some: worth[some - {"idle"}] for some in every_coalition([*players, "idle"])}
    with_idle = exact([*players, "idle"], wider.__getitem__)
    assert (with_idle["idle"].value == 0).all()
    for player, share in exact(players, worth.__getitem__).items():
        assert with_idle[player].value == pytest.approx(share.value, abs=1e-12)


@examples(40, 1_000)
@given(games(most=4), st.integers(1, 6), st.integers(0, 99))
def test_sampled_shares_add_up_in_every_order_and_are_right_over_all_orders(game, pairs, seed):
    players, worth = game
    drawn = orders(players, pairs, seed)
    assert drawn == orders(players, pairs, seed)
    assert all(second == first[::-1] for first, second in zip(drawn[::2], drawn[1::2], strict=True))
    shares = sampled(drawn, worth.__getitem__)
    total = sum(share.value for share in shares.values())
    assert np.abs(total - (worth[frozenset(players)] - worth[frozenset()])).max() <= 1e-9
    every = [order for one in permutations(players) for order in (one, one[::-1])]
    for player, share in sampled(every, worth.__getitem__).items():
        assert share.value == pytest.approx(by_definition(players, worth)[player], abs=1e-9)


def test_the_standard_error_covers_the_sampling():
    rng = np.random.default_rng(3)
    players = list("abcdefgh")
    worth = {some: np.array([rng.normal()]) for some in every_coalition(players)}
    truth = exact(players, worth.__getitem__)
    inside = [
        abs(share.value[0] - truth[player].value[0]) <= 2.2 * share.error[0]
        for seed in range(60)
        for player, share in sampled(orders(players, 12, seed), worth.__getitem__).items()
    ]
    assert np.mean(inside) >= 0.9
    assert np.isnan(sampled(orders(players, 1), worth.__getitem__)["a"].error).all(), "one pair tells no error"


def test_prefixes_go_from_nobody_to_all():
    assert prefixes("ab") == [frozenset(), frozenset("a"), frozenset("ab")]


# Ceiling -------------------------------------------------------------------------------------------------------------


@st.composite
def candidate_worlds(draw):
    """One query; units of 4 characters whose pieces lie in up to 5 chunks, some of them only in parts."""
    chunks = [f"c{number}" for number in range(draw(st.integers(1, 5)))]
    units, pieces = [], []
    for number in range(draw(st.integers(1, 4))):
        name = f"e{number}"
        units.append({"query_id": "q", "evidence_id": name, "kind": "quote", "n_chars": 4, "critical_from": [0], "eligible": True})  # fmt: skip
        for carrier in range(draw(st.integers(1, 2))):
            for chunk in draw(st.lists(st.sampled_from(chunks), unique=True)):
                chars = sorted(draw(st.sets(st.integers(0, 3), min_size=1)))
                tokens = [0] if chars[0] == 0 and draw(st.booleans()) else []
                pieces.append({"query_id": "q", "evidence_id": name, "carrier": carrier, "chunk_id": chunk, "doc_id": "d",
                               "chars": chars, "positions": chars, "tokens": tokens, "whole": len(chars) == 4 and bool(tokens)})  # fmt: skip
    size = draw(st.none() | st.integers(1, len(chunks)))
    return units, pieces, chunks, size


PIECES = {"query_id": pl.String, "evidence_id": pl.String, "carrier": pl.Int64, "chunk_id": pl.String, "doc_id": pl.String,
          "chars": pl.List(pl.Int64), "positions": pl.List(pl.Int64), "tokens": pl.List(pl.Int64), "whole": pl.Boolean}  # fmt: skip


@examples(40, 2_000)
@given(candidate_worlds())
def test_the_ceiling_is_the_best_of_all_choices_of_k_candidates(world):
    units, pieces, chunks, size = world
    frame, held = pl.DataFrame(units), pl.DataFrame(pieces, schema=PIECES, orient="row")
    lists = pl.DataFrame({"query_id": "q", "retriever": "r", "rank": range(1, len(chunks) + 1), "chunk_id": chunks, "doc_id": "d", "input_size": size},
                         schema_overrides={"rank": pl.Int64, "input_size": pl.Int64})  # fmt: skip
    outcome = SimpleNamespace(frames={"ranked_runs": lists}, truth=SimpleNamespace(pieces=held))
    found = ceiling(outcome, Asking(frame, ("r",), 0.9), (1, 2, 3))
    for k in (1, 2, 3):
        best = 0
        for some in combinations(chunks[: size or len(chunks)], min(k, size or len(chunks))):
            run = lists.filter(pl.col("chunk_id").is_in(some)).with_columns(rank=pl.int_range(1, pl.len() + 1))
            best = max(best, served_at(held, run, frame, k, 0.9)["served"].sum())
        assert found[k][0, 0] * len(units) == pytest.approx(best)


def test_a_query_with_too_many_choices_has_a_bound_that_no_order_can_pass():
    names = [f"e{number:02}" for number in range(20)]
    units = pl.DataFrame([{"query_id": "q", "evidence_id": n, "kind": "quote", "n_chars": 1, "critical_from": [], "eligible": True} for n in names],
                         schema_overrides={"critical_from": pl.List(pl.Int64)})  # fmt: skip
    held = pl.DataFrame([{"query_id": "q", "evidence_id": n, "carrier": 0, "chunk_id": f"c{number % 5}", "doc_id": "d", "chars": [0],
                          "positions": [0], "tokens": [], "whole": True} for number, n in enumerate(names)], schema=PIECES)  # fmt: skip
    lists = pl.DataFrame({"query_id": "q", "retriever": "r", "rank": range(1, 6), "chunk_id": [f"c{n}" for n in range(5)], "doc_id": "d", "input_size": None},
                         schema_overrides={"rank": pl.Int64, "input_size": pl.Int64})  # fmt: skip
    outcome = SimpleNamespace(frames={"ranked_runs": lists}, truth=SimpleNamespace(pieces=held))
    found = ceiling(outcome, Asking(units, ("r",), 0.9), (1, 2, 10))
    assert [found[k][0, 0] for k in (1, 2, 10)] == pytest.approx([0.2, 0.4, 1.0])


# A pipeline and repairs made for the test ------------------------------------------------------------------------------


def other_money(before, after, truth, config):
    """Parsing: another currency, as long: breaks every quote that names it."""
    swapped = pl.col("text").str.replace_all("EUR", "USD", literal=True)
    return {**after, "parsed": after["parsed"].with_columns(swapped)}


def longer_chunks(before, after, truth, config):
    """Chunking: the stage itself with other sizes, but only where the text has the other currency."""
    if not before["masked"]["text"].str.contains("USD", literal=True).any():
        return after
    return BY_NAME["chunking"].door("transform", "run")(before, config.model_copy(update={"size": 60}), Runtime.plain())


def everything_kept(before, after, truth, config):
    """Dedup: no merge at all."""
    return {**after, "dedup": after["dedup"].with_columns(kept=pl.lit(True), survivor=pl.col("doc_id"))}


def by_cut(before, after, truth, config):
    """Fusion: another list of a lane for each k."""
    name = "bm25" if truth.k == 1 else "again"
    return {
        **after,
        "fused_runs": before["runs"].filter(pl.col("retriever") == name).with_columns(retriever=pl.lit("both")),
    }


def turned_around(before, after, truth, config):
    """Reranking: the worst first."""
    key = ["query_id", "retriever"]
    other_end = pl.col("rank").max().over(key) + 1 - pl.col("rank")
    mine = pl.col("retriever") == "both"
    turned = after["ranked_runs"].with_columns(rank=pl.when(mine).then(other_end).otherwise("rank"))
    return {**after, "ranked_runs": turned.sort("query_id", "retriever", "rank")}


def as_it_was(before, after, truth, config):
    """No change, in frames of its own."""
    return {name: frame.clone() for name, frame in after.items()}


FAKES = {"parsing": other_money, "cleaning": as_it_was, "chunking": longer_chunks, "fusion": by_cut, "reranking": turned_around}  # fmt: skip
PIPELINE = QUICK | {
    "dedup": {"threshold": 0.5},
    "chunking": {"splitter": "recursive", "size": 20, "overlap": 0, "unit": "words"},
    "reranking": {"reranker": "lexical"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small pipeline that has run."""
    home = home_of(tmp_path_factory.mktemp("repairs"))
    write_mixed(home.corpora, PIPELINE, evaluate={"k": list(KS), "serve_k": 3}, ledger={"repairs": "off"})
    return Run(home, "mixed@v1")


def study_of(run, repairs, mode="shapley", **options):
    subject = run.subject
    settings = subject.version.settings
    ledger = settings.ledger.model_copy(update={"repairs": mode})
    return Study(
        base={name: subject.frame(name) for stage in STAGES for name in stage.tables},
        outside=subject.outside(),
        configs=subject.configs,
        runtime=subject.runtime(),
        gold=subject.version.gold,
        settings=settings.model_copy(update={"ledger": ledger}),
        units=subject.kept("evidence_units"),
        fate=subject.kept("evidence_fate"),
        repairs=repairs,
        **options,
    )


@pytest.fixture(scope="module")
def study(run):
    """All coalitions of the fakes."""
    made = study_of(run, FAKES)
    made.rows = made.table()
    return made


def by_hand(run, coalition, k):
    """Retriever → recall at k by query, with every stage run again and nothing shared."""
    subject = run.subject
    gold, settings = subject.version.gold, subject.version.settings
    units = subject.kept("evidence_units")
    known = dict(subject.outside())
    for stage in STAGES[: STAGES.index(BY_NAME["context"])]:
        before = inputs_of(stage, known, subject.configs[stage.name])
        after = stage.door("transform", "run")(
            before, subject.configs[stage.name], Runtime(files=subject.runtime().files, workers=0)
        )
        if stage.name in coalition:
            none = pl.DataFrame()
            truth = Truth(gold, settings, units, none, none, none, none, k if stage.name == "fusion" else None)
            after = FAKES[stage.name](before, after, truth, subject.configs[stage.name])
        known |= after
    pieces = build_units(gold, known, settings).pieces
    eligible = units.filter("eligible")
    found = served_at(pieces, known["ranked_runs"], eligible, k, settings.ledger.hold)
    recall = found.group_by("retriever", "query_id").agg(pl.col("served").mean()).sort("retriever", "query_id")
    return {name: part["served"].to_list() for (name,), part in recall.group_by("retriever", maintain_order=True)}


@pytest.mark.parametrize(
    "coalition",
    [(), ("parsing",), ("fusion",), ("reranking",), ("parsing", "chunking"), ("fusion", "reranking"),
     ("parsing", "chunking", "fusion", "reranking")],
    ids="+".join,
)  # fmt: skip
def test_a_coalition_is_worth_what_running_every_stage_by_hand_gives(run, study, coalition):
    for k in KS:
        expected = by_hand(run, coalition, k)
        found = study.values.by_query(frozenset(coalition), k)
        for index, retriever in enumerate(study.asking.retrievers):
            assert found[index].tolist() == pytest.approx(expected[retriever], abs=1e-12)


def test_nobody_is_worth_what_the_waterfall_says(run, study):
    waterfall = run.frame("loss_waterfall").filter(pl.col("slice_name") == "all")
    recall = {(r, k): v for r, k, v in waterfall.select("retriever", "k", "recall").unique().iter_rows()}
    for row in study.rows.iter_rows(named=True):
        if row["kind"] != "context":
            assert row["baseline"] == pytest.approx(recall[row["retriever"], row["k"]], abs=1e-12)


def test_a_stage_that_would_change_something_only_after_another_is_a_player(study):
    assert study.players == {"parsing", "chunking", "fusion", "reranking"}
    alone = study.rows.filter(pl.col("stage") == "chunking")
    assert (alone["recovered_recall"] == 0).all(), "alone it changes nothing"
    assert alone["player"].all()


def test_shares_add_up_to_the_total(study):
    shares = study.rows.filter(pl.col("kind") == "stage").group_by("retriever", "k").agg(pl.col("shapley").sum())
    total = study.rows.filter(pl.col("kind") == "total").select("retriever", "k", "recovered_recall")
    both = shares.join(total, on=["retriever", "k"])
    assert both.height == 3 * len(KS)
    assert both.select((pl.col("shapley") - pl.col("recovered_recall")).abs().max()).item() <= 1e-12


def test_a_repair_that_changes_nothing_recovers_exactly_nothing(study):
    idle = study.rows.filter(pl.col("stage") == "cleaning")
    for name in ("recovered_recall", "marginal_recall", "shapley", "units_gained", "units_lost", "encoder_tokens"):
        assert (idle[name] == 0).all(), name
    assert idle["status"].unique().to_list() == ["unchanged"]
    assert idle["recovered_low"].null_count() == idle.height


def test_a_repair_that_hurts_is_negative(study):
    rows = study.rows.filter((pl.col("retriever") == "both") & (pl.col("k") == 1))
    worst = rows.filter(pl.col("stage") == "reranking").row(0, named=True)
    assert worst["recovered_recall"] < 0
    assert worst["shapley"] < 0
    assert worst["queries_hurt"] > worst["queries_helped"]
    assert worst["recovered_low"] <= worst["recovered_recall"] <= worst["recovered_high"]
    assert worst["units_lost"] > 0


def test_a_stage_that_a_retriever_does_not_have_has_no_row(study):
    shown = {name: set(part["stage"]) for (name,), part in study.rows.group_by("retriever")}
    assert shown["bm25"] == {"parsing", "cleaning", "chunking", "all_repairs", "reranker_ceiling"}
    assert shown["both"] == shown["bm25"] | {"fusion", "reranking", "context"}


def test_rows_of_the_same_study_are_the_same(run, study):
    one, other = (study_of(run, FAKES, mode="single").table().drop("seconds") for _ in range(2))
    assert one.equals(other)
    assert one.drop("shapley").equals(study.rows.drop("shapley", "seconds")), (
        "one mode says what the other says, and less"
    )


def test_many_players_are_sampled_and_still_add_up(run, study, monkeypatch):
    monkeypatch.setattr("rag_eval_pipeline.attribution.repairs.evaluate.EXACT", 2)
    few = study_of(run, FAKES, pairs=3)
    few.values.served.update(study.values.served)  # the same outcomes, so none is run again
    few._costs.update(study._costs)
    few._group.update(study._group)
    few.runner.movers.update(study.players)
    few._mended.update(study._mended)
    few._ceiling = study._ceiling
    few.players = study.players
    rows = few.table()
    total = rows.filter(pl.col("kind") == "total").select("retriever", "k", "recovered_recall")
    shares = rows.filter(pl.col("kind") == "stage").group_by("retriever", "k").agg(pl.col("shapley").sum())
    both = shares.join(total, on=["retriever", "k"])
    assert both.select((pl.col("shapley") - pl.col("recovered_recall")).abs().max()).item() <= 1e-9
    assert rows.filter("player")["shapley_error"].null_count() == 0


def test_single_runs_few_coalitions_and_shares_nothing_out(run):
    made = study_of(run, FAKES, mode="single")
    rows = made.table()
    sizes = {len(coalition) for coalition, _ in made.values.served}
    n = len(made.players)
    assert sizes == {0, 1, n - 1, n}
    assert rows["shapley"].null_count() == rows.height


def test_only_what_changed_runs_again(run, monkeypatch):
    ran, real = [], Stage.door

    def spy(stage, module, name):
        made = real(stage, module, name)
        if (module, name) != ("transform", "run"):
            return made
        return lambda *given: ran.append(stage.name) or made(*given)

    study = study_of(run, FAKES | {"dedup": everything_kept})
    monkeypatch.setattr(Stage, "door", spy)
    study._cover([NOBODY])
    assert ran == [], "the pipeline as it ran is in the store"
    study._cover([frozenset(["reranking"])])
    assert ran == []
    study._cover([frozenset(["dedup"])])
    assert ran == ["pii", "chunking", "embedding", "filtering", "retrieval", "fusion", "reranking"]


def test_an_import_that_does_not_fit_is_said_and_not_counted(run, monkeypatch):
    """Vectors that were imported for the chunks as they were say nothing of other chunks."""
    study = study_of(run, {"parsing": other_money, "chunking": longer_chunks, "dedup": everything_kept})
    real = Stage.door

    def refuse(stage, module, name):
        if stage.name != "embedding" or (module, name) != ("transform", "run"):
            return real(stage, module, name)

        def refused(frames, config, runtime):
            raise ValueError("no vector for some chunks")

        return refused

    study.configs = {**study.configs, "embedding": study.configs["embedding"].model_copy(update={"imported": True})}
    monkeypatch.setattr(Stage, "door", refuse)
    rows = study.table()
    told = rows.filter(pl.col("kind") == "stage")
    assert set(told.filter(pl.col("status") == "import_misfit")["stage"]) == {"parsing", "dedup"}
    assert told.filter(pl.col("status") == "import_misfit")["recovered_recall"].null_count() == 2 * 3 * len(KS)
    assert (told.filter(pl.col("stage") == "chunking")["shapley"] == 0).all()
    assert (rows.filter(pl.col("kind") == "total")["recovered_recall"] == 0).all()


def test_a_fault_of_a_stage_that_imports_nothing_is_not_hidden(run, monkeypatch):
    study = study_of(run, {"dedup": everything_kept})
    real = Stage.door

    def broken(frames, config, runtime):
        raise ValueError("a bug")

    monkeypatch.setattr(
        Stage, "door", lambda s, m, n: broken if (s.name, m, n) == ("chunking", "transform", "run") else real(s, m, n)
    )
    with pytest.raises(ValueError, match="a bug"):
        study.table()


def test_a_repair_must_give_all_tables(run):
    study = study_of(run, {"parsing": lambda before, after, truth, config: {"parsed": after["parsed"]}})
    with pytest.raises(RuntimeError, match="repair of parsing did not give"):
        study.table()


def test_durations_make_no_difference(run):
    stage, frame = BY_NAME["parsing"], run.frame("parsed")
    assert same(stage, "parsed", frame, frame.with_columns(seconds=pl.lit(9.0)))
    assert not same(stage, "parsed", frame, frame.with_columns(text=pl.lit("x")))


# Truth ---------------------------------------------------------------------------------------------------------------


def test_the_truth_follows_the_texts_and_knows_no_more_than_is_made(run):
    subject = run.subject
    base = {name: subject.frame(name) for stage in STAGES for name in stage.tables}
    truths = Truths(subject.version.gold, subject.version.settings, base, subject.kept("evidence_units"))
    early = {name: base[name] for name in ("documents", "parsed")}
    assert truths.of(early).anchors["layer"].unique().to_list() == ["parsed"]
    assert truths.of(early).pieces.is_empty()
    whole = truths.of(base)
    assert whole.anchors.equals(subject.kept("evidence_anchors"))
    assert whole.pieces.equals(subject.kept("evidence_pieces"))
    changed = other_money(None, base, None, None)
    assert (
        truths.of({**early, "parsed": changed["parsed"]}).anchors["held"].sum() < truths.of(early).anchors["held"].sum()
    )
    assert truths.of(base).anchors.equals(whole.anchors), "asked again about the first texts, it says the same"


def test_fusion_is_told_of_the_dev_split_alone(run):
    subject = run.subject
    gold, settings = subject.version.gold, subject.version.settings
    split = pl.when(pl.col("query_id").is_in(["q0", "q2"])).then(pl.lit("dev")).otherwise(pl.lit("test"))
    gold = replace(gold, queries=gold.queries.with_columns(split=split))
    base = {name: subject.frame(name) for stage in STAGES for name in stage.tables}
    truths = Truths(gold, settings, base, build_units(gold, base, settings).units)
    assert truths.of(base).dev_units.is_empty()
    told = truths.of(base, 3)
    assert told.k == 3
    assert set(told.dev_units["query_id"]) == {"q0", "q2"}
    assert set(told.dev_pieces["query_id"]) <= {"q0", "q2"}
    assert not {"q0", "q2"} & set(told.units["query_id"])


def test_every_room_with_a_repair_is_in_the_list():
    found = {stage.name for stage in STAGES if _has_repair(stage)}
    assert set(REPAIRS) == found


@cache
def _has_repair(stage):
    try:
        return callable(stage.door("repair", "repair"))
    except ModuleNotFoundError:
        return False


def test_runner_gives_equal_outcomes_once(run):
    study = study_of(run, {"cleaning": as_it_was, "reranking": turned_around})
    seen = []
    runner: Runner = study.runner
    asked = [(frozenset(some), k) for some in ([], ["cleaning"], ["reranking"], ["cleaning", "reranking"]) for k in KS]
    runner.run(asked, seen.append)
    assert [len(outcome.asked) for outcome in seen] == [4, 4]
    assert runner.movers == {"reranking"}


def test_without_a_unit_there_is_no_row(run):
    study = study_of(run, FAKES)
    study.units = study.units.clear()
    assert study.table().is_empty()
