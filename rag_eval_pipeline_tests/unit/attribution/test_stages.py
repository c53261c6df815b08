"""One small corpus, one fault at a time: the unit is lost at that stage, and the same fault beside it loses nothing."""

from __future__ import annotations

import itertools
import json

import polars as pl
import pytest

from rag_eval_pipeline.attribution import story as story_module
from rag_eval_pipeline.attribution.ledger import build_ledger
from rag_eval_pipeline.attribution.order import RetrieverInfo
from rag_eval_pipeline.attribution.story import tell
from rag_eval_pipeline.attribution.units import build_units
from rag_eval_pipeline.attribution.waterfall import check_books
from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline_tests.unit.attribution.world import (
    LIST_COLUMNS,
    RANKED,
    gold_frame,
    kept_map,
    masked_map,
)

ANSWERED = {
    "answer_id": pl.String,
    "query_id": pl.String,
    "sample": pl.Int64,
    "outcome": pl.String,
    "status": pl.String,
}
CITED = {"answer_id": pl.String, "position": pl.Int64, "status": pl.String, "passages": pl.List(pl.Int64)}
QUOTE = "Employees get 18 days of annual leave, never fewer."
BEFORE = "The canteen opens at 12 every day and serves two dishes. "
AFTER = " Bicycles stand in the yard behind building 7, under a roof."
TEXT = BEFORE + QUOTE + AFTER
START = len(BEFORE)
END = START + len(QUOTE)
OTHER = "Printers are found on each floor and need a badge to wake up. Call the desk if one is stuck for long."


