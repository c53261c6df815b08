"""The DuckDB file: swapped in under open readers, source text only as length and hash, only what changed is written."""

import polars as pl
import pytest

from rag_eval_pipeline.warehouse.manifests import Manifest
from rag_eval_pipeline.warehouse.publish import publish
from rag_eval_pipeline.warehouse.redact import HIDDEN, Redactor
from rag_eval_pipeline.warehouse.store import Store
from rag_eval_pipeline.warehouse.table import Table, binary, integer, string, strings, table, vector


@table("texts", "One row a text.")
class Texts(Table):
    doc_id = string("Document", key=True)
    raw = string("Raw's text", privacy="source")
    shown = string("Masked text", privacy="masked")
    section = strings("Headings", privacy="masked")
    size = integer("Size", unit="bytes")
    blob = binary("Bytes")
    numbers = vector("Vector")


@table("texts_quality", "One row a measured text.")
class Quality(Table):
    corpus_version = string("corpus@version", key=True)
    pipeline = string("Pipeline", key=True)
    evaluation_id = string("Evaluation", key=True)
    item_id = string("Item", key=True)


SCHEMAS = {"texts": Texts, "texts_quality": Quality}
SECRET = "Zoraida Quintanilla"


def frame(*raws):
    rows = [
        {
            "doc_id": f"d{i}",
            "raw": raw,
            "shown": raw,
            "section": [raw, "x"],
            "size": len(raw),
            "blob": b"x",
            "numbers": [1.0],
        }
        for i, raw in enumerate(raws)
    ]
    return pl.DataFrame(rows, schema_overrides={"numbers": pl.List(pl.Float32)})


@pytest.fixture
def place(tmp_path):
    return tmp_path / "out" / "rag_eval.duckdb", Store(tmp_path / "store")


def manifest(store, key, evaluation_id, raws, pipeline_id="p1", started="2026-01-01", source_text=False):
    subject, _, pipeline = key.partition("#")
    kept = store.write(Texts, frame(*raws), subject, pipeline_id)
    rows = pl.DataFrame(
        {
            "corpus_version": subject,
            "pipeline": pipeline or "default",
            "evaluation_id": evaluation_id,
            "item_id": ["d0"],
        }
    )
    measured = store.write(Quality, rows, subject, evaluation_id, "evaluation_id")
    tables = {
        s.table: {"path": store.url(s), "content_hash": s.content_hash, "rows": s.rows, "kind": kind, "id": id_}
        for s, kind, id_ in ((kept, "pipeline_id", pipeline_id), (measured, "evaluation_id", evaluation_id))
    }
    config = {"publish": {"source_text": source_text}}
    return Manifest(key, evaluation_id, "complete", tables, {}, config, "g", "d", started)


def put(place, manifests):
    return publish(place[0], manifests, {}, SCHEMAS, place[1], lambda _subject: Redactor([SECRET]))


def ask(path, query):
    import duckdb

    with duckdb.connect(str(path), read_only=True) as con:
        return con.sql(query).fetchall()


def test_source_text_is_published_as_length_and_hash_and_masked_text_redacted(place):
    put(place, [manifest(place[1], "c@v", "e1", [f"by {SECRET}"])])
    rows = ask(place[0], "SELECT raw, raw_length, length(raw_sha256), shown, section FROM texts")
    assert rows == [(None, len(f"by {SECRET}"), 64, f"by {HIDDEN}", [f"by {HIDDEN}", "x"])]
    assert SECRET.encode() not in place[0].read_bytes()
    columns = {
        row[0] for row in ask(place[0], "SELECT column_name FROM information_schema.columns WHERE table_name = 'texts'")
    }
    assert not columns & {"blob", "numbers"}


def test_source_text_is_shown_where_the_user_chose_it(place):
    put(place, [manifest(place[1], "c@v", "e1", ["plain"], source_text=True)])
    assert ask(place[0], "SELECT raw FROM texts") == [("plain",)]


def test_columns_and_tables_carry_their_meaning(place):
    put(place, [manifest(place[1], "c@v", "e1", ["a"])])
    comments = dict(
        ask(
            place[0],
            "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'texts' AND comment IS NOT NULL",
        )
    )
    assert comments["size"] == "Size [bytes]"
    assert comments["raw_length"] == "Length of: Raw's text"
    assert ask(place[0], "SELECT comment FROM duckdb_tables() WHERE table_name = 'texts'") == [("One row a text.",)]
    bare = """SELECT t.table_name, c.column_name FROM duckdb_tables() AS t JOIN duckdb_columns() AS c USING (table_name)
        WHERE t.table_name <> '_published' AND (t.comment IS NULL OR c.comment IS NULL)"""
    assert ask(place[0], bare) == []


def test_only_what_changed_is_written_and_what_no_manifest_names_goes(place):
    first = manifest(place[1], "c@v", "e1", ["a", "b"])
    assert put(place, [first]).rows_added == 3
    second = manifest(place[1], "c@w", "e2", ["c"], "p2")
    report = put(place, [first, second])
    assert (report.rows_added, report.rows_kept) == (2, 3)
    put(place, [second])
    assert ask(place[0], "SELECT DISTINCT corpus_version FROM texts") == [("c@w",)]
    assert ask(place[0], "SELECT DISTINCT corpus_version FROM texts_quality") == [("c@w",)]


def test_current_views_show_the_newest_complete_evaluation_of_each_pipeline(place):
    store = place[1]
    old = manifest(store, "c@v", "e1", ["a"], "p1", "2026-01-01")
    new = manifest(store, "c@v", "e2", ["b"], "p2", "2026-01-02")
    small = manifest(store, "c@v#small", "e3", ["b"], "p2", "2026-01-03")
    put(place, [old, new, small])
    assert ask(place[0], "SELECT pipeline, evaluation_id, shown FROM current_texts ORDER BY 1") == [
        ("default", "e2", "b"),
        ("small", "e3", "b"),
    ]
    assert ask(place[0], "SELECT evaluation_id FROM current_texts_quality ORDER BY 1") == [("e2",), ("e3",)]
    assert len(ask(place[0], "SELECT * FROM measurements")) == 3
    assert ask(place[0], "SELECT count(*) FROM texts") == [(2,)]


def test_an_open_reader_keeps_its_snapshot_and_blocks_nobody(place):
    import duckdb

    put(place, [manifest(place[1], "c@v", "e1", ["a"])])
    with duckdb.connect(str(place[0]), read_only=True) as reader:
        put(place, [manifest(place[1], "c@w", "e2", ["b"], "p2")])
        assert reader.sql("SELECT DISTINCT corpus_version FROM texts").fetchall() == [("c@v",)]
    assert ask(place[0], "SELECT DISTINCT corpus_version FROM texts") == [("c@w",)]


def test_new_personal_strings_are_hidden_in_what_was_published_before(place):
    entry = manifest(place[1], "c@v", "e1", [f"by {SECRET}"])
    publish(place[0], [entry], {}, SCHEMAS, place[1], lambda _subject: Redactor([]))
    assert ask(place[0], "SELECT shown FROM texts") == [(f"by {SECRET}",)]
    put(place, [entry])
    assert ask(place[0], "SELECT shown FROM texts") == [(f"by {HIDDEN}",)]
    assert SECRET.encode() not in place[0].read_bytes()


def test_what_a_killed_publication_left_is_cleared(place):
    place[0].parent.mkdir(parents=True)
    stale = place[0].parent / f".{place[0].name}.abc.tmp"
    stale.write_bytes(b"half")
    put(place, [manifest(place[1], "c@v", "e1", ["a"])])
    assert not stale.exists()
