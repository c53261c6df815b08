"""The views of the DuckDB file on a tiny published evaluation: why a unit was lost, what stages and documents cost."""

import json

import polars as pl
import pytest

from rag_eval_pipeline.release.evaluated import kinds, schemas
from rag_eval_pipeline.release.redaction import TERMS
from rag_eval_pipeline.warehouse.manifests import Comparison, Manifest
from rag_eval_pipeline.warehouse.publish import publish
from rag_eval_pipeline.warehouse.redact import HIDDEN, Redactor
from rag_eval_pipeline.warehouse.store import Store
from rag_eval_pipeline_tests.unit.attribution.test_regressions import rows_of

KEY, EVALUATION, BEFORE = "c@2", "e2", "e1"
SECRET = "Zoraida"
NEEDED = {"evidence_fate", "evidence_units", "evidence_ledger", "documents", "blocks", "loss_waterfall", "stage_repairs", "version_regressions"}  # fmt: skip
"""What the views stand on; a whole database has more."""
VIEWS = ("losses", "current_losses", "why_lost", "worst_documents", "stage_costs", "version_diff")


class Published:
    """A database of one evaluation, made of the rows of its tables."""

    def __init__(self, root):
        self.path, self.store, self.tables = root / "x.duckdb", Store(root / "store"), {}

    def put(self, name, rows):
        schema, kind = schemas()[name], kinds()[name]
        id_ = EVALUATION if kind == "evaluation_id" else "i"
        stored = self.store.write(schema, rows_of(schema, rows), KEY, id_, kind)
        self.tables[name] = {"path": self.store.url(stored), "content_hash": stored.content_hash, "rows": stored.rows, "kind": kind, "id": id_}  # fmt: skip
        return self

    def publish(self):
        own = {n: e for n, e in self.tables.items() if e["kind"] != "comparison_id"}
        compared = {n: e for n, e in self.tables.items() if e["kind"] == "comparison_id"}
        manifest = Manifest(KEY, EVALUATION, "complete", own, {}, {}, "g", "d", "2026-01-01")
        changes = {"documents": True, "gold": False, "measuring": [], "stages": {}}
        comparison = Comparison("i", "c@1", BEFORE, KEY, EVALUATION, compared, changes, "2026-01-02")
        shown = {name: schema for name, schema in schemas().items() if name != TERMS}
        always = {name: kind for name, kind in kinds().items() if name in NEEDED}
        publish(
            self.path, [manifest], {}, shown, self.store, lambda _subject: Redactor([SECRET]),
            comparisons=[comparison] if compared else [], always=always,
        )  # fmt: skip
        return self

    def ask(self, query):
        import duckdb

        with duckdb.connect(str(self.path), read_only=True) as con:
            return con.sql(query).pl()


def unit(query, evidence="e", **more):
    return {"query_id": query, "evidence_id": evidence, "doc_id": "d", "kind": "quote", "quote": "It is 18 days", "critical": ["18 days"], "critical_from": [4], "critical_to": [10], "eligible": True} | more  # fmt: skip


def fate(query, stage, cause=None, evidence="e", **more):
    return {"query_id": query, "evidence_id": evidence, "retriever": "a", "k": 5, "eligible": True, "served": stage == "served", "first_loss_stage": stage, "cause": cause, "detail": "{}"} | more  # fmt: skip


def seen(query, stage, detail, retriever="", evidence="e"):
    return {"query_id": query, "evidence_id": evidence, "stage": stage, "retriever": retriever, "state": "lost", "detail": json.dumps(detail)}  # fmt: skip


