"""The report is one file that loads nothing, tells the losses, escapes what it shows and hides what is personal."""

import json
import re

import pytest
from lxml import html

from rag_eval_pipeline.release.reading import Evaluation, NoEvaluationError
from rag_eval_pipeline.release.report import write_report
from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.small import quote_of, text_of, write_corpus

PERSON = "Zoraida Quintanilla"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    home = home_of(tmp_path_factory.mktemp("report"))
    folder = write_corpus(home.corpora, documents=6, evaluate={"k": [1, 3], "serve": "both", "serve_k": 3})
    (folder / "documents" / "travel-0.md").write_text(
        text_of(0, "travel").replace(quote_of(0, "travel"), f"Ask {PERSON}."), "utf-8"
    )
    gold = folder.parent / "gold"
    text = (folder / "documents" / "travel-0.md").read_text("utf-8")
    start = text.index(PERSON)
    (gold / "pii.jsonl").write_text(
        json.dumps({"doc_id": "travel-0.md", "spans": [{"start": start, "end": start + len(PERSON), "type": "PERSON"}]})
        + "\n",
        "utf-8",
    )
    lines = [json.loads(line) for line in (gold / "evidence.jsonl").read_text("utf-8").splitlines()]
    lines[0]["quote"] = f"Ask {PERSON}."
    lines.append({"query_id": "q1", "evidence_id": "gone", "doc_id": "not-there.md", "quote": "It is <b>nowhere</b>."})
    (gold / "evidence.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    queries = [json.loads(line) for line in (gold / "queries.jsonl").read_text("utf-8").splitlines()]
    queries[1]["text"] = f"<script>alert(1)</script> What did {PERSON} say?"
    (gold / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in queries), "utf-8")
    run = Run(home, "small@v1")
    path = write_report(Evaluation.of(home, "small@v1", run.manifest.evaluation_id))
    return run, path, path.read_text("utf-8")


def test_it_is_one_file_that_loads_nothing(written):
    page = html.fromstring(written[2])
    assert not page.xpath("//script | //link | //img | //iframe | //*[@src]")
    assert not re.search(r"url\(|https?://", written[2])


def test_it_shows_the_waterfall_of_the_ledger(written):
    run, _, text = written
    page = html.fromstring(text)
    rows = {
        tr.xpath("string(th)"): [td.text_content().strip() for td in tr.xpath("td")]
        for tr in page.xpath("//table")[0].xpath(".//tbody/tr")
    }
    waterfall = run.frame("loss_waterfall").filter(retriever="both", k=3, slice_name="all")
    for row in waterfall.iter_rows(named=True):
        assert rows[row["stage"]][1] == f"{row['ceiling_after']:.3f}"
    assert rows["source"][3] == "1"


def test_it_tells_what_was_lost_and_escapes_what_it_shows(written):
    assert "not-there.md" in written[2]
    assert "&lt;script&gt;" in written[2]
    assert "<script>" not in written[2]


def test_it_hides_what_is_personal(written):
    assert PERSON not in written[2]
    assert "&lt;PII&gt;" in written[2]


def test_an_evaluation_without_a_manifest_is_refused(written):
    with pytest.raises(NoEvaluationError, match="no manifest"):
        Evaluation.of(written[0].subject.home, "small@v1", "0000")
