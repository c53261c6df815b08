"""Every broken input is refused with file, line, field, found and expected; none ends in another error."""

import json
import os

import polars as pl
import pytest

from rag_eval_pipeline.corpus import jsonl
from rag_eval_pipeline.corpus.faults import CorpusError
from rag_eval_pipeline.corpus.keys import KeyNameError

QUOTE = "Five days may be carried over."


def test_a_sound_corpus_loads_without_warnings(corpora):
    corpora.evidence(quote=QUOTE)
    version = corpora.load()
    assert version.warnings == ()
    assert version.gold.present == {"queries", "evidence"}


@pytest.mark.parametrize(
    ("name", "line", "number", "field", "found", "expected"),
    [
        ("queries.jsonl", {"query_id": "q2", "text": "x", "langage": "en"}, 2, "langage", "unknown field", "known one"),
        ("queries.jsonl", {"query_id": "q2"}, 2, "text", "no such field", "required"),
        ("queries.jsonl", {"query_id": 2, "text": "x"}, 2, "query_id", "the number 2", "valid string"),
        ("queries.jsonl", {"query_id": "", "text": "x"}, 2, "query_id", "0 characters", "at least 1"),
        ("queries.jsonl", {"query_id": "a\tb", "text": "x"}, 2, "query_id", "3 characters", "no control"),
        ("queries.jsonl", {"query_id": "q2", "text": "x", "split": "train"}, 2, "split", "'train'", "'test'"),
        ("queries.jsonl", {"query_id": "q2", "text": "x", "answerable": "yes"}, 2, "answerable", "string", "boolean"),
        ("queries.jsonl", {"query_id": "q2", "text": "x", "tags": "a"}, 2, "tags", "string", "list"),
        ("queries.jsonl", {"query_id": "q2", "text": "x", "language": "en us"}, 2, "language", "5 characters", "'en'"),
        ("queries.jsonl", {"query_id": "q2", "text": "x", "filter": {"a": {"eqq": 1}}}, 2, "filter", "object", "'eq'"),
        ("queries.jsonl", {"query_id": "q2", "text": "x", "principal": "ann"}, 2, "principal", "unknown", "principals"),
        ("queries.jsonl", {"query_id": "q1", "text": "x"}, 2, "query_id", "the item of line 1", "once"),
        ("principals.jsonl", {"principal": "a", "groups": [1]}, 1, "groups[0]", "the number 1", "string"),
        ("evidence.jsonl", {"query_id": "q1", "evidence_id": "e"}, 1, "doc_id", "no such field", "required"),
        ("evidence.jsonl", {"query_id": "q9", "evidence_id": "e", "doc_id": "leave.txt", "quote": QUOTE}, 1, "query_id", "'q9'", "queries.jsonl"),
        ("claims.jsonl", {"query_id": "q9", "claim_id": "c", "text": "x"}, 1, "query_id", "'q9'", "queries.jsonl"),
        ("answers_gold.jsonl", {"query_id": "q1", "answers": []}, 1, "answers", "a list of 0", "at least 1"),
        ("verdicts.jsonl", {"answer_id": "a", "claim": "c", "verdict": "yes", "time": "noon"}, 1, "time", "4 characters", "ISO"),
        ("structure.jsonl", {"doc_id": "leave.txt", "blocks": [{"kind": "h", "txt": "x", "text": "y"}]}, 1, "blocks[0].txt", "unknown", "known"),
        ("main_text.jsonl", {"doc_id": "leave.txt"}, 1, "", "object", "text or boilerplate"),
        ("main_text.jsonl", {"doc_id": "leave.txt", "boilerplate": [{"start": 0, "end": 999}]}, 1, "boilerplate[0].end", "999", "at most 81"),
        ("languages.jsonl", {"doc_id": "leave.txt", "language": None}, 1, "language", "null", "string"),
        ("duplicates.jsonl", {"doc_a": "a", "doc_b": "a", "duplicate": True}, 1, "", "object", "two different"),
        ("pii.jsonl", {"doc_id": "leave.txt", "spans": [{"start": 5, "end": 5, "type": "X"}]}, 1, "spans[0]", "object", "end after start"),
        ("pii.jsonl", {"doc_id": "leave.txt", "spans": [{"start": 5, "end": 99, "type": "X"}]}, 1, "spans[0].end", "99", "at most 81"),
        ("pii.jsonl", {"doc_id": "leave.txt", "spans": [{"start": -1, "end": 2, "type": "X"}]}, 1, "spans[0].start", "-1", "greater"),
        ("pii.jsonl", {"doc_id": "scan.pdf", "spans": [{"start": 1, "end": 2, "type": "X"}]}, 1, "spans", "without reference", "transcript"),
        ("relations.jsonl", {"doc_id": "leave.txt", "triples": [["a", "b"]]}, 1, "triples[0]", "a list of 2", "at least 3"),
        ("ontology.jsonl", {"node": "a", "parents": ["b"]}, 1, "parents", "'b'", "a node"),
        ("ontology.jsonl", {"node": "a", "parents": ["a"]}, 1, "parents", "a → a", "no cycle"),
        ("links.jsonl", {"text_id": "t", "start": 3, "end": 1, "node": "NIL"}, 1, "", "object", "end after start"),
        ("evidence.jsonl", {"query_id": "q1", "evidence_id": "e", "doc_id": "leave.txt", "quote": "x", "grade": 2**70}, 1, "grade", "out of range", "less than"),
        ("evidence.jsonl", {"query_id": "q1", "evidence_id": "e", "doc_id": "lost.txt", "quote": "x", "occurrence": 2**70}, 1, "occurrence", "out of range", "less than"),
        ("queries.jsonl", {"id": "q9", "delete": True}, 2, "id", "shared gold has not", "shared file"),
        ("evidence.jsonl", {"id": "e", "delete": True}, 1, "id", "2", "[query_id, evidence_id]"),
    ],
)  # fmt: skip
def test_a_wrong_line_names_line_and_field(corpora, name, line, number, field, found, expected):
    corpora.put("gold/queries.jsonl", "")
    corpora.put("v1/documents/scan.pdf", b"%PDF")
    corpora.lines("v1/gold/queries.jsonl", {"query_id": "q1", "text": "How many days?"})
    path = corpora.root / "c/v1/gold" / name
    before = path.read_text() if path.exists() else ""
    path.write_text(before + json.dumps(line) + "\n")
    fault = corpora.faults()[0]
    assert (fault.file, fault.line, fault.field) == (f"c/v1/gold/{name}", number, field)
    if found != "2":
        assert found in fault.found
    assert expected in fault.expected or expected in fault.hint


