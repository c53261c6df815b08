"""Every command once, as people call it; a refusal is a sentence and exit code 1 (64 where the command line is wrong), never a traceback."""

import json
import os
import time

import pytest

from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline_tests.integration.house import Run
from rag_eval_pipeline_tests.small import write_corpus, write_jsonl

pytestmark = pytest.mark.integration


def write_beir(folder):
    folder.mkdir()
    write_jsonl(
        folder / "corpus.jsonl",
        [{"_id": f"d{n}", "title": f"Paper {n}", "text": f"Cell type {n} grows on plate {n * 7}."} for n in range(5)],
    )
    write_jsonl(
        folder / "queries.jsonl", [{"_id": f"q{n}", "text": f"Where does cell type {n} grow?"} for n in range(3)]
    )
    (folder / "qrels").mkdir()
    rows = "".join(f"q{n}\td{n}\t1\n" for n in range(3))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows, "utf-8")
    return folder


@pytest.mark.full
def test_a_public_set_is_imported_planned_run_and_looked_at(home, on_ephemeral, cli, tmp_path):
    code, out, err = cli(
        "import",
        "beir",
        str(write_beir(tmp_path / "beir")),
        "--corpus",
        "papers",
        "--version",
        "v1",
        "--preset",
        "paper",
        "--language",
        "en",
    )
    assert (code, err) == (0, "")
    assert "papers@v1: 5 documents, 3 queries, 3 labelled pieces" in out
    assert "is valid: 5 documents, 3 queries" in cli("validate", "papers@v1")[1]
    assert "plan of papers@v1" in cli("plan", "papers@v1")[1]
    assert "registered papers@v1" in cli("register", "papers@v1")[1]
    assert on_ephemeral.get_dynamic_partitions("corpus_version") == ["papers@v1"]
    code, out, err = cli("run", "papers@v1")
    assert (code, err) == (0, "")
    assert "Where evidence recall was lost" in out
    assert "3 units of 3 queries" in out
    (manifest,) = Manifests(home.manifests).all()
    for arguments, expected in {
        ("waterfall", "papers@v1", "papers@v1"): "served",
        ("losses", "papers@v1"): "lost units",
        ("fate", "papers@v1", "q0"): "served at rank 1",
        ("show", "papers@v1", "d0"): "Cell type",
        ("sql", "SELECT count(*) AS n FROM evaluations"): "1",
        ("sql", "SHOW TABLES"): "evidence_ledger",
        ("evaluations",): manifest.evaluation_id,
        ("accept", "papers@v1", manifest.evaluation_id[:6]): "accepted papers@v1",
        ("prune",): "would remove (say --yes) 0 files",
    }.items():
        code, out, err = cli(*arguments)
        assert (code, err) == (0, ""), arguments
        assert expected in out, arguments
    assert "yes" in cli("sql", "SELECT CASE WHEN accepted THEN 'yes' END FROM evaluations")[1]


def test_a_corpus_is_made_split_limited_bumped_and_pruned(home, on_ephemeral, cli):
    code, out, _ = cli("init", "mine")
    assert code == 0
    assert "rag-eval validate mine@v1" in out
    assert (home.corpora / "mine" / "corpus.yaml").is_file()
    write_corpus(home.corpora, documents=8)
    code, out, _ = cli("split", "small@v1", "--share", "dev=0.5", "--share", "test=0.5")
    assert (code, out) == (0, "dev: 4, test: 4\n") or (code, out) == (0, "test: 4, dev: 4\n")
    code, out, _ = cli("split", "small@v1", "--share", "dev=0.5", "--share", "test=0.5", "--write")
    assert code == 0
    rows = [
        json.loads(line) for line in (home.corpora / "small" / "gold" / "queries.jsonl").read_text("utf-8").splitlines()
    ]
    assert sorted(row["split"] for row in rows) == ["dev"] * 4 + ["test"] * 4
    code, out, err = cli("run", "small@v1", "--limit", "3")
    assert (code, err) == (0, "")
    (manifest,) = Manifests(home.manifests).all()
    assert manifest.key == "small@v1.limit3"
    assert manifest.tables["documents"]["rows"] == 3
    assert "made small@v2" in cli("bump", "small@v1", "v2")[1]
    assert cli("bump", "small@v1", "v2")[0] == 1
    assert "is valid: 8 documents" in cli("validate", "small@v2")[1]
    orphan = home.root / "warehouse" / "chunks" / "corpus_version=small@v9" / "pipeline_id=x" / "part-0.parquet"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"left by a kill")
    young = orphan.with_name(".young.tmp")
    young.write_bytes(b"being written")
    past = time.time() - 7200
    os.utime(orphan, (past, past))
    assert "1 files" in cli("prune")[1]
    assert orphan.exists()
    assert "removed 1 files" in cli("prune", "--yes")[1]
    assert not orphan.exists()
    assert young.exists()
    assert "served" in cli("waterfall", "small@v1.limit3")[1], "prune left what the evaluation names"


