"""Parsers and cleaners compared in a whole evaluation: what is compared decides nothing else, and is not done again once chosen."""

import json

import pytest

from rag_eval_pipeline.stages.parsing import engines
from rag_eval_pipeline_tests.integration.house import Run, home_of, rag_eval
from rag_eval_pipeline_tests.small import QUICK, write_corpus, write_jsonl
from rag_eval_pipeline_tests.unit.stages import documents as made

pytestmark = pytest.mark.integration

PARSERS = ["pdfplumber", {"name": "bare", "ocr": "none"}, "import:ours"]
CLEANERS = ["justext", "none", "import:theirs"]


def settings(corpora, **sections):
    path = corpora / "small" / "corpus.yaml"
    body = json.loads(path.read_text("utf-8"))
    body["pipeline"] = {**QUICK, **sections}
    path.write_text(json.dumps(body), "utf-8")


@pytest.fixture
def corpora(tmp_path):
    """Three texts, a page, a good pdf with a transcript, and a broken one."""
    folder = write_corpus(tmp_path / "corpora", documents=3)
    documents = folder / "documents"
    made.text_pdf(documents / "leave.pdf")
    (documents / "broken.pdf").write_bytes(b"%PDF-1.7\nno more")
    (documents / "page.html").write_text(made.HTML, "utf-8")
    (folder / "gold" / "transcripts").mkdir(parents=True)
    (folder / "gold" / "transcripts" / "leave.pdf.txt").write_text(f"Leave policy Días libres {made.ENGLISH}", "utf-8")
    write_jsonl(
        folder / "gold" / "main_text.jsonl",
        [{"doc_id": "page.html", "text": "Employees receive 23 days of paid leave."}],
    )
    write_jsonl(folder / "outputs" / "parsed" / "ours.jsonl", [{"doc_id": "leave.pdf", "text": "Leave policy"}])
    write_jsonl(folder / "outputs" / "cleaned" / "theirs.jsonl", [{"doc_id": "page.html", "text": "Employees receive"}])
    return tmp_path / "corpora"


def test_candidates_are_compared_beside_the_pipeline_and_remembered(corpora):
    home = home_of(corpora.parent)
    plain = Run(home, "small@v1")
    assert plain.frame("parser_candidates").is_empty()
    assert plain.frame("candidate_summary").is_empty()

    settings(corpora, parsing={"candidates": PARSERS}, cleaning={"candidates": CLEANERS})
    run = Run(home, "small@v1", database=True)
    assert run.subject.ids == plain.subject.ids, "what is compared decides nothing that follows"
    assert run.subject.evaluation_id != plain.subject.evaluation_id
    rows = {(row["doc_id"], row["candidate"]): row for row in run.frame("parser_candidates").iter_rows(named=True)}
    names = {"chosen", "pdfplumber", "bare", "import:ours"}
    assert rows.keys() == {(doc_id, name) for doc_id in run.frame("documents")["doc_id"] for name in names}
    assert {name: rows["broken.pdf", name]["status"] for name in names} == {
        "chosen": "error", "pdfplumber": "error", "bare": "error", "import:ours": "missing",
    }  # fmt: skip
    assert rows["page.html", "pdfplumber"]["status"] == "other_format"
    assert rows["page.html", "pdfplumber"]["cer"] is None
    assert rows["leave.pdf", "import:ours"]["coverage"] == pytest.approx(2 / 16)
    assert rows["leave.pdf", "pdfplumber"]["seconds"] > 0
    cleaned = {(row["doc_id"], row["candidate"]): row for row in run.frame("cleaner_candidates").iter_rows(named=True)}
    assert cleaned["page.html", "none"]["boilerplate_recall"] == 0.0
    assert cleaned["page.html", "none"]["missed_boilerplate_chars"] > 0
    assert cleaned["leave.pdf", "justext"]["status"] == "other_format"
    assert cleaned["page.html", "import:theirs"]["main_text_recall"] == pytest.approx(2 / 7)
    summary = run.frame("candidate_summary").filter(stage="parsing", doc_class="all", metric="coverage")
    paired = {row["candidate"]: row for row in summary.iter_rows(named=True)}
    assert paired["import:ours"]["direction"] in {"worse", "inconclusive"}
    assert paired["import:ours"]["delta"] < 0
    assert paired["chosen"]["delta"] is None

    again = Run(home, "small@v1")
    assert "parser_comparison" not in again.computed
    settings(corpora, parsing={"parser": "pdfplumber"})
    chosen = Run(home, "small@v1")
    reused, computed = chosen.counts["parsing"]
    assert (reused, computed) == (2, 4), (
        "pdfs were read by it before; the other formats, and no failure, are remembered"
    )


def test_an_import_that_is_absent_and_a_wrong_entry_are_refused_with_their_place(corpora, monkeypatch):
    home = home_of(corpora.parent)
    settings(corpora, parsing={"candidates": ["import:nobody"]})
    with pytest.raises(ValueError, match=r"outputs/parsed/nobody\.jsonl, which is absent"):
        Run(home, "small@v1")
    settings(corpora, parsing={"candidates": ["tika"]})
    with pytest.raises(ValueError, match=r"pipeline\.parsing\.candidates.*unknown parser 'tika'"):
        Run(home, "small@v1")
    monkeypatch.setattr(engines, "find_spec", lambda _name: None)
    settings(corpora, parsing={"candidates": ["docling"]})
    with pytest.raises(ValueError, match=r"pipeline\.parsing\.candidates.*docling.*rag_eval_pipeline\[docling\]"):
        Run(home, "small@v1")


def test_the_command_shows_a_table_by_class_before_any_run(corpora):
    home = home_of(corpora.parent)
    told = rag_eval(home, "parsers", "small@v1", "--try", "pdfplumber", "--try", "import:ours")
    assert told.returncode == 0, told.stderr
    assert "pypdfium2 (chosen)" in told.stdout
    assert "import:ours" in told.stdout
    assert "not read: chosen: 1 error" in told.stdout
    wrong = rag_eval(home, "parsers", "small@v1", "--try", "tika")
    assert wrong.returncode == 1
    assert "unknown parser 'tika'" in wrong.stderr
    told = rag_eval(home, "cleaners", "small@v1", "--try", "none")
    assert told.returncode == 0, told.stderr
    assert "trafilatura (chosen)" in told.stdout
