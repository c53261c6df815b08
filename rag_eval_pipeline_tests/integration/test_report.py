"""The report is one file that loads nothing, tells the losses, escapes what it shows and hides what is personal."""

import base64
import hashlib
import itertools
import json
import re

import polars as pl
import pytest
from lxml import html

import rag_eval_pipeline.release.report as report
from rag_eval_pipeline.release.comment import markdown_report
from rag_eval_pipeline.release.comparing import compare
from rag_eval_pipeline.release.reading import Evaluation, NoEvaluationError
from rag_eval_pipeline.release.report import LARGEST, html_report, write_report
from rag_eval_pipeline.release.showing import document_rows, story_lines
from rag_eval_pipeline.release.stories import Stories, story_json
from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.small import quote_of, text_of, write_corpus

PERSON, SHORT = "Zoraida Quintanilla", "Ana"
"""A name that the redactor knows, and one too short for it: only its place tells that it is personal."""


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    home = home_of(tmp_path_factory.mktemp("report"))
    folder = write_corpus(home.corpora, documents=6, evaluate={"k": [1, 3], "serve": "both", "serve_k": 3})
    gold, document = folder.parent / "gold", folder / "documents" / "travel-0.md"
    asked = f"Ask {PERSON} or {SHORT}."
    document.write_text(
        text_of(0, "travel").replace(quote_of(0, "travel"), f"{asked} <script>alert(2)</script>"), "utf-8"
    )
    text = document.read_text("utf-8")
    spans = [
        {"start": text.index(name), "end": text.index(name) + len(name), "type": "PERSON"} for name in (PERSON, SHORT)
    ]
    write_jsonl(gold / "pii.jsonl", [{"doc_id": "travel-0.md", "spans": spans}])
    lines = [json.loads(line) for line in (gold / "evidence.jsonl").read_text("utf-8").splitlines()]
    lines[0]["quote"] = asked
    lines.append({"query_id": "q1", "evidence_id": "gone", "doc_id": "not-there.md", "quote": "It is <b>nowhere</b>."})
    write_jsonl(gold / "evidence.jsonl", lines)
    queries = [json.loads(line) for line in (gold / "queries.jsonl").read_text("utf-8").splitlines()]
    queries[0]["text"] = "zebra crossing"
    queries[1]["text"] = f"<script>alert(1)</script> What did {PERSON} say?"
    write_jsonl(gold / "queries.jsonl", queries)
    run = Run(home, "small@v1")
    path = write_report(Evaluation.of(home, "small@v1", run.manifest.evaluation_id))
    return run, path, path.read_text("utf-8")


def evaluation_of(run):
    return Evaluation.of(run.subject.home, run.manifest.key, run.manifest.evaluation_id)


def test_it_is_one_file_that_loads_nothing_and_runs_only_its_own_script(written):
    page = html.fromstring(written[2])
    assert not page.xpath("//link | //img | //iframe | //object | //*[@src] | //*[@onclick] | //base")
    assert not re.search(r"url\(|@import|https?://", written[2])
    (script,) = page.xpath("//script")
    policy = page.xpath("string(//meta[@http-equiv='Content-Security-Policy']/@content)")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert len(written[2].encode()) < LARGEST


def test_it_shows_the_waterfall_of_the_ledger(written):
    run, _, text = written
    page = html.fromstring(text)
    rows = {
        tr.xpath("string(th)").strip(): [td.text_content().strip() for td in tr.xpath("td")]
        for tr in page.xpath("//section[@aria-labelledby='waterfall']//table")[0].xpath(".//tr[td]")
    }
    waterfall = run.frame("loss_waterfall").filter(retriever="both", k=3, slice_name="all")
    for row in waterfall.iter_rows(named=True):
        if row["stage"] != "unanchored" or row["lost_units"]:
            assert rows[row["stage"]][0] == f"{row['ceiling_after']:.3f}"
            assert rows[row["stage"]][2] == (str(row["lost_units"]) if row["lost_units"] else "–")
    assert rows["source"][2] == "1"
    assert rows["served"][0] == f"{waterfall['recall'][0]:.3f}"
    drawn = {bar.get("data-stage") for bar in page.xpath("//*[@data-kind='lost']")}
    assert drawn == set(waterfall.filter(pl.col("lost_units") > 0)["stage"])


def test_every_lost_query_has_a_story_that_can_be_linked_to(written):
    run, _, text = written
    page = html.fromstring(text)
    fate = run.frame("evidence_fate").filter(retriever="both", k=3, served=False, eligible=True)
    for query in fate["query_id"].unique():
        assert page.xpath(f"//article[@id='query-{query}']")
        assert page.xpath(f"//section[@aria-labelledby='losses']//a[@href='#query-{query}']")
    ids = [element.get("id") for element in page.xpath("//*[@id]")]
    assert len(ids) == len(set(ids))
    assert {a.get("href")[1:] for a in page.xpath("//a[starts-with(@href, '#')]")} <= set(ids)


