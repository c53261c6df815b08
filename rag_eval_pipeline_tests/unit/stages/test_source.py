import hashlib

import polars as pl
import pytest

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.source.quality import METRICS, measure
from rag_eval_pipeline.stages.source.tables import Documents
from rag_eval_pipeline.stages.source.transform import SourceConfig, media_of, run
from rag_eval_pipeline.warehouse.measurement import ROW
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import polars_schema


def files(folder, **more):
    """The frame of files that the corpus hands on."""
    schema = {name: kind for name, kind in polars_schema(Documents).items() if name not in {"media", "status", "error"}}
    rows = [
        {
            "doc_id": path.relative_to(folder).as_posix(), "path": path.relative_to(folder).as_posix(), "acl": [],
            "metadata": "{}", "bytes": path.stat().st_size, "content_hash": hashlib.sha256(path.read_bytes()).hexdigest(),
            **more.get(path.name, {}),
        }
        for path in sorted(folder.rglob("*")) if path.is_file()
    ]  # fmt: skip
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema, orient="row")


@pytest.mark.parametrize(
    ("path", "head", "media"),
    [
        ("a.txt", b"text", "txt"),
        ("a/B.MD", b"# x", "md"),
        ("a.htm", b"<p>", "html"),
        ("a.csv", b"a,b", "csv"),
        ("a.pdf", b"%PDF-1.7", "pdf"),
        ("a.pdf", b"\n\njunk %PDF-1.4", "pdf"),
        ("a.pdf", b"no magic", "pdf"),
        ("lies.txt", b"%PDF-1.7", "pdf"),
        ("lies.pdf", b"\x89PNG\r\n\x1a\n", "image"),
        ("a.jpeg", b"\xff\xd8\xff\xe0", "image"),
        ("a.tiff", b"II*\0", "image"),
        ("a.docx", b"PK\x03\x04", "docx"),
        ("encrypted.docx", b"\xd0\xcf\x11\xe0", "docx"),
        ("a.pptx", b"PK\x03\x04", "other"),
        ("lies.txt", b"PK\x03\x04", "other"),
        ("README", b"plain words", "txt"),
        ("page", b"\n<!DOCTYPE html><html>", "html"),
        ("binary", b"\x01\0\x02", "other"),
        ("a.xyz", b"plain words", "other"),
    ],
)
def test_a_medium_is_told_by_content_then_by_extension(path, head, media):
    assert media_of(path, head) == media


def test_every_file_is_one_row_whatever_its_state(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "fine.txt").write_text("words")
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "scan.png").write_bytes(b"\x89PNG\r\n\x1a\n....")
    (tmp_path / "large.txt").write_bytes(b"x" * 2000)
    (tmp_path / "slides.pptx").write_bytes(b"PK\x03\x04")
    (tmp_path / "gone.md").write_text("x")
    frame = files(tmp_path, **{"large.txt": {"doc_class": "manual", "language": "es"}})
    (tmp_path / "gone.md").unlink()
    documents = run({"files": frame}, SourceConfig(max_bytes=1000), Runtime.plain(files=tmp_path))["documents"]
    found = {row["doc_id"]: (row["media"], row["doc_class"], row["status"]) for row in documents.to_dicts()}
    assert found == {
        "sub/fine.txt": ("txt", "txt", "ok"),
        "empty.txt": ("txt", "txt", "empty"),
        "scan.png": ("image", "scan", "ok"),
        "large.txt": ("txt", "manual", "too_large"),
        "slides.pptx": ("other", "other", "unsupported"),
        "gone.md": ("md", "md", "unreadable"),
    }
    assert documents.filter(pl.col("status") != "ok")["error"].null_count() == 0
    rows = measure({"documents": documents}, Gold(), SourceConfig(), Settings())
    assert dict(rows.schema) == ROW
    assert rows.height == documents.height
    assert dict(rows.select("item_id", "value").iter_rows())["empty.txt"] == 0.0
    assert set(rows["metric"]) == {metric.name for metric in METRICS}


def test_no_files_give_an_empty_table(tmp_path):
    assert run({"files": files(tmp_path)}, SourceConfig(), Runtime.plain(files=tmp_path))["documents"].is_empty()
