import gzip
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.decoding import decode
from rag_eval_pipeline.corpus.importers import ImportFailedError, import_corpus
from rag_eval_pipeline.corpus.importers.writer import moved, plain, safe_name
from rag_eval_pipeline.corpus.version import load_version


def jsonl(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "set"
    jsonl(
        folder / "corpus.jsonl",
        {"_id": "d1", "title": "Moons", "text": "Mars has two."},
        {"_id": "d2", "title": "", "text": "No title."},
        {"_id": "../evil/é\u0007", "title": "T", "text": "x\r\ny"},
        {"_id": "D1", "text": "differs in case only"},
        {"_id": "a" * 300, "text": "long id"},
    )
    jsonl(folder / "queries.jsonl", {"_id": "q1", "text": "moons?"}, {"_id": "q2", "text": "unjudged"})
    (folder / "qrels").mkdir()
    (folder / "qrels/test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\t../evil/é\u0007\t2\nq1\tgone\t1\nq3\td1\t1\n"
    )
    return folder


def texts(version):
    return {
        row["doc_id"]: (version.documents / row["path"]).read_bytes().decode()
        for row in version.files.iter_rows(named=True)
    }


def test_a_beir_folder(tmp_path, beir):
    report = import_corpus("beir", beir, tmp_path / "corpora", "moons", "v1", language="en")
    assert (report.n_documents, report.n_queries, report.n_units) == (5, 1, 3)
    version = load_version(tmp_path / "corpora", "moons@v1")
    found = texts(version)
    assert found["d1"] == "Moons Mars has two."
    assert found["d2"] == "No title."
    assert {"T x\ny", "differs in case only", "long id"} < set(found.values())
    assert version.files["language"].unique().to_list() == ["en"]
    evil = next(doc for doc, text in found.items() if text == "T x\ny")
    assert sorted(version.gold.qrels.rows()) == sorted([("q1", "d1", 1), ("q1", evil, 2), ("q1", "gone", 1)])
    assert [w.found for w in version.warnings] == ["1 documents that this version lacks (gone)"]
    assert report.warnings == (
        "3 documents got another id, which is safe as a path (metadata.source_id has the set's)",
        "1 judged queries have no text in the set and were left out",
        "1 judgments name documents that the set lacks",
        "1 queries without a judgment in this split were left out",
    )


def test_everything_stays_below_the_corpora(tmp_path, beir):
    import_corpus("beir", beir, tmp_path / "corpora", "moons", "v1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpora", "set"]
    assert [path.name for path in (tmp_path / "corpora").iterdir()] == ["moons"]


def test_another_layout_with_gzip_and_sentences(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    with gzip.open(folder / "corpus.jsonl.gz", "wt") as stream:
        stream.write(json.dumps({"doc_id": 7, "title": "T", "abstract": ["One.", "Two."]}) + "\n")
    jsonl(folder / "claims.jsonl", {"id": 1, "claim": "c"})
    (folder / "train.qrels").write_text("1 0 7 1\n")
    options = {"queries_file": "claims.jsonl", "qrels_file": "train.qrels", "split": "train", "query_split": "dev"}
    report = import_corpus("beir", folder, tmp_path / "corpora", "s", "v1", **options)
    version = load_version(tmp_path / "corpora", "s@v1")
    assert (texts(version), report.n_units) == ({"7": "T One. Two."}, 1)
    assert version.gold.queries["split"].to_list() == ["dev"]


def test_an_existing_version_is_refused_and_replaced_only_when_asked(tmp_path, beir):
    corpora = tmp_path / "corpora"
    import_corpus("beir", beir, corpora, "moons", "v1")
    (corpora / "moons/corpus.yaml").write_text("evaluate: {serve_k: 3}\n")
    with pytest.raises(ImportFailedError, match="moons@v1 exists"):
        import_corpus("beir", beir, corpora, "moons", "v1")
    jsonl(beir / "corpus.jsonl", {"_id": "d1", "text": "new"})
    report = import_corpus("beir", beir, corpora, "moons", "v1", overwrite=True)
    import_corpus("beir", beir, corpora, "moons", "v2")
    version = load_version(corpora, "moons@v1")
    assert texts(version) == {"d1": "new"}
    assert version.settings.evaluate.serve_k == 3
    assert any("corpus.yaml was there" in warning for warning in report.warnings)
    assert sorted(path.name for path in corpora.iterdir()) == ["moons"]


def test_a_failed_import_leaves_nothing(tmp_path, beir):
    with (beir / "queries.jsonl").open("a") as stream:
        stream.write("broken\n")
    with pytest.raises(ImportFailedError, match=r"queries\.jsonl:3: invalid JSON"):
        import_corpus("beir", beir, tmp_path / "corpora", "moons", "v1")
    assert list((tmp_path / "corpora").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "bier"}, "did you mean 'beir'"),
        ({"corpus_fil": "x"}, "did you mean 'corpus_file'"),
        ({"corpus_file": "x.jsonl"}, "looked for x.jsonl; name it by --corpus-file"),
        ({"split": "dev"}, "looked for qrels/dev.tsv"),
        ({"pipeline_preset": "papr"}, "did you mean 'paper'"),
        ({"query_split": "train"}, "unknown query split"),
        ({"corpus": "Moons"}, "use 'moons'"),
        ({"src": "nowhere"}, "is not there"),
    ],
)
def test_wrong_options_say_what_to_do(tmp_path, beir, change, message):
    given = {
        "format": "beir",
        "src": beir,
        "corpora": tmp_path / "corpora",
        "corpus": "moons",
        "version": "v1",
        **change,
    }
    with pytest.raises(ValueError, match=re.escape(message)):
        import_corpus(**given)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"_id": "d1", "text": "again"}, "stands twice"),
        ({"text": "x"}, "none of _id"),
        ({"_id": "x", "text": {"a": 1}}, "expected text"),
    ],
)
def test_wrong_documents_are_refused(tmp_path, beir, row, message):
    with (beir / "corpus.jsonl").open("a") as stream:
        stream.write(json.dumps(row) + "\n")
    with pytest.raises(ImportFailedError, match=message):
        import_corpus("beir", beir, tmp_path / "corpora", "moons", "v1")


