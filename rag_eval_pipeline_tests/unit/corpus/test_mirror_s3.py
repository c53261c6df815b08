"""The mirror on S3: a local server that speaks it. Keys are whatever somebody wrote, and versions may be large."""

import json
import time
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from rag_eval_pipeline.cli import app
from rag_eval_pipeline.cli import corpora as commands  # noqa: F401 - registers them
from rag_eval_pipeline.corpus import mirror as module
from rag_eval_pipeline.corpus.mirror import mirror

BUCKET = "handed-in"


@pytest.fixture(scope="module")
def endpoint():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint):
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="someone",
        aws_secret_access_key="hidden",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    yield client
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for entry in page.get("Contents", ()):
            client.delete_object(Bucket=BUCKET, Key=entry["Key"])
    client.delete_bucket(Bucket=BUCKET)


def put(bucket, path, text="x"):
    bucket.put_object(Bucket=BUCKET, Key=path, Body=text.encode())


def step(corpora, endpoint, **options):
    asked = {"key": "someone", "secret": "hidden", "endpoint_url": endpoint}
    return mirror(corpora, f"s3://{BUCKET}/corpora", asked, **{"quiet": 0, **options})


def steps(corpora, endpoint, passes=3):
    done = [step(corpora, endpoint) for _ in range(passes)]
    return [key for each in done for key in each.placed], " ".join(note for each in done for note in each.notes)


def test_a_version_of_a_bucket_is_mirrored_and_its_labels_follow(bucket, endpoint, tmp_path):
    for number in range(5):
        put(bucket, f"corpora/c/v1/documents/d{number} ü.md", f"Document {number}.")
    put(bucket, "corpora/c/v1/documents/", "")  # what consoles make of an empty folder
    put(bucket, "corpora/c/gold/queries.jsonl", "one\n")
    put(bucket, "corpora/c/corpus.yaml", "languages: [en]\n")
    placed, _ = steps(tmp_path, endpoint)
    assert placed == ["c@v1"]
    found = {path.name: path.read_text("utf-8") for path in (tmp_path / "c" / "v1" / "documents").iterdir()}
    assert found == {f"d{number} ü.md": f"Document {number}." for number in range(5)}
    put(bucket, "corpora/c/gold/queries.jsonl", "two\n")
    steps(tmp_path, endpoint)
    assert (tmp_path / "c" / "gold" / "queries.jsonl").read_text("utf-8") == "two\n"


@pytest.mark.parametrize(
    "path",
    ["documents/../../../../escaped.md", "documents//twice.md", "documents/a/./b.md", "documents/d0.md/below.md", f"documents/{'n' * 300}"],
)  # fmt: skip
def test_keys_that_are_no_paths_of_a_corpus_refuse_their_version(bucket, endpoint, tmp_path, path):
    corpora = tmp_path / "deep" / "corpora"
    put(bucket, "corpora/c/v1/documents/d0.md")
    put(bucket, "corpora/good/v1/documents/d0.md")
    try:
        put(bucket, f"corpora/c/v1/{path}")
    except bucket.exceptions.ClientError:
        pytest.skip("this server refuses such a key itself")
    placed, notes = steps(corpora, endpoint)
    assert placed == ["good@v1"], notes
    assert "rename or remove it at the source" in notes or "rename one of them" in notes
    assert not (corpora / "c").exists() or not (corpora / "c" / "v1").exists()
    assert not list(tmp_path.rglob("escaped.md"))


def test_no_secret_and_no_address_of_the_server_is_told(endpoint, tmp_path):
    host = urlsplit(endpoint).netloc
    for options in (
        {"key": "someone", "secret": "hidden", "endpoint_url": endpoint},
        {
            "key": "k",
            "secret": "hidden",
            "endpoint_url": "http://127.0.0.1:9",
            "config_kwargs": {"retries": {"max_attempts": 0}},
        },
    ):
        (note,) = mirror(tmp_path, "s3://not-there/corpora", options).notes
        assert "s3://not-there/corpora can't be listed" in note
        assert "hidden" not in note
        assert host not in note


def test_the_command_mirrors_what_automation_yaml_names(bucket, endpoint, tmp_path, monkeypatch):
    put(bucket, "corpora/c/v1/documents/d.md", "A text.")
    put(bucket, "corpora/c/v1/_READY")
    options = {"endpoint_url": endpoint, "key": {"env": "A_KEY"}, "secret": {"env": "A_SECRET"}}
    sources = [{"url": f"s3://{BUCKET}/corpora", "options": options}]
    (tmp_path / "automation.yaml").write_text(json.dumps({"mirror": {"quiet": 0, "sources": sources}}), "utf-8")
    for name, value in {"RAG_EVAL_DATA": str(tmp_path), "A_KEY": "someone", "A_SECRET": "hidden"}.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(app, ["mirror"])
    assert result.exit_code == 0
    assert "done: c@v1 is mirrored" in result.output
    assert (tmp_path / "corpora" / "c" / "v1" / "documents" / "d.md").read_text("utf-8") == "A text."
    assert "hidden" not in result.output


@pytest.mark.full
def test_thousands_of_objects_come_over_in_passes_that_end_in_time(bucket, endpoint, tmp_path, monkeypatch):
    """Each pass gets a few seconds, goes on where the last one stopped, and fetches nothing twice."""
    total = 5_000
    texts = {f"documents/p{number // 1000:03}/d{number}.txt": f"{number}" for number in range(total)}
    for path, text in texts.items():
        put(bucket, f"corpora/c/v1/{path}", text)
    fetched = []
    honest = module._Pass._get
    monkeypatch.setattr(
        module._Pass, "_get", lambda self, key, folder, batch, pairs: fetched.extend(batch) or honest(self, key, folder, batch, pairs)
    )  # fmt: skip
    took, placed = [], []
    while not placed:
        began = time.monotonic()
        placed = step(tmp_path, endpoint, budget=5).placed
        took.append(time.monotonic() - began)
        assert len(took) < 400
        assert bool(placed) == (tmp_path / "c" / "v1").exists(), "nothing of a version is seen before all of it"
    assert placed == ["c@v1"]
    assert len(took) > 2, "it was done in one go, so nothing was resumed"
    assert max(took) < 60, f"a tick dies at 60 s: {took}"
    assert sorted(fetched) == sorted(texts)
    here = tmp_path / "c" / "v1"
    assert {path.relative_to(here).as_posix(): path.read_text("utf-8") for path in here.rglob("*.txt")} == texts
    print(f"{total} objects in {len(took)} passes: {[round(seconds, 1) for seconds in took]} s")