@pytest.mark.parametrize(
    ("fields", "field", "found"),
    [
        ({}, "", "object"),
        ({"quote": " \n"}, "", "object"),
        ({"end": 4, "quote": QUOTE}, "", "object"),
        ({"start": 4}, "", "object"),
        ({"start": 4, "end": 2}, "", "object"),
        ({"quote": QUOTE, "start": 14, "occurrence": 1}, "", "object"),
        ({"start": 1, "end": 2, "occurrence": 1}, "", "object"),
        ({"quote": "Six days may be carried over."}, "quote", "similarity 0.9"),
        ({"start": 80, "end": 99}, "end", "99"),
        ({"start": 0, "end": 5, "quote": "Levee"}, "quote", "similarity 0.6"),
        ({"start": 80, "end": 81}, "start", "white space"),
        ({"quote": "The fee is 8 USD.", "occurrence": 3}, "occurrence", "3"),
        ({"quote": "The fee is 8 USD.", "occurrence": 0}, "occurrence", "0"),
        ({"quote": "The fee is 8 USD.", "start": 46}, "start", "46"),
        ({"quote": QUOTE, "critical": ["Five", "5"]}, "critical[1]", "the quote has not"),
    ],
)
def test_wrong_evidence_is_refused(corpora, fields, field, found):
    corpora.evidence(**fields)
    fault = corpora.fault()
    assert (fault.file, fault.line, fault.field) == ("c/v1/gold/evidence.jsonl", 1, field)
    assert found in fault.found


def test_a_quote_that_is_not_in_its_transcript_is_refused_with_the_nearest_place(corpora):
    corpora.put("v1/documents/scan.pdf", b"%PDF-1.4")
    corpora.put("gold/transcripts/scan.pdf.txt", "The deposit is 300 EUR.")
    corpora.evidence(doc_id="scan.pdf", quote="The deposit is 800 EUR.")
    fault = corpora.fault()
    assert "similarity 0.96 at 0–23" in fault.found
    assert "deposit" not in str(fault)