LOST = {
    ("source", "missing_document"): ({}, {}, "its document d is not in this version"),
    ("unanchored", "unanchored"): ({}, {}, "its label has no place in hr/d.pdf: there is no reference text and no passage similar enough"),
    ("parsing", "token"): (
        {"doc_id": "d", "broken_tokens": [0], "chars": 9, "n_chars": 10, "start": 12}, {},
        "parsing broke '18 days' in hr/d.pdf (page 3); it read 9 of 10 characters",
    ),
    ("parsing", "missing"): ({"start": None}, {}, "parsing of hr/d.pdf left no passage like it"),
    ("parsing", "encrypted"): ({}, {}, "parsing of hr/d.pdf ended with status encrypted"),
    ("parsing", "reading_order"): ({"start": 12}, {}, "parsing of hr/d.pdf (page 3) put its words out of order or far apart"),
    ("cleaning", "characters"): (
        {"cleaner": "trafilatura", "broken_tokens": [], "chars": 0, "n_chars": 10}, {},
        "cleaning by trafilatura of hr/d.pdf kept only 0 of 10 characters",
    ),
    ("dedup", "merged"): (
        {"removed": [{"doc_id": "d", "survivor": "f", "similarity": 0.8765}]}, {},
        "d was removed as a duplicate of f (similarity 0.88)",
    ),
    ("pii", "token"): ({"types": ["PHONE"], "broken_tokens": [0]}, {}, "masking of PHONE took '18 days' in hr/d.pdf"),
    ("pii", "policy"): ({}, {}, "it is masked in hr/d.pdf, and the token itself is labelled personal: rightly lost"),
    ("chunking", "cut"): (
        {"chunk_ids": ["d::1", "d::2"]}, {},
        "an edge of a chunk goes through it: no single chunk of hr/d.pdf holds it (it is spread over d::1, d::2)",
    ),
    ("filtering", "rules"): ({"producer": "rules"}, {}, "the filter (rules) excludes hr/d.pdf"),
    ("embedding", "possible"): (
        {"encoded_tokens": 256, "tokens": 300}, {},
        "the encoder saw 256 of 300 tokens of its chunks; a sparse lane had the chunk, so this is possible and not proved",
    ),
    ("search", "not_found"): ({}, {}, "no lane of a found it within its depth, even by exact search"),
    ("indexing", "approximate"): ({}, {"exact_rank": 2, "rank_before": None}, "exact search had it at rank 2, the index nowhere"),
    ("fusion", "fused_out"): (
        {"lanes": [{"lane": "x", "hold_rank": 2}, {"lane": "y", "hold_rank": None}]}, {"rank_before": 9},
        "a lane had it in time (x at rank 2, y nowhere), the fused list at rank 9",
    ),
    ("reranking", "demoted"): ({}, {"rank_before": 2}, "it stood at rank 2 before the reranker and at rank 8 after it"),
    ("rank", "below_k"): ({}, {}, "it stands at rank 8, below the cut at 5"),
}  # fmt: skip


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    """One unit a cause, one that is served and one outside the books."""
    made = Published(tmp_path_factory.mktemp("views"))
    names = {f"q{n:02}": key for n, key in enumerate(LOST)}
    fates = [
        fate(
            q,
            stage,
            cause,
            detail=json.dumps(LOST[stage, cause][1]),
            rank=8 if stage in {"rank", "reranking"} else None,
        )
        for q, (stage, cause) in names.items()
    ]
    fates += [fate("ok", "served"), fate("hidden", "ineligible", eligible=False)]
    late = {"search", "indexing", "fusion", "reranking", "rank"}
    ledger = [seen(q, key[0], LOST[key][0], "a" if key[0] in late else "") for q, key in names.items()]
    made.put("evidence_fate", fates).put("evidence_units", [unit(q) for q in (*names, "ok", "hidden")])
    made.put("evidence_ledger", ledger)
    made.put("documents", [{"doc_id": "d", "path": "hr/d.pdf", "media": "pdf", "status": "ok"}])
    made.put("blocks", [{"doc_id": "d", "block": n, "kind": "paragraph", "page": n + 2, "start": n * 10, "end": n * 10 + 10} for n in range(3)])  # fmt: skip
    return made.publish(), names


@pytest.mark.parametrize("key", LOST, ids="/".join)
def test_every_loss_is_told_in_words(lost, key):
    database, names = lost
    query = next(q for q, named in names.items() if named == key)
    assert database.ask(f"SELECT why FROM why_lost WHERE query_id = '{query}'")["why"].to_list() == [LOST[key][2]]


def test_there_is_one_row_a_lost_unit_and_none_for_others(lost):
    database, names = lost
    rows = database.ask("SELECT query_id, why, quote FROM why_lost ORDER BY query_id")
    assert rows["query_id"].to_list() == list(names)
    assert rows["why"].null_count() == 0


def test_personal_strings_are_hidden_in_the_words(tmp_path):
    made = Published(tmp_path).put("evidence_fate", [fate("q", "parsing", "token")])
    made.put("evidence_units", [unit("q", critical=[SECRET], quote=f"ask {SECRET}")])
    made.put("evidence_ledger", [seen("q", "parsing", {"broken_tokens": [0]})]).publish()
    row = made.ask("SELECT why, quote FROM why_lost").row(0, named=True)
    assert row == {"why": f"parsing broke '{HIDDEN}' in d", "quote": f"ask {HIDDEN}"}


def test_documents_share_out_the_recall_that_is_lost(tmp_path):
    made = Published(tmp_path)
    made.put("evidence_units", [unit("q", "e"), unit("q", "f", doc_id="x"), unit("p", "e"), unit("r", "e", doc_id="x")])
    made.put("evidence_fate", [fate("q", "parsing", "token"), fate("q", "rank", "below_k", "f"), fate("p", "parsing", "token"), fate("r", "served")])  # fmt: skip
    made.publish()
    rows = made.ask(
        "SELECT doc_id, lost_recall, lost_units, lost_queries, stages, causes FROM worst_documents ORDER BY lost_recall DESC"
    )
    assert rows.rows() == [
        ("d", pytest.approx((0.5 + 1) / 3), 2, 2, ["parsing"], ["token"]),
        ("x", pytest.approx(0.5 / 3), 1, 1, ["rank"], ["below_k"]),
    ]
    assert rows["lost_recall"].sum() == pytest.approx(1 - (0 + 0 + 1) / 3)


