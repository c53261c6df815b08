import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.filtering import quality, transform
from rag_eval_pipeline.stages.filtering.quality import RATE, VIOLATIONS, entitlement_violations
from rag_eval_pipeline.stages.filtering.rules import Rules
from rag_eval_pipeline.stages.filtering.transform import FilteringConfig
from rag_eval_pipeline.warehouse.runtime import Runtime

RUN = {"query_id": pl.String, "retriever": pl.String, "doc_id": pl.String}


def frame(name: str, rows: list[dict]) -> pl.DataFrame:
    rows = [{"split": "test", **row} if name == "queries" else row for row in rows]
    return pl.DataFrame([{c: row.get(c) for c in SCHEMAS[name]} for row in rows], schema=SCHEMAS[name], orient="row")


def docs(*rows: dict) -> pl.DataFrame:
    columns = {"doc_id": pl.String, "tenant": pl.String, "locale": pl.String, "language": pl.String, "doc_class": pl.String,
               "acl": pl.List(pl.String), "metadata": pl.String}  # fmt: skip
    return pl.DataFrame([{"metadata": "{}", "acl": [], **row} for row in rows], schema=columns, orient="row")


def run(documents, queries, config, principals=(), removed=(), outputs=None) -> dict[str, pl.DataFrame]:
    asked = frame("queries", queries)
    frames = {
        "documents": documents,
        "dedup": documents.select("doc_id", kept=~pl.col("doc_id").is_in(list(removed))),
        "prepared_queries": asked.select("query_id", "text", "language", "principal"),
        "queries": asked, "principals": frame("principals", list(principals)), **(outputs or {}),
    }  # fmt: skip
    return transform.run(frames, FilteringConfig(**config), Runtime.plain())


def admitted(made, query_id: str, column: str = "scope_id", all_docs=()) -> list[str]:
    scope_id = made["applied_filters"].filter(pl.col("query_id") == query_id)[column][0]
    scope = made["scopes"].filter(pl.col("scope_id") == scope_id).row(0, named=True)
    return list(all_docs) if scope["everything"] else scope["doc_ids"]


TWO = docs({"doc_id": "a", "tenant": "acme", "locale": "en-US"}, {"doc_id": "g", "tenant": "globex", "locale": "en-GB"},
           {"doc_id": "s", "locale": "en-US"})  # fmt: skip
ANA = {"principal": "ana", "tenant": "acme", "groups": []}


def test_entitlement_alone_admits_what_the_caller_may_see_of_the_kept_documents():
    queries = [{"query_id": "q1", "text": "x", "principal": "ana"}, {"query_id": "q2", "text": "x"}]
    made = run(TWO, queries, {}, [ANA], removed=["s"])
    assert admitted(made, "q1") == ["a"]
    assert made["scopes"].filter("everything").height == 1
    assert made["applied_filters"].select("mode", "producer", "predicate").unique().row(0) == (
        "none",
        "entitlement",
        None,
    )


def test_a_hard_predicate_excludes_and_a_soft_one_prefers():
    queries = [{"query_id": "q", "text": "x", "filter": '{"locale": "en-US"}', "principal": "ana"}]
    hard = run(TWO, queries, {"extractor": "gold"}, [ANA])
    assert admitted(hard, "q") == ["a", "s"]
    three = docs(*TWO.to_dicts(), {"doc_id": "z", "tenant": "acme", "locale": "de-DE"})
    soft = run(three, queries, {"extractor": "gold", "mode": "soft", "boost": 0.3}, [ANA])
    assert admitted(soft, "q") == ["a", "s", "z"]
    assert admitted(soft, "q", "preferred_scope_id") == ["a", "s"]
    assert soft["applied_filters"].select("mode", "boost", "producer").row(0) == ("soft", 0.3, "gold")


def test_no_predicate_reaches_beyond_entitlement():
    queries = [{"query_id": "q", "text": "x", "filter": '{"tenant": "globex"}', "principal": "ana"}]
    assert admitted(run(TWO, queries, {"extractor": "gold"}, [ANA]), "q") == []


def test_equal_sets_are_one_scope_whoever_asks():
    queries = [{"query_id": f"q{i}", "text": "x", "principal": "ana"} for i in range(5)]
    assert run(TWO, queries, {}, [ANA])["scopes"].height == 1


def test_an_unknown_caller_is_refused_and_not_shown_everything():
    with pytest.raises(ValueError, match="unknown principal 'bob'"):
        run(TWO, [{"query_id": "q", "text": "x", "principal": "bob"}], {}, [ANA])


