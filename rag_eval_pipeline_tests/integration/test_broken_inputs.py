"""Broken inputs, all of them at once: each ends as a clear refusal or as a row with a status, and the others go on.

Documents run from source to chunks without Dagster, in worker processes with limits. Faults of gold, outputs and settings are
refused when the version is loaded. What one reader makes of one broken file in detail, its room's own tests say.
"""

import gzip
import io
import json
import os
import random
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from rag_eval_pipeline import cli
from rag_eval_pipeline.corpus.faults import CorpusError, Fault
from rag_eval_pipeline.corpus.keys import KeyNameError
from rag_eval_pipeline.corpus.version import load_version
from rag_eval_pipeline.engine.plugins import PluginError, load
from rag_eval_pipeline.stages.graph import BY_NAME
from rag_eval_pipeline.stages.subject import FrozenError, Subject
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline_tests.unit.stages import documents as made

SECRET = "Zanzibarium"
"""Stands in many documents and labels; no message may repeat it."""
SECONDS = 10
STAGES = ("source", "parsing", "enriching", "cleaning", "dedup", "pii", "chunking")
GOOD = {
    "good.txt": b"The allowance is 42 EUR per day.\n\nIt is paid at the end of the month.\n",
    "good.md": b"# Leave\n\nSeven days of leave may be carried over into the next year.\n",
    "good.html": b"<html><body><main><p>Visitors sign the book at the door of the building.</p></main></body></html>",
}


# --- documents -------------------------------------------------------------------------------------------------------


def pdf(*objects: bytes) -> bytes:
    """A pdf of these objects, numbered from 1; the first one is its catalogue."""
    out, offsets = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    return (
        out
        + head
        + table
        + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(out))
    )


def stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s>>\nstream\n%s\nendstream" % (len(data), entries, data)


def page_pdf(
    line: str, catalogue: bytes = b"", kids: bytes = b"[3 0 R]", count: int = 1, more: bytes = b"", content: bytes = b""
) -> bytes:
    text = f"BT /F1 12 Tf 72 700 Td ({line}) Tj ET\n".encode()
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R %s>>" % catalogue,
        b"<< /Type /Pages /Kids %s /Count %d >>" % (kids, count),
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> %s >> >>"
        % more,
        stream(content or text),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        stream(
            b"/X Do /X Do", b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 6 0 R >> >> "
        ),
    )