class Small:
    """A healthy pipeline over d1 (with the evidence) and d2; methods plant a fault."""

    def __init__(self):
        self.references = {"d1": TEXT, "d2": OTHER}
        self.evidence = {"query_id": "q", "evidence_id": "e", "doc_id": "d1", "quote": QUOTE, "grade": 1}
        self.parsed = dict(self.references)
        self.statuses: dict[str, str] = {}
        self.removed: dict[str, list] = {}
        self.survivors: dict[str, str] = {}
        self.masks: dict[str, list] = {}
        self.pii_labels: dict[str, list] = {}
        self.duplicates: list[dict] = []
        self.supersedes: dict[str, str] = {}
        self.cuts: dict[str, list[int]] = {}
        self.scope: list[str] | None = None
        self.encoded: dict[str, int] = {}
        self.lists: dict[str, list[str]] = {}
        self.reranked: list[str] | None = None
        self.input_size = 2
        self.absent: set[str] = set()
        self.tenants: dict[str, str] = {}
        self.unreferenced: set[str] = set()
        self.principal: str | None = None
        self.contexts: list[dict] | None = None
        self.answers: dict[str, pl.DataFrame] = {}
        self.depth = 10

    def run(self, k=2, drop=()):
        gold = self._gold()
        frames = {name: frame for name, frame in self._frames().items() if name not in drop}
        settings = Settings.model_validate({"evaluate": {"k": [k], "serve_k": k, "slices": ["doc_class"]}})
        info = {
            "bm25": RetrieverInfo(depth=self.depth),
            "dense": RetrieverInfo(dense=True, depth=self.depth),
            "hybrid": RetrieverInfo(("bm25", "dense"), dense=True, reranked=self.reranked is not None),
        }
        self.built = build_units(gold, frames, settings)
        self.books = build_ledger(frames, *self.built, settings, info, gold.queries)
        return self

    def lost(self, name="hybrid"):
        row = self.books.fate.filter(pl.col("retriever") == name).row(0, named=True)
        return row["first_loss_stage"], row["cause"]

    def state(self, stage):
        return self.books.ledger.filter(pl.col("stage") == stage)["state"][0]

    def _gold(self):
        query = {"query_id": "q", "text": "?", "split": "test", "answerable": True, "principal": self.principal}
        return Gold(
            queries=gold_frame("queries", [query]),
            principals=gold_frame("principals", [{"principal": "ann", "tenant": "a", "groups": ["staff"]}]),
            evidence=gold_frame("evidence", [self.evidence]),
            duplicates=gold_frame("duplicates", self.duplicates),
            pii=gold_frame("pii", [{"doc_id": d, "spans": s} for d, s in self.pii_labels.items()]),
            references=gold_frame(
                "references",
                [{"doc_id": d, "text": t} for d, t in self.references.items() if d not in self.unreferenced],
            ),
        )

    def _frames(self):
        docs = [d for d in self.references if d not in self.absent]
        texts, chunks = {"parsed": [], "cleaned": [], "masked": []}, []
        for d in docs:
            status = self.statuses.get(d, "ok")
            texts["parsed"].append({"doc_id": d, "text": self.parsed.get(d, self.references[d]), "status": status})
            clean, offsets = kept_map(texts["parsed"][-1]["text"], self.removed.get(d, []))
            texts["cleaned"].append({"doc_id": d, "text": clean, "status": "ok", "offsets": offsets.rows()})
            if self.survivors.get(d, d) != d:
                continue
            masked, offsets = masked_map(clean, self.masks.get(d, []))
            texts["masked"].append({"doc_id": d, "text": masked, "status": "ok", "offsets": offsets.rows()})
            edges = [0, *self.cuts.get(d, []), len(masked)]
            for n, (a, b) in enumerate(itertools.pairwise(edges)):
                if b > a:
                    chunks.append(
                        {"chunk_id": f"{d}::{n}", "doc_id": d, "start": a, "end": b, "text": masked[a:b]}
                    )  # fmt: skip
        every = [c["chunk_id"] for c in chunks if self.scope is None or c["doc_id"] in self.scope]
        segment = pl.List(
            pl.Struct(dict.fromkeys(("out_start", "out_end", "src_start", "src_end"), pl.Int64) | {"exact": pl.Boolean})
        )
        base = {"doc_id": pl.String, "text": pl.String, "status": pl.String}
        frames = {
            "documents": pl.DataFrame(
                [
                    {"doc_id": d, "tenant": self.tenants.get(d), "acl": [], "supersedes": self.supersedes.get(d), "doc_class": "policy"}
                    for d in docs
                ],
                schema={"doc_id": pl.String, "tenant": pl.String, "acl": pl.List(pl.String), "supersedes": pl.String, "doc_class": pl.String},
            ),
            "parsed": pl.DataFrame(texts["parsed"], schema=base),
            "cleaned": pl.DataFrame(texts["cleaned"], schema=base | {"offsets": segment}),
            "masked": pl.DataFrame(texts["masked"], schema=base | {"offsets": segment}),
            "dedup": pl.DataFrame(
                [{"doc_id": d, "kept": self.survivors.get(d, d) == d, "survivor": self.survivors.get(d, d)} for d in docs]
            ),
            "pii_spans": pl.DataFrame(
                [{"doc_id": d, "start": a, "end": b, "type": t} for d, spans in self.masks.items() for a, b, t in spans],
                schema={"doc_id": pl.String, "start": pl.Int64, "end": pl.Int64, "type": pl.String},
            ),
            "chunks": pl.DataFrame(chunks, schema={"chunk_id": pl.String, "doc_id": pl.String, "start": pl.Int64, "end": pl.Int64, "text": pl.String}),
            "embeddings": pl.DataFrame(
                [
                    {"chunk_id": c["chunk_id"], "tokens": 9, "encoded_tokens": 9, "encoded_start": 0, "encoded_end": self.encoded.get(c["chunk_id"], len(c["text"]))}
                    for c in chunks
                ],
                schema={"chunk_id": pl.String, "tokens": pl.Int64, "encoded_tokens": pl.Int64, "encoded_start": pl.Int64, "encoded_end": pl.Int64},
            ),
            "applied_filters": pl.DataFrame({"query_id": ["q"], "scope_id": ["s"], "producer": ["rules"]}),
            "scopes": pl.DataFrame(
                {"scope_id": ["s"], "everything": [self.scope is None], "doc_ids": [self.scope or []]},
                schema={"scope_id": pl.String, "everything": pl.Boolean, "doc_ids": pl.List(pl.String)},
            ),
        }  # fmt: skip
        lists = {name: self.lists.get(name, every) for name in ("bm25", "dense")}
        lists["hybrid"] = self.lists.get("hybrid", every)
        frames["runs"] = self._list(lists, ("bm25", "dense"))
        frames["fused_runs"] = self._list(lists, ("hybrid",))
        exact = {
            "dense": self.lists.get("exact", lists["dense"]),
            "hybrid": self.lists.get("exact_hybrid", lists["hybrid"]),
        }
        frames["exact_runs"] = self._list(exact, ("dense",))
        frames["exact_fused_runs"] = self._list(exact, ("hybrid",))
        final = lists | {"hybrid": self.reranked or lists["hybrid"]}
        size = pl.when(pl.col("retriever") == "hybrid").then(self.input_size if self.reranked else None)
        frames["ranked_runs"] = self._list(final, ("bm25", "dense", "hybrid")).with_columns(
            rank_before=pl.col("rank"), input_size=size.cast(pl.Int64)
        )
        assert set(frames["ranked_runs"].columns) == set(RANKED)
        if self.contexts is not None:
            frames["contexts"] = pl.DataFrame(self.contexts)
        return frames | self.answers

    @staticmethod
    def _list(lists, names):
        rows = [
            {"query_id": "q", "retriever": name, "rank": rank, "chunk_id": chunk, "doc_id": chunk.split("::")[0], "score": 1 / rank}
            for name in names
            for rank, chunk in enumerate(lists[name], 1)
        ]  # fmt: skip
        return pl.DataFrame(rows, schema=LIST_COLUMNS, orient="row")