def test_imported_predicates_keep_their_producer():
    given = pl.DataFrame(
        {"query_id": ["q"], "retriever": [None], "predicate": ['{"locale": "en-GB"}'], "producer": ["llm"]},
        schema_overrides={"retriever": pl.String},
    )
    made = run(TWO, [{"query_id": "q", "text": "x"}], {"extractor": "import"}, outputs={"output:filters": given})
    assert admitted(made, "q") == ["g"]
    assert made["applied_filters"]["producer"][0] == "llm"
    two = pl.concat([given, given.with_columns(predicate=pl.lit("{}"), retriever=pl.lit("dense"))])
    with pytest.raises(ValueError, match="several predicates"):
        run(TWO, [{"query_id": "q", "text": "x"}], {"extractor": "import"}, outputs={"output:filters": two})
    with pytest.raises(ValueError, match=r"outputs/filters\.jsonl, which is absent"):
        run(TWO, [{"query_id": "q", "text": "x"}], {"extractor": "import"})


class ByWord:
    """A user's extractor."""

    def __init__(self, answer="en-GB"):
        self.answer = answer

    def extract(self, query, documents):
        return {"locale": self.answer} if "british" in query["text"] else None


def test_a_user_s_own_extractor_is_called_by_import_path():
    queries = [{"query_id": "q1", "text": "british rules"}, {"query_id": "q2", "text": "rules"}]
    path = f"{__name__}:ByWord"
    made = run(TWO, queries, {"extractor": path})
    assert admitted(made, "q1") == ["g"]
    assert made["applied_filters"]["producer"].to_list() == [path, "entitlement"]
    with pytest.raises(ValueError, match="unknown operator"):
        run(TWO, queries, {"extractor": path, "options": {"answer": {"like": "x"}}})
    with pytest.raises(ValueError, match="return a predicate as dict"):
        run(TWO, queries, {"extractor": f"{__name__}:Wrong"})


class Wrong:
    """Returns what is no predicate."""

    def extract(self, query, documents):
        return "en"


@pytest.mark.parametrize("config", [{"extractor": "llm"}, {"extractor": "rules"}, {"mode": "medium"}, {"bost": 1}])
def test_a_wrong_section_is_refused(config):
    with pytest.raises(ValidationError):
        FilteringConfig(**config)


# --- rules -----------------------------------------------------------------------------------------------------------

SHELF = docs(
    {"doc_id": "a", "locale": "en-GB", "language": "en", "metadata": '{"product": ["Bora 300", "Bora"], "year": 2026}'},
    {"doc_id": "b", "locale": "es-ES", "language": "es", "metadata": '{"product": "Straße", "year": 2025}'},
)


@pytest.mark.parametrize(
    ("fields", "text", "predicate"),
    [
        ({"locale": {}}, "Which rules hold in EN-gb?", {"locale": "en-GB"}),
        ({"product": {}}, "How loud is the bora 300?", {"product": "Bora 300"}),
        ({"product": {}}, "the Boran wind", None),
        ({"product": {}}, "Bora, or Bora 300?", {"product": {"in": ["Bora", "Bora 300"]}}),
        ({"product": {}}, "what does STRASSE cost", {"product": "Straße"}),
        ({"year": {}}, "leave in 2026", {"year": 2026}),
        ({"year": {"2025": ("last year",)}}, "leave last year", {"year": 2025}),
        ({"language": {"es": ("Spanish", "en español")}}, "the SPANISH text", {"language": "es"}),
        ({"language": {"es": ()}}, "es", {"language": "es"}),
        ({"locale": {}, "year": {}}, "en-GB 2025", {"and": [{"locale": "en-GB"}, {"year": 2025}]}),
        ({"language": {}, "locale": {}}, "nothing of that", None),
        ({"absent": {}}, "anything", None),
    ],
)
def test_rules_find_values_literally(fields, text, predicate):
    assert Rules(fields, SHELF).extract(text) == predicate


def test_a_shorter_value_inside_a_longer_one_is_not_meant():
    shelf = docs({"doc_id": "a", "locale": "en"}, {"doc_id": "b", "locale": "en-GB"})
    assert Rules({"locale": {}}, shelf).extract("as in en-GB only") == {"locale": "en-GB"}


@given(st.text(max_size=60))
def test_rules_take_any_text(text):
    found = Rules({"product": {}, "locale": {}}, SHELF).extract(text)
    assert found is None or isinstance(found, dict)


