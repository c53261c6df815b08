"""The books balance through the real stages, whatever the pipeline: built in, the user's own, or imported."""

import polars as pl
import pytest

from rag_eval_pipeline.attribution.order import AFTER
from rag_eval_pipeline_tests.integration.house import Run
from rag_eval_pipeline_tests.small import QUICK, SUBJECTS, quote_of, write_corpus, write_jsonl, write_mixed

pytestmark = pytest.mark.integration
BM25 = {"bm25": {"kind": "bm25"}}
OWN = {"words": {"kind": "rag_eval_parts:Words"}}
HYBRID = {**BM25, **OWN, "both": {"kind": "rrf", "lanes": ["bm25", "words"]}}
CONFIGS = {
    "hybrid with a user's lane, cut short": (
        {**QUICK, "retrieval": {**BM25, "words": {**OWN["words"], "depth": 2}, "both": {**HYBRID["both"], "depth": 3}}},
        {"evaluate": {"k": [1, 2, 10], "serve_k": 3}},
        {"search", "rank"},
    ),
    "gold filters and documents as depth": (
        {**QUICK, "filtering": {"extractor": "gold", "mode": "hard"}, "retrieval": {"bm25": {"kind": "bm25", "depth": 1, "depth_unit": "documents"}}},
        {},
        {"search"},
    ),
    "near-duplicates merged, the oldest kept": (
        {**QUICK, "dedup": {"threshold": 0.6, "keep": "first"}, "retrieval": HYBRID},
        {"evaluate": {"k": [1, 5]}},
        {"dedup"},
    ),
    "quotes split by tiny chunks": (
        {**QUICK, "dedup": None, "chunking": {"splitter": "fixed", "size": 6, "overlap": 0, "unit": "words"}, "retrieval": HYBRID},
        {"evaluate": {"k": [1, 3, 30], "serve_k": 30}},
        {"chunking"},
    ),
    "a reranker that turns lists round, and a small budget": (
        {**QUICK, "reranking": {"reranker": "rag_eval_parts:Demoting", "depth": 8}, "context": {"budget_tokens": 60}, "retrieval": HYBRID},
        {"evaluate": {"k": [1, 3], "serve_k": 3}},
        {"rank", "context"},
    ),
    "personal data masked with a rule that takes numbers": (
        {**QUICK, "pii": {"entities": ["DATE_TIME", "PHONE_NUMBER"]}, "retrieval": BM25},
        {},
        set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_the_books_balance_and_nothing_is_impossible(home, name):
    pipeline, settings, loses = CONFIGS[name]
    write_mixed(home.corpora, pipeline, **settings)
    run = Run(home, "mixed@v1")
    run.check_books()
    units = run.frame("evidence_units")
    lines = (home.corpora / "mixed" / "gold" / "evidence.jsonl").read_text("utf-8").splitlines()
    assert units.height == len(lines) == 3 * len(SUBJECTS) + 2
    waterfall = run.frame("loss_waterfall")
    everything = waterfall.filter(pl.col("slice_name") == "all")
    for (_, _), rows in everything.group_by("retriever", "k"):
        assert abs(1 - rows.filter(~pl.col("stage").is_in(AFTER))["lost_recall"].sum() - rows["recall"][0]) < 1e-12
    fate = run.frame("evidence_fate")
    cells = fate.group_by("retriever", "k").len()["len"].unique().to_list()
    assert cells == [units.height], "every unit has one fate for every retriever and k"
    lost = set(fate.filter("eligible")["first_loss_stage"].drop_nulls()) | set(
        everything.filter(pl.col("lost_units") > 0)["stage"]
    )
    assert {"source", "parsing"} <= lost, "the absent document and the broken file"
    assert loses <= lost


@pytest.mark.full
def test_the_books_balance_with_the_default_pipeline(home):
    write_mixed(home.corpora, {})
    Run(home, "mixed@v1").check_books()


def test_what_the_users_own_system_made_is_evaluated_end_to_end(home):
    write_corpus(home.corpora, documents=5)
    made = Run(home, "small@v1")
    pipeline = {
        "parsing": {"import": True}, "chunking": {"import": True}, "pii": None, "dedup": None,
        "retrieval": {"theirs": {"kind": "import", "run": "theirs"}, "docs": {"kind": "import", "run": "docs"},
                      "both": {"kind": "rrf", "lanes": ["theirs", "docs"]}},
    }  # fmt: skip
    folder = write_corpus(home.corpora, corpus="imported", documents=5, pipeline=pipeline)
    outputs = folder / "outputs"
    parsed = made.frame("parsed").select("doc_id", "text")
    write_jsonl(outputs / "parsed.jsonl", parsed.to_dicts())
    texts = dict(made.frame("masked").select("doc_id", "text").iter_rows())
    chunks = made.frame("chunks").select("chunk_id", "doc_id", "start", "end").to_dicts()
    write_jsonl(outputs / "chunks.jsonl", [{**c, "text": texts[c["doc_id"]][c["start"] : c["end"]]} for c in chunks])
    runs = made.frame("runs").filter(pl.col("retriever") == "bm25").sort("query_id", "rank")
    (outputs / "runs").mkdir()
    lines = [
        f"{r['query_id']} Q0 {r['chunk_id']} {r['rank']} {1 / r['rank']} theirs\n" for r in runs.iter_rows(named=True)
    ]
    (outputs / "runs" / "theirs.trec").write_text("".join(lines), "utf-8")
    write_jsonl(
        outputs / "runs" / "docs.jsonl",
        [
            {"query_id": f"q{n}", "item_id": f"{SUBJECTS[m]}-{m}.md", "rank": i + 1, "score": 1.0 / (i + 1)}
            for n in range(5)
            for i, m in enumerate([n, (n + 1) % 5])
        ],
    )
    run = Run(home, "imported@v1")
    run.check_books()
    assert run.frame("parsed")["text"].to_list() == parsed["text"].to_list()
    assert run.frame("chunks")["chunk_id"].sort().to_list() == sorted(c["chunk_id"] for c in chunks)
    theirs = run.frame("ranked_runs").filter(pl.col("retriever") == "theirs")
    assert (
        theirs.sort("query_id", "rank").select("query_id", "chunk_id").rows()
        == runs.select("query_id", "chunk_id").rows()
    )
    recall = run.frame("loss_waterfall").filter((pl.col("slice_name") == "all") & (pl.col("k") == 10))
    assert dict(recall.select("retriever", "recall").unique().iter_rows()).keys() == {"theirs", "docs", "both"}
    assert set(recall.filter(pl.col("retriever") == "docs")["recall"]) == {1.0}
    # A chunk that says something else than the document is seen by the ledger, not believed.
    sentence = quote_of(2, SUBJECTS[2])
    wrong = [
        {k: v for k, v in c.items() if k not in {"start", "end"}}
        | {"text": texts[c["doc_id"]][c["start"] : c["end"]].replace(sentence, "")}
        for c in chunks
    ]
    write_jsonl(outputs / "chunks.jsonl", [c for c in wrong if c["text"].strip()])
    again = Run(home, "imported@v1")
    again.check_books()
    fate = again.frame("evidence_fate").filter(
        (pl.col("query_id") == "q2") & (pl.col("retriever") == "docs") & (pl.col("k") == 10)
    )
    assert fate["first_loss_stage"].to_list() == ["chunking"]
