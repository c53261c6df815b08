"""Write data/corpora/nimbara and the list of its planted faults; `--check` says what differs from the sources instead.

    python data/generator/build.py            # writes
    python data/generator/build.py --check    # exit code 1 and the names of files that differ

The same sources give the same bytes: dates, ids and archive members are pinned and all noise is seeded. Other versions of
Pillow, reportlab or python-docx may draw binary files otherwise; `--check --text` leaves those out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from nimbara import answers, gold, office, pdfs, plaintext, scans, versions, webpages  # noqa: E402
from nimbara.sources import Document, plain  # noqa: E402

CORPUS = HERE.parent / "corpora" / "nimbara"
FAULTS = HERE / "faults.yaml"
ANSWER_FAULTS = HERE / "answer_faults.yaml"
KEYS = {
    "principals": ("principal",), "queries": ("query_id",), "evidence": ("query_id", "evidence_id"),
    "claims": ("query_id", "claim_id"), "answers_gold": ("query_id",), "duplicates": ("doc_a", "doc_b"),
    "languages": ("doc_id",), "pii": ("doc_id",), "main_text": ("doc_id",), "structure": ("doc_id",),
}  # fmt: skip
BINARY = (".pdf", ".docx", ".png", ".jpg", ".tiff")

Files = dict[str, bytes]


def render(document: Document) -> bytes:
    """The bytes of a document's file."""
    if document.doc_class == "scan":
        return scans.render(document)
    if document.media == "pdf":
        return pdfs.render(document)
    if document.media == "docx":
        return office.render(document)
    if document.media == "html":
        return webpages.render(document).encode()
    return plain(plaintext.render(document)).encode()


def build(text_only: bool = False) -> Files:
    """All files of the corpus by their path below it; pdf, docx and images left out where only text is wanted."""
    first, second = versions.first(), versions.second()
    files: Files = {}
    for path in sorted((HERE / "settings").rglob("*.yaml")):
        files[path.relative_to(HERE / "settings").as_posix()] = path.read_bytes()
    for version in (first, second):
        files |= _documents(version, text_only)
    shared = _labels(first)
    own = _labels(second)
    for name, rows in shared.items():
        files[f"gold/{name}.jsonl"] = _lines(rows)
        if changed := _differences(name, rows, own[name]):
            files[f"{second.name}/gold/{name}.jsonl"] = _lines(changed)
    files |= _texts(first, second)
    files[f"{first.name}/outputs/answers.jsonl"] = _lines(answers.recorded(shared))
    return files


def _documents(version: versions.Version, text_only: bool) -> Files:
    present = {doc_id: document for doc_id, document in version.documents.items() if doc_id not in version.absent}
    files = {
        f"{version.name}/documents/{document.path}": render(document)
        for document in present.values()
        if not (text_only and document.path.endswith(BINARY))
    }
    rows = [_metadata(document, version.wrong_metadata.get(doc_id, {})) for doc_id, document in present.items()]
    files[f"{version.name}/documents.jsonl"] = _lines(rows)
    return files


def _metadata(document: Document, wrong: Mapping[str, str]) -> dict[str, Any]:
    row = {
        "doc_id": document.doc_id, "path": document.path, "doc_class": document.doc_class,
        "language": document.language, "locale": document.locale, "title": plain(document.title),
        "tenant": document.tenant, "acl": list(document.acl), "published_at": document.published,
        "committed_at": f"{document.published}T07:30:00Z", "supersedes": document.supersedes, **wrong,
    }  # fmt: skip
    return {name: value for name, value in row.items() if value}


def _labels(version: versions.Version) -> dict[str, list[dict[str, Any]]]:
    rows = gold.labels(version.documents, version.documents, version.quotes, version.answers)
    for name, key in KEYS.items():
        if twice := gold.repeated(rows[name], *key):
            raise ValueError(f"{name}: several rows for {twice}")
    return rows


def _differences(name: str, shared: list[dict[str, Any]], own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that the second version says otherwise, and deletions."""
    key = KEYS[name]
    before = {tuple(row[part] for part in key): row for row in shared}
    after = {tuple(row[part] for part in key): row for row in own}
    changed = [row for identity, row in after.items() if before.get(identity) != row]
    gone = [dict(zip(key, identity, strict=True)) | {"delete": True} for identity in before if identity not in after]
    return changed + gone


def _texts(first: versions.Version, second: versions.Version) -> Files:
    """Transcripts and reference tables; the second version has those that differ and those of its absent documents."""
    files: Files = {}
    for folder, suffix, make in (
        ("transcripts", "txt", gold.transcripts),
        ("tables", "html", gold.reference_tables),
    ):
        shared, own = make(first.documents), make(second.documents)
        if folder == "transcripts":
            own |= {doc_id: gold.reference(second.documents[doc_id]).text for doc_id in second.absent}
        files |= {f"gold/{folder}/{doc_id}.{suffix}": text.encode() for doc_id, text in shared.items()}
        files |= {
            f"{second.name}/gold/{folder}/{doc_id}.{suffix}": text.encode()
            for doc_id, text in own.items()
            if shared.get(doc_id) != text
        }
    return files


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def fault_list() -> bytes:
    """The manifest of planted faults."""
    head = (
        "# Faults of nimbara@2026-10, written by build.py from content/october.yaml. No pipeline reads this file.\n"
        "# units: query_id/evidence_id that the fault may lose at its stage, for cut-offs from from_k to to_k (null: all).\n"
    )
    return (head + yaml.safe_dump(versions.manifest(), allow_unicode=True, sort_keys=False, width=120)).encode()


def answer_fault_list() -> bytes:
    """The manifest of faults planted in the recorded answers."""
    head = (
        "# Faults of the recorded answers, written by build.py from content/answers.yaml. No pipeline reads this file.\n"
        "# metrics: what each measure must say of these queries (faithfulness and what stands on it: by the verifier lexical).\n"
    )
    first = versions.first()
    listed = answers.manifest(first.name, _labels(first))
    return (head + yaml.safe_dump(listed, allow_unicode=True, sort_keys=False, width=120)).encode()


def differing(files: Files, text_only: bool) -> list[str]:
    """Paths of files that are missing, superfluous or not equal."""
    present = {path.relative_to(CORPUS).as_posix(): path for path in CORPUS.rglob("*") if path.is_file()}
    wrong = [
        name
        for name in sorted({*files, *present})
        if not (text_only and name.endswith(BINARY))
        and (name not in present or name not in files or present[name].read_bytes() != files[name])
    ]
    for path, wanted in ((FAULTS, fault_list()), (ANSWER_FAULTS, answer_fault_list())):
        if not path.exists() or path.read_bytes() != wanted:
            wrong.append(path.name)
    return wrong


def write(files: Files) -> None:
    """Replace the corpus folder."""
    if CORPUS.exists():
        shutil.rmtree(CORPUS)
    for name, data in files.items():
        path = CORPUS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    FAULTS.write_bytes(fault_list())
    ANSWER_FAULTS.write_bytes(answer_fault_list())


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the sources, write nothing")
    parser.add_argument("--text", action="store_true", help="with --check: leave out pdf, docx and images")
    arguments = parser.parse_args()
    files = build(arguments.check and arguments.text)
    if arguments.check:
        wrong = differing(files, arguments.text)
        print("\n".join(wrong) if wrong else f"{len(files)} files are as the sources say")
        return bool(wrong)
    write(files)
    print(f"{len(files)} files, {sum(map(len, files.values())) / 2**20:.1f} MB in {CORPUS}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
