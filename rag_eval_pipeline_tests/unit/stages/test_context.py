import polars as pl
import pytest

from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.lists import empty
from rag_eval_pipeline.stages.context.quality import METRICS, measure
from rag_eval_pipeline.stages.context.stage import STAGE
from rag_eval_pipeline.stages.context.transform import ContextConfig, run
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.unit.stages.lists_made_by_hand import chunks, gold, lists, pieces, prepared, ranked, units

TEXT = "one two three four five six seven eight"


def frames(*rows, runs=None, **more):
    made = chunks(*rows)
    runs = lists(q1=[row[0] for row in rows]) if runs is None else runs
    return {"chunks": made, "ranked_runs": ranked(empty(), runs), "prepared_queries": prepared(q1="x", q2="y")} | more


def config(**section):
    return ContextConfig.model_validate({"tokenizer": "words", "serve": "lane"} | section)


def context(given, **section):
    return run(given, config(**section), Runtime.plain())["contexts"]


def spans(table):
    return table.sort("position").select("chunk_id", "start", "end", "tokens").rows()


def test_chunks_go_in_until_the_budget_and_the_last_is_cut_at_a_token():
    given = frames(("d1::0", "one two three"), ("d2::0", "four five six"))
    assert spans(context(given, budget_tokens=5)) == [("d1::0", 0, 13, 3), ("d2::0", 0, 9, 2)]
    assert spans(context(given, budget_tokens=6)) == [("d1::0", 0, 13, 3), ("d2::0", 0, 13, 3)]
    assert spans(context(given, budget_tokens=3)) == [("d1::0", 0, 13, 3)]


def test_no_more_than_serve_k_items_of_the_served_retriever_go_in():
    both = pl.concat([lists(q1=["d1::0", "d2::0"]), lists("other", q1=["d2::0"])])
    given = frames(("d1::0", "one"), ("d2::0", "two"), runs=both)
    assert spans(context(given, serve_k=1)) == [("d1::0", 0, 3, 1)]
    assert set(context(given)["retriever"]) == {"lane"}
    with pytest.raises(ValueError, match="lane, other"):
        context(given, serve=None)


def test_what_is_in_already_is_left_out():
    given = frames(("d1::0", TEXT[:18]), ("d1::1", TEXT[8:28], 8), ("d1::2", TEXT[4:13], 4))
    assert spans(context(given)) == [("d1::0", 0, 18, 4), ("d1::1", 18, 28, 2)]
    assert [row[1:3] for row in spans(context(given, merge_overlap=False))] == [(0, 18), (8, 28), (4, 13)]


def test_an_earlier_neighbour_ends_where_the_later_one_began():
    given = frames(("d1::1", TEXT[8:], 8), ("d1::0", TEXT[:18]))
    assert spans(context(given)) == [("d1::1", 8, 39, 6), ("d1::0", 0, 8, 2)]


def test_a_prefix_takes_its_share():
    given = frames(("d1::0", "one two three"))
    given["chunks"] = given["chunks"].with_columns(prefix=pl.lit("said before: "))
    assert spans(context(given, budget_tokens=4)) == [("d1::0", 0, 7, 4)]
    assert context(given, budget_tokens=2).is_empty()


def test_an_unplaced_chunk_goes_in_whole_or_not_at_all():
    given = frames(("d1::0", "one two three"))
    given["chunks"] = given["chunks"].with_columns(start=pl.lit(None, pl.Int64), end=pl.lit(None, pl.Int64))
    assert spans(context(given, budget_tokens=3)) == [("d1::0", None, None, 3)]
    assert context(given, budget_tokens=2).is_empty()


def test_a_stale_item_gives_nothing():
    given = frames(("d1::0", "one"), runs=lists(q1=["gone", "d1::0"]))
    assert spans(context(given)) == [("d1::0", 0, 3, 1)]
    assert context(given)["position"].to_list() == [1]


# --- imported ---


