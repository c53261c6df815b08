import json

import polars as pl
import pytest

from rag_eval_pipeline.corpus.documents import FILES
from rag_eval_pipeline.corpus.gold import SCHEMAS
from rag_eval_pipeline.corpus.layout import list_corpora, list_pipelines, list_versions
from rag_eval_pipeline.corpus.lines import GOLD_LINES
from rag_eval_pipeline.corpus.outputs import OUTPUTS
from rag_eval_pipeline.corpus.references import split_tables
from rag_eval_pipeline.corpus.version import load_key_settings
from rag_eval_pipeline.stages.source.tables import Documents
from rag_eval_pipeline.warehouse.table import polars_schema
from rag_eval_pipeline_tests.unit.corpus.conftest import TEXT


def test_every_line_model_has_the_columns_of_its_frame():
    for name, model in GOLD_LINES.items():
        assert set(model.model_fields) == set(SCHEMAS[name]), name


def test_files_have_the_columns_of_the_documents_table():
    declared = polars_schema(Documents)
    assert {name: declared[name] for name in FILES} == FILES
    assert set(declared) - set(FILES) == {"media", "status", "error"}


def test_documents_without_a_line_have_defaults_and_ids_from_their_path(corpora):
    corpora.put("v1/documents/hr/a.md", "x")
    corpora.lines(
        "v1/documents.jsonl",
        {"doc_id": "policy", "path": "leave.txt", "tenant": "acme", "acl": ["hr"], "metadata": {"b": 1, "a": [2]}},
    )
    files = corpora.load().files
    assert files.schema == pl.Schema(FILES)
    by_id = {row["doc_id"]: row for row in files.iter_rows(named=True)}
    assert sorted(by_id) == ["hr/a.md", "policy"]
    assert by_id["policy"]["metadata"] == '{"a": [2], "b": 1}'
    assert by_id["policy"]["path"] == "leave.txt"
    assert by_id["policy"]["bytes"] == len(TEXT)
    assert (by_id["hr/a.md"]["acl"], by_id["hr/a.md"]["tenant"], by_id["hr/a.md"]["metadata"]) == ([], None, "{}")


def test_a_decomposed_file_name_gives_a_composed_id_and_a_path_that_opens(corpora):
    corpora.put("v1/documents/cafe\u0301.txt", "x")
    version = corpora.load()
    row = version.files.filter(pl.col("doc_id") == "caf\u00e9.txt").row(0, named=True)
    assert (version.documents / row["path"]).read_text() == "x"


def test_hidden_files_are_ignored_and_said(corpora):
    corpora.put("v1/documents/.secret.txt", "x")
    corpora.put("v1/documents/.DS_Store", "x")
    version = corpora.load()
    assert version.files.height == 1
    assert [w.file for w in version.warnings] == ["c/v1/documents/.secret.txt"]


def test_defaults_of_gold(corpora):
    corpora.evidence(quote="Leave policy.")
    gold = corpora.load().gold
    query = gold.queries.row(0, named=True)
    assert (query["split"], query["answerable"], query["tags"], query["filter"]) == ("test", True, [], None)
    unit = gold.evidence.row(0, named=True)
    assert (unit["grade"], unit["critical"], unit["acl"], unit["start"]) == (1, None, None, None)


def test_a_span_gets_its_quote(corpora):
    corpora.evidence(start=0, end=13)
    assert corpora.load().gold.evidence["quote"].to_list() == ["Leave policy."]


def test_a_filter_is_canonical_json(corpora):
    corpora.lines("gold/queries.jsonl", {"query_id": "q1", "text": "x", "filter": {"tenant": "é", "locale": "en"}})
    assert corpora.load().gold.queries["filter"][0] == '{"locale": "en", "tenant": "é"}'


