"""What the user's own system produced: outputs/ as frames, so that any stage can be imported instead of run.

Which stage takes which output belongs to the stages; whether item ids fit the chunks belongs to retrieval.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.faults import Faults, several, suggestion
from rag_eval_pipeline.corpus.jsonl import describe, objects, parse, raw_lines
from rag_eval_pipeline.corpus.keys import NAME, slug
from rag_eval_pipeline.corpus.labels import split_columns
from rag_eval_pipeline.corpus.layout import Layout, walk
from rag_eval_pipeline.corpus.lines import OUTPUT_LINES, Line, RunLine

Schema = dict[str, pl.DataType | type[pl.DataType]]

PARSED_BLOCK = pl.Struct({"kind": pl.String, "level": pl.Int64, "page": pl.Int64, "start": pl.Int64, "end": pl.Int64})
VECTORS: Schema = {"id": pl.String, "vector": pl.List(pl.Float32), "model": pl.String}
RUNS: Schema = {
    "run": pl.String, "query_id": pl.String, "item_id": pl.String, "rank": pl.Int64, "score": pl.Float64,
}  # fmt: skip
OUTPUTS: dict[str, Schema] = {
    "parsed": {"doc_id": pl.String, "text": pl.String, "blocks": pl.List(PARSED_BLOCK), "tables": pl.List(pl.String), "html": pl.String},
    "cleaned": {"doc_id": pl.String, "text": pl.String},
    "dedup": {"kept": pl.String, "removed": pl.String, "similarity": pl.Float64},
    "pii_spans": {"doc_id": pl.String, "start": pl.Int64, "end": pl.Int64, "type": pl.String, "score": pl.Float64},
    "chunks": {"chunk_id": pl.String, "doc_id": pl.String, "text": pl.String, "start": pl.Int64, "end": pl.Int64},
    "embeddings": VECTORS,
    "query_embeddings": VECTORS,
    "filters": {"query_id": pl.String, "retriever": pl.String, "predicate": pl.String, "producer": pl.String},
    "runs": RUNS,
    "runs_before_rerank": RUNS,
    "contexts": {"query_id": pl.String, "position": pl.Int64, "chunk_id": pl.String, "text": pl.String},
    "answers": {
        "answer_id": pl.String, "query_id": pl.String, "answer": pl.String, "claims": pl.List(pl.String),
        "citations": pl.List(pl.String), "refused": pl.Boolean, "confidence": pl.Float64, "model": pl.String,
        "usage": pl.String, "timings": pl.String,
    },
    "traces": {"query_id": pl.String, "trace": pl.String},
}  # fmt: skip
"""Columns of each output frame. Objects (claims, citations, usage, timings, traces, predicates) are JSON text."""
BEFORE = ".before_rerank"
NAMED = ("parsed", "cleaned")
"""Outputs that there may be several of, `<output>/<name>.jsonl`: candidates that are compared with the chosen one."""
KNOWN = frozenset(
    {
        *(f"{name}.jsonl" for name in OUTPUT_LINES),
        "traces.jsonl",
        "embeddings.parquet",
        "query_embeddings.parquet",
        "runs",
        *NAMED,
    }
)
JSON_FIELDS = ("predicate", "usage", "timings")


def load_outputs(
    layout: Layout, queries: set[str], doc_ids: set[str], hasher: Callable[[Path], str], faults: Faults
) -> tuple[dict[str, pl.DataFrame], dict[str, str]]:
    """Frames of the outputs that are there, by name, and the sha256 of each file by its path below outputs/."""
    frames: dict[str, pl.DataFrame] = {}
    runs: dict[str, list[dict[str, Any]]] = {}
    hashes: dict[str, str] = {}
    for name, path in walk(layout, layout.outputs, faults):
        file = layout.name(path)
        folder, _, inner = name.rpartition("/")
        if name.split("/", 1)[0] not in KNOWN or (
            folder and folder not in {"runs", *NAMED} and not name.startswith("runs/")
        ):
            hint = suggestion(name.split("/", 1)[0], KNOWN)
            faults.warn(file, None, "", "an unknown output", "a known one", f"it is ignored; {hint}")
            continue
        hashes[name] = hasher(path)
        if name.startswith("runs/"):
            _load_run(path, file, name.removeprefix("runs/"), queries, runs, faults)
        elif folder:
            stem, _, suffix = inner.rpartition(".")
            if suffix != "jsonl" or not NAME.fullmatch(stem):
                faults.add(
                    file, None, "", "an output of another name", f"{folder}/<name>.jsonl",
                    f"such as {folder}/{slug(stem or suffix, 'mine')}.jsonl",
                )  # fmt: skip
                continue
            frames[f"{folder}/{stem}"] = _rows(path, file, folder, queries, doc_ids, faults)
        elif path.suffix == ".parquet":
            frames[path.stem] = _vectors(path, file, faults)
        else:
            frames[path.stem] = _rows(path, file, path.stem, queries, doc_ids, faults)
    for table, rows in runs.items():
        frames[table] = pl.DataFrame(rows, schema=RUNS, orient="row").sort("run", "query_id", "rank")
    _same_model(layout, frames, faults)
    return dict(sorted(frames.items())), hashes


def _rows(path: Path, file: str, name: str, queries: set[str], doc_ids: set[str], faults: Faults) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    seen: dict[tuple, int] = {}
    stale: dict[str, int] = {}
    for number, value in objects(path, file, faults):
        if name == "traces":
            query = value.get("query_id")
            row: dict[str, Any] = {"query_id": query if isinstance(query, str) else None, "trace": _text(value)}
            key: tuple = (number,)
        else:
            line = parse(OUTPUT_LINES[name], value, file, number, faults)
            if line is None:
                continue
            row, key = _row(line), tuple(getattr(line, field) for field in line.KEY)
        if (first := seen.setdefault(key, number)) != number:
            faults.add(file, number, ", ".join(OUTPUT_LINES[name].KEY), f"the item of line {first}", "each item once")
            continue
        if row.get("query_id") is not None and row["query_id"] not in queries:
            faults.add(
                file, number, "query_id", f"{row['query_id']!r}, which is no query", "an id of queries.jsonl",
                faults.suggest(file, row["query_id"], queries),
            )  # fmt: skip
        for field in ("doc_id", "kept", "removed"):
            if row.get(field) is not None and row[field] not in doc_ids:
                stale.setdefault(row[field], number)
        rows.append(row)
    if stale:
        faults.warn(
            file, min(stale.values()), "doc_id", f"{len(stale)} documents that this version lacks ({several(stale)})",
            "ids of its documents", "a stale index holds nothing of this version",
        )  # fmt: skip
    return pl.DataFrame(rows, schema=OUTPUTS[name], orient="row")


def _row(line: Line) -> dict[str, Any]:
    row = line.model_dump()
    for field in JSON_FIELDS:
        if row.get(field) is not None:
            row[field] = _text(row[field])
    for field in ("claims", "citations"):
        if field in row:
            row[field] = [
                _text({key: value for key, value in item.items() if value not in (None, [])}) for item in row[field]
            ]
    return row


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _load_run(
    path: Path, file: str, name: str, queries: set[str], runs: dict[str, list[dict[str, Any]]], faults: Faults
) -> None:
    stem, _, suffix = name.rpartition(".")
    before = stem.endswith(BEFORE)
    run = stem.removesuffix(BEFORE)
    if suffix not in {"trec", "jsonl"} or not NAME.fullmatch(run):
        faults.add(
            file, None, "", "a run of another name", "runs/<name>.trec, .jsonl or .before_rerank.jsonl",
            f"such as runs/{slug(run or suffix, 'run')}.{suffix if suffix in {'trec', 'jsonl'} else 'trec'}",
        )  # fmt: skip
        return
    table = "runs_before_rerank" if before else "runs"
    rows = runs.setdefault(table, [])
    if suffix == "trec" and path.with_suffix(".jsonl").exists():
        faults.add(file, None, "", f"a second file of run {run!r}", "one file a run", "remove one")
        return
    lines = _trec_lines(path, file, faults) if suffix == "trec" else _run_lines(path, file, faults)
    rows.extend(_ranked(lines, run, file, suffix == "trec", queries, faults))


def _run_lines(path: Path, file: str, faults: Faults) -> Iterator[tuple[int, RunLine]]:
    for number, value in objects(path, file, faults):
        named = [alias for alias in ("chunk_id", "doc_id") if alias in value]
        if "item_id" not in value and len(named) == 1:
            value["item_id"] = value.pop(named[0])
        line = parse(RunLine, value, file, number, faults)
        if isinstance(line, RunLine):
            yield number, line


def _trec_lines(path: Path, file: str, faults: Faults) -> Iterator[tuple[int, RunLine]]:
    for number, text in raw_lines(path, file, faults):
        cells = split_columns(text)
        if len(cells) != 6:
            faults.add(
                file,
                number,
                "",
                f"{len(cells)} columns",
                "6: query Q0 item rank score tag",
                "tabs where an id holds a space",
            )
            continue
        try:
            score = float(cells[4])
        except ValueError:
            faults.add(file, number, "score", describe(cells[4]), "a number")
            continue
        if not np.isfinite(score):
            faults.add(
                file, number, "score", f"{cells[4]!r} for query {cells[0]!r}, item {cells[2]!r}", "a finite number"
            )
            continue
        value = {"query_id": cells[0], "item_id": cells[2], "score": score}
        if isinstance(line := parse(RunLine, value, file, number, faults), RunLine):
            yield number, line


def _ranked(
    lines: Iterable[tuple[int, RunLine]], run: str, file: str, trec: bool, queries: set[str], faults: Faults
) -> Iterator[dict[str, Any]]:
    """Rows with ranks from 1 without gaps: given ranks, else by score; a .trec file always in trec_eval's own order."""
    by_query: dict[str, list[tuple[int, RunLine]]] = defaultdict(list)
    for number, line in lines:
        by_query[line.query_id].append((number, line))
    for query, items in by_query.items():
        if query not in queries:
            hint = faults.suggest(file, query, queries)
            faults.add(file, items[0][0], "query_id", f"{query!r}, which is no query", "an id of queries.jsonl", hint)
            continue
        seen: dict[str, int] = {}
        for number, line in items:
            if (first := seen.setdefault(line.item_id, number)) != number:
                faults.add(
                    file, number, "item_id", f"item {line.item_id!r} of line {first} again, for query {query!r} of run {run!r}",
                    "each item once a query",
                )  # fmt: skip
        for rank, line in enumerate(_order(items, file, trec, faults), 1):
            yield {"run": run, "query_id": query, "item_id": line.item_id, "rank": rank, "score": line.score}


