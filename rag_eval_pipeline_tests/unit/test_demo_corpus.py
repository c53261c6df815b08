"""The shipped demo corpus: it is as its sources say, its labels are true, and its faults speak of units that exist."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from rag_eval_pipeline.corpus.version import load_version

DATA = Path(__file__).parent.parent.parent / "data"
CORPUS = DATA / "corpora" / "nimbara"
GENERATOR = DATA / "generator"
VERSIONS = ("2026-09", "2026-10")
FORMATS = {"pdf", "html", "docx", "md", "txt", "csv", "png", "jpg", "tiff"}
STAGES = {"source", "parsing", "cleaning", "dedup", "pii", "chunking", "filtering", "embedding", "search", "reranking"}


@pytest.fixture(scope="module", params=VERSIONS)
def version(request):
    return load_version(DATA / "corpora", f"nimbara@{request.param}")


@pytest.fixture(scope="module")
def references(version):
    return dict(version.gold.references.iter_rows())


@pytest.fixture(scope="module")
def faults():
    return yaml.safe_load((GENERATOR / "faults.yaml").read_text("utf-8"))


def test_has_sixty_documents_in_every_format_two_languages_and_two_tenants(version):
    assert version.files.height >= 60
    assert {path.rsplit(".", 1)[1] for path in version.files["path"]} == FORMATS
    assert {"en", "es"} <= set(version.files["language"])
    assert {"nimbara", "veltio", None} == set(version.files["tenant"])
    assert version.files["acl"].list.len().max() >= 1


def test_has_enough_queries_in_test_and_beside_it(version):
    queries = version.gold.queries
    splits = Counter(queries["split"])
    assert queries.height >= 150
    assert splits["test"] >= 120
    assert splits["dev"] >= 20
    assert splits["calibration"] >= 10
    assert set(queries["language"]) == {"en", "es"}


def test_has_questions_out_of_scope_and_questions_that_need_several_passages(version):
    queries, evidence = version.gold.queries, version.gold.evidence
    assert queries.filter(intent="out_of_scope")["answerable"].not_().sum() >= 12
    assert not set(queries.filter(intent="out_of_scope")["query_id"]) & set(evidence["query_id"])
    per_query = Counter(evidence["query_id"])
    assert sum(count > 1 for count in per_query.values()) >= 15
    documents = {query: set() for query in per_query}
    for query, doc_id in evidence.select("query_id", "doc_id").iter_rows():
        documents[query].add(doc_id)
    assert sum(len(names) > 1 for names in documents.values()) >= 4


def test_no_document_stands_on_both_sides_of_a_split(version):
    split = dict(version.gold.queries.select("query_id", "split").iter_rows())
    sides = {}
    for query, doc_id in version.gold.evidence.select("query_id", "doc_id").iter_rows():
        sides.setdefault(doc_id, set()).add(split[query])
    assert [doc_id for doc_id, names in sides.items() if len(names) > 1] == []


def test_every_quote_stands_word_by_word_in_its_reference_text(version, references):
    for query, unit, doc_id, quote in version.gold.evidence.select(
        "query_id", "evidence_id", "doc_id", "quote"
    ).iter_rows():
        assert quote in references[doc_id], (query, unit)


def test_every_claim_names_evidence_of_its_query_and_every_answerable_query_has_an_answer(version):
    units = set(version.gold.evidence.select("query_id", "evidence_id").iter_rows())
    for query, support in version.gold.claims.select("query_id", "supported_by").iter_rows():
        assert support
        assert all((query, unit) in units for unit in support)
    answered = set(version.gold.answers_gold["query_id"])
    assert set(version.gold.queries.filter("answerable")["query_id"]) <= answered


def test_personal_data_is_labelled_exactly(version, references):
    shapes = {
        "EMAIL_ADDRESS": r"[\w.]+@(?:[\w-]+\.)*example\.(?:com|org|es)",
        "PHONE_NUMBER": r"\+(?:34|44|1)[\d -]{9,13}\d",
        "IBAN_CODE": r"ES\d{2}(?: \d{4}){5}",
    }
    count = 0
    for doc_id, spans in version.gold.pii.iter_rows():
        if spans:
            marked = {(span["start"], span["end"]) for span in spans}
            for span in spans:
                assert re.fullmatch(shapes[span["type"]], references[doc_id][span["start"] : span["end"]])
            found = {match.span() for match in re.finditer(shapes["EMAIL_ADDRESS"], references[doc_id])}
            assert found <= marked
            count += len(spans)
    assert count >= 30


def test_no_personal_data_stands_in_queries_titles_or_claims(version):
    texts = [*version.gold.queries["text"], *version.files["title"], *version.gold.claims["text"]]
    # October's order codes ("cover@cota.example.es") look like addresses and are none: that is the planted fault.
    assert [text for text in texts if re.search(r"@(?!cota\.example\.es)|\+\d\d", text)] == []


def test_boilerplate_and_quotes_do_not_overlap(version, references):
    boilerplate = dict(version.gold.main_text.select("doc_id", "boilerplate").iter_rows())
    pages = set(version.files.filter(version.files["path"].str.ends_with(".html"))["doc_id"])
    assert pages == set(boilerplate)
    for doc_id, quote in version.gold.evidence.select("doc_id", "quote").iter_rows():
        if doc_id in boilerplate:
            start = references[doc_id].find(quote)
            assert all(span["end"] <= start or span["start"] >= start + len(quote) for span in boilerplate[doc_id])


def test_documents_that_have_tables_have_reference_tables_and_all_have_a_language(version):
    assert version.gold.tables["doc_id"].n_unique() >= 20
    assert set(version.files["doc_id"]) <= set(version.gold.languages["doc_id"])


def test_labelled_pairs_hold_copies_and_look_alikes(version):
    labels = Counter(version.gold.duplicates["duplicate"])
    assert labels[True] >= 4
    assert labels[False] >= 8


def test_the_correct_filter_admits_the_evidence_where_the_tags_are_right():
    from rag_eval_pipeline.corpus.predicates import matches

    first = load_version(DATA / "corpora", "nimbara@2026-09")
    filters = {
        query: json.loads(text) for query, text in first.gold.queries.select("query_id", "filter").iter_rows() if text
    }
    for query, predicate in filters.items():
        needed = set(first.gold.evidence.filter(query_id=query)["doc_id"])
        admitted = set(first.files.filter(matches(first.files, predicate))["doc_id"])
        assert needed <= admitted, query


def test_both_versions_ask_for_the_same_units():
    first, second = (load_version(DATA / "corpora", f"nimbara@{name}").gold for name in VERSIONS)
    units = [set(gold.evidence.select("query_id", "evidence_id", "doc_id").iter_rows()) for gold in (first, second)]
    assert units[0] == units[1]


def test_faults_stand_at_six_stages_or_more_and_name_units_that_exist(faults):
    second = load_version(DATA / "corpora", "nimbara@2026-10")
    units = {f"{query}/{unit}" for query, unit in second.gold.evidence.select("query_id", "evidence_id").iter_rows()}
    stages = {fault["stage"] for fault in faults}
    assert len(stages) >= 6
    assert stages <= STAGES
    for fault in faults:
        assert fault["units"], fault["fault"]
        assert set(fault["units"]) <= units
        assert fault["why"]


@pytest.fixture(scope="module")
def answer_faults():
    return yaml.safe_load((GENERATOR / "answer_faults.yaml").read_text("utf-8"))


def test_recorded_answers_stand_for_every_question_and_some_were_asked_twice():
    first = load_version(DATA / "corpora", "nimbara@2026-09#recorded-answers")
    asked = Counter(first.outputs["answers"]["query_id"])
    assert set(asked) == set(first.gold.queries["query_id"])
    assert sum(count > 1 for count in asked.values()) >= 10
    assert first.outputs["answers"]["confidence"].is_between(0, 1).all()


def test_answer_faults_of_five_kinds_name_questions_that_exist_in_both_languages(answer_faults):
    first = load_version(DATA / "corpora", "nimbara@2026-09")
    test = dict(first.gold.queries.filter(split="test").select("query_id", "language").iter_rows())
    said = dict(
        load_version(DATA / "corpora", answer_faults[0]["key"])
        .outputs["answers"]
        .select("query_id", "answer")
        .iter_rows()
    )
    assert {fault["fault"] for fault in answer_faults} == {
        "fabricated-number", "ignored-evidence", "invented-citation", "wrong-refusal", "answered-out-of-scope"
    }  # fmt: skip
    planted = [query for fault in answer_faults for query in fault["queries"]]
    assert len(set(planted)) == len(planted)
    for fault in answer_faults:
        assert {test[query] for query in fault["queries"]} == {"en", "es"}
        assert fault["metrics"]
        assert fault["why"]
        assert all(said[query] for query in fault["queries"])


def test_the_fault_list_lies_outside_of_the_corpora(faults):
    assert faults
    assert not list((DATA / "corpora").rglob("*fault*"))


def test_files_are_small():
    sizes = [path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()]
    assert max(sizes) <= 300_000
    assert sum(sizes) < 8 * 2**20
    pictures = [path for path in CORPUS.rglob("*") if path.suffix in {".png", ".jpg", ".tiff"}]
    assert all(path.stat().st_size < 100_000 for path in pictures)


def test_committed_files_are_what_the_sources_say():
    done = subprocess.run(  # a process of its own: the generator's modules must not reach this one
        [sys.executable, str(GENERATOR / "build.py"), "--check", "--text"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_committed_binary_files_are_what_the_sources_say():
    done = subprocess.run(
        [sys.executable, str(GENERATOR / "build.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