def test_it_can_be_read_without_eyes_and_without_a_mouse(written):
    page = html.fromstring(written[2])
    assert page.get("lang") == "en"
    assert page.xpath("//a[@class='skip'][@href='#main']")
    assert page.xpath("//main[@id='main']")
    levels = [int(h.tag[1]) for h in page.xpath("//h1|//h2|//h3|//h4")]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    for table in page.xpath("//table"):
        assert table.xpath("caption")
        assert table.xpath(".//th[@scope='col']")
    for svg in page.xpath("//svg[not(@aria-hidden)]"):
        names = svg.get("aria-labelledby").split()
        assert svg.get("role") == "img"
        assert all(svg.xpath(f".//*[@id='{name}']")[0].text for name in names)
    for box in page.xpath("//*[@class='scroll']"):
        assert box.get("tabindex") == "0"
        assert box.get("aria-label")


def test_it_tells_what_was_lost_and_escapes_what_it_shows(written):
    assert "not-there.md" in written[2]
    assert "&lt;script&gt;alert(1)" in written[2]
    assert not re.search(r"<script>alert|<b>nowhere", written[2])


def test_a_query_without_a_story_says_whether_it_is_unknown_or_unlabelled(written, monkeypatch):
    evaluation = evaluation_of(written[0])
    stories, frame = Stories(evaluation, "both", 3), type(evaluation).frame
    with pytest.raises(LookupError, match="no query 'q00' in this evaluation; did you mean 'q0'"):
        stories.of("q00")

    def without_labels(self, name):
        found = frame(self, name)
        return found.filter(pl.col("query_id") != "q2") if name == "evidence_units" else found

    monkeypatch.setattr(type(evaluation), "frame", without_labels)
    with pytest.raises(LookupError, match="'q2' has no labelled evidence in the measured split") as told:
        stories.of("q2")
    (sql,) = re.findall('rag-eval sql "(.+)"', str(told.value))
    ranked = evaluation.frame("ranked_runs").filter(query_id="q2", retriever="both").with_columns(
        corpus_version=pl.lit("small@v1"), pipeline=pl.lit("default")
    )  # fmt: skip
    assert (
        pl.SQLContext(current_ranked_runs=ranked).execute(sql, eager=True)["rank"].to_list()
        == ranked["rank"].sort().to_list()[:3]
        != []
    )


def test_part_of_a_documents_name_finds_it(written):
    with pytest.raises(LookupError, match=r"'travel' is not in this version; did you mean 'travel-0\.md'"):
        document_rows(evaluation_of(written[0]), "travel", "masked")


def test_a_document_that_was_not_read_shows_why(tmp_path):
    home = home_of(tmp_path)
    folder = write_corpus(home.corpora, documents=2)
    (folder / "documents" / "broken.pdf").write_bytes(b"%PDF-1.7 cut off")
    run = Run(home, "small@v1")
    (row,) = document_rows(evaluation_of(run), "broken.pdf", "masked").to_dicts()
    assert row["kind"] == "error"
    assert "truncated" in row["text"]


def test_it_hides_what_is_personal_by_string_and_by_place(written):
    run, _, text = written
    evaluation = evaluation_of(run)
    page = Stories(evaluation, "both", 3).of("q0")
    assert page.lost, "the story shows the passage with the names"
    forms = [text, markdown_report(evaluation), story_json(page, evaluation)]
    forms.append("\n".join(words for line in story_lines(page, evaluation.redactor) for words, _ in line))
    for form in forms:
        assert PERSON not in form
        assert "Quintanilla" not in form
        assert not re.search(rf"\b{SHORT}\b", form)
    assert "&lt;PERSON&gt;" in text
    assert "<PERSON>" in forms[3]


def test_source_text_is_shown_where_the_corpus_publishes_it(written, tmp_path):
    run = written[0]
    home = home_of(tmp_path)
    folder = write_corpus(
        home.corpora, documents=3, publish={"source_text": True}, evaluate={"k": [1], "serve": "both", "serve_k": 1}
    )
    (folder / "documents" / "travel-0.md").write_text(f"# T\n\nAsk {PERSON} first, then pay 5 EUR.\n", "utf-8")
    gold = folder.parent / "gold"
    start = (folder / "documents" / "travel-0.md").read_text("utf-8").index(PERSON)
    write_jsonl(
        gold / "pii.jsonl",
        [{"doc_id": "travel-0.md", "spans": [{"start": start, "end": start + len(PERSON), "type": "PERSON"}]}],
    )
    lines = [json.loads(line) for line in (gold / "evidence.jsonl").read_text("utf-8").splitlines()]
    lines[0]["quote"] = "then pay 5 EUR."
    write_jsonl(gold / "evidence.jsonl", lines)
    queries = [json.loads(line) for line in (gold / "queries.jsonl").read_text("utf-8").splitlines()]
    queries[0]["text"] = "zebra crossing"
    write_jsonl(gold / "queries.jsonl", queries)
    open_run = Run(home, "small@v1")
    assert PERSON in html_report(evaluation_of(open_run))
    assert PERSON not in written[2]
    assert run.manifest.config["publish"]["source_text"] is False