def _order(items: list[tuple[int, RunLine]], file: str, trec: bool, faults: Faults) -> list[RunLine]:
    lines = [line for _, line in items]
    if all(line.rank is not None for line in lines):
        ranks: dict[int, int] = {}
        for number, line in items:
            if (first := ranks.setdefault(line.rank or 0, number)) != number:
                faults.add(file, number, "rank", f"rank {line.rank} of line {first} again", "each rank once a query")
        return sorted(lines, key=lambda line: line.rank or 0)
    if unscored := next((number for number, line in items if line.score is None), None):
        faults.add(
            file, unscored, "score", "no such field", "a rank on every line of the query, or a score on every line"
        )
        return lines
    # trec_eval reads scores as float32 and orders ties by descending id; our own format orders them by ascending id.
    if trec:
        lines.sort(key=lambda line: line.item_id, reverse=True)
        return sorted(lines, key=lambda line: -np.float32(line.score or 0.0))
    return sorted(lines, key=lambda line: (-(line.score or 0.0), line.item_id))


def _vectors(path: Path, file: str, faults: Faults) -> pl.DataFrame:
    empty = pl.DataFrame(schema=VECTORS)
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        faults.add(
            file, None, "", f"no readable Parquet ({type(error).__name__})", "a Parquet file of id, vector, model"
        )
        return empty
    for name in frame.columns:
        if name not in VECTORS:
            faults.add(file, None, name, "an unknown column", "a known one", suggestion(name, VECTORS))
    if missing := [name for name in VECTORS if name not in frame.columns]:
        faults.add(file, None, missing[0], "no such column", "it is required")
        return empty
    try:
        frame = frame.select(pl.col(name).cast(dtype) for name, dtype in VECTORS.items())
    except pl.exceptions.PolarsError:
        faults.add(
            file,
            None,
            "",
            f"columns of {[str(dtype) for dtype in frame.dtypes]}",
            "id text, vector list of float, model text",
        )
        return empty
    _check_vectors(frame, file, faults)
    return frame.with_columns(pl.col("id").str.normalize("NFC")).sort("id")