def docx_of(path: Path, xml: str) -> None:
    """A docx with another document part."""
    made.docx(path)
    with zipfile.ZipFile(path) as package:
        parts = {name: package.read(name) for name in package.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, data in {**parts, "word/document.xml": xml.encode()}.items():
            package.writestr(name, data)


def zip_of(name: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as package:
        package.writestr(name, SECRET)
    return data.getvalue()


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
ENTITIES = '<!ENTITY l0 "lol">' + "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
XXE = '<!ENTITY x SYSTEM "file:///etc/passwd">'


def word(body: str, declares: str = "") -> str:
    doctype = f"<!DOCTYPE d [{declares}]>" if declares else ""
    return f'<?xml version="1.0"?>{doctype}<w:document {W}><w:body>{body}</w:body></w:document>'


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


DOCUMENTS: dict[str, tuple[bytes | Callable[[Path], object], str, str]] = {
    # name: content, status of its row in `parsed`, what the row's error says
    "truncated.pdf": (page_pdf(SECRET)[:300], "error", "truncated"),
    "encrypted.pdf": (made.encrypted_pdf, "encrypted", "needs a password"),
    "garbage.pdf": (b"%PDF-1.7 " + SECRET.encode() * 50 + b"%%EOF", "error", "pdf is broken"),
    "text-called.pdf": (SECRET.encode(), "error", "no %PDF mark"),
    "zip-called.pdf": (zip_of("a"), "unsupported", "not one of the formats"),
    "page-loop.pdf": (page_pdf(SECRET, kids=b"[2 0 R 2 0 R]", count=3), "error", "page 1 of"),
    "circular.pdf": (page_pdf(SECRET, kids=b"6 0 R").replace(b"6 0 obj\n<<", b"6 0 obj\n6 0 R %<<"), "error", "cannot be read"),
    "draws-itself.pdf": (page_pdf("", more=b"/XObject << /X 6 0 R >>", content=b"/X Do"), "timeout | out_of_memory", ""),
    "two-billion-pages.pdf": (page_pdf("Page count that lies.", count=2_000_000_000), "ok", ""),
    "javascript.pdf": (page_pdf("Script that is not run.", b"/OpenAction << /S /JavaScript /JS (while(1){}) >> "), "ok", ""),
    "launch.pdf": (page_pdf("Program that is not started.", b"/OpenAction << /S /Launch /F (/bin/sh) >> "), "ok", ""),
    "bomb.docx": (made.zip_bomb_docx, "too_large", "zip bomb"),
    "lying-bomb.docx": (lambda path: made.zip_bomb_docx(path, 160, 1000), "error", "not a whole Word document"),
    "external-entity.docx": (lambda path: docx_of(path, word(paragraph("before &x; after"), XXE)), "error", "declares entities"),
    "entity-bomb.docx": (lambda path: docx_of(path, word(paragraph("&l9;"), ENTITIES)), "error", "XMLSyntaxError"),
    "many-paragraphs.txt": (b"x\n\n" * 251_000, "too_large", "paragraphs: split"),
    "no-body.docx": (lambda path: docx_of(path, f"<w:document {W}/>"), "error", "no body"),
    "not-word.docx": (lambda path: docx_of(path, f"<html>{SECRET}</html>"), "error", "no body"),
    "zip-called.docx": (zip_of("a"), "error", "not a whole Word document"),
    "empty.docx": (b"", "empty", "0 bytes"),
    "empty.txt": (b"", "empty", "0 bytes"),
    "mark-alone.txt": (b"\xef\xbb\xbf", "empty", "no text"),
    "latin1.txt": ("El año pasado pagó la señora la garantía de los ñandúes.".encode("latin-1"), "ok", ""),
    "nul.txt": (b"between\0 the\0 letters of this line\0", "ok", ""),
    "surrogate.txt": (b"half a pair \xed\xa0\x80 in plain text", "ok", ""),
    "random.txt": (random.Random(1).randbytes(100_000), "error", "binary data"),
    "random.html": (random.Random(2).randbytes(100_000), "error", "binary data"),
    "gzip-called.txt": (gzip.compress(SECRET.encode() * 100), "unsupported", "not one of the formats"),
    "a.txt.gz": (gzip.compress(SECRET.encode() * 100), "unsupported", "not one of the formats"),
    "nested.html": (b"<div>" * 1_000_000 + SECRET.encode() + b"</div>" * 1_000_000, "error", "beyond the parser's limits"),
    "nested-tables.html": (b"<table><tr><td>" * 100_000 + SECRET.encode(), "error", "beyond the parser's limits"),
    "entity-bomb.html": (f"<!DOCTYPE html [{ENTITIES}]><html><body><p>an &l9; entity</p></body></html>".encode(), "ok", ""),
    "external.xhtml": (f"<!DOCTYPE html [{XXE}]><html><body><p>an &x; outside</p></body></html>".encode(), "ok", ""),
    "columns.csv": (b",".join(b"c%d" % i for i in range(50_000)) + b"\n" + b"1," * 49_999 + b"1\n", "ok", ""),
    "nul.csv": (b"a,b\n1,\0\n\0\0,2 with more of a text\n", "ok", ""),
    "open-quote.csv": (b'a,b\n"never closed, ' + b"x,y\n" * 20_000, "ok", ""),
    "huge.png": (made.huge_png, "too_large", "20000 x 20000 pixels"),
    "truncated.png": (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "error", "the image is broken"),
    "png-called.txt": (b"\x89PNG\r\n\x1a\n" + b"\0" * 41, "error", "the image is broken"),
    "folder.pdf/inner.txt": (b"A file inside of a folder that is called pdf.", "ok", ""),
    "one-long-line.txt": (b"x" * 300_000, "ok", ""),
    "\u202egnp.txt": (b"A name that is written from right to left.", "ok", ""),
    "zero\u200bwidth.txt": (b"A name with a sign that nobody sees.", "ok", ""),
    "100% #1 \"q\" 'it'?*&;$(x) [bold]r.txt": (b"A name with every sign that a shell knows.", "ok", ""),
    "-rf.txt": (b"A name that looks like an option.", "ok", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return home_at(tmp_path_factory.mktemp("broken"))


def home_at(root: Path) -> Home:
    return Home(root, str(root / "warehouse"))


def put(folder: Path, name: str, content: bytes | Callable[[Path], object]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)


def corpus(home: Home, name: str, documents: dict[str, bytes | Callable[[Path], object]], **parsing: object) -> Path:
    folder = home.corpora / name / "v1"
    for path, content in documents.items():
        put(folder / "documents", path, content)
    settings = {"pipeline": {"parsing": {"seconds": SECONDS, "memory_mb": 512, **parsing}, "pii": None}}
    (home.corpora / name / "corpus.yaml").write_text(json.dumps(settings), "utf-8")
    return folder


def run(home: Home, key: str) -> Subject:
    subject = Subject.open(home, key)
    for name in STAGES:
        subject.run(BY_NAME[name])
    return subject


@pytest.fixture(scope="module")
def subject(home):
    corpus(
        home, "broken", {**GOOD, ".limit": b"hidden", **{name: content for name, (content, _, _) in DOCUMENTS.items()}}
    )
    return run(home, "broken@v1")


def test_every_broken_document_is_a_row_that_says_why(subject):
    rows = {row["doc_id"]: row for row in subject.frame("parsed").iter_rows(named=True)}
    found = {name: rows[name]["status"] for name in DOCUMENTS}
    assert {
        name: found[name] for name, (_, status, _) in DOCUMENTS.items() if found[name] not in status.split(" | ")
    } == {}
    wrong = {
        name: rows[name]["error"] for name, (_, _, says) in DOCUMENTS.items() if says not in (rows[name]["error"] or "")
    }
    assert wrong == {}
    assert rows.keys() == DOCUMENTS.keys() | GOOD.keys()  # a hidden file is none of the documents
    assert [warning.found for warning in subject.version.warnings] == ["a hidden file"]


def test_the_other_documents_are_what_they_are_without_the_broken_ones(subject, home):
    corpus(home, "sound", GOOD)
    alone = run(home, "sound@v1")
    for table in ("parsed", "blocks", "cleaned", "masked", "chunks"):
        among = subject.frame(table).filter(pl.col("doc_id").is_in(list(GOOD)))
        unstable = [column for column in among.columns if column in {"seconds"}]
        assert among.drop(unstable).equals(alone.frame(table).drop(unstable)), table
    assert alone.frame("chunks").height == len(GOOD)


def test_every_document_is_accounted_for_in_every_table(subject):
    everything = set(subject.frame("documents")["doc_id"])
    for table in ("parsed", "languages", "cleaned", "dedup"):
        assert set(subject.frame(table)["doc_id"]) == everything, table
    assert set(subject.frame("masked")["doc_id"]) == set(subject.frame("dedup").filter("kept")["doc_id"])


def test_no_row_repeats_a_document_in_its_error(subject):
    for table in ("documents", "parsed", "cleaned", "masked"):
        errors = " ".join(subject.frame(table)["error"].drop_nulls())
        assert SECRET not in errors
        assert "Traceback" not in errors


def test_entities_stay_inert(subject):
    texts = " ".join(subject.frame("parsed")["text"])
    assert "root:" not in texts
    assert "lollol" not in texts


# --- files that change under the run ---------------------------------------------------------------------------------


def swapped(file: Path) -> None:
    file.write_bytes(SECRET.encode() * 3)


def to_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("change", [swapped, to_pipe, to_folder, Path.unlink])
def test_a_file_that_changes_between_source_and_parsing_stops_the_stage_and_poisons_nothing(tmp_path, change):
    home = home_at(tmp_path)
    folder = corpus(home, "c", GOOD)
    subject = Subject.open(home, "c@v1", workers=0)
    subject.run(BY_NAME["source"])
    change(folder / "documents" / "good.txt")
    with pytest.raises(ValueError, match=r"1 documents changed .*good\.txt.*rag-eval bump") as caught:
        subject.run(BY_NAME["parsing"])
    assert SECRET not in str(caught.value)
    assert subject.find("parsed") is None  # no table holds the failure for ever
    if change is swapped:
        with pytest.raises(FrozenError, match="rag-eval bump"):
            Subject.open(home, "c@v1")
    file = folder / "documents" / "good.txt"
    shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
    file.write_bytes(GOOD["good.txt"])
    subject = Subject.open(home, "c@v1", workers=0)
    subject.run(BY_NAME["parsing"])
    assert subject.frame("parsed").filter(pl.col("doc_id") == "good.txt")["text"].item() == GOOD["good.txt"].decode()


@pytest.mark.parametrize("change", [to_pipe, to_folder, Path.unlink])
def test_a_file_that_is_gone_before_source_looks_is_a_row(tmp_path, change):
    home = home_at(tmp_path)
    folder = corpus(home, "c", GOOD)
    subject = Subject.open(home, "c@v1", workers=0)
    change(folder / "documents" / "good.txt")
    for name in ("source", "parsing"):
        subject.run(BY_NAME[name])
    assert dict(subject.frame("parsed").select("doc_id", "status").iter_rows()) == {
        "good.txt": "missing", "good.md": "ok", "good.html": "ok",
    }  # fmt: skip


# --- gold, outputs, settings -----------------------------------------------------------------------------------------

TEXT = f"Leave policy.\nFive days may be carried over.\nCafe\u0301 {SECRET}.\n"
QUERY = {"query_id": "q1", "text": "How many days?"}


def jsonl(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def evidence(**fields: object) -> dict[str, bytes]:
    return {"gold/evidence.jsonl": jsonl({"query_id": "q1", "evidence_id": "e1", "doc_id": "leave.txt", **fields})}


def queries(data: bytes) -> dict[str, bytes]:
    return {"gold/queries.jsonl": data}


def settings(yaml: str) -> dict[str, bytes]:
    return {"corpus.yaml": yaml.encode("utf-8", "surrogatepass")}


def pipeline(section: str) -> dict[str, bytes]:
    return settings(f"pipeline:\n  {section}\n")


def lanes(text: str) -> dict[str, bytes]:
    return pipeline(f"retrieval: {{{text}}}")


def vectors(vector: object, model: str = "m") -> bytes:
    data = io.BytesIO()
    pl.DataFrame({"id": ["a"], "vector": [vector], "model": [model]}).write_parquet(data)
    return data.getvalue()


DOCS, GOLD, OUT = "v1/documents.jsonl", "gold/", "v1/outputs/"
REFUSED: dict[str, tuple[dict[str, bytes], str, str]] = {
    # what: files, place (file:line field), what was found
    "a path with ..": ({DOCS: jsonl({"doc_id": "x", "path": "../../secret"})}, "v1/documents.jsonl:1 path", "'..' segment"),
    "an absolute path": ({DOCS: jsonl({"doc_id": "x", "path": "/etc/passwd"})}, "v1/documents.jsonl:1 path", "'/'"),
    "a date out of range": ({DOCS: jsonl({"doc_id": "leave.txt", "published_at": "0001-01-01T00:00:00+14:00"})}, "v1/documents.jsonl:1 published_at", "a string"),
    "two ids equal in NFC": ({"v1/documents/cafe\u0301.txt": b"a", "v1/documents/caf\u00e9.txt": b"b"}, "v1/documents/caf\u00e9.txt", "after NFC"),
    "two ids equal in casefold": ({"v1/documents/LEAVE.txt": b"a"}, "v1/documents/leave.txt doc_id", "casefold"),
    "a name with a line end": ({"v1/documents/a\nb.txt": b"a"}, "v1/documents/a\\nb.txt doc_id", "control characters"),
    "duplicate ids": (queries(jsonl(QUERY, QUERY)), "gold/queries.jsonl:2 query_id", "the item of line 1"),
    "an unknown field": (queries(jsonl({**QUERY, "langage": "en"})), "gold/queries.jsonl:1 langage", "unknown field"),
    "no text": (queries(jsonl({**QUERY, "text": ""})), "gold/queries.jsonl:1 text", "0 characters"),
    "a blank text": (queries(jsonl({**QUERY, "text": " \n "})), "gold/queries.jsonl:1 text", "3 characters"),
    "a text without end": (queries(jsonl({**QUERY, "text": "x" * 1_000_001})), "gold/queries.jsonl:1 text", "1000001 characters"),
    "a blank id": (queries(jsonl({**QUERY, "query_id": " "})), "gold/queries.jsonl:1 query_id", "1 characters"),
    "a line separator in an id": (queries(jsonl({**QUERY, "query_id": "q\u2028"})), "gold/queries.jsonl:1 query_id", "2 characters"),
    "a line of 50 MB": (queries(b'{"query_id": "q1", "text": "' + b"x" * 50_000_000 + b'"}'), "gold/queries.jsonl:1", "a line of 50,000,030 bytes"),
    "invalid UTF-8": (queries(b'{"query_id": "q1", "text": "\xff"}'), "gold/queries.jsonl:1", "aren't UTF-8"),
    "half a surrogate pair": (queries(b'{"query_id": "q1", "text": "\\ud800"}'), "gold/queries.jsonl:1", "surrogate"),
    "a number beyond numbers": (queries(b'{"query_id": "q1", "text": "x", "filter": {"bytes": 1e999}}'), "gold/queries.jsonl:1", "out of range"),
    "nesting without end": (queries(b'{"a":' * 100_000), "gold/queries.jsonl:1", "nested too deeply"),
    "evidence of no query": (evidence(query_id="q7", quote="Five days"), "gold/evidence.jsonl:1 query_id", "no query"),
    "a quote that is not there": (evidence(quote=f"Six {SECRET} days"), "gold/evidence.jsonl:1 quote", "nearest match"),
    "a quote not in its transcript": ({**evidence(quote="Five days"), "gold/transcripts/leave.txt.txt": b"Seven weeks."}, "gold/evidence.jsonl:1 quote", "reference text has not"),
    "a quote of a book": (evidence(quote="Five days " * 20_000), "gold/evidence.jsonl:1 quote", "200000 characters"),
    "offsets out of range": (evidence(start=0, end=10**6), "gold/evidence.jsonl:1 end", "1000000"),
    "negative offsets": (evidence(start=-3, end=2), "gold/evidence.jsonl:1 start", "-3"),
    "spans out of range": ({"gold/pii.jsonl": jsonl({"doc_id": "leave.txt", "spans": [{"start": 0, "end": 9999, "type": "A"}]})}, "gold/pii.jsonl:1 spans[0].end", "9999"),
    "a judgment with spaces": ({"gold/qrels.tsv": b"q1 0 my file.txt 1\n"}, "gold/qrels.tsv:1", "5 columns"),
    "a grade in other digits": ({"gold/qrels.tsv": "q1 0 leave.txt \u0661\n".encode()}, "gold/qrels.tsv:1 grade", "1 characters"),
    "a judged id with NUL": ({"gold/qrels.tsv": b"q1 0 leave\0.txt 1\n"}, "gold/qrels.tsv:1 doc_id", "control characters"),
    "gold that is a file": ({"gold": b"x"}, "gold", "no folder"),
    "outputs that are a file": ({"v1/outputs": b"x"}, "v1/outputs", "no folder"),
    "a run of no query": ({f"{OUT}runs/a.trec": b"q9 Q0 x 1 1 t\n"}, "v1/outputs/runs/a.trec:1 query_id", "no query"),
    "a score that is no number": ({f"{OUT}runs/a.trec": b"q1 Q0 x 1 nan t\n"}, "v1/outputs/runs/a.trec:1 score", "'nan'"),
    "an item twice": ({f"{OUT}runs/a.jsonl": jsonl(*[{"query_id": "q1", "item_id": "x", "score": 1}] * 2)}, "v1/outputs/runs/a.jsonl:2 item_id", "of line 1 again"),
    "vectors of two lengths": ({f"{OUT}embeddings.parquet": vectors([1.0, 2.0]), f"{OUT}query_embeddings.parquet": vectors([1.0])}, "v1/outputs/query_embeddings.parquet model", "dimension 1"),
    "vectors without numbers": ({f"{OUT}embeddings.parquet": vectors([float("nan")])}, "v1/outputs/embeddings.parquet vector", "no finite number"),
    "a removal by itself": ({f"{OUT}dedup.jsonl": jsonl({"kept": "leave.txt", "removed": "leave.txt"})}, "v1/outputs/dedup.jsonl:1", "an object"),
    "an import of nothing": (pipeline("parsing: {import: true}"), "corpus.yaml:2 pipeline.parsing.import", "outputs/parsed.jsonl, which is absent"),
    "aliases that unfold": (settings("a: &a [x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9))), "corpus.yaml:1", "unfold too far"),
    "an alias of itself": (settings("pipeline: &p {parsing: *p}\n"), "corpus.yaml", "inside of itself"),
    "tabs": (settings("pipeline:\n\tparsing: {}\n"), "corpus.yaml:2", "cannot start any token"),
    "a key twice": (settings("evaluate: {}\nevaluate: {}\n"), "corpus.yaml:2 evaluate", "the key twice"),
    "a tag of Python's": (settings("a: !!python/object/apply:os.system [echo]\n"), "corpus.yaml:1", "could not determine a constructor"),
    "a broken tag": (settings("languages: [!!timestamp x]\n"), "corpus.yaml", "invalid YAML"),
    "bytes": (settings("languages: [!!binary aGk=]\n"), "corpus.yaml:1 languages[0]", "type bytes"),
    "an unknown section": (settings("evalute: {}\n"), "corpus.yaml:1 evalute", "unknown field"),
    "false instead of null": (pipeline("pii: false"), "corpus.yaml:2 pipeline.pii", "false"),
    "a list instead of a section": (pipeline("chunking: [1]"), "corpus.yaml:2 pipeline.chunking", "a list of 1"),
    "a number without end": (pipeline("parsing: {seconds: .inf}"), "corpus.yaml:2 pipeline.parsing.seconds", "out of range"),
    "overlap as large as size": (pipeline("chunking: {size: 10, overlap: 10}"), "corpus.yaml:2 pipeline.chunking", "an object"),
    "a negative size": (pipeline("chunking: {size: -1}"), "corpus.yaml:2 pipeline.chunking.size", "-1"),
    "an unknown tokenizer": (pipeline("chunking: {tokenizer: nope}"), "corpus.yaml:2 pipeline.chunking.tokenizer", "'nope'"),
    "a cut at 0": (settings("evaluate: {k: [0]}\n"), "corpus.yaml:1 evaluate.k[0]", "the number 0"),
    "a cut without end": (settings(f"evaluate: {{serve_k: {10**30}}}\n"), "corpus.yaml:1 evaluate.serve_k", "out of range"),
    "languages that are paths": (settings("languages: [../../etc]\n"), "corpus.yaml:1 languages[0]", "9 characters"),
    "a module that is not there": (pipeline("parsing: {parser: 'no_such_module:Parser'}"), "corpus.yaml:2 pipeline.parsing.parser", "'no_such_module:Parser'"),
    "a function of Python's that answers": (pipeline("answering: {answerer: 'os:system'}"), "corpus.yaml:2 pipeline.answering.answerer", "'os:system', a part of Python itself"),
    "a function instead of a class": (pipeline("chunking: {splitter: 'rag_eval_pipeline_tests.small:write_corpus'}"), "corpus.yaml:2 pipeline.chunking.splitter", "a function, no class"),
    "a candidate that is a function": (pipeline("parsing: {candidates: ['rag_eval_pipeline_tests.small:write_corpus']}"), "corpus.yaml:2 pipeline.parsing.candidates[0]", "a function, no class"),
    "a recogniser that is not there": (pipeline("pii: {recognizers: ['rag_eval_pipeline_tests.small:Nobody']}"), "corpus.yaml:2 pipeline.pii.recognizers[0]", "has no `Nobody`"),
    "a lane of a class without search": (lanes("a: {kind: 'rag_eval_pipeline_tests.endpoint:Endpoint'}"), "corpus.yaml:2 pipeline.retrieval.a.kind", "a class without a method `search`"),
    "a lane that is a number": (lanes("a: 3"), "corpus.yaml:2 pipeline.retrieval.a", "the number 3"),
    "a lane without kind": (lanes("a: {}"), "corpus.yaml:2 pipeline.retrieval.a.kind", "no such field"),
    "a lane that reads itself": (lanes("a: {kind: bm25}, h: {kind: rrf, lanes: [h, a]}"), "corpus.yaml:2 pipeline.retrieval.h.lanes", "h → h"),
    "lanes in a circle": (lanes("a: {kind: rrf, lanes: [b]}, b: {kind: rrf, lanes: [a]}"), "corpus.yaml:2 pipeline.retrieval.a.lanes", "a → b → a"),
    "an unknown lane": (lanes("a: {kind: bm25}, h: {kind: rrf, lanes: [b]}"), "corpus.yaml:2 pipeline.retrieval.h.lanes", "'b'"),
    "lanes that are no names": (lanes("a: {kind: bm25}, h: {kind: rrf, lanes: [[a]]}"), "corpus.yaml:2 pipeline.retrieval.h.lanes", "a list of 1"),
}  # fmt: skip


def tiny(root: Path, files: dict[str, bytes]) -> Home:
    """One document and one query, and `files` below the corpus's folder in their place or beside them."""
    home = home_at(root)
    defaults = {"v1/documents/leave.txt": TEXT.encode()}
    if "gold" not in files:
        defaults["gold/queries.jsonl"] = jsonl(QUERY)
    for name, data in {**defaults, **files}.items():
        put(home.corpora / "c", name, data)
    return home


def place(fault: Fault) -> str:
    line = f":{fault.line}" if fault.line is not None else ""
    return f"{fault.file.removeprefix('c/')}{line} {fault.field}".rstrip()


@pytest.mark.parametrize("what", REFUSED)
def test_a_broken_file_is_refused_with_its_place(tmp_path, what):
    files, where, found = REFUSED[what]
    home = tiny(tmp_path, files)
    started = time.monotonic()
    with pytest.raises(CorpusError) as caught:
        Subject.open(home, "c@v1")
    assert time.monotonic() - started < 20
    told = {place(fault): fault for fault in reversed(caught.value.faults)}
    assert where in told
    assert found in told[where].found
    assert told[where].expected
    assert SECRET not in str(caught.value)
    assert str(caught.value).isprintable() or "\n" in str(caught.value)


def test_what_is_odd_and_not_wrong_loads(tmp_path):
    lines = [
        json.dumps({"query_id": f"q{number}", "text": "How many days? " * (7000 if number == 3 else 1)})
        for number in (1, 2, 3)
    ]
    overlapping = [{"start": 0, "end": 9, "type": "A"}, {"start": 3, "end": 12, "type": "B"}]
    home = tiny(
        tmp_path,
        {
            "gold/queries.jsonl": b"\xef\xbb\xbf" + "\r\n".join([*lines, "", ""]).encode(),
            "gold/qrels.tsv": b"q1 0 leave.txt -2\nq2\t0\tleave.txt\t1\n",
            "gold/pii.jsonl": jsonl({"doc_id": "leave.txt", "spans": overlapping}),
            **evidence(doc_id="gone.txt", quote="Anything"),
        },
    )
    version = load_version(home.corpora, "c@v1")
    assert version.gold.queries["query_id"].to_list() == ["q1", "q2", "q3"]
    assert version.gold.qrels["grade"].to_list() == [-2, 1]
    assert [warning.field for warning in version.warnings] == ["doc_id"]


def test_offsets_inside_of_a_character_are_warned(tmp_path):
    accent = TEXT.index("\u0301")
    version = load_version(tiny(tmp_path, evidence(start=accent, end=accent + 4)).corpora, "c@v1")
    assert [(warning.field, "inside of a character" in warning.found) for warning in version.warnings] == [
        ("start", True)
    ]


@pytest.mark.parametrize(
    ("name", "make", "found"),
    [
        ("v1/documents/out.txt", lambda path: path.symlink_to("/etc/passwd"), "a link that leaves the corpus"),
        ("v1/documents/zero.txt", lambda path: path.symlink_to("/dev/zero"), "a link that leaves the corpus"),
        ("v1/documents/pipe.txt", os.mkfifo, "neither a file nor a folder"),
        ("v1/documents.jsonl", os.mkfifo, "no file"),
        ("v1/documents.jsonl", Path.mkdir, "no file"),
        ("v1/documents.jsonl", lambda path: path.symlink_to("nowhere"), "no file"),
        ("corpus.yaml", os.mkfifo, "no file"),
        ("gold/evidence.jsonl", os.mkfifo, "no file"),
        ("gold/transcripts", lambda path: path.write_text("x"), "no folder"),
        ("v1/documents/" + "d/" * 60 + "a.txt", lambda path: path.write_text("x"), "folders nested deeper than 50"),
    ],
)  # fmt: skip
def test_what_is_no_plain_file_is_refused_and_never_waited_for(tmp_path, name, make, found):
    home = tiny(tmp_path, {})
    path = home.corpora / "c" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)
    with pytest.raises(CorpusError) as caught:
        load_version(home.corpora, "c@v1")
    assert [fault.found for fault in caught.value.faults] == [found]


@pytest.mark.parametrize("name", ["v1/documents/leave.txt", "gold/queries.jsonl", "corpus.yaml", "v1/documents"])
def test_what_may_not_be_read_is_refused(tmp_path, monkeypatch, name):
    home = tiny(tmp_path, settings("languages: [en]\n"))
    denied = home.corpora / "c" / name
    open_file, scan = Path.open, os.scandir

    def refuse(path: object, inner: Callable, *args: object, **options: object) -> object:
        if Path(path) == denied:
            raise PermissionError(13, "Permission denied", str(path))
        return inner(path, *args, **options)

    monkeypatch.setattr(Path, "open", lambda path, *args, **options: refuse(path, open_file, *args, **options))
    monkeypatch.setattr(Path, "read_bytes", lambda path: path.open("rb").read())
    monkeypatch.setattr(os, "scandir", lambda path: refuse(path, scan))
    with pytest.raises(CorpusError) as caught:
        load_version(home.corpora, "c@v1")
    (fault,) = [fault for fault in caught.value.faults if "Permission denied" in fault.found]
    assert fault.file == f"c/{name}"


@pytest.mark.parametrize(
    "key", ["c'@v1", "c@v1;--", "c@../v1", "C@v1", "c@v1#a'b", "c@gold", "c@v1\n", "@", "c@v1#../x", "a" * 99 + "@v1"]
)
def test_a_key_that_could_break_out_of_a_name_is_refused_with_a_slug(tmp_path, key):
    with pytest.raises(KeyNameError, match=r"use '|such as"):
        load_version(tmp_path, key)


@pytest.mark.parametrize(
    ("body", "says"),
    [("raise RuntimeError('gone')", "raised RuntimeError"), ("import sys; sys.exit(3)", "raised SystemExit"), ("import nowhere", "cannot import"), ("x = 1", "has no 'Thing'")],
)  # fmt: skip
def test_a_users_module_that_cannot_be_had_is_told_in_one_sentence(tmp_path, monkeypatch, body, says):
    (tmp_path / "users_module.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "users_module", raising=False)
    with pytest.raises(PluginError, match=re.escape(says)):
        load("users_module:Thing")


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def rag_eval(tmp_path, monkeypatch, capsys):
    """Run a command as a shell does: exit code, standard output, standard error."""
    monkeypatch.setenv("RAG_EVAL_DATA", str(tmp_path))
    from rag_eval_pipeline.cli import console, errors

    for output in (console, errors):  # made at import, in whatever width the process had then
        monkeypatch.setattr(output, "width", 200)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["rag-eval", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def test_a_refusal_is_one_message_on_standard_error_and_exit_code_1(rag_eval, tmp_path):
    tiny(tmp_path, evidence(quote=f"Six {SECRET} days"))
    code, out, err = rag_eval("validate", "c@v1")
    assert (code, out) == (1, "")
    assert err.startswith("error: c/gold/evidence.jsonl:1: quote: found a quote of")
    assert "Traceback" not in err
    assert SECRET not in err


@pytest.mark.parametrize(
    "words",
    [
        ["validate", "c'@v1"],
        ["plan", "no@v1"],
        ["fate", "no@v1", "q"],
        ["show", "c@v1", "x"],
        ["sql", "SELECT 1"],
        ["split", "c@v1", "--share", "dev=x"],
        ["bump", "c@v1", "A B"],
        ["bump", "c@v9", "v2"],
    ],
)
def test_no_command_ends_in_a_traceback(rag_eval, tmp_path, words):
    tiny(tmp_path, {})
    code, out, err = rag_eval(*words)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err


def test_names_with_markup_and_control_signs_are_shown_as_they_are(rag_eval, tmp_path):
    tiny(tmp_path, {"v1/documents/.[bold]x[": b"hidden", **evidence(doc_id="[red]\u202egone[bold]", quote="Anything")})
    code, out, _ = rag_eval("validate", "c@v1")
    assert code == 0
    assert "c/v1/documents/.[bold]x[" in out
    assert "[red]\\u202egone[bold]" in out


def test_a_fault_of_ours_is_told_without_its_message(rag_eval, tmp_path, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise KeyError(SECRET)

    monkeypatch.setattr(Subject, "open", broken)
    code, out, err = rag_eval("validate", "c@v1")
    assert (code, out) == (cli.BUG, "")
    assert "KeyError at test_broken_inputs.py" in err
    assert SECRET not in err


def test_a_denied_file_is_told(rag_eval, monkeypatch):
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/data/x")

    monkeypatch.setattr(Subject, "open", denied)
    code, _, err = rag_eval("validate", "c@v1")
    assert code == 1
    assert "/data/x can't be read or written (permission denied)" in err


@pytest.fixture
def database(tmp_path):
    import duckdb

    path = home_at(tmp_path).database
    with duckdb.connect(str(path)) as con:
        con.sql("CREATE TABLE things AS SELECT '[red]\x1b]0;x' AS name, 1.5 AS value, 1 AS \"[/x]\"")
    (tmp_path / "secret.csv").write_text(f"a\n{SECRET}\n")
    return path


@pytest.mark.parametrize(
    "question",
    [
        "SELECT * FROM '{root}/secret.csv'", "SELECT * FROM read_text('{root}/secret.csv')", "SELECT * FROM glob('{root}/*')",
        "COPY things TO '{root}/out.csv'", "EXPORT DATABASE '{root}/out'", "ATTACH '{root}/other.duckdb'", "INSTALL httpfs",
        "LOAD httpfs", "SET enable_external_access = true", "SET lock_configuration = false", "DROP TABLE things",
        "INSERT INTO things SELECT * FROM things", "CREATE TABLE more AS SELECT 1", "SELECT * FROM home", "SELECT * FROM query",
        "SELECT 1; COPY things TO '{root}/out.csv'", "SELEC", "SELECT * FROM thing",
    ],
)  # fmt: skip
def test_sql_reads_the_database_and_nothing_else(rag_eval, tmp_path, database, question):
    before = database.read_bytes()
    code, out, err = rag_eval("sql", question.format(root=tmp_path))
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert SECRET not in err
    assert database.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"secret.csv", database.name}


def test_sql_shows_any_answer_and_no_more_rows_than_a_screen_holds(rag_eval, database):
    code, out, _ = rag_eval("sql", "FROM things")
    assert code == 0
    assert "[red]\\x1b]0;x" in out
    assert "[/x]" in out
    code, out, _ = rag_eval("sql", "SELECT * FROM range(10_000_000_000)")
    assert code == 0
    assert "the first 200 rows" in out
    code, out, _ = rag_eval(
        "sql", "SELECT INTERVAL 1 DAY, MAP {'a': 1}, 'x'::BLOB, 170141183460469231731687303715884105727::HUGEINT, NULL"
    )
    assert code == 0