REFUSED = {
    ("run", "smal@v1"): ["no such corpus", "small"],
    ("run", "small@v2"): ["no such version", "v1"],
    ("run", "small@v1#tiny"): ["tiny"],
    ("run", "Small Corpus@V1"): ["small-corpus@v1"],
    ("run", "small"): ["is no key"],
    ("run", "small@v1", "--limit", "0"): ["--limit"],
    ("plan", "smal@v1"): ["small"],
    ("validate", "small@gold"): ["reserved"],
    ("register", "small@v3"): ["no such version"],
    ("split", "small@v1", "--share", "train=1"): ["unknown splits", "dev"],
    ("bump", "small@v7", "v8"): ["small@v7 is not there"],
    ("bump", "small@v1", "V8"): ["v8"],
    ("waterfall", "small@v1"): ["has no complete evaluation", "rag-eval run small@v1"],
    ("losses", "small@v1"): ["has no complete evaluation"],
    ("fate", "small@v1", "q1"): ["has no complete evaluation"],
    ("show", "small@v1", "travel-0.md"): ["has no complete evaluation"],
    ("accept", "small@v1", "abc"): ["it has: none"],
    ("sql", "SELECT 1"): ["is not there", "rag-eval run"],
    ("import", "beer", "nowhere", "--corpus", "x", "--version", "v1"): ["beir"],
    ("import", "beir", "nowhere", "--corpus", "x", "--version", "v1"): ["nowhere"],
    ("init", "small"): ["exists"],
    ("init", "Small!"): ["small"],
}  # fmt: skip


def test_refusals_are_sentences(home, on_ephemeral, cli):
    write_corpus(home.corpora, documents=2)
    for arguments, expected in REFUSED.items():
        code, out, err = cli(*arguments)
        assert code in {1, 64}, (arguments, out, err)
        said = " ".join((out + err).split())
        assert "Traceback" not in said, arguments
        for words in expected:
            assert words in said, (arguments, said)
    assert on_ephemeral.get_dynamic_partitions("corpus_version") == [], "a refused key is no partition"
    assert on_ephemeral.get_runs() == []


def test_refusals_of_what_is_there(home, on_ephemeral, cli):
    write_corpus(home.corpora, documents=2)
    Run(home, "small@v1", database=True)
    refused = {
        ("fate", "small@v1", "q99"): "q99",
        ("show", "small@v1", "travel.md"): "travel",
        ("show", "small@v1", "travel-0.md", "--stage", "chunked"): "parsed",
        ("waterfall", "small@v1", "--k", "7"): "evaluate.k",
        ("waterfall", "small@v1", "--retriever", "dense"): "bm25",
        ("sql", "SELECT * FROM chunkz"): "chunk",
        ("sql", "DROP TABLE chunks"): "read-only",
        ("accept", "small@v1", "zzz"): "it has:",
    }
    for arguments, expected in refused.items():
        code, out, err = cli(*arguments)
        assert code == 1, arguments
        assert "Traceback" not in out + err, arguments
        assert expected in " ".join(err.split()), (arguments, err)
    document = home.corpora / "small" / "v1" / "documents" / "travel-0.md"
    document.write_text("Other words.", "utf-8")
    settings = home.corpora / "small" / "gold" / "evidence.jsonl"
    settings.write_text(
        "\n".join(line for line in settings.read_text("utf-8").splitlines() if '"q0"' not in line) + "\n", "utf-8"
    )
    code, out, err = cli("run", "small@v1")
    assert code == 1
    assert "rag-eval bump small@v1 NEW_VERSION" in " ".join(err.split())
    assert "Traceback" not in out + err
