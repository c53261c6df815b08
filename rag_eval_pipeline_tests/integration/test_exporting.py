"""What leaves an evaluation: other tools read it, it comes back as it went, and no personal string goes with it."""

import csv
import json

import polars as pl
import pytest

from rag_eval_pipeline.corpus.importers import import_corpus
from rag_eval_pipeline.corpus.version import load_version
from rag_eval_pipeline.release.exporting import ExportError, _without_formulas, export_evaluation
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.small import write_corpus, write_jsonl

pytestmark = pytest.mark.integration

SECRET = "ada.secret@example.org"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Twelve documents, of which one has a labelled address that the pipeline does not mask; one query reads as a formula."""
    home = home_of(tmp_path_factory.mktemp("export"))
    folder = write_corpus(home.corpora, documents=12)
    path = folder / "documents" / "travel-0.md"
    text = path.read_text("utf-8") + f"\nAsk {SECRET} about it.\n"
    path.write_text(text, "utf-8")
    start = text.index(SECRET)
    gold = home.corpora / "small" / "gold"
    asked = (gold / "queries.jsonl").read_text("utf-8").replace('"What is', '"=What is', 1)
    (gold / "queries.jsonl").write_text(asked, "utf-8")
    write_jsonl(
        gold / "pii.jsonl",
        [{"doc_id": "travel-0.md", "spans": [{"start": start, "end": start + len(SECRET), "type": "EMAIL_ADDRESS"}]}],
    )
    write_jsonl(gold / "answers_gold.jsonl", [{"query_id": "q0", "answers": [f"Ask {SECRET}", "3 EUR"]}])
    return Run(home, "small@v1", database=True)


def exported(run, tmp_path, format, *tables):
    evaluation = Evaluation.latest(run.subject.home, "small@v1")
    return export_evaluation(format, evaluation, tmp_path / "out", tables), tmp_path / "out"


def everything(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_beir_comes_back_as_it_went(run, tmp_path):
    written, folder = exported(run, tmp_path, "beir")
    assert written == {"corpus.jsonl": 12, "queries.jsonl": 12, "qrels/test.tsv": 12}
    import_corpus("beir", folder, tmp_path / "corpora", "again", "v1")
    again = load_version(tmp_path / "corpora", "again@v1")
    assert again.gold.queries["text"].sort().to_list() == run.subject.version.gold.queries["text"].sort().to_list()
    assert again.gold.qrels.select("query_id", "doc_id").rows() == [
        (q, d) for q, d in run.subject.version.gold.evidence.select("query_id", "doc_id").sort("query_id").rows()
    ]
    assert SECRET.encode() not in everything(folder)


def test_trec_runs_keep_the_order_in_which_trec_eval_reads_them(run, tmp_path):
    _, folder = exported(run, tmp_path, "trec")
    import_corpus("trec", folder, tmp_path / "corpora", "again", "v1", runs=["runs/both.trec"])
    again = load_version(tmp_path / "corpora", "again@v1").outputs["runs"].sort("query_id", "rank")
    ranked = run.frame("ranked_runs").filter(pl.col("retriever") == "both").sort("query_id", "rank")
    by_document = ranked.unique(["query_id", "doc_id"], keep="first", maintain_order=True)
    assert again.select("query_id", "item_id").rows() == by_document.select("query_id", "doc_id").rows()
    chunks = [line.split()[2] for line in (folder / "runs" / "both.chunks.trec").read_text().splitlines()]
    assert chunks == ranked["chunk_id"].to_list()
    assert SECRET.encode() not in everything(folder)


def test_ragas_samples_have_its_names_and_come_back_with_their_contexts(run, tmp_path):
    _, folder = exported(run, tmp_path, "ragas")
    rows = [json.loads(line) for line in (folder / "dataset.jsonl").read_text("utf-8").splitlines()]
    known = {"user_input", "retrieved_contexts", "retrieved_context_ids", "reference_contexts", "response", "reference"}
    assert all(set(row) <= known for row in rows)
    first = rows[0]
    assert first["reference"] == "Ask <PII>"
    assert "limit is 3 EUR per day" in first["reference_contexts"][0]
    contexts = run.frame("contexts").filter(pl.col("query_id") == "q0").sort("position")
    assert first["retrieved_context_ids"] == contexts["chunk_id"].to_list()
    masked = dict(run.frame("masked").select("doc_id", "text").iter_rows())
    doc, start, end = contexts.select("doc_id", "start", "end").row(0)
    assert first["retrieved_contexts"][0].replace("<PII>", SECRET) == masked[doc][start:end]
    import_corpus("ragas", folder / "dataset.jsonl", tmp_path / "corpora", "again", "v1")
    again = load_version(tmp_path / "corpora", "again@v1")
    assert again.outputs["contexts"].height == run.frame("contexts").height
    assert SECRET.encode() not in everything(folder)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_tables_leave_as_they_are_published(run, tmp_path, format):
    written, folder = exported(run, tmp_path, format, "chunks", "scorecard")
    assert set(written) == {f"chunks.{format}", f"scorecard.{format}"}
    read = pl.read_parquet if format == "parquet" else pl.read_csv
    chunks = read(folder / f"chunks.{format}")
    assert chunks.height == run.frame("chunks").height == written[f"chunks.{format}"]
    assert "corpus_version" in chunks.columns
    assert SECRET.encode() not in everything(folder)


def test_a_csv_opened_in_a_spreadsheet_computes_nothing_and_parquet_keeps_the_text(run, tmp_path):
    texts = {}
    for format, read in (("csv", pl.read_csv), ("parquet", pl.read_parquet)):
        _, folder = exported(run, tmp_path / format, format, "prepared_queries")
        texts[format] = read(folder / f"prepared_queries.{format}").sort("query_id")["text"].to_list()
    assert texts["parquet"][0].startswith("=What is")
    assert texts["csv"] == [f"'{text}" if text.startswith("=") else text for text in texts["parquet"]]


def test_only_texts_that_are_formulas_get_a_quote(tmp_path):
    import duckdb

    formulas = [
        "=1+1",
        "+34 600",
        "-x",
        "- item",
        "-",
        "-inf",
        "@sum(a1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "  =1",
        "＝1",
        "-1;=1",
    ]
    others = ["", "plain", "a=b", "a\n=b", "'=1", "-1.5", "+2", "-.5", "1e-5", "-3.", "[=1]"]
    with duckdb.connect() as con:
        con.execute("CREATE TABLE cells (place INTEGER, cell VARCHAR, number DOUBLE)")
        con.executemany("INSERT INTO cells VALUES (?, ?, -1.5)", list(enumerate(formulas + others)))
        _without_formulas(con.sql("SELECT * FROM cells ORDER BY place")).write_csv(str(tmp_path / "cells.csv"))
    with (tmp_path / "cells.csv").open(encoding="utf-8", newline="") as stream:
        found = list(csv.DictReader(stream))
    assert [row["cell"] for row in found] == [f"'{text}" for text in formulas] + others
    assert {row["number"] for row in found} == {"-1.5"}


def test_all_published_tables_leave_by_default_and_never_the_personal_strings(run, tmp_path):
    written, folder = exported(run, tmp_path, "parquet")
    assert "pii_terms.parquet" not in written
    assert {"documents.parquet", "evidence_fate.parquet", "retrieval_quality.parquet"} <= set(written)
    assert all(pl.read_parquet(folder / name).height == rows for name, rows in written.items())
    assert SECRET.encode() not in everything(folder)


def test_nothing_is_written_over_and_unknown_tables_and_changed_gold_are_refused(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(ExportError, match="not empty"):
        exported(run, tmp_path, "beir")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "out" / "mine.txt").unlink()
    with pytest.raises(ExportError, match="did you mean 'scorecard'"):
        exported(run, tmp_path, "csv", "scorecards")
    with pytest.raises(ExportError, match="--table goes with parquet and csv"):
        exported(run, tmp_path, "beir", "chunks")
    answers = run.subject.home.corpora / "small" / "gold" / "answers_gold.jsonl"
    saved = answers.read_text("utf-8")
    try:
        write_jsonl(answers, [{"query_id": "q1", "answers": ["other"]}])
        with pytest.raises(ExportError, match="gold of small@v1 changed"):
            exported(run, tmp_path, "ragas")
    finally:
        answers.write_text(saved, "utf-8")


def test_an_imported_set_is_evaluated_as_it_is(tmp_path):
    """RAGAS samples: the ranking, contexts and answers of the user's own system get their measures, and losses a place."""
    home = home_of(tmp_path)
    rows = [
        {"user_input": f"What is the limit for {name}?", "retrieved_contexts": [f"The limit for {name} is {n + 3} EUR.", "Nothing else is said."] if n else ["Nothing else is said."],
         "response": f"{n + 3} EUR", "reference": f"{n + 3} EUR", "reference_contexts": [f"The limit for {name} is {n + 3} EUR."]}
        for n, name in enumerate(("travel", "leave", "parking"))
    ]  # fmt: skip
    source = tmp_path / "set.jsonl"
    write_jsonl(source, rows)
    import_corpus("ragas", source, home.corpora, "mine", "v1", language="en")
    run = Run(home, "mine@v1")
    run.check_books()
    fate = run.frame("evidence_fate").filter((pl.col("retriever") == "imported") & (pl.col("k") == 10))
    assert dict(fate.select("query_id", "served").iter_rows()) == {"q0001": False, "q0002": True, "q0003": True}
    assert run.frame("contexts").height == 5
    assert run.frame("answers").filter(pl.col("status") == "ok")["answer"].sort().to_list() == [
        "3 EUR",
        "4 EUR",
        "5 EUR",
    ]