def test_the_scorecard_is_there_without_a_script(written):
    run, _, text = written
    page = html.fromstring(text)
    rows = page.xpath("//table[@id='scorecard-table']/tbody/tr")
    assert len(rows) == run.frame("scorecard").filter(slice_name="all").height
    assert page.xpath("//*[@id='scorecard-controls'][@hidden]")


def test_missing_gold_is_named(written):
    page = html.fromstring(written[2])
    text = page.xpath("string(//section[@aria-labelledby='coverage'])")
    assert "no_gold" in text


def test_a_page_that_would_be_too_large_leaves_stories_out_and_says_so(written, monkeypatch):
    whole = html_report(evaluation_of(written[0]))
    monkeypatch.setattr(report, "LARGEST", len(whole.encode()) - 1)
    less = html_report(evaluation_of(written[0]))
    assert less.count("<article") < whole.count("<article")
    assert "more queries have no story here" in less


def test_repairs_stand_beside_the_losses(written, monkeypatch):
    run = written[0]
    row = dict.fromkeys(("marginal_recall", "shapley", "n_lost", "n_repairable", "queries_hurt"), None)
    repairs = {
        "source": row
        | {
            "kind": "stage",
            "recovered_recall": 0.0625,
            "recovered_low": 0.01,
            "recovered_high": 0.1,
            "n_lost": 2,
            "n_repairable": 1,
        }
    }
    monkeypatch.setattr(report, "repairs_of", lambda *_: repairs)
    page = html.fromstring(html_report(evaluation_of(run)))
    assert page.xpath("//*[@data-kind='back'][@data-stage='source']")
    cells = page.xpath("string(//section[@aria-labelledby='waterfall']//tr[th[contains(., 'source')]])")
    assert "≥ +0.062 [+0.010, +0.100]" in cells
    assert "1 of 2" in cells


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ({"dedup": 0.2}, ", most at dedup."),
        ({"dedup": 0.2, "pii": 0.1}, ", most at dedup, then at pii."),
        ({"dedup": 0.1, "pii": 0.1}, ", at dedup and pii."),
        ({"dedup": 0.1, "pii": 0.1, "rank": 0.1}, ", at dedup, pii and rank."),
    ],
)
def test_no_stage_is_said_to_lose_most_where_two_lose_the_same(lost, words, written, monkeypatch):
    evaluation = evaluation_of(written[0])
    told = report.headline(evaluation)
    told |= {"n_served": told["n_units"] - 1}
    told["worst"] = [{"stage": stage, "units": 1, "recall": recall} for stage, recall in lost.items()]
    monkeypatch.setattr(report, "headline", lambda *_: told)
    page = html.fromstring(html_report(evaluation))
    assert f"lost on the way{words}" in " ".join(page.text_content().split())


def test_what_changed_since_the_baseline_is_told(written, tmp_path):
    home = home_of(tmp_path)
    folder = write_corpus(home.corpora, documents=4, evaluate={"k": [3], "serve": "both", "serve_k": 3})
    before = Run(home, "small@v1")
    later = folder.parent / "v2" / "documents"
    later.mkdir(parents=True)
    for file in (folder / "documents").iterdir():
        if file.name != "travel-0.md":
            (later / file.name).write_bytes(file.read_bytes())
    now = Run(home, "small@v2")
    compare(home, before.manifest, now.manifest)
    evaluation = evaluation_of(now)
    page = html.fromstring(html_report(evaluation))
    text = " ".join(page.xpath("string(//section[@aria-labelledby='changes'])").split())
    assert "Against small@v1" in text
    assert "newly lost" in text
    assert "removed" in text
    short = markdown_report(evaluation)
    assert "| newly lost | source | missing\\_document | removed |" in short
    assert "−0.250" in short
    assert not html.fromstring(html_report(evaluation_of(before))).xpath("//*[@id='changes']")


def test_the_short_form_is_markdown_that_acts_on_nothing(written):
    text = markdown_report(evaluation_of(written[0]))
    assert text.startswith("### small@\u200bv1: recall@3 ")
    assert "| source | " in text
    assert "<script>" not in text
    assert "<b>" not in text
    rows = [line for line in text.splitlines() if line.startswith("| q")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows)


def test_an_evaluation_without_a_manifest_is_refused(written):
    with pytest.raises(NoEvaluationError, match="no manifest"):
        Evaluation.of(written[0].subject.home, "small@v1", "0000")