@pytest.fixture
def small():
    return Small()


def test_a_healthy_pipeline_serves(small):
    assert small.run().lost() == ("served", None)
    assert small.books.waterfall["books_ok"].all()


def test_source_a_missing_document(small):
    small.absent = {"d1"}
    assert small.run().lost() == ("source", "missing_document")


def test_source_decoy_another_missing_document(small):
    small.absent = {"d2"}
    assert small.run().lost()[0] == "served"


@pytest.mark.parametrize("wrong", ["1 8", "1.8", "118", "13", "l8", "18x"])
def test_parsing_a_number_that_did_not_survive(small, wrong):
    small.parsed["d1"] = TEXT.replace("18", wrong)
    assert small.run().lost() == ("parsing", "token")


@pytest.mark.parametrize("wrong", ["1 2", "112", "17"])
def test_parsing_decoy_the_same_fault_in_a_number_beside_it(small, wrong):
    small.parsed["d1"] = TEXT.replace("12", wrong)
    assert small.run().lost()[0] == "served"


def test_parsing_a_negation_that_is_gone(small):
    small.parsed["d1"] = TEXT.replace("never", "newer")
    assert small.run().lost() == ("parsing", "token")


def test_parsing_white_space_and_line_ends_are_no_loss(small):
    small.parsed["d1"] = TEXT.replace("18 days", "18\n   days")
    assert small.run().lost()[0] == "served"
    assert small.state("parsing") == "held"


def test_parsing_a_failed_document_is_a_parsing_loss_with_its_status(small):
    small.parsed["d1"], small.statuses["d1"] = "", "timeout"
    assert small.run().lost() == ("parsing", "timeout")


def test_parsing_a_dropped_sentence(small):
    small.parsed["d1"] = BEFORE + AFTER
    assert small.run().lost() == ("parsing", "missing")


def test_parsing_restored_by_cleaning(small):
    small.parsed["d1"] = TEXT.replace("annual", "an\u00adnual").replace("18", "1\u00ad8")
    text = small.parsed["d1"]
    small.removed["d1"] = [(i, i + 1) for i, c in enumerate(text) if c == "\u00ad"]
    assert small.run().lost()[0] == "served"
    assert small.state("parsing") == "restored"


def test_parsing_degraded_is_not_blame(small):
    small.parsed["d1"] = TEXT.replace("annual", "anual")
    assert small.run().lost()[0] == "served"
    assert small.state("parsing") == "degraded"


def test_reading_order_is_blamed_on_parsing_where_search_then_fails(small):
    middle = START + len("Employees get 18 days ")
    small.parsed["d1"] = TEXT[:middle] + "and much else that belongs to another column of the page " * 2 + TEXT[middle:]
    assert small.run().lost()[0] == "served"
    small.lists = {key: ["d2::0"] for key in ("bm25", "dense", "hybrid")}
    assert small.run().lost() == ("parsing", "reading_order")