def test_offsets_without_a_reference_text_are_refused(corpora):
    corpora.put("v1/documents/scan.pdf", b"%PDF-1.4")
    corpora.evidence(doc_id="scan.pdf", start=0, end=4)
    assert "a transcript or a quote" in corpora.fault().expected


def test_a_quote_without_a_reference_text_is_accepted(corpora):
    corpora.put("v1/documents/scan.pdf", b"%PDF-1.4")
    corpora.evidence(doc_id="scan.pdf", quote="anything")
    assert corpora.load().warnings == ()


def test_a_quote_that_occurs_twice_is_a_warning_unless_start_or_occurrence_says_which(corpora):
    corpora.evidence(quote="The fee  is\n8 USD.")
    assert [(w.line, w.field, w.found) for w in corpora.load().warnings] == [
        (1, "quote", "several occurrences in the document")
    ]
    corpora.evidence(quote="The fee  is\n8 USD.", occurrence=2)
    version = corpora.load()
    assert version.warnings == ()
    assert version.gold.evidence.select("start", "end").row(0) == (63, 80)
    corpora.evidence(quote="The fee is 8 USD.", start=63)
    version = corpora.load()
    assert version.warnings == ()
    assert version.gold.evidence["end"][0] == 80


def test_all_faults_of_a_file_are_told_at_once(corpora):
    corpora.lines("gold/queries.jsonl", {"query_id": "q1"}, {"query_id": "q2", "text": 3}, {"text": "x"})
    assert [(fault.line, fault.field) for fault in corpora.faults()] == [(1, "text"), (2, "text"), (3, "query_id")]


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        (b'{"query_id": "q1", "text": "x"}\n{"query_id": "q2" "text": "x"}\n', 2, "invalid JSON at column 19"),
        (b'{"query_id": "q1", "text": "x"}\n\n["q2"]\n', 3, "a list of 1"),
        (b'{"query_id": "q1", "text": "\xe9"}\n', 1, "aren't UTF-8 at byte 29"),
        (b'{"query_id": "q1", "text": "x", "text": "y"}\n', 1, "the field twice"),
        (b'{"query_id": "q1", "text": NaN}\n', 1, "NaN is no JSON number"),
        (b'{"query_id": "q1", "text": "\\ud800"}\n', 1, "surrogate"),
        (b"[" * 100_000 + b"\n", 1, "nested too deeply"),
        (b'{"query_id": "q1", "text": ' + b"9" * 5000 + b"}\n", 1, "invalid JSON"),
        (b"\x00\x00\n", 1, "invalid JSON"),
    ],
)
def test_what_is_no_json_line_is_refused(corpora, content, line, found):
    corpora.put("gold/queries.jsonl", content)
    fault = corpora.fault()
    assert (fault.file, fault.line) == ("c/gold/queries.jsonl", line)
    assert found in fault.found


def test_bom_and_crlf_are_tolerated(corpora):
    rows = [json.dumps({"query_id": f"q{i}", "text": "x"}) for i in range(3)]
    corpora.put("gold/queries.jsonl", b"\xef\xbb\xbf" + "\r\n".join([*rows, "", ""]).encode())
    assert corpora.load().gold.queries["query_id"].to_list() == ["q0", "q1", "q2"]


def test_a_50_mb_line_is_refused_and_lines_after_it_are_still_read(corpora):
    long = b'{"query_id": "q2", "text": "' + b"x" * 50_000_000 + b'"}\n'
    corpora.put("gold/queries.jsonl", b'{"query_id": "q1", "text": "x"}\n' + long + b'{"query_id": "q3"}\n')
    faults = corpora.faults()
    assert [fault.line for fault in faults] == [2, 3]
    assert faults[0].found == f"a line of {len(long):,} bytes"
    assert f"{jsonl.LINE_LIMIT:,}" in faults[0].expected


@pytest.mark.parametrize("field", ["doc_id", "path"])
@pytest.mark.parametrize("value", ["../secret.txt", "a/../../b", "/etc/passwd", "a\\b", "./leave.txt"])
def test_a_path_that_leaves_the_documents_is_refused(corpora, field, value):
    corpora.lines("v1/documents.jsonl", {"doc_id": "leave.txt", "path": "leave.txt", field: value})
    fault = corpora.faults()[0]
    assert (fault.file, fault.line, fault.field) == ("c/v1/documents.jsonl", 1, field)