def test_both_presets_load_by_either_key(tmp_path, beir):
    import_corpus("beir", beir, tmp_path / "corpora", "moons", "v1", language="es")
    import_corpus("beir", beir, tmp_path / "corpora", "paper", "v1", pipeline_preset="paper")
    plain_settings = load_version(tmp_path / "corpora", "moons@v1").settings
    assert (plain_settings.pipeline, plain_settings.languages) == ({}, ("es",))
    over = load_version(tmp_path / "corpora", "moons@v1#paper").settings
    paper = load_version(tmp_path / "corpora", "paper@v1").settings
    assert over.pipeline == paper.pipeline
    assert over.pipeline["chunking"] == {"splitter": "none"}
    assert (over.pipeline["dedup"], over.pipeline["pii"], over.evaluate.serve) == (None, None, "bm25")
    assert (over.pipeline["retrieval"]["bm25"]["k1"], over.pipeline["retrieval"]["bm25"]["b"]) == (0.9, 0.4)


def test_a_trec_set_with_runs(tmp_path):
    folder = tmp_path / "set"
    (folder / "docs/a").mkdir(parents=True)
    (folder / "docs/a/FR 1.txt").write_bytes("café\r\n".encode("latin-1"))
    (folder / "docs/b").write_text("plain")
    (folder / "docs/c.pdf").write_bytes(b"%PDF")
    (folder / "topics.tsv").write_text("301\tcoffee prices\n302\tunjudged\n")
    (folder / "qrels.txt").write_text("301\t0\ta/FR 1\t1\n301\t0\tb\t0\n")
    (folder / "Run One.txt").write_text("301\tQ0\tb\t1\t2.0\tx\n301\tQ0\ta/FR 1\t2\t1.0\tx\n302\tQ0\tb\t1\t1.0\tx\n")
    report = import_corpus("trec", folder, tmp_path / "corpora", "t", "v1", runs=("Run One.txt",))
    version = load_version(tmp_path / "corpora", "t@v1")
    assert (report.n_documents, report.n_queries, report.n_units) == (2, 1, 1)
    assert texts(version) == {"a/FR 1": "café\n", "b": "plain"}
    assert version.outputs["runs"].select("run", "item_id").rows() == [("run-one", "b"), ("run-one", "a/FR 1")]
    assert version.warnings == ()