def test_unanchored_has_its_own_bar(small):
    small.unreferenced = {"d1"}
    small.parsed["d1"] = BEFORE + AFTER
    assert small.run().lost() == ("unanchored", "unanchored")
    assert small.state("parsing") == "unanchored"


def test_a_document_without_reference_is_anchored_in_the_parsed_text(small):
    small.unreferenced = {"d1"}
    small.parsed["d1"] = TEXT.replace("annual", "anual")
    assert small.run().lost()[0] == "served"
    small.parsed["d1"] = TEXT.replace("18", "16")
    assert small.run().lost() == ("parsing", "token")


def test_cleaning_removed_it(small):
    small.removed["d1"] = [(START, START + 12)]
    assert small.run().lost() == ("cleaning", "characters")


def test_cleaning_joined_a_foreign_digit_to_the_number(small):
    text = TEXT.replace("get 18", "get 5; 18")
    small.parsed["d1"] = text
    gap = text.index("; 18")
    small.removed["d1"] = [(gap, gap + 2)]
    assert small.run().lost() == ("cleaning", "token")


def test_cleaning_decoy(small):
    small.removed["d1"] = [(0, 12)]
    assert small.run().lost()[0] == "served"


def test_dedup_a_false_merge(small):
    small.survivors["d1"] = "d2"
    assert small.run().lost() == ("dedup", "merged")


def test_dedup_a_right_merge_loses_nothing(small):
    small.references["d0"] = small.parsed["d0"] = TEXT
    small.duplicates = [{"doc_a": "d0", "doc_b": "d1", "duplicate": True}]
    small.survivors["d1"] = "d0"
    assert small.run().lost()[0] == "served"


def test_a_flip_in_the_rightly_kept_copy_is_a_parsing_loss_not_one_of_dedup(small):
    small.references["d0"] = TEXT
    small.parsed["d0"] = TEXT.replace("18", "13")
    small.survivors["d1"] = "d0"
    assert small.run().lost() == ("parsing", "token")


@pytest.mark.parametrize("why", ["labelled different", "revision", "not visible"])
def test_what_is_never_a_carrier(small, why):
    small.references["d0"] = small.parsed["d0"] = TEXT
    small.survivors["d1"] = "d0"
    if why == "labelled different":
        small.duplicates = [{"doc_a": "d0", "doc_b": "d1", "duplicate": False}]
    elif why == "revision":
        small.supersedes["d1"] = "d0"
    else:
        small.principal, small.tenants["d0"] = "ann", "b"
    assert small.run().lost() == ("dedup", "merged")


def test_pii_over_redaction(small):
    small.masks["d1"] = [(TEXT.index("18"), TEXT.index("18") + 2, "AGE")]
    assert small.run().lost() == ("pii", "token")
    detail = json.loads(small.books.ledger.filter(pl.col("stage") == "pii")["detail"][0])
    assert detail["types"] == ["AGE"]


def test_pii_a_token_that_is_labelled_personal_is_policy(small):
    at = TEXT.index("18")
    small.masks["d1"] = [(at, at + 2, "AGE")]
    small.pii_labels["d1"] = [{"start": at, "end": at + 2, "type": "AGE"}]
    assert small.run().lost() == ("pii", "policy")
    assert small.state("pii") == "policy"
    assert "<AGE>" in small.built.units["quote"][0]
    assert "18" not in small.built.units["quote"][0]


def test_pii_decoy(small):
    small.masks["d1"] = [(3, 10, "NAME")]
    assert small.run().lost()[0] == "served"


def test_chunking_a_cut_that_was_not_found_together(small):
    small.cuts["d1"] = [START + 30]
    small.lists = {key: ["d1::0", "d2::0", "d1::1"] for key in ("bm25", "dense", "hybrid")}
    assert small.run(k=2).lost() == ("chunking", "cut")
    assert small.run(k=3).lost()[0] == "served"
    assert small.state("chunking") == "degraded"