def test_version_gold_replaces_and_deletes_items_of_shared_gold(corpora):
    corpora.lines("gold/queries.jsonl", *({"query_id": f"q{i}", "text": "old"} for i in range(4)))
    corpora.lines(
        "gold/evidence.jsonl",
        *(
            {"query_id": f"q{i}", "evidence_id": e, "doc_id": "leave.txt", "quote": "Five"}
            for i in range(4)
            for e in "ab"
        ),
    )
    corpora.put("gold/qrels.tsv", "q1 0 leave.txt 1\nq2 0 leave.txt 1\n")
    corpora.lines("v1/gold/queries.jsonl", {"query_id": "q1", "text": "new"}, {"id": "q2", "delete": True})
    corpora.lines(
        "v1/gold/evidence.jsonl",
        {"id": ["q0", "a"], "delete": True},
        {"query_id": "q3", "evidence_id": "b", "delete": True},
        {"query_id": "q0", "evidence_id": "b", "doc_id": "leave.txt", "quote": "days"},
    )
    corpora.put("v1/gold/qrels.tsv", "q1\tx\tleave.txt\t2\n")
    gold = corpora.load().gold
    assert gold.queries.select("query_id", "text").rows() == [("q0", "old"), ("q1", "new"), ("q3", "old")]
    assert gold.evidence.select("query_id", "evidence_id", "quote").rows() == [
        ("q0", "b", "days"), ("q1", "a", "Five"), ("q1", "b", "Five"), ("q3", "a", "Five"),
    ]  # fmt: skip
    assert gold.qrels.rows() == [("q1", "leave.txt", 2)]


def test_a_pair_of_duplicates_has_no_order(corpora):
    corpora.put("v1/documents/b.txt", "x")
    corpora.lines("gold/duplicates.jsonl", {"doc_a": "leave.txt", "doc_b": "b.txt", "duplicate": True})
    corpora.lines("v1/gold/duplicates.jsonl", {"doc_a": "b.txt", "doc_b": "leave.txt", "duplicate": False})
    assert corpora.load().gold.duplicates.rows() == [("b.txt", "leave.txt", False)]


@pytest.mark.parametrize(
    "content",
    [
        "q1 0 leave.txt 2\n",
        "q1\tQ0\tleave.txt\t2\r\n",
        "query-id\tcorpus-id\tscore\nq1\tleave.txt\t2\n",
        "\ufeffq1 leave.txt 2\n\n",
        "query_id\tdoc_id\tgrade\nq1\tleave.txt\t2",
    ],
)
def test_judgments_in_all_forms(corpora, content):
    corpora.put("gold/qrels.tsv", content)
    assert corpora.load().gold.qrels.rows() == [("q1", "leave.txt", 2)]


def test_ids_with_spaces_in_tab_separated_judgments(corpora):
    corpora.put("v1/documents/travel policy.txt", "x")
    corpora.put("gold/qrels.tsv", "q1\t0\ttravel policy.txt\t1\n")
    version = corpora.load()
    assert version.warnings == ()
    assert version.gold.qrels["doc_id"].to_list() == ["travel policy.txt"]


def test_judgments_of_chunks(corpora):
    corpora.put("gold/chunk_qrels.tsv", "query_id\tchunk_id\tgrade\tchunking\nq1\tc 1\t1\tfixed-200\n")
    assert corpora.load().gold.chunk_qrels.rows() == [("q1", "c 1", 1, "fixed-200")]


def test_references_are_transcripts_else_decoded_text_else_none(corpora):
    corpora.put("v1/documents/a/scan.pdf", b"%PDF")
    corpora.put("v1/documents/b.pdf", b"%PDF")
    corpora.put("v1/documents/c.md", b"\xef\xbb\xbf# T\r\ne\xcc\x81  x\r")
    corpora.put("v1/documents/d.csv", "a;ñ".encode("latin-1"))
    corpora.put("gold/transcripts/a/scan.pdf.txt", "shared")
    corpora.put("v1/gold/transcripts/a/scan.pdf.txt", "\ufeffown\r\n")
    version = corpora.load()
    assert dict(version.gold.references.iter_rows()) == {
        "a/scan.pdf": "own\n", "c.md": "# T\ne\u0301  x\n", "d.csv": "a;ñ", "leave.txt": TEXT,
    }  # fmt: skip
    assert "references" in version.gold.present


