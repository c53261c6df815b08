"""Whatever part of a pipeline is handed in, the ledger shows the stages that it can, and names those that it cannot."""

import json

import polars as pl
import pytest

from rag_eval_pipeline.corpus.faults import CorpusError
from rag_eval_pipeline.corpus.version import load_version
from rag_eval_pipeline_tests.integration.house import Run
from rag_eval_pipeline_tests.small import QUICK, SUBJECTS, quote_of, text_of, write_corpus, write_jsonl

pytestmark = pytest.mark.integration
TEXT = ["source", "unanchored", "parsing", "cleaning", "dedup", "pii"]
SPARSE = [*TEXT, "chunking", "filtering", "search", "rank"]


def waterfall(run, retriever, k=10):
    run.check_books()
    return run.frame("loss_waterfall").filter(
        (pl.col("slice_name") == "all") & (pl.col("retriever") == retriever) & (pl.col("k") == k)
    )


def lost(run, retriever, k=10):
    fate = run.frame("evidence_fate").filter((pl.col("retriever") == retriever) & (pl.col("k") == k))
    return {(q, e): stage for q, e, stage in fate.select("query_id", "evidence_id", "first_loss_stage").iter_rows()}


def write(home, outputs, gold, pipeline, corpus="partial"):
    """A version of outputs/ alone."""
    folder = home.corpora / corpus / "v1" / "outputs"
    (folder / "runs").mkdir(parents=True)
    labels = home.corpora / corpus / "gold"
    for name, rows in gold.items():
        if isinstance(rows, str):
            labels.mkdir(parents=True, exist_ok=True)
            (labels / name).write_text(rows, "utf-8")
        else:
            write_jsonl(labels / name, rows)
    for name, rows in outputs.items():
        if isinstance(rows, str):
            (folder / name).write_text(rows, "utf-8")
        else:
            write_jsonl(folder / name, rows)
    body = {"languages": ["en"], "pipeline": pipeline}
    (home.corpora / corpus / "corpus.yaml").write_text(json.dumps(body), "utf-8")


QUERIES = [{"query_id": f"q{n}", "text": f"daily limit for {SUBJECTS[n]} {n}", "language": "en"} for n in range(4)]
IMPORTED = {"pii": None, "dedup": None, "retrieval": {"mine": {"kind": "import", "run": "mine"}}}


def test_span_level_gold_shows_every_stage_that_the_pipeline_has(home):
    write_corpus(home.corpora, documents=4, pipeline=QUICK)
    run = Run(home, "small@v1")
    table = waterfall(run, "both")
    assert table.sort("position")["stage"].to_list() == [*SPARSE[:-1], "fusion", "rank", "context", "answering"]
    # No lane of it is dense, and nothing reranks: there is nothing to see, and nothing that could not be seen.
    assert set(table["unseen_stages"][0]) <= {"embedding", "indexing"}


def test_document_level_gold_shows_the_same_stages_with_documents_as_units(home):
    folder = write_corpus(home.corpora, documents=4, pipeline=QUICK)
    gold = home.corpora / "small" / "gold"
    (gold / "evidence.jsonl").unlink()
    names = [f"{SUBJECTS[n]}-{n}.md" for n in range(4)]
    (gold / "qrels.tsv").write_text(
        "".join(f"q{n}\t0\t{name}\t1\n" for n, name in enumerate(names)) + "q0\t0\tgone.md\t1\n", "utf-8"
    )
    (folder / "documents" / names[3]).write_bytes(b"")
    run = Run(home, "small@v1")
    assert run.frame("evidence_units")["kind"].unique().to_list() == ["document"]
    table = waterfall(run, "bm25")
    assert table.sort("position")["stage"].to_list()[: len(SPARSE)] == SPARSE
    fates = lost(run, "bm25")
    assert fates[("q0", "gone.md")] == "source"
    assert fates[("q3", names[3])] == "parsing"
    assert [fates[(f"q{n}", names[n])] for n in range(3)] == ["served"] * 3