def supplied(*rows):
    schema = {"query_id": pl.String, "position": pl.Int64, "chunk_id": pl.String, "text": pl.String}
    return {"output:contexts": pl.DataFrame(rows, schema=schema, orient="row")}


def test_a_supplied_context_is_placed_by_id_or_by_text():
    given = frames(
        ("d1::0", "one two three"), ("d2::0", "four five six"),
        **supplied(("q1", 1, "d1::0", None), ("q1", 2, None, " five "), ("q1", 3, None, "nowhere"), ("q1", 4, "d2::0", "four")),
    )  # fmt: skip
    found = context(given, **{"import": True})
    assert spans(found) == [("d1::0", 0, 13, 3), ("d2::0", 5, 9, 1), ("", None, None, 1), ("d2::0", 0, 4, 1)]


def test_a_supplied_context_that_is_absent_or_unknown_is_refused():
    with pytest.raises(ValueError, match=r"outputs/contexts.jsonl is absent"):
        context(frames(("d1::0", "one")), **{"import": True})
    with pytest.raises(ValueError, match=r"query q1, position 1: unknown chunk 'zzz'"):
        context(frames(("d1::0", "one"), **supplied(("q1", 1, "zzz", None))), **{"import": True})


# --- quality ---


def quality(given, made_units, made_pieces, queries=("q1", "q2"), **section):
    given = given | {
        "contexts": context(given, **section),
        "evidence_units": made_units,
        "evidence_pieces": made_pieces,
    }
    return measure(given, gold(list(queries)), config(**section), Settings())


def value(table, metric, query="q1"):
    return table.filter((pl.col("metric") == metric) & (pl.col("item_id") == query)).select("value", "status").row(0)


def evidence(word, chunk="d1::0", token=False):
    at = TEXT.index(word)
    ranges = {"critical_from": [0], "critical_to": [len(word)]} if token else {}
    unit = units({"query_id": "q1", "evidence_id": "u", "n_chars": len(word)} | ranges)
    places = list(range(at, at + len(word)))
    part = {"chars": list(range(len(word))), "positions": places, "tokens": [0] if token else [], "chunk_id": chunk}
    return unit, pieces({"query_id": "q1", "evidence_id": "u"} | part)


def test_evidence_past_the_cut_is_not_in_the_context():
    given = frames(("d1::0", TEXT))
    for token in (False, True):
        assert value(quality(given, *evidence("three", token=token), budget_tokens=3), "context_recall") == (
            1.0,
            "scored",
        )
        assert value(quality(given, *evidence("three", token=token), budget_tokens=2), "context_recall") == (
            0.0,
            "scored",
        )


def test_cost_and_compression_are_told():
    table = quality(frames(("d1::0", TEXT), ("d2::0", "nine ten")), *evidence("one"), budget_tokens=5)
    assert value(table, "context_tokens") == (5.0, "scored")
    assert value(table, "compression") == (2.0, "scored")


def test_every_query_has_every_measure_and_gaps_have_reasons():
    table = quality(frames(("d1::0", TEXT)), *evidence("one"), queries=("q1", "q2", "q3"))
    assert table.height == 3 * len(METRICS)
    assert value(table, "context_recall", "q2") == (None, "no_gold")
    assert value(table, "compression", "q2") == (None, "empty_context")
    assert value(table, "context_tokens", "q3") == (0.0, "missing_run")
    assert STAGE.tables == ("contexts",)


def test_a_document_unit_is_held_by_any_chunk_of_it():
    unit = units({"query_id": "q1", "evidence_id": "u", "kind": "document"})
    part = pieces({"query_id": "q1", "evidence_id": "u", "chunk_id": "d1::0", "chars": [], "positions": []})
    assert value(quality(frames(("d1::0", TEXT)), unit, part), "context_recall") == (1.0, "scored")
    assert value(quality(frames(("d2::0", TEXT)), unit, part), "context_recall") == (0.0, "scored")