def squad(context, *questions):
    return {"data": [{"title": "A_B", "paragraphs": [{"context": context, "qas": list(questions)}]}]}


def question(name, answer, start, **more):
    return {"id": name, "question": "?", "answers": [{"text": answer, "answer_start": start}], **more}


def test_squad_evidence_is_the_sentence_and_its_answer_critical(tmp_path):
    context = "\ufeffIt was red.\r\nThe fee is 8 USD today. Later it was 9."
    path = tmp_path / "s.json"
    path.write_text(
        json.dumps(
            squad(
                context,
                question("a", "8 USD", context.index("8 USD")),
                question("b", "today. Later", context.index("today")),
                question("c", "8 USD", 3),
                question("d", "purple", 0),
                {"id": "e", "question": "?", "answers": [], "is_impossible": True},
            )
        )
    )
    report = import_corpus("squad", path, tmp_path / "corpora", "s", "v1", language="en")
    version = load_version(tmp_path / "corpora", "s@v1")
    rows = {row["query_id"]: row for row in version.gold.evidence.iter_rows(named=True)}
    assert rows["a"]["quote"] == "The fee is 8 USD today."
    assert rows["a"]["critical"] == ["8 USD"]
    assert rows["b"]["quote"] == "The fee is 8 USD today. Later it was 9."
    assert rows["c"]["start"] == rows["a"]["start"]
    assert set(rows) == {"a", "b", "c"}
    assert report.warnings == ("1 answers do not stand in their paragraph and gave no evidence",)
    answerable = dict(version.gold.queries.select("query_id", "answerable").iter_rows())
    assert answerable == {"a": True, "b": True, "c": True, "d": True, "e": False}
    assert version.gold.qrels["query_id"].to_list() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("content", ["{}", "[1]", "nothing", '{"data": [{"paragraphs": [{"context": "x"}]}]}'])
def test_what_is_no_squad_is_refused(tmp_path, content):
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(ImportFailedError):
        import_corpus("squad", path, tmp_path / "corpora", "s", "v1")
    assert list((tmp_path / "corpora").iterdir()) == []


def test_spans_are_verified_and_moved_where_they_stand(tmp_path):
    folder = tmp_path / "set"
    (folder / "corpora").mkdir(parents=True)
    (folder / "corpora/state.md").write_text("\ufeff# Title\r\nOne fact. Two facts.\r\n", newline="")
    jsonl(
        folder / "questions.jsonl",
        {"question": "?", "corpus_id": "state", "references": [{"content": "One fact.", "start_index": 8, "end_index": 17}]},
        {"question": "?", "corpus_id": "state", "references": json.dumps([{"content": "Two facts.", "start_index": 0, "end_index": 9}])},
        {"question": "?", "corpus_id": "state", "references": [{"content": "Absent.", "start_index": 0, "end_index": 7}]},
        {"question": "?", "corpus_id": "gone", "references": [{"content": "x", "start_index": 0, "end_index": 1}]},
        {"id": "out-of-scope", "question": "?", "corpus_id": "state", "references": []},
    )  # fmt: skip
    report = import_corpus("spans", folder, tmp_path / "corpora", "s", "v1")
    gold = load_version(tmp_path / "corpora", "s@v1").gold
    assert gold.evidence.select("query_id", "quote", "start").rows() == [
        ("q00001", "One fact.", 8),
        ("q00002", "Two facts.", 18),
    ]
    assert gold.queries.filter(~gold.queries["answerable"])["query_id"].to_list() == ["out-of-scope"]
    assert len(report.warnings) == 3