def test_a_doc_id_with_empty_segments_finds_its_transcript(corpora):
    corpora.put("v1/documents/a.pdf", b"%PDF")
    corpora.lines("v1/documents.jsonl", {"doc_id": "https://intra/a", "path": "a.pdf"})
    corpora.put("gold/transcripts/https:/intra/a.txt", "page")
    assert ("https://intra/a", "page") in corpora.load().gold.references.rows()


def test_tables_are_split_and_nested_ones_stay_inside(corpora):
    html = "<p>x</p><table><tr><td>1<table><tr><td>in</td></tr></table></td></tr></table>y<table><tr><td>2</td></tr></table>"
    corpora.put("gold/tables/leave.txt.html", html)
    frame = corpora.load().gold.tables
    assert frame.select("doc_id", "table_no").rows() == [("leave.txt", 0), ("leave.txt", 1)]
    assert "in" in frame["html"][0]
    assert frame["html"][1] == "<table><tr><td>2</td></tr></table>"
    assert split_tables("") == []


def test_outputs_have_their_declared_columns(corpora):
    corpora.lines(
        "v1/outputs/parsed.jsonl",
        {
            "doc_id": "leave.txt",
            "text": "ab",
            "blocks": [{"kind": "heading", "level": 1, "start": 0, "end": 2}],
            "tables": [],
        },
    )
    corpora.lines("v1/outputs/cleaned.jsonl", {"doc_id": "leave.txt", "text": "ab"})
    corpora.lines("v1/outputs/dedup.jsonl", {"kept": "leave.txt", "removed": "old", "similarity": 1})
    corpora.lines("v1/outputs/pii_spans.jsonl", {"doc_id": "leave.txt", "start": 0, "end": 1, "type": "PHONE_NUMBER"})
    corpora.lines("v1/outputs/chunks.jsonl", {"chunk_id": "c", "doc_id": "leave.txt", "text": "ab"})
    corpora.lines("v1/outputs/filters.jsonl", {"query_id": "q1", "predicate": {"tenant": "a"}})
    corpora.lines("v1/outputs/contexts.jsonl", {"query_id": "q1", "position": 1, "text": "ab"})
    corpora.lines(
        "v1/outputs/answers.jsonl", {"answer_id": "a", "query_id": "q1", "answer": "x", "claims": ["y", {"text": "z"}]}
    )
    corpora.lines("v1/outputs/traces.jsonl", {"query_id": "q1", "spans": []})
    corpora.lines("v1/outputs/runs/mine.jsonl", {"query_id": "q1", "chunk_id": "c", "score": 1.5})
    corpora.lines("v1/outputs/runs/mine.before_rerank.jsonl", {"query_id": "q1", "item_id": "c", "rank": 3})
    for name in ("embeddings", "query_embeddings"):
        path = corpora.put(f"v1/outputs/{name}.parquet", "")
        pl.DataFrame({"id": ["c"], "vector": [[1.0, 0.0]], "model": ["m"]}).write_parquet(path)
    version = corpora.load()
    assert set(version.outputs) == set(OUTPUTS)
    for name, frame in version.outputs.items():
        assert frame.schema == pl.Schema(OUTPUTS[name]), name
        assert frame.height == 1, name
    assert version.outputs["runs"].row(0) == ("mine", "q1", "c", 1, 1.5)
    assert version.outputs["runs_before_rerank"].row(0) == ("mine", "q1", "c", 1, None)
    assert version.outputs["answers"]["claims"].to_list() == [['{"text": "y"}', '{"text": "z"}']]
    assert version.outputs["filters"]["predicate"][0] == '{"tenant": "a"}'
    assert [w.file for w in version.warnings] == ["c/v1/outputs/dedup.jsonl"]
    assert set(version.output_hashes) >= {"runs/mine.jsonl", "embeddings.parquet"}