def test_imported_runs_alone_show_search_and_rank(home):
    gold = {"queries.jsonl": QUERIES[:2], "qrels.tsv": "q0 0 a 1\nq0 0 b 1\nq1 0 c 1\nq1 0 d 1\n"}
    run_file = "q0 Q0 x 1 3 r\nq0 Q0 a 2 2 r\nq1 Q0 c 1 2 r\nq1 Q0 d 2 1 r\n"
    write(home, {"runs/mine.trec": run_file}, gold, IMPORTED)
    run = Run(home, "partial@v1")
    table = waterfall(run, "mine")
    assert table.sort("position")["stage"].to_list() == ["search", "rank"]
    unseen = [*TEXT, "chunking", "filtering", "embedding"]
    assert table["unseen_stages"][0].to_list() == unseen
    assert lost(run, "mine") == {
        ("q0", "a"): "served",
        ("q0", "b"): "search",
        ("q1", "c"): "served",
        ("q1", "d"): "served",
    }
    assert lost(run, "mine", 1) == {
        ("q0", "a"): "rank",
        ("q0", "b"): "search",
        ("q1", "c"): "served",
        ("q1", "d"): "rank",
    }
    assert table["recall"][0] == 0.75
    assert run.frame("evidence_ledger")["stage"].unique().sort().to_list() == ["rank", "search"]


def test_an_imported_run_with_the_one_before_its_reranker_shows_reranking(home):
    gold = {"queries.jsonl": QUERIES[:1], "qrels.tsv": "q0 0 a 1\n"}
    runs = {"runs/mine.trec": "q0 Q0 x 1 2 r\nq0 Q0 a 2 1 r\n", "runs/mine.before_rerank.jsonl": [
        {"query_id": "q0", "item_id": item, "rank": rank} for rank, item in enumerate(("a", "x"), 1)
    ]}  # fmt: skip
    pipeline = {**IMPORTED, "retrieval": {"mine": {"kind": "import", "run": "mine", "before_rerank": True}},
                "reranking": {"reranker": "import"}}  # fmt: skip
    write(home, runs, gold, pipeline)
    run = Run(home, "partial@v1")
    assert waterfall(run, "mine").sort("position")["stage"].to_list() == ["search", "reranking", "rank"]
    assert lost(run, "mine", 1) == {("q0", "a"): "reranking"}


def test_imported_chunks_alone_show_everything_from_chunking_on(home):
    chunks, evidence = [], []
    for n in range(4):
        text, quote = text_of(n, SUBJECTS[n]), quote_of(n, SUBJECTS[n])
        at = text.index(quote) + (len(quote) // 2 if n == 2 else len(quote))
        parts = [text[:at], text[at:]] if n != 3 else [text.replace(quote, "")]
        chunks += [{"chunk_id": f"c{n}-{i}", "doc_id": f"d{n}", "text": part} for i, part in enumerate(parts)]
        evidence.append({"query_id": f"q{n}", "evidence_id": "e", "doc_id": f"d{n}", "quote": quote})
    gold = {"queries.jsonl": QUERIES, "evidence.jsonl": evidence}
    pipeline = {"pii": None, "retrieval": {"bm25": {"kind": "bm25"}}}
    write(home, {"chunks.jsonl": chunks}, gold, pipeline)
    run = Run(home, "partial@v1")
    table = waterfall(run, "bm25")
    assert table.sort("position")["stage"].to_list() == [
        "chunking",
        "filtering",
        "search",
        "rank",
        "context",
        "answering",
    ]
    assert table["unseen_stages"][0].to_list()[: len(TEXT)] == TEXT
    assert run.frame("chunks")["chunk_id"].sort().to_list() == sorted(c["chunk_id"] for c in chunks)
    fates = lost(run, "bm25")
    assert [fates[(f"q{n}", "e")] for n in (0, 1, 3)] == ["served", "served", "chunking"]
    states = run.frame("evidence_ledger").filter(pl.col("stage") == "chunking").sort("query_id")["state"].to_list()
    assert states == ["held", "held", "degraded", "lost"]


def test_a_version_with_neither_documents_nor_outputs_is_refused(home):
    write(home, {}, {"queries.jsonl": QUERIES}, {})
    with pytest.raises(CorpusError, match="no such folder"):
        load_version(home.corpora, "partial@v1")


def test_without_documents_the_version_stays_the_same_when_its_outputs_change(home):
    gold = {"queries.jsonl": QUERIES[:1], "qrels.tsv": "q0 0 a 1\n"}
    write(home, {"runs/mine.trec": "q0 Q0 x 1 2 r\n"}, gold, IMPORTED)
    assert lost(Run(home, "partial@v1"), "mine") == {("q0", "a"): "search"}
    (home.corpora / "partial" / "v1" / "outputs" / "runs" / "mine.trec").write_text("q0 Q0 a 1 2 r\n", "utf-8")
    assert lost(Run(home, "partial@v1"), "mine") == {("q0", "a"): "served"}