def _check_vectors(frame: pl.DataFrame, file: str, faults: Faults) -> None:
    if any(frame.null_count().row(0)):
        faults.add(file, None, "", "empty cells", "no empty cells")
    if frame["id"].n_unique() != frame.height:
        again = frame.filter(pl.col("id").is_duplicated())["id"].unique().sort().to_list()
        faults.add(file, None, "id", f"{len(again)} ids twice ({several(again)})", "each id once")
    if frame["vector"].list.len().n_unique() > 1:
        faults.add(file, None, "vector", "vectors of several lengths", "one dimension")
    flat = frame["vector"].explode(empty_as_null=True)
    if flat.is_null().any() or not flat.is_finite().all():
        faults.add(file, None, "vector", "values that are no finite number", "finite numbers")
    if frame["model"].n_unique() > 1:
        faults.add(
            file, None, "model", f"several models ({several(frame['model'].unique().sort())})", "one model a file"
        )


def _same_model(layout: Layout, frames: dict[str, pl.DataFrame], faults: Faults) -> None:
    """Vectors of two models, or of two lengths, say nothing about each other."""
    pair = [frames[name] for name in ("embeddings", "query_embeddings") if name in frames and frames[name].height]
    if len(pair) < 2:
        return
    described = [(frame["model"][0], len(frame["vector"][0])) for frame in pair]
    if described[0] != described[1]:
        file = layout.name(layout.outputs / "query_embeddings.parquet")
        found = f"model {described[1][0]!r}, dimension {described[1][1]}"
        wanted = f"{described[0][0]!r}, {described[0][1]}, as embeddings.parquet"
        faults.add(file, None, "model", found, wanted, "encode both with one model")