def test_chunking_a_cut_whose_parts_fusion_drove_apart(small):
    small.cuts = {"d1": [START + 30], "d2": [30, 60]}
    fused = ["d1::0", "d2::0", "d2::1", "d1::1"]
    small.lists = {"bm25": ["d1::0", "d1::1"], "dense": ["d2::0", "d2::1"], "hybrid": fused, "exact_hybrid": fused}
    assert small.run(k=2).lost() == ("chunking", "cut")


def test_a_cut_unit_that_the_reranker_demoted_is_lost_at_reranking(small):
    small.cuts["d1"] = [START + 30]
    small.lists = {name: ["d1::0", "d1::1", "d2::0"] for name in ("bm25", "dense", "hybrid")}
    small.reranked, small.input_size = ["d2::0", "d1::0", "d1::1"], 3
    assert small.run(k=2).lost() == ("reranking", "demoted")


def test_chunking_a_cut_through_a_token(small):
    small.cuts["d1"] = [TEXT.index("18") + 1]
    assert small.run(k=5).lost() == ("chunking", "cut")


def test_chunking_decoy_a_cut_beside_it(small):
    small.cuts["d1"] = [START - 5]
    small.lists = {key: ["d1::1"] for key in ("bm25", "dense", "hybrid")}
    assert small.run().lost()[0] == "served"


def test_filtering_a_wrong_predicate(small):
    small.scope = ["d2"]
    assert small.run().lost() == ("filtering", "rules")
    small.scope = ["d1"]
    assert small.run().lost()[0] == "served"


def test_embedding_past_the_limit_is_a_possible_cause_beside_a_sparse_lane(small):
    small.encoded["d1::0"] = START + 5
    small.lists = {key: ["d2::0"] for key in ("bm25", "dense", "hybrid")}
    small.run()
    assert small.lost("dense") == ("embedding", "truncated")
    assert small.lost("hybrid") == ("embedding", "possible")
    assert small.lost("bm25") == ("search", "not_found")


def test_embedding_decoy_the_limit_is_behind_it(small):
    small.encoded["d1::0"] = END
    small.lists = {key: ["d2::0"] for key in ("bm25", "dense", "hybrid")}
    assert small.run().lost("dense") == ("search", "not_found")


def test_indexing_exact_search_had_it(small):
    small.lists = {"dense": ["d2::0"], "exact": ["d1::0", "d2::0"], "bm25": [], "hybrid": ["d2::0"],
                   "exact_hybrid": ["d1::0", "d2::0"]}  # fmt: skip
    small.run()
    assert small.lost("dense") == small.lost("hybrid") == ("indexing", "approximate")


def test_fusion_a_lane_had_it(small):
    small.cuts["d2"] = [30, 60]
    small.lists = {"bm25": ["d1::0"], "dense": ["d2::0", "d2::1"], "hybrid": ["d2::0", "d2::1", "d1::0"],
                   "exact_hybrid": ["d2::0", "d2::1", "d1::0"]}  # fmt: skip
    assert small.run(k=2).lost() == ("fusion", "fused_out")
    assert small.run(k=3).lost()[0] == "served"


def test_reranking_demoted(small):
    small.reranked = ["d2::0", "d1::0"]
    small.lists = {key: ["d1::0", "d2::0"] for key in ("bm25", "dense", "hybrid")}
    assert small.run(k=1).lost() == ("reranking", "demoted")
    assert small.run(k=2).lost()[0] == "served"


def test_rank_below_k(small):
    small.lists = {key: ["d2::0", "d1::0"] for key in ("bm25", "dense", "hybrid")}
    assert small.run(k=1).lost() == ("rank", "below_k")


def last_of(waterfall):
    """The last row of hybrid at 2."""
    rows = waterfall.filter(retriever="hybrid", k=2, slice_name="all").sort("position")
    return rows.row(-1, named=True)


def test_context_is_after_k_and_outside_the_sum(small):
    piece = {"query_id": "q", "position": 1, "retriever": "hybrid", "chunk_id": "d1::0", "doc_id": "d1", "start": 0,
             "end": END, "tokens": 5}  # fmt: skip
    small.contexts = [piece]
    assert small.run().books.fate.filter(pl.col("retriever") == "hybrid")["context_held"].to_list() == [True]
    small.contexts = [piece | {"end": END - 20}]
    row = last_of(small.run().books.waterfall)
    assert (row["stage"], row["lost_recall"], row["ceiling_after"]) == ("context", 1.0, 0.0)
    assert small.books.waterfall["books_ok"].all()