def test_a_trec_run_is_ordered_as_trec_eval_does(corpora):
    corpora.put("v1/outputs/runs/bm25.trec", "q1 Q0 a 9 1.00000001 t\nq1 Q0 b 1 1.0 t\nq1\tQ0\tc\t4\t2.5\tt\n")
    assert corpora.load().outputs["runs"].select("item_id", "rank").rows() == [("c", 1), ("b", 2), ("a", 3)]


def test_own_runs_keep_their_ranks_made_dense(corpora):
    corpora.lines(
        "v1/outputs/runs/x.jsonl",
        {"query_id": "q1", "item_id": "a", "rank": 7, "score": 9.0},
        {"query_id": "q1", "item_id": "b", "rank": 0},
    )
    assert corpora.load().outputs["runs"].select("item_id", "rank").rows() == [("b", 1), ("a", 2)]


def test_a_published_run_loads_whole(corpora, shared):
    folder = shared("data", "trec_eval")
    corpora.put("gold/qrels.tsv", (folder / "qrels.test").read_bytes())
    queries = sorted({line.split()[0] for line in (folder / "results.test").read_text().splitlines()})
    corpora.lines("gold/queries.jsonl", *({"query_id": query, "text": "x"} for query in queries))
    corpora.put("v1/outputs/runs/standard.trec", (folder / "results.test").read_bytes())
    version = corpora.load()
    assert version.outputs["runs"].height == len((folder / "results.test").read_text().splitlines())
    assert version.gold.qrels.height == len((folder / "qrels.test").read_text().splitlines())


def test_layout_lists_what_is_there(corpora):
    corpora.put("v2/documents/a.txt", "x")
    corpora.put("draft/notes.txt", "x")
    corpora.put("gold/documents/x", "x")
    corpora.put("pipelines/small.yaml", "")
    corpora.put("v2/_READY", "")
    assert list_corpora(corpora.root) == ["c"]
    assert list_versions(corpora.root, "c") == ["v1", "v2"]
    assert list_pipelines(corpora.root, "c") == ["small"]
    assert list_corpora(corpora.root / "nowhere") == list_versions(corpora.root, "x") == []


def test_settings_alone_need_no_sound_gold(corpora):
    corpora.put("gold/queries.jsonl", "broken")
    corpora.put("corpus.yaml", json.dumps({"evaluate": {"serve_k": 3}}))
    assert load_key_settings(corpora.root, "c@v1").evaluate.serve_k == 3


def test_ids_agree_in_nfc_however_they_were_written(corpora):
    corpora.put("v1/documents/cafe\u0301.txt", "One fact.")
    corpora.lines(
        "gold/evidence.jsonl", {"query_id": "q1", "evidence_id": "e", "doc_id": "cafe\u0301.txt", "quote": "One fact."}
    )
    corpora.put("gold/qrels.tsv", "q1 0 cafe\u0301.txt 1\n")
    corpora.put("v1/outputs/runs/a.trec", "q1 Q0 cafe\u0301.txt 1 1.0 t\n")
    version = corpora.load()
    assert version.warnings == ()
    assert version.outputs["runs"]["item_id"].to_list() == version.gold.qrels["doc_id"].to_list() == ["caf\u00e9.txt"]


def test_a_deleted_query_takes_shared_labels_with_it_but_not_the_version_s_own(corpora):
    corpora.lines("gold/claims.jsonl", {"query_id": "q1", "claim_id": "c", "text": "x"})
    corpora.lines("v1/gold/queries.jsonl", {"id": "q1", "delete": True})
    assert corpora.load().gold.claims.height == 0
    corpora.evidence(quote="Five")
    fault = corpora.fault()
    assert (fault.file, fault.field) == ("c/v1/gold/evidence.jsonl", "query_id")