@given(st.text(st.characters(exclude_categories=[])), st.data())
def test_plain_text_reads_back_as_it_is_and_offsets_move_with_it(text, data):
    body = plain(text)
    assert decode(body.encode())[0] == body
    at = data.draw(st.integers(0, len(text)))
    assert 0 <= moved(text, at) <= len(body)
    if at < len(text) and text[at].isalnum():
        assert body[moved(text, at)] == text[at]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_safe_names_are_safe(name):
    safe = safe_name(name)
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", safe)
    assert len(safe) <= 90


# --- real sets ---


@pytest.mark.full
def test_scifact_train(tmp_path, shared):
    options = {
        "corpus_file": "corpus.jsonl.gz",
        "queries_file": "beir/queries.train.jsonl",
        "qrels_file": "beir/qrels/train.tsv",
    }
    source = shared("data", "scifact")
    report = import_corpus("beir", source, tmp_path, "scifact", "train", split="train", language="en", **options)
    assert (report.n_documents, report.n_queries, report.n_units, report.warnings) == (5183, 809, 919, ())
    with gzip.open(source / "corpus.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    version = load_version(tmp_path, "scifact@train")
    assert version.warnings == ()
    found = dict(version.gold.references.iter_rows())
    assert found == {str(row["doc_id"]): f"{row['title']} {' '.join(row['abstract'])}".strip() for row in rows}


@pytest.mark.parametrize("language", ["en", "es"])
def test_xquad_every_unit_is_anchored(tmp_path, shared, language):
    source = shared("data", "xquad", f"xquad.{language}.half.json")
    report = import_corpus("squad", source, tmp_path, "xquad", language, language=language)
    assert (report.n_documents, report.n_queries, report.n_units, report.warnings) == (120, 612, 612, ())
    gold = load_version(tmp_path, f"xquad@{language}").gold
    found = dict(gold.references.iter_rows())
    for row in gold.evidence.iter_rows(named=True):
        assert found[row["doc_id"]][row["start"] : row["end"]] == row["quote"]
        assert row["critical"][0] in row["quote"]
    answers = {
        q["id"]: q["answers"][0]["text"]
        for a in json.loads(source.read_text())["data"]
        for p in a["paragraphs"]
        for q in p["qas"]
    }
    assert {row["query_id"]: row["critical"] for row in gold.evidence.iter_rows(named=True)} == {
        query: [answer.strip()] for query, answer in answers.items()
    }
    folder = shared("data", "xquad", "beir", language)
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    texts_of = {row["_id"]: plain(row["text"]) for row in corpus}
    judged = [line.split("\t") for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    assert {query: found[doc] for query, doc, _ in gold.qrels.iter_rows()} == {
        query: texts_of[doc] for query, doc, _ in judged
    }


def test_chunking_evaluation_every_span_stands(tmp_path, shared):
    source = shared("data", "chunking_evaluation")
    report = import_corpus("spans", source, tmp_path, "spans", "v1", language="en")
    assert (report.n_documents, report.n_queries, report.warnings) == (2, 220, ())
    version = load_version(tmp_path, "spans@v1")
    rows = [json.loads(line) for line in (source / "questions.jsonl").read_text().splitlines()]
    wanted = [(ref["content"], ref["start_index"], ref["end_index"]) for row in rows for ref in row["references"]]
    assert report.n_units == len(wanted)
    assert sorted(version.gold.evidence.select("quote", "start", "end").rows()) == sorted(wanted)
    assert version.warnings == ()


def test_xquad_as_beir(tmp_path, shared):
    report = import_corpus("beir", shared("data", "xquad", "beir", "es"), tmp_path, "xquad-beir", "es", language="es")
    assert (report.n_documents, report.n_queries, report.n_units) == (120, 612, 612)