@pytest.mark.parametrize(
    "name", ["v1/documents/out.txt", "gold/transcripts/out.txt", "v1/gold/evidence.jsonl", "v1/outputs/cleaned.jsonl", "corpus.yaml"]
)  # fmt: skip
def test_a_link_out_of_the_corpus_is_refused(corpora, name):
    outside = corpora.root / "outside"
    outside.write_text("secret")
    path = corpora.root / "c" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside)
    fault = corpora.fault()
    assert (fault.file, fault.found) == (f"c/{name}", "a link that leaves the corpus")


@pytest.mark.parametrize("name", ["v1/documents/folder", "gold/transcripts", "v1/gold", "v1/outputs", "v2"])
def test_a_linked_folder_out_of_the_corpus_is_refused(corpora, name):
    outside = corpora.root / "outside"
    (outside / "documents").mkdir(parents=True)
    (outside / "documents" / "a.txt").write_text("secret")
    (corpora.root / "c" / name).symlink_to(outside)
    fault = corpora.fault("c@v2" if name == "v2" else "c@v1")
    assert (fault.file, fault.found) == (f"c/{name}", "a link that leaves the corpus")


def test_a_link_inside_the_corpus_is_followed_and_loops_are_refused(corpora):
    (corpora.root / "c/v1/documents/again.txt").symlink_to("leave.txt")
    assert corpora.load().files["doc_id"].to_list() == ["again.txt", "leave.txt"]
    (corpora.root / "c/v1/documents/loop").symlink_to(".")
    assert corpora.fault().found == "a link to a folder above it"


@pytest.mark.parametrize(
    "name", ["v1/documents.jsonl", "v1/gold/pii.jsonl", "gold/transcripts/a.txt", "v1/outputs/cleaned.jsonl", "corpus.yaml"]
)  # fmt: skip
def test_a_link_to_itself_is_refused(corpora, name):
    path = corpora.root / "c" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)
    fault = corpora.fault()
    assert (fault.file, fault.found) in {(f"c/{name}", "no file"), (f"c/{name}", "a link to nothing")}


def test_a_broken_link_and_a_pipe_are_refused(corpora):
    (corpora.root / "c/v1/documents/gone.txt").symlink_to("nowhere")
    os.mkfifo(corpora.root / "c/v1/documents/pipe.txt")
    assert [fault.found for fault in corpora.faults()] == ["a link to nothing", "neither a file nor a folder"]


def test_a_file_name_that_is_not_utf8_is_refused(corpora):
    path = os.fsencode(corpora.root / "c/v1/documents") + b"/caf\xe9.txt"
    with open(path, "wb") as stream:  # noqa: PTH123
        stream.write(b"x")
    assert corpora.fault().found == "a file name that isn't UTF-8"


def test_a_file_name_with_a_line_break_is_refused(corpora):
    corpora.put("v1/documents/a\nb.txt", "x")
    assert corpora.fault().found == "an id with control characters"


def test_two_ids_that_are_equal_after_nfc_and_casefold_are_refused(corpora):
    corpora.put("v1/documents/LEAVE.txt", "x")
    fault = corpora.fault()
    assert fault.field == "doc_id"
    assert "c/v1/documents/" in fault.found


def test_two_names_that_differ_in_composition_only_are_refused(corpora):
    corpora.put("v1/documents/caf\u00e9.txt", "x")
    corpora.put("v1/documents/cafe\u0301.txt", "y")
    assert corpora.fault().found == "a path equal to another after NFC"


@pytest.mark.parametrize(
    ("rows", "line", "field", "found"),
    [
        ([{"doc_id": "a", "path": "leave.txt"}, {"doc_id": "b", "path": "leave.txt"}], 2, "path", "the path of line 1"),
        ([{"doc_id": "a", "path": "leeve.txt"}], 1, "path", "no file below documents/"),
        ([{"doc_id": "gone.txt"}], 1, "doc_id", "no file below documents/"),
        ([{"doc_id": "leave.txt", "supersedes": "leave.txt"}], 1, "supersedes", "the document itself"),
        ([{"doc_id": "leave.txt", "published_at": "May"}], 1, "published_at", "a string of 3 characters"),
        ([{"doc_id": "leave.txt", "tennant": "x"}], 1, "tennant", "an unknown field"),
    ],
)
def test_a_wrong_line_of_documents_jsonl_is_refused(corpora, rows, line, field, found):
    corpora.lines("v1/documents.jsonl", *rows)
    fault = corpora.fault()
    assert (fault.file, fault.line, fault.field) == ("c/v1/documents.jsonl", line, field)
    assert found in fault.found