def waterfall(stage, position, lost_recall, slice_name="all"):
    return {"retriever": "a", "k": 5, "slice_name": slice_name, "slice_value": slice_name, "stage": stage, "position": position, "lost_recall": lost_recall}  # fmt: skip


def test_what_a_stage_cost_stands_beside_what_its_repair_gives_back(tmp_path):
    made = Published(tmp_path)
    made.put(
        "loss_waterfall",
        [waterfall("parsing", 2, 0.25), waterfall("rank", 13, 0.1), waterfall("rank", 13, 0.2, "language")],
    )
    repair = {"retriever": "a", "k": 5, "kind": "stage", "status": "ok"}
    made.put("stage_repairs", [
        repair | {"stage": "parsing", "recovered_recall": 0.2, "recovered_low": 0.1, "recovered_high": 0.3, "shapley": 0.15},
        repair | {"stage": "all_repairs", "kind": "total", "recovered_recall": 0.3},
    ]).publish()  # fmt: skip
    rows = made.ask(
        "SELECT stage, kind, lost_recall, recovered_recall, shapley FROM stage_costs ORDER BY kind, position"
    )
    assert rows.rows() == [
        ("parsing", "stage", 0.25, 0.2, 0.15),
        ("rank", "stage", 0.1, None, None),
        ("all_repairs", "total", None, 0.3, None),
    ]


def test_costs_are_there_where_no_repair_was_ever_run(tmp_path):
    made = Published(tmp_path).put("loss_waterfall", [waterfall("parsing", 2, 0.25)]).publish()
    assert made.ask("SELECT stage, lost_recall, recovered_recall FROM stage_costs").rows() == [("parsing", 0.25, None)]


def test_every_view_is_there_and_has_a_comment_also_without_any_row(tmp_path):
    made = Published(tmp_path).publish()
    comments = dict(made.ask("SELECT view_name, comment FROM duckdb_views()").rows())
    for name in VIEWS:
        assert comments[name], name
        assert made.ask(f"SELECT * FROM {name}").height == 0


def regression(query, state, before, now, **more):
    return {
        "evaluation_before": BEFORE, "evaluation_id": EVALUATION, "query_id": query, "evidence_id": "e", "retriever": "a", "k": 5,
        "version_before": "c@1", "pipeline_before": "default", "state": state, "stage_before": before, "stage_now": now,
        "doc_id": "d", "document_change": "edited", "points_at": "document", "text_before": f"by {SECRET}",
    } | more  # fmt: skip


def test_a_comparison_is_published_under_both_evaluations_and_redacted(tmp_path):
    made = Published(tmp_path).put("evidence_fate", [fate("q", "rank", "below_k")])
    made.put("version_regressions", [
        regression("q", "newly_lost", "served", "rank"), regression("p", "newly_lost", "served", "rank", metadata_changed=True),
        regression("r", "recovered", "parsing", "served"), regression("s", "kept", "served", "served"),
    ]).publish()  # fmt: skip
    rows = made.ask("SELECT state, stage, document_change, units, metadata_changed, evaluation_before, evaluation_id FROM version_diff ORDER BY state")  # fmt: skip
    assert rows.rows() == [
        ("kept", "served", "edited", 1, 0, BEFORE, EVALUATION),
        ("newly_lost", "rank", "edited", 2, 1, BEFORE, EVALUATION),
        ("recovered", "parsing", "edited", 1, 0, BEFORE, EVALUATION),
    ]
    shown = made.ask(
        "SELECT DISTINCT comparison_id, corpus_version, pipeline, text_before FROM current_version_regressions"
    )
    assert shown.rows() == [("i", KEY, "default", f"by {HIDDEN}")]
    assert SECRET.encode() not in made.path.read_bytes()
    comparison = made.ask(
        "SELECT version_before, corpus_version, documents_changed, gold_changed, measuring_changed FROM comparisons"
    )
    assert comparison.rows() == [("c@1", KEY, True, False, [])]
    made.tables.pop("version_regressions")
    made.publish()  # nothing names it any more
    assert made.ask("SELECT (SELECT count(*) FROM version_regressions), (SELECT count(*) FROM comparisons)").rows() == [
        (0, 0)
    ]


def test_a_file_from_before_a_column_was_declared_is_published_with_null(tmp_path):
    made = Published(tmp_path).put("documents", [{"doc_id": "d", "path": "d", "media": "txt", "status": "ok"}])
    path = made.store.path_of(made.tables["documents"]["path"])
    pl.read_parquet(path).drop("locale").write_parquet(path)
    made.publish()
    assert made.ask("SELECT doc_id, locale FROM documents").rows() == [("d", None)]
