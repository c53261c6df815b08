"""Scores on tables made by hand: each class of a changed row, verdicts on pairs and on faults of a whole corpus."""

import polars as pl

from rag_eval_pipeline.experiments.manifest import Plant
from rag_eval_pipeline.experiments.scoring import halves, score, together

KS = (1, 3)


def evaluation(fates, chunks=None, held=None):
    """Tables of an evaluation: fates are unit -> stage, or unit -> {k: stage}; unit u stands in document d<u>."""
    rows, ledger = [], []
    for unit, stage in fates.items():
        for k in KS:
            now = stage if isinstance(stage, str) else stage[k]
            rows.append((unit, "e1", "hybrid", k, True, now, "c", "{}"))
        for text in ("parsing", "cleaning"):
            ledger.append((unit, "e1", text, "", (held or {}).get((unit, text), True)))
    names = ["query_id", "evidence_id", "retriever", "k", "eligible", "first_loss_stage", "cause", "detail"]
    documents = {f"d{unit}": f"text of {unit}" for unit in fates} | (chunks or {})
    tables = {
        "evidence_fate": pl.DataFrame(rows, schema=names, orient="row"),
        "evidence_units": pl.DataFrame(
            {"query_id": list(fates), "evidence_id": ["e1"] * len(fates), "doc_id": [f"d{unit}" for unit in fates]}
        ),
        "chunks": pl.DataFrame(
            [(doc_id, 0, len(text), text) for doc_id, text in documents.items()],
            schema=["doc_id", "start", "end", "text"],
            orient="row",
        ),
        "evidence_ledger": pl.DataFrame(
            ledger, schema=["query_id", "evidence_id", "stage", "retriever", "held"], orient="row"
        ),
    }
    return tables.__getitem__


def plant(name, kind, stage, unit, **more):
    return Plant(name, kind, stage, f"d{unit}", touched=((unit, "e1"),), documents=(f"d{unit}",), **more)


FLIP = plant("p1", "ocr_digit_flip", "parsing", "a")
DECOY = Plant("p1d", "ocr_digit_flip", "parsing", "da", decoy=True, decoy_of="p1", documents=("da",))


def test_a_lost_unit_that_a_plant_touches_is_right_where_its_stage_is_blamed():
    found = score(evaluation({"a": "served"}), evaluation({"a": {1: "parsing", 3: "rank"}}), [FLIP, DECOY])
    assert (found["accuracy"], found["n_scored"], found["n_changed"]) == (0.5, 2, 2)
    assert [miss["k"] for miss in found["misses"]] == [3]
    assert found["by_kind"]["ocr_digit_flip"]["blamed"] == {"parsing": 1, "rank": 1}
    assert (found["n_plants"], found["n_decoys"]) == (1, 1)


def test_a_row_counts_only_if_it_was_served_or_lost_later():
    found = score(evaluation({"a": {1: "rank", 3: "parsing"}}), evaluation({"a": "parsing"}), [FLIP])
    assert (found["n_scored"], found["n_changed"], found["beside"]["gains"]) == (1, 1, 0)
    found = score(evaluation({"a": "parsing"}), evaluation({"a": {1: "served", 3: "rank"}}), [FLIP])
    assert (found["accuracy"], found["n_changed"], found["beside"]["gains"]) == (None, 0, 2)


def test_rows_that_no_plant_touches_are_same_document_or_ripple():
    before = evaluation({"a": "served", "b": "served", "c": "served"})
    after = evaluation({"a": "parsing", "b": "rank", "c": "parsing"}, chunks={"db": "other text"})
    found = score(before, after, [FLIP])
    assert found["beside"] == {"same_document": 2, "ripple": 2, "gains": 0}
    assert found["false_blame"] == 2 / 6
    assert {row["query_id"] for row in found["false_blamed"]} == {"c"}


