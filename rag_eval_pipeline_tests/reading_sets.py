"""Loaders of the labelled sets for reading: unstructured's texts and tables, tesseract's pages, sentences in twelve languages."""

import json
from html import escape
from pathlib import Path

import polars as pl

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline_tests.small import UNPRICED, write_jsonl

NO_PIPELINE = {"retrieval": {"bm25": {"kind": "bm25"}}, "pii": None, "dedup": None}


def unstructured_texts(folder: Path) -> dict[str, tuple[str, str]]:
    """Document -> (gold text, what the system read), where both are there."""
    gold, read = (folder / "test_evaluate_files" / name for name in ("gold_standard_cct", "unstructured_output_cct"))
    names = sorted({path.name for path in gold.iterdir()} & {path.name for path in read.iterdir()})
    return {
        name.removesuffix(".txt"): ((gold / name).read_text("utf-8"), (read / name).read_text("utf-8"))
        for name in names
    }


def unstructured_tables(folder: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Document -> (gold tables, tables of the system), as HTML in order."""
    gold, read = (
        folder / "test_evaluate_files" / name
        for name in ("gold_standard_table_structure", "unstructured_output_table_structure")
    )
    found = {}
    for path in sorted(gold.glob("*.json")):
        labelled = [_of_cells(e["text"]) for e in json.loads(path.read_text("utf-8")) if e["type"] == "Table"]
        output = json.loads((read / path.name).read_text("utf-8"))
        tables = [e["metadata"]["text_as_html"] for e in output if e["type"] == "Table"]
        found[path.name.removesuffix(".json")] = (labelled, tables)
    return found


def _of_cells(cells: str | list[dict]) -> str:
    """A table of cells with x, y, width, height and content; no label says which of them are headers."""
    given = json.loads(cells) if isinstance(cells, str) else cells
    rows: dict[int, list[dict]] = {}
    for cell in given:
        rows.setdefault(cell["y"], []).append(cell)
    lines = ("".join(map(_cell, sorted(rows[y], key=lambda cell: cell["x"]))) for y in sorted(rows))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(cell: dict) -> str:
    spans = "".join(f' {name}="{cell[side]}"' for name, side in (("colspan", "w"), ("rowspan", "h")) if cell[side] > 1)
    return f"<td{spans}>{escape(cell['content'], quote=False)}</td>"


def write_unstructured(corpora: Path, folder: Path) -> Path:
    """A corpus whose parser is that system: its texts and tables are imported; the files themselves are not in the set."""
    texts, tables = unstructured_texts(folder), unstructured_tables(folder)
    version = corpora / "unstructured" / "v1"
    (version / "documents").mkdir(parents=True)
    names = sorted({*texts, *tables})
    rows = []
    for name in names:
        doc_id = name.replace(" ", "_")
        (version / "documents" / doc_id).write_text("The file itself is not in the set.\n", "utf-8")
        text = texts[name][1] if name in texts else "\n".join(tables[name][1])
        rows.append({"doc_id": doc_id, "text": text, "tables": tables[name][1] if name in tables else []})
        gold = corpora / "unstructured" / "v1" / "gold"
        if name in texts:
            (gold / "transcripts").mkdir(parents=True, exist_ok=True)
            (gold / "transcripts" / f"{doc_id}.txt").write_text(texts[name][0], "utf-8")
        if name in tables:
            (gold / "tables").mkdir(parents=True, exist_ok=True)
            (gold / "tables" / f"{doc_id}.html").write_text("\n".join(tables[name][0]), "utf-8")
    write_jsonl(version / "outputs" / "parsed.jsonl", rows)
    write_jsonl(version / "gold" / "queries.jsonl", [{"query_id": "q", "text": "What is it?", "answerable": False}])
    settings = {"languages": ["en"], "pipeline": {**NO_PIPELINE, "parsing": {"import": True}}, **UNPRICED}
    (corpora / "unstructured" / "corpus.yaml").write_text(json.dumps(settings), "utf-8")
    return version


def sentences_of(folder: Path) -> pl.DataFrame:
    """doc_id, text, language of every sentence."""
    rows = [
        {"doc_id": f"{path.stem}-{number:04}", "text": line.strip(), "language": path.stem}
        for path in sorted((folder / "sentences").glob("*.txt"))
        for number, line in enumerate(path.read_text("utf-8").splitlines())
        if line.strip()
    ]
    return pl.DataFrame(rows)


def language_labels(sentences: pl.DataFrame) -> Gold:
    """The same as gold."""
    rows = sentences.select("doc_id", "language").with_columns(
        pl.lit(None, SCHEMAS["languages"]["sections"]).alias("sections")
    )
    return Gold(languages=rows)