def test_a_text_in_place_of_a_fields_name_is_not_told_whole(corpora):
    corpora.lines("v1/gold/pii.jsonl", {"word " * 10_000: 1})
    with pytest.raises(CorpusError) as caught:
        corpora.load()
    assert "is it 'word word" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_the_nearest_known_field_is_named(corpora):
    corpora.lines("v1/documents.jsonl", {"doc_id": "leave.txt", "tennant": "x"})
    assert corpora.fault().hint == "did you mean 'tenant'?"


@pytest.mark.parametrize(
    ("content", "line", "field", "found"),
    [
        ("q1 0 leave.txt 1\nq1 0 leave.txt 2\n", 2, "query_id, doc_id", "the item of line 1"),
        ("q1 0 leave.txt\n", 1, "grade", "a string of 9 characters"),
        ("query-id\tcorpus-id\tscore\nq1\tleave.txt\t0.5\n", 2, "grade", "a string of 3 characters"),
        ("query-id\tcorpus-id\tscore\nq1\tleave.txt\n", 2, "", "2 columns"),
        ("query-id\tcorpus-id\nq1\tleave.txt\n", 1, "grade", "a header of query_id, doc_id"),
        ("q1 0 leave.txt 1 extra\n", 1, "", "5 columns"),
        ("q1\t\tleave.txt\t1\nq1\t0\t\t1\n", 2, "doc_id", "an empty cell"),
        ("q7 0 leave.txt 1\n", 1, "query_id", "'q7', which is no query"),
    ],
)
def test_wrong_judgments_are_refused(corpora, content, line, field, found):
    corpora.put("gold/qrels.tsv", content)
    fault = corpora.faults()[0]
    assert (fault.file, fault.line, fault.field) == ("c/gold/qrels.tsv", line, field)
    assert found in fault.found


def test_a_transcript_that_is_not_utf8_names_its_line(corpora):
    corpora.put("gold/transcripts/leave.txt.txt", b"one\ntwo \xe9\n")
    fault = corpora.fault()
    assert (fault.file, fault.line) == ("c/gold/transcripts/leave.txt.txt", 2)


def test_reference_tables_without_a_table_are_refused(corpora):
    corpora.put("gold/tables/leave.txt.html", "<p>none</p>")
    assert corpora.fault().found == "no <table>"


def test_labels_of_a_document_that_the_version_lacks_are_kept_and_warned(corpora):
    corpora.evidence(doc_id="leeve.txt", quote="anything")
    version = corpora.load()
    assert version.gold.evidence.height == 1
    (warning,) = version.warnings
    assert "leeve.txt" in warning.found
    assert warning.hint == "did you mean 'leave.txt'?"


def test_offsets_in_a_document_that_the_version_lacks_are_kept_and_warned(corpora):
    corpora.lines("gold/pii.jsonl", {"doc_id": "gone.md", "spans": [{"start": 0, "end": 5, "type": "PERSON"}]})
    corpora.evidence(doc_id="gone.md", quote="anything", start=3)
    version = corpora.load()
    assert version.gold.pii.height == 1
    assert version.gold.evidence.select("quote", "start").rows() == [("anything", None)]
    assert {warning.file.rpartition("/")[2] for warning in version.warnings} == {"evidence.jsonl", "pii.jsonl"}


@pytest.mark.parametrize("policy", ["warn", "refuse"])
def test_a_document_or_cluster_on_both_sides_of_a_split(corpora, policy):
    corpora.put("corpus.yaml", f"evaluate: {{leakage: {policy}}}\n")
    corpora.lines(
        "gold/queries.jsonl",
        {"query_id": "q1", "text": "x", "split": "dev", "cluster_id": "c"},
        {"query_id": "q2", "text": "x"},
        {"query_id": "q3", "text": "x", "cluster_id": "c"},
    )
    corpora.put("gold/qrels.tsv", "q1 0 leave.txt 1\nq2 0 leave.txt 1\nq3 0 leave.txt 0\n")
    faults = corpora.faults() if policy == "refuse" else corpora.load().warnings
    assert [fault.found for fault in faults] == [
        "1 documents on both sides of a split (leave.txt): queries q1, q2",
        "1 clusters on both sides of a split (c): queries q1, q3",
    ]