def test_answering_is_after_the_context_and_outside_the_sum(small):
    piece = {"query_id": "q", "position": 1, "retriever": "hybrid", "chunk_id": "d1::0", "doc_id": "d1", "start": 0,
             "end": END, "tokens": 5}  # fmt: skip
    small.contexts = [piece]

    def last(outcome, cited, status="ok"):
        small.answers = {
            "answers": pl.DataFrame([("q", "q", 1, outcome, status)], schema=ANSWERED, orient="row"),
            "answer_citations": pl.DataFrame([("q", 1, "resolved", [1])] if cited else [], schema=CITED, orient="row"),
        }
        books = small.run().books
        assert books.waterfall["books_ok"].all()
        row = books.fate.filter(pl.col("retriever") == "hybrid").row(0, named=True)
        told = tell("q", small.built.units, books.ledger, books.fate, "hybrid", 2)[0]
        return last_of(books.waterfall), (row["answer_used"], row["answer_cause"]), told

    row, used, told = last("answered", cited=True)
    assert ((row["stage"], row["lost_recall"], row["ceiling_after"]), used) == (("answering", 0.0, 1.0), (True, None))
    assert told.steps[-1].sentence == "the answer stands on it"
    row, used, told = last("answered", cited=False)
    assert ((row["stage"], row["lost_recall"], row["ceiling_after"]), used) == (
        ("answering", 1.0, 0.0),
        (False, "ignored"),
    )
    assert told.ends[0].sentence.startswith(
        "served at rank 1 but the answer does not stand on it: nothing that holds it is cited"
    )
    assert last("refused", cited=True)[1] == (False, "refused")
    assert last(None, cited=False, status="timeout")[1] == (False, "no_answer")
    # Nothing was answered at all: no row.
    assert last(None, cited=False, status="missing")[0]["stage"] == "context"


def test_a_stale_item_keeps_its_rank_and_holds_nothing(small):
    small.lists = {key: ["gone::0", "d1::0"] for key in ("bm25", "dense", "hybrid")}
    assert small.run(k=1).lost()[0] == "rank"
    assert set(small.books.waterfall["stale_items"].to_list()) == {1}


def test_an_ineligible_unit_is_outside_the_books(small):
    small.principal, small.tenants["d1"] = "ann", "b"
    assert small.run().lost()[0] == "ineligible"
    assert small.books.waterfall.is_empty()


def test_the_evidence_rows_acl_counts_only_where_the_document_is_absent(small):
    small.principal, small.evidence = "ann", small.evidence | {"acl": ["board"]}
    assert small.run().lost()[0] == "served"
    small.absent = {"d1"}
    assert small.run().lost()[0] == "ineligible"
    small.evidence = small.evidence | {"acl": ["staff"]}
    assert small.run().lost()[0] == "source"


def test_unseen_stages_have_no_row_and_are_named(small):
    small.lists = {key: ["d2::0"] for key in ("bm25", "dense", "hybrid")}
    small.run(drop=("applied_filters", "embeddings"))
    table = small.books.waterfall
    assert not {"filtering", "embedding"} & set(table["stage"].to_list())
    assert {"filtering", "embedding"} <= set(table["unseen_stages"][0].to_list())
    assert table["books_ok"].all()


def test_document_gold_with_imported_runs_only():
    queries = [{"query_id": "q", "text": "?", "split": "test", "answerable": True}]
    gold = Gold(
        queries=gold_frame("queries", queries),
        qrels=gold_frame(
            "qrels", [{"query_id": "q", "doc_id": d, "grade": g} for d, g in (("a", 1), ("b", 2), ("c", 0))]
        ),
    )
    rows = [{"query_id": "q", "retriever": "mine", "rank": r, "chunk_id": d, "doc_id": d, "score": 1.0 / r}
            for r, d in enumerate(("c", "a", "x", "b"), 1)]  # fmt: skip
    frames = {"runs": pl.DataFrame(rows, schema=LIST_COLUMNS, orient="row")}
    settings = Settings.model_validate({"evaluate": {"k": [2, 4], "serve_k": 2}})
    built = build_units(gold, frames, settings)
    books = build_ledger(frames, *built, settings, {"mine": RetrieverInfo(depth=None)}, gold.queries)
    assert books.fate.select("evidence_id", "k", "first_loss_stage").rows() == [
        ("a", 2, "served"), ("a", 4, "served"), ("b", 2, "rank"), ("b", 4, "served"),
    ]  # fmt: skip
    assert set(books.waterfall["stage"].to_list()) == {"search", "rank"}