def test_rules_run_in_the_room():
    made = run(SHELF, [{"query_id": "q", "text": "bora 300 noise"}], {"extractor": "rules", "fields": {"product": {}}})
    assert admitted(made, "q") == ["a"]
    assert made["applied_filters"].select("mode", "producer").row(0) == ("hard", "rules")


# --- quality ---------------------------------------------------------------------------------------------------------


def measured(documents, queries, config, principals=(), evidence=(), qrels=(), lists=None, **options) -> pl.DataFrame:
    made = run(documents, queries, config, principals, **options)
    gold = Gold(
        queries=frame("queries", queries), principals=frame("principals", list(principals)),
        evidence=frame("evidence", list(evidence)), qrels=frame("qrels", list(qrels)),
    )  # fmt: skip
    return quality.measure(
        {"documents": documents, **made, **(lists or {})}, gold, FilteringConfig(**config), Settings()
    )


def values(rows: pl.DataFrame, metric: str, unit: str) -> dict:
    kept = rows.filter((pl.col("metric") == metric) & (pl.col("unit") == unit))
    return {r["item_id"]: (r["value"], r["status"]) for r in kept.iter_rows(named=True)}


def test_the_worked_example(worked):
    case = worked["filter"]
    documents = docs(*({"doc_id": d["id"], "tenant": d["tenant"], "locale": d["locale"]} for d in case["docs"]))
    asked = [*case["queries"], {"query_id": "q5", "applied_filter": {}, **case["unauthorised_only"]}]
    queries = [{"query_id": q["query_id"], "text": "x", "principal": "ana"} for q in asked]
    evidence = [{"query_id": q["query_id"], "evidence_id": "e", "doc_id": d} for q in asked for d in q["gold"]]
    filters = pl.DataFrame(
        {"query_id": [q["query_id"] for q in asked], "predicate": [json.dumps(q["applied_filter"]) for q in asked],
         "producer": ["theirs"] * 5}
    )  # fmt: skip
    ana = {"principal": "ana", "tenant": case["principal_tenant"], "groups": []}
    rows = measured(documents, queries, {"extractor": "import"}, [ana], evidence, outputs={"output:filters": filters})
    found = values(rows, RATE, "query")
    scored = [value for value, status in found.values() if status == "scored"]
    assert len(scored) == case["eligible_queries"]
    assert sum(scored) / len(scored) == case["filter_false_exclusion_rate"]
    assert found["q5"] == (None, "no_eligible_gold")
    assert {q for q, (value, _) in found.items() if value == 1} == {"q1", "q3"}


def test_gold_is_evidence_and_judgments_and_partial_exclusion_counts_by_document():
    documents = docs(*({"doc_id": d, "locale": loc} for d, loc in [("a", "x"), ("b", "y"), ("c", "y")]))
    queries = [{"query_id": "q", "text": "x", "filter": '{"locale": "x"}'}]
    rows = measured(documents, queries, {"extractor": "gold"}, (), [{"query_id": "q", "evidence_id": "e", "doc_id": "a"}],
                    [{"query_id": "q", "doc_id": "b", "grade": 1}, {"query_id": "q", "doc_id": "c", "grade": 0}])  # fmt: skip
    assert values(rows, RATE, "query")["q"] == (0.0, "scored")
    assert values(rows, RATE, "document")["q"] == (0.5, "scored")
    row = rows.filter((pl.col("metric") == RATE) & (pl.col("unit") == "document")).row(0, named=True)
    assert (row["numerator"], row["denominator"], row["weight"]) == (1, 2, 2)


def test_a_gold_document_that_dedup_removed_was_not_excluded_by_the_filter():
    evidence = [{"query_id": "q", "evidence_id": "e", "doc_id": "a"}]
    queries = [{"query_id": "q", "text": "x", "filter": '{"locale": "en-US"}'}]
    rows = measured(TWO, queries, {"extractor": "gold"}, (), evidence, removed=["a"])
    assert values(rows, RATE, "query")["q"] == (0.0, "scored")


def test_a_soft_predicate_excludes_nothing():
    evidence = [{"query_id": "q", "evidence_id": "e", "doc_id": "g"}]
    queries = [{"query_id": "q", "text": "x", "filter": '{"locale": "en-US"}'}]
    for mode, rate in (("hard", 1.0), ("soft", 0.0)):
        rows = measured(TWO, queries, {"extractor": "gold", "mode": mode}, (), evidence)
        assert values(rows, RATE, "query")["q"] == (rate, "scored")