def test_a_filter_on_a_field_that_no_document_has_is_warned(corpora):
    corpora.lines("gold/queries.jsonl", {"query_id": "q1", "text": "x", "filter": {"tennant": "a", "product": "b"}})
    corpora.lines("v1/documents.jsonl", {"doc_id": "leave.txt", "metadata": {"product": "b"}})
    assert [(w.field, w.hint) for w in corpora.load().warnings] == [("filter.tennant", "did you mean 'tenant'?")]


def test_an_unknown_gold_file_is_warned(corpora):
    corpora.put("gold/evidences.jsonl", "")
    (warning,) = corpora.load().warnings
    assert "evidence.jsonl" in warning.hint


@pytest.mark.parametrize(
    ("key", "found"),
    [("x@v1", "no such corpus"), ("c@v9", "no such version"), ("c@v1#small", "no such file")],
)
def test_what_is_not_there_is_named(corpora, key, found):
    assert corpora.fault(key).found == found


def test_another_key_is_refused(corpora):
    with pytest.raises(KeyNameError):
        corpora.load("C@v1")


def test_a_version_without_documents_is_refused(corpora):
    (corpora.root / "c/v1/documents/leave.txt").unlink()
    assert corpora.fault().found == "no files"


@pytest.mark.parametrize(
    ("yaml", "line", "field", "hint"),
    [
        ("evaluate:\n  serv_k: 3\n", 2, "evaluate.serv_k", "did you mean 'serve_k'?"),
        ("evalute: {}\n", 1, "evalute", "did you mean 'evaluate'?"),
        ("pipeline:\n  parsing: {}\n  chunkin: {}\n", 3, "pipeline.chunkin", "did you mean 'chunking'?"),
        ("\nledger:\n  hold: 2\n", 3, "ledger.hold", ""),
        ("gates:\n  rules:\n    - metric: cer\n      maxi: 3\n", 4, "gates.rules[0].maxi", "did you mean 'max'?"),
        ("evaluate: {k: []}\n", 1, "evaluate.k", ""),
        ("evaluate: {k: [1]}\nevaluate: {}\n", 2, "evaluate", "remove one of them"),
        ("a: [1\n", 2, "", "see that line"),
        ("- a\n", 1, "", ""),
        ("1: a\n", 1, "1", "quote it"),
        ("a: !!python/object:os.system {}\n", 1, "", "see that line"),
        ("a: &a [1]\nb: &b [" + "*a, " * 500 + "]\nc: &c [" + "*b, " * 500 + "]\n", 1, "", ""),
    ],
)
def test_wrong_settings_name_line_and_nearest_key(corpora, yaml, line, field, hint):
    corpora.put("corpus.yaml", yaml)
    fault = corpora.faults()[0]
    assert (fault.file, fault.line, fault.field, fault.hint) == ("c/corpus.yaml", line, field, hint)


def test_a_fault_in_a_pipeline_names_its_own_file(corpora):
    corpora.put("corpus.yaml", "evaluate: {serve_k: 5}\n")
    corpora.put("pipelines/small.yaml", "evaluate:\n  serve_k: many\n")
    assert (corpora.fault("c@v1#small").file, corpora.fault("c@v1#small").line) == ("c/pipelines/small.yaml", 2)


