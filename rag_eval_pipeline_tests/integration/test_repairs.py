"""Repairs of a whole evaluation: the step, its table in the manifest, the command, document-level gold, and repairs that are off."""

import polars as pl
import pytest

from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.small import QUICK, SUBJECTS, write_corpus, write_jsonl, write_mixed

PIPELINE = QUICK | {"filtering": {"extractor": "rules", "fields": {"subject": {"leave": ["travel"]}}}}
"""It takes `travel` for another subject, so that one query's correct predicate gives its evidence back."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = home_of(tmp_path_factory.mktemp("repairs"))
    write_mixed(home.corpora, PIPELINE, evaluate={"k": [1, 3], "serve_k": 3}, ledger={"repairs": "shapley"})
    return Run(home, "mixed@v1")


def test_the_table_is_part_of_the_evaluation_and_its_shares_add_up(run):
    run.check_books()
    assert "stage_repairs" in run.manifest.tables
    rows = run.frame("stage_repairs")
    shares = rows.filter(pl.col("kind") == "stage").group_by("retriever", "k").agg(pl.col("shapley").sum())
    total = rows.filter(pl.col("kind") == "total").select("retriever", "k", "recovered_recall")
    both = shares.join(total, on=["retriever", "k"])
    assert both.height == 6
    assert both.select((pl.col("shapley") - pl.col("recovered_recall")).abs().max()).item() <= 1e-12


def test_the_stage_that_lost_evidence_gets_it_back(run):
    rows = run.frame("stage_repairs").filter((pl.col("retriever") == "both") & (pl.col("k") == 3))
    filtering = rows.filter(pl.col("stage") == "filtering").row(0, named=True)
    assert filtering["n_lost"] == filtering["n_repairable"] > 0
    assert filtering["recovered_recall"] > 0
    assert filtering["units_gained"] > 0
    assert filtering["queries_helped"] > 0
    waterfall = run.frame("loss_waterfall").filter(
        (pl.col("retriever") == "both") & (pl.col("k") == 3) & (pl.col("slice_name") == "all")
    )
    lost = dict(waterfall.select("stage", "lost_units").iter_rows())
    for row in rows.filter(pl.col("kind") == "stage").iter_rows(named=True):
        assert row["n_lost"] == lost[row["stage"]], row["stage"]
        assert row["n_repairable"] <= row["n_lost"]


def test_a_rerun_finds_the_table(run):
    again = Run(run.subject.home, "mixed@v1")
    assert again.did["repairs"] == "reused"
    assert again.hashes["stage_repairs"] == run.hashes["stage_repairs"]


def test_the_command_lays_the_table_out(run, monkeypatch, capsys):
    from rag_eval_pipeline.cli import console
    from rag_eval_pipeline.cli.repairs import repairs

    monkeypatch.setenv("RAG_EVAL_DATA", str(run.subject.home.root))
    monkeypatch.setattr(console, "_width", 160)
    with console.capture() as shown:
        repairs("mixed@v1")
    text = shown.get()
    for word in ("filtering", "all of them together", "any order of the candidates", "Shapley", "both at 3"):
        assert word in text, word


def test_off_writes_a_table_without_rows_and_the_command_says_why(tmp_path, monkeypatch):
    from rag_eval_pipeline.cli import console
    from rag_eval_pipeline.cli.repairs import repairs

    home = home_of(tmp_path)
    write_corpus(home.corpora, documents=3, ledger={"repairs": "off"})
    assert Run(home, "small@v1").frame("stage_repairs").is_empty()
    monkeypatch.setenv("RAG_EVAL_DATA", str(home.root))
    with console.capture() as shown:
        repairs("small@v1")
    assert "no repairs were run" in shown.get()


def test_with_judged_documents_alone_the_text_repairs_are_silent(tmp_path):
    home = home_of(tmp_path)
    folder = write_corpus(home.corpora, documents=4, ledger={"repairs": "single"}, evaluate={"k": [1], "serve_k": 1})
    gold = folder.parent / "gold"
    write_jsonl(gold / "evidence.jsonl", [])
    lines = [f"q{n}\t{SUBJECTS[n]}-{n}.md\t1" for n in range(4)]
    (gold / "qrels.tsv").write_text("query_id\tdoc_id\tgrade\n" + "\n".join(lines) + "\n", "utf-8")
    run = Run(home, "small@v1")
    assert run.frame("evidence_units")["kind"].unique().to_list() == ["document"]
    rows = run.frame("stage_repairs").filter(pl.col("kind") == "stage")
    texts = rows.filter(pl.col("stage").is_in(["parsing", "cleaning", "dedup", "chunking"]))
    assert texts.height == 4 * 3
    assert (texts["status"] == "unchanged").all()
    assert (texts["recovered_recall"] == 0).all()