def test_queries_without_gold_are_named_and_not_zero():
    queries = [{"query_id": "q1", "text": "x"}, {"query_id": "q2", "text": "x"}]
    rows = measured(TWO, queries, {}, (), [{"query_id": "q2", "evidence_id": "e", "doc_id": "gone"}])
    assert values(rows, RATE, "query") == {"q1": (None, "no_gold"), "q2": (None, "gold_absent")}
    assert values(rows, "predicate_precision", "document")["q1"] == (None, "not_applicable")


def test_the_applied_predicate_is_compared_with_the_correct_one():
    documents = docs(*({"doc_id": d, "locale": loc} for d, loc in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "z")]))
    correct = {"locale": {"in": ["x", "y"]}}
    queries = [
        {"query_id": f"q{i}", "text": text, "filter": json.dumps(correct)} for i, text in enumerate(["x", "z", "-"])
    ]
    queries.append({"query_id": "q3", "text": "x"})
    rows = measured(documents, queries, {"extractor": "rules", "fields": {"locale": {}}})
    precision, recall = (values(rows, f"predicate_{name}", "document") for name in ("precision", "recall"))
    assert (precision["q0"][0], recall["q0"][0]) == (1.0, 2 / 3)
    assert (precision["q1"][0], recall["q1"][0]) == (0.0, 0.0)
    assert (precision["q2"][0], recall["q2"][0]) == (0.75, 1.0)  # none found: all admitted
    assert precision["q3"] == (None, "no_gold")


def test_items_that_the_caller_may_not_see_are_counted_in_every_list():
    queries = [{"query_id": "q1", "text": "x", "principal": "ana"}, {"query_id": "q2", "text": "x"},
               {"query_id": "q3", "text": "x", "principal": "ana"}]  # fmt: skip
    items = [("q1", "bm25", "a"), ("q1", "bm25", "g"), ("q1", "bm25", "g"), ("q1", "bm25", "stale"), ("q2", "bm25", "g"),
             ("q1", "dense", "s")]  # fmt: skip
    runs = pl.DataFrame(items, schema=RUN, orient="row")
    found = entitlement_violations(TWO, frame("queries", queries), frame("principals", [ANA]), runs)
    assert found.rows() == [("q1", "bm25", 4, 3, ["g", "stale"]), ("q1", "dense", 1, 0, []), ("q2", "bm25", 1, 0, [])]
    rows = measured(TWO, queries, {}, [ANA], lists={"runs": runs, "contexts": runs.clear()})
    rows = rows.filter(pl.col("metric") == VIOLATIONS)
    assert rows.height == 2 * 3 + 3  # every query, in every lane of every list
    assert rows["value"].sum() == 3


def test_lists_of_unknown_queries_are_refused():
    runs = pl.DataFrame([("q9", "bm25", "a")], schema=RUN, orient="row")
    with pytest.raises(ValueError, match=r"queries\.jsonl has not"):
        entitlement_violations(TWO, frame("queries", []), frame("principals", []), runs)


@settings(max_examples=60)
@given(st.data())
def test_no_scope_ever_holds_what_the_caller_may_not_see(data):
    tenants, groups = st.sampled_from(["t1", "t2", None]), st.lists(st.sampled_from(["g1", "g2", "p0"]), max_size=2)
    documents = docs(*({"doc_id": f"d{i}", "tenant": data.draw(tenants), "acl": data.draw(groups),
                        "locale": data.draw(st.sampled_from(["x", "y"]))} for i in range(data.draw(st.integers(0, 6)))))  # fmt: skip
    people = [{"principal": f"p{i}", "tenant": data.draw(tenants), "groups": data.draw(groups)} for i in range(2)]
    queries = [{"query_id": f"q{i}", "text": "x", "principal": data.draw(st.sampled_from(["p0", "p1", None])),
                "filter": data.draw(st.sampled_from([None, '{"locale": "x"}']))} for i in range(3)]  # fmt: skip
    made = run(documents, queries, {"extractor": "gold", "mode": data.draw(st.sampled_from(["hard", "soft"]))}, people)
    by_name = {p["principal"]: p for p in people}
    for query in queries:
        person = by_name.get(query["principal"])
        may = [
            d["doc_id"] for d in documents.iter_rows(named=True)
            if person is None or (d["tenant"] in (None, person["tenant"])
                                  and (not d["acl"] or {person["principal"], *person["groups"]} & set(d["acl"])))
        ]  # fmt: skip
        assert set(admitted(made, query["query_id"], all_docs=documents["doc_id"])) <= set(may)