def test_a_repeated_quote_whose_labelled_place_is_damaged_is_lost_there(small):
    twice = QUOTE + " Filler about lamps and chairs follows here at length. " + TEXT
    small.references["d1"] = twice
    small.evidence = small.evidence | {"start": twice.rindex(QUOTE), "end": twice.rindex(QUOTE) + len(QUOTE)}
    at = twice.rindex("18")
    small.parsed["d1"] = twice[:at] + "13" + twice[at + 2 :]
    assert small.run().lost() == ("parsing", "token")
    small.evidence = {key: value for key, value in small.evidence.items() if key not in {"start", "end"}}
    assert small.run().lost()[0] == "served"


def test_the_story_is_told_stage_by_stage_and_in_masked_text(small):
    at = TEXT.index("18")
    small.masks["d1"] = [(at, at + 2, "AGE")]
    small.run()
    [unit] = tell("q", small.built.units, small.books.ledger, small.books.fate, "hybrid", 2)
    told = "\n".join(said.sentence for said in (*unit.steps, *unit.ends))
    assert "lost at pii (token)" in told
    assert "masked: AGE" in told
    assert "18 days" not in told
    with pytest.raises(LookupError, match="no evidence"):
        tell("nobody", small.built.units, small.books.ledger, small.books.fate)


def test_books_that_do_not_balance_name_the_group(small):
    table = small.run().books.waterfall
    ranking = table.select("retriever", "k", "slice_name", "slice_value", value="recall").unique()
    assert check_books(table, ranking).ok
    wrong = check_books(table, ranking.with_columns(pl.col("value") - 0.5))
    assert not wrong.ok
    assert "hybrid" in wrong.describe()
    shown = check_books(table.with_columns(pl.col("recall") - 0.5), ranking)
    assert not shown.ok
    assert "another recall" in shown.describe()


def test_composed_accents_survive_cleaning_to_nfc():
    from rag_eval_pipeline.attribution.units import Evidence

    text = "El límite de días es 18 en total y no más."
    apart = text.replace("í", "i\u0301")
    segments, out = [], 0
    for i, c in enumerate(apart):
        if c == "\u0301":
            continue
        width = 2 if apart[i + 1 : i + 2] == "\u0301" else 1
        segments.append((out, out + 1, i, i + width, width == 1))
        out += 1
    offsets = OffsetMap(segments).rows()
    frames = {
        "parsed": pl.DataFrame([{"doc_id": "d", "text": apart, "status": "ok"}]),
        "cleaned": pl.DataFrame([{"doc_id": "d", "text": text, "status": "ok", "offsets": offsets}]),
    }
    gold = Gold(
        queries=gold_frame("queries", [{"query_id": "q", "text": "?", "split": "test"}]),
        evidence=gold_frame(
            "evidence", [{"query_id": "q", "evidence_id": "e", "doc_id": "d", "quote": text, "grade": 1}]
        ),
    )
    built: Evidence = build_units(gold, frames, Settings())
    clean = built.anchors.filter(pl.col("layer") == "clean")
    assert clean["held"].to_list() == [True]
    assert -1 not in clean["positions"][0].to_list()
    assert set(SCHEMAS) >= {"evidence"}


def test_a_story_says_that_a_kept_twin_may_hold_the_words_and_still_be_another_document():
    detail = {"removed": [{"doc_id": "leave-2025", "survivor": "leave-2024", "similarity": 0.956}]}
    told = story_module._Told({}, {"held": False}, detail, None, None)
    assert story_module._dedup(told) == (
        "leave-2025 was removed as a duplicate of leave-2024 (similarity 0.956), "
        "which does not hold it, or is labelled as another document or edition"
    )