def test_a_retriever_on_which_a_kind_cannot_act_is_not_scored():
    long = plant("p1", "over_long_chunk", "embedding", "a", retrievers=("dense",))
    found = score(evaluation({"a": "served"}), evaluation({"a": "rank"}, chunks={"da": "joined"}), [long])
    assert (found["n_scored"], found["beside"]["same_document"]) == (0, 2)
    assert [one["plant_id"] for one in found["unchanged"]] == ["p1"]


def test_a_decoy_that_changed_a_held_state_is_counted():
    before = evaluation({"a": "served", "b": "served"})
    decoy = Plant("p1d", "ocr_digit_flip", "parsing", "db", decoy=True, documents=("db",))
    moved = evaluation({"a": "parsing", "b": "served"}, held={("b", "parsing"): False, ("a", "parsing"): False})
    assert score(before, moved, [FLIP, decoy])["moved_units"] == [["b", "e1"]]
    assert score(before, moved, [FLIP, DECOY])["decoys_moved"] == 0


def test_a_fault_of_the_whole_corpus_counts_once_and_by_majority():
    starved = Plant("w", "starved_index", "indexing", whole=True, retrievers=("hybrid",))
    before = evaluation({"a": "served", "b": "served"})
    found = score(before, evaluation({"a": "indexing", "b": {1: "indexing", 3: "rank"}}), [starved])
    assert found["whole"]["starved_index"] == {
        "stage": "indexing", "rows": 4, "right_rows": 3, "share": 0.75, "right": True, "stages": {"indexing": 3, "rank": 1},
    }  # fmt: skip
    assert (found["accuracy"], found["n_scored"]) == (1.0, 0)
    assert score(before, evaluation({"a": "rank", "b": "rank"}), [starved])["accuracy"] == 0.0


def test_a_pair_is_right_on_any_stage_that_alone_loses_the_unit():
    cut = plant("p2", "cut_quote", "chunking", "a", pair_id="x1")
    tag = plant("p3", "wrong_tag", "filtering", "a", pair_id="x1")
    before, after = evaluation({"a": "served"}), evaluation({"a": {1: "chunking", 3: "filtering"}})
    first, second = halves([cut, tag])
    assert ([p.plant_id for p in first], [p.plant_id for p in second]) == (["p2"], ["p3"])
    harmless = evaluation({"a": "served"})
    filtered = evaluation({"a": "filtering"})
    found = score(before, after, [cut, tag], [(harmless, first), (filtered, second)])
    assert found["pair_accuracy"] == 0.5
    assert found["accuracy"] is None
    # Neither alone loses it: no stage is the culprit.
    found = score(before, after, [cut, tag], [(harmless, first), (harmless, second)])
    assert found["pair_accuracy"] is None
    # Without the twins of one plant each, either stage is right.
    assert score(before, after, [cut, tag])["pair_accuracy"] == 1.0


def test_a_row_on_which_one_of_a_pair_acts_alone_counts_with_the_singles():
    cut = plant("p2", "cut_quote", "chunking", "a", pair_id="x1")
    spoil = plant("p3", "harmful_reranker", "reranking", "a", pair_id="x1", retrievers=("other",))
    found = score(evaluation({"a": "served"}), evaluation({"a": "chunking"}), [cut, spoil])
    assert (found["accuracy"], found["n_scored"], found["n_pair_rows"]) == (1.0, 2, 0)


def test_scores_of_several_twins_add_up():
    one = score(evaluation({"a": "served"}), evaluation({"a": {1: "parsing", 3: "rank"}}), [FLIP, DECOY])
    starved = Plant("w", "starved_index", "indexing", whole=True, retrievers=("hybrid",))
    two = score(evaluation({"a": "served"}), evaluation({"a": "indexing"}), [starved])
    both = together([one, two])
    assert (both["accuracy"], both["n_scored"], both["n_plants"]) == (2 / 3, 3, 2)
    assert both["by_kind"]["starved_index"]["rows"] == 1