@pytest.mark.parametrize(
    ("name", "content", "line", "found"),
    [
        ("runs/bm25.trec", "q1 Q0 leave.txt 1 2.0 t\nq1 Q0 leave.txt 2 1.0 t\n", 2, "query 'q1' of run 'bm25'"),
        ("runs/bm25.trec", "q1 Q0 leave.txt 1 nan t\n", 1, "'nan' for query 'q1', item 'leave.txt'"),
        ("runs/bm25.trec", "q1 Q0 leave.txt 1 high t\n", 1, "a string of 4 characters"),
        ("runs/bm25.trec", "q1 Q0 leave.txt 1 2.0\n", 1, "5 columns"),
        ("runs/bm25.trec", "q5 Q0 leave.txt 1 2.0 t\n", 1, "'q5', which is no query"),
        ("runs/BM 25.trec", "", None, "a run of another name"),
        ("runs/a.jsonl", '{"query_id": "q1", "item_id": "x"}\n', 1, "an object of 2 fields"),
        ("runs/a.jsonl", '{"query_id": "q1", "item_id": "x", "rank": 1}\n{"query_id": "q1", "item_id": "y", "rank": 1}\n', 2, "rank 1 of line 1"),
        ("parsed.jsonl", '{"doc_id": "leave.txt", "text": "ab", "blocks": [{"kind": "p", "start": 0, "end": 3}]}\n', 1, "object"),
        ("pii_spans.jsonl", '{"doc_id": "leave.txt", "start": 0, "end": 3, "type": "X", "score": 90}\n', 1, "90"),
        ("pii_spans.jsonl", '{"doc_id": "leave.txt", "start": 0, "end": 3, "type": "X", "score": -0.1}\n', 1, "-0.1"),
        ("chunks.jsonl", '{"chunk_id": "c", "doc_id": "leave.txt", "text": "x", "start": 1}\n', 1, "object"),
        ("chunks.jsonl", '{"chunk_id": "c", "doc_id": "d", "text": "x"}\n{"chunk_id": "c", "doc_id": "d", "text": "x"}\n', 2, "the item of line 1"),
        ("embeddings.parquet", "nothing", None, "no readable Parquet"),
    ],
)  # fmt: skip
def test_wrong_outputs_are_refused(corpora, name, content, line, found):
    corpora.put(f"v1/outputs/{name}", content)
    fault = corpora.fault()
    assert (fault.file, fault.line) == (f"c/v1/outputs/{name}", line)
    assert found in fault.found


@pytest.mark.parametrize(
    ("frame", "field", "found"),
    [
        ({"id": ["a", "a"], "vector": [[1.0], [2.0]], "model": ["m", "m"]}, "id", "1 ids twice (a)"),
        ({"id": ["a", "b"], "vector": [[1.0], [2.0, 1.0]], "model": ["m", "m"]}, "vector", "several lengths"),
        ({"id": ["a"], "vector": [[float("nan")]], "model": ["m"]}, "vector", "no finite number"),
        ({"id": ["a", "b"], "vector": [[1.0], [2.0]], "model": ["m", "n"]}, "model", "several models (m, n)"),
        ({"id": ["a"], "vector": [[1.0]]}, "model", "no such column"),
        ({"id": ["a"], "vector": ["x"], "model": ["m"]}, "", "columns of"),
    ],
)
def test_wrong_vectors_are_refused(corpora, frame, field, found):
    path = corpora.put("v1/outputs/embeddings.parquet", "")
    pl.DataFrame(frame).write_parquet(path)
    fault = corpora.fault()
    assert fault.field == field
    assert found in fault.found


def test_vectors_of_two_models_are_refused(corpora):
    for name, model in (("embeddings", "m"), ("query_embeddings", "n")):
        path = corpora.put(f"v1/outputs/{name}.parquet", "")
        pl.DataFrame({"id": ["a"], "vector": [[1.0]], "model": [model]}).write_parquet(path)
    assert corpora.fault().found == "model 'n', dimension 1"


def test_two_files_of_one_run_are_refused(corpora):
    corpora.put("v1/outputs/runs/a.trec", "")
    corpora.put("v1/outputs/runs/a.jsonl", "")
    corpora.put("v1/outputs/runs/a.before_rerank.jsonl", "")
    assert (corpora.fault().file, corpora.fault().found) == ("c/v1/outputs/runs/a.trec", "a second file of run 'a'")


@pytest.mark.parametrize("given", [{"a": 1}, [["e"], "f"], None, 3.5, ["q1", None]])
def test_a_deletion_of_another_form_is_refused(corpora, given):
    corpora.lines("v1/gold/evidence.jsonl", {"id": given, "delete": True})
    assert corpora.fault().field == "id"


def test_many_faults_are_bounded_and_counted(corpora):
    corpora.put("gold/queries.jsonl", "x\n" * 3000)
    with pytest.raises(CorpusError) as caught:
        corpora.load()
    assert len(caught.value.faults) == 1001
    assert caught.value.faults[-1].found == "2000 further faults"
    assert len(str(caught.value)) < 5000
