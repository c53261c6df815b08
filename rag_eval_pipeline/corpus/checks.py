"""What must hold between gold files, documents and reference texts: ids, offsets, quotes, splits, the ontology.

A line's own fields are checked in `lines`. No message holds text of a document, query or quote.
"""

from __future__ import annotations

import json
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.faults import Faults, several
from rag_eval_pipeline.corpus.labels import Labels, Place
from rag_eval_pipeline.corpus.predicates import FIELDS, fields_of
from rag_eval_pipeline.text.alignment import nearest, occurrences
from rag_eval_pipeline.text.normalise import normalise

DOCUMENT_FIELDS = {
    "evidence": ("doc_id",), "qrels": ("doc_id",), "structure": ("doc_id",), "main_text": ("doc_id",),
    "languages": ("doc_id",), "duplicates": ("doc_a", "doc_b"), "pii": ("doc_id",), "entities": ("doc_id",),
    "relations": ("doc_id",),
}  # fmt: skip
JOINER = "\u200d"
QUERY_TABLES = ("evidence", "qrels", "chunk_qrels", "claims", "answers_gold")
ALIGNED, ALIGNED_WORK, ALIGNED_TEXT = 50, 1_000_000_000, 5_000_000
"""Quotes that are not found and get their nearest match searched: how many, how much work in all (characters of quote ×
text: 20 s), in texts how long. Further ones are refused without it."""


def check_queries(labels: Mapping[str, Labels], faults: Faults) -> None:
    """Query ids and principals that labels name must exist."""
    queries = {key[0] for key in labels["queries"].rows}
    for name in QUERY_TABLES:
        told: set[str] = set()
        for row, (file, line) in labels[name]:
            query = row["query_id"]
            if query not in queries and query not in told:
                told.add(query)
                hint = faults.suggest(file, query, queries)
                faults.add(file, line, "query_id", f"{query!r}, which is no query", "an id of queries.jsonl", hint)
    principals = {key[0] for key in labels["principals"].rows}
    for row, (file, line) in labels["queries"]:
        if row["principal"] is not None and row["principal"] not in principals:
            hint = faults.suggest(file, row["principal"], principals)
            faults.add(
                file, line, "principal", f"{row['principal']!r}, which is unknown", "one of principals.jsonl", hint
            )


def check_filters(labels: Mapping[str, Labels], metadata: Iterable[str], faults: Faults) -> None:
    """A filter on a field that no document has excludes everything: most likely a slip."""
    keys = {key for text in set(metadata) for key in json.loads(text)}
    known = {*FIELDS, *keys, *(f"metadata.{key}" for key in keys)}
    for row, (file, line) in labels["queries"]:
        for field in fields_of(json.loads(row["filter"])) if row["filter"] else ():
            if field not in known:
                hint = faults.suggest(file, field, known)
                faults.warn(
                    file, line, f"filter.{field}", "a field that no document has", "a column or metadata key", hint
                )


def check_documents(labels: Mapping[str, Labels], doc_ids: Iterable[str], faults: Faults) -> None:
    """Labels of documents that the version lacks are kept (a lost source is a finding) and named in one warning a file."""
    known = set(doc_ids)
    for name, fields in DOCUMENT_FIELDS.items():
        absent: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
        for row, (file, line) in labels[name]:
            for field in fields:
                if row[field] not in known:
                    absent[file].setdefault(row[field], (line, field))
        for file, missing in absent.items():
            first, (line, field) = next(iter(missing.items()))
            faults.warn(
                file, line, field, f"{len(missing)} documents that this version lacks ({several(missing)})",
                "ids of its documents", faults.suggest(file, first, known),
            )  # fmt: skip


def check_offsets(
    labels: Mapping[str, Labels], references: Mapping[str, str], doc_ids: Iterable[str], faults: Faults
) -> None:
    """Spans must lie in a reference text. Those of a document that the version lacks have none, and wait for another version."""
    known = set(doc_ids)
    for name, field in (
        ("pii", "spans"),
        ("entities", "spans"),
        ("main_text", "boilerplate"),
        ("languages", "sections"),
    ):
        for row, (file, line) in labels[name]:
            spans = row[field] or []
            text = references.get(row["doc_id"])
            if spans and text is None and row["doc_id"] in known:
                faults.add(
                    file, line, field, "offsets in a document without reference text", "a transcript",
                    f"add gold/transcripts/{row['doc_id']}.txt",
                )  # fmt: skip
            if text is None:
                continue
            for number, span in enumerate(spans):
                _check_edges(span["start"], span["end"], text, (file, line), f"{field}[{number}].", faults)
                if span["end"] > len(text):
                    faults.add(
                        file, line, f"{field}[{number}].end", f"the number {span['end']}",
                        f"at most {len(text)}, the reference text's code points",
                    )  # fmt: skip


def anchor_evidence(
    evidence: Labels, references: Mapping[str, str], doc_ids: Iterable[str], form: str, faults: Faults
) -> None:
    """Each quote must occur in its document's reference text; fills in what follows from it.

    A span's quote is filled in from the text, and the span of a quote whose `start` or `occurrence` says which. A quote of a
    document that the version lacks stays, without its place.
    """
    known = set(doc_ids)
    by_document: dict[str, list[tuple[dict[str, Any], Place]]] = defaultdict(list)
    for row, place in evidence:
        by_document[row["doc_id"]].append((row, place))
    unfound = [0, 0]
    for doc_id, items in by_document.items():
        text = references.get(doc_id)
        folded = normalise(text, form) if text is not None else ""
        for row, place in items:
            if text is None and doc_id not in known and row["quote"] is not None:
                row.update(start=None, end=None)
            elif text is None:
                _without_text(row, place, faults)
            else:
                _anchor(row, place, text, folded, form, faults, unfound)
            _check_critical(row, place, form, faults)


def _without_text(row: dict[str, Any], place: Place, faults: Faults) -> None:
    if row["start"] is not None:
        faults.add(
            *place, "start", "offsets in a document without reference text", "a transcript or a quote",
            f"add gold/transcripts/{row['doc_id']}.txt, or give the quote alone",
        )  # fmt: skip


def _anchor(
    row: dict[str, Any], place: Place, text: str, folded: str, form: str, faults: Faults, unfound: list[int]
) -> None:
    quote, start, end = row["quote"], row["start"], row["end"]
    if end is not None and end > len(text):
        faults.add(*place, "end", f"the number {end}", f"at most {len(text)}, the reference text's code points")
        return
    if start is not None:
        _check_edges(start, end, text, place, "", faults)
    if start is not None and end is not None:
        _check_span(row, place, text[start:end], form, faults)
        return
    needle = normalise(quote, form)
    if (count := count_overlapping(folded, needle, 2)) == 0:
        _refuse_quote(row, place, text, form, faults, unfound)
    elif start is not None or row["occurrence"] is not None:
        _choose(row, place, text, form, faults)
    elif count > 1:
        faults.warn(*place, "quote", "several occurrences in the document", "one", "say which by start or occurrence")


def _check_edges(start: int, end: int | None, text: str, place: Place, field: str, faults: Faults) -> None:
    """A span that cuts off an accent or half of a joined sign is most likely counted in other units."""
    for name, at in (("start", start), ("end", end)):
        if (
            at is not None
            and 0 < at < len(text)
            and (unicodedata.combining(text[at]) or JOINER in text[at - 1 : at + 1])
        ):
            faults.warn(
                *place, f"{field}{name}", f"the number {at}, inside of a character with its marks",
                "an edge between characters", "offsets count code points of the reference text",
            )  # fmt: skip


def _check_span(row: dict[str, Any], place: Place, inside: str, form: str, faults: Faults) -> None:
    if not inside.strip():
        faults.add(*place, "start", "a span of white space", "a span of text")
    elif row["quote"] is None:
        row["quote"] = inside
    elif normalise(row["quote"], form) != normalise(inside, form):
        similarity = nearest(row["quote"], inside, form).similarity
        faults.add(
            *place, "quote", f"a quote that differs from the text at start and end (similarity {similarity:.2f})",
            "the same text", "correct the offsets (code points of the reference text) or leave them out",
        )  # fmt: skip


def _refuse_quote(row: dict[str, Any], place: Place, text: str, form: str, faults: Faults, unfound: list[int]) -> None:
    unfound[0] += 1
    unfound[1] += len(row["quote"]) * len(text)
    found = f"a quote of {len(row['quote'])} characters that the reference text has not"
    hint = ""
    if unfound[0] <= ALIGNED and unfound[1] <= ALIGNED_WORK and len(text) <= ALIGNED_TEXT:
        best = nearest(row["quote"], text, form)
        found += f"; nearest match: similarity {best.similarity:.2f} at {best.start}–{best.end}"
        hint = f"copy the quote from code points {best.start}–{best.end} of the reference text of {row['doc_id']!r}"
        hint += "; where another version has the old words, as a line of this version's own gold/evidence.jsonl"
    faults.add(*place, "quote", found, "a quote that occurs in it", hint)


def _choose(row: dict[str, Any], place: Place, text: str, form: str, faults: Faults) -> None:
    found = occurrences(row["quote"], text, form)
    if row["occurrence"] is not None:
        if row["occurrence"] > len(found):
            faults.add(
                *place, "occurrence", f"the number {row['occurrence']}", f"at most {len(found)}, as often as it occurs"
            )
            return
        chosen = found[row["occurrence"] - 1]
    else:
        at = [location for location in found if location.start == row["start"]]
        if not at:
            close = min(found, key=lambda location: abs(location.start - row["start"])).start
            faults.add(
                *place, "start", f"the number {row['start']}", f"where the quote starts, the nearest being {close}"
            )
            return
        chosen = at[0]
    row["start"], row["end"] = chosen.start, chosen.end


def count_overlapping(text: str, needle: str, enough: int) -> int:
    """Occurrences of `needle`, overlapping ones too, up to `enough`."""
    count, start = 0, text.find(needle)
    while start >= 0 and needle:
        count += 1
        if count == enough:
            break
        start = text.find(needle, start + 1)
    return count


def _check_critical(row: dict[str, Any], place: Place, form: str, faults: Faults) -> None:
    if row["critical"] and row["quote"] is not None:
        quote = normalise(row["quote"], form)
        for number, token in enumerate(row["critical"]):
            if normalise(token, form) not in quote or not token.strip():
                faults.add(*place, f"critical[{number}]", "a token that the quote has not", "a substring of the quote")


def check_leakage(
    queries: pl.DataFrame,
    evidence: pl.DataFrame,
    qrels: pl.DataFrame,
    rel_level: int,
    refuse: bool,
    file: str,
    faults: Faults,
) -> None:
    """A document or cluster on both sides of a split: what is tuned on one side is known on the other."""
    judged = qrels.filter(pl.col("grade") >= rel_level).select("query_id", "doc_id")
    links = pl.concat([evidence.select("query_id", "doc_id"), judged]).unique()
    split = queries.select("query_id", "split")
    sides = {
        "document": links.join(split, on="query_id").rename({"doc_id": "shared"}),
        "cluster": queries.filter(pl.col("cluster_id").is_not_null()).select("query_id", "split", shared="cluster_id"),
    }
    for what, frame in sides.items():
        leaked = frame.filter(pl.col("split").n_unique().over("shared") > 1)
        if leaked.is_empty():
            continue
        names = leaked["query_id"].unique().sort().to_list()
        shared = leaked["shared"].unique().sort().to_list()
        faults.add(
            file, None, "split", f"{len(shared)} {what}s on both sides of a split ({several(shared)}): queries {several(names, 10)}",
            f"each {what} in one split", "rag-eval split groups by document and cluster", "error" if refuse else "warning",
        )  # fmt: skip


def check_ontology(labels: Mapping[str, Labels], faults: Faults) -> None:
    """Parents must be nodes, there is no cycle, and links end at a node or NIL."""
    nodes = {row["node"]: (row["parents"], place) for row, place in labels["ontology"]}
    for parents, (file, line) in nodes.values():
        for parent in parents:
            if parent not in nodes:
                faults.add(
                    file,
                    line,
                    "parents",
                    f"{parent!r}, which is no node",
                    "a node",
                    faults.suggest(file, parent, nodes),
                )
    if cycle := find_cycle({node: parents for node, (parents, _) in nodes.items()}):
        faults.add(
            *nodes[cycle[0]][1], "parents", f"a cycle: {' → '.join(cycle)}", "no cycle", "remove one of these parents"
        )
    for row, (file, line) in labels["links"]:
        if labels["ontology"].present and row["node"] != "NIL" and row["node"] not in nodes:
            faults.add(
                file,
                line,
                "node",
                f"{row['node']!r}, which is no node",
                "a node or NIL",
                faults.suggest(file, row["node"], nodes),
            )


def find_cycle(parents: Mapping[str, list[str]]) -> list[str]:
    """A cycle as node … node, or an empty list. Iterative: ontologies may be deep."""
    done: set[str] = set()
    for root in parents:
        path: list[str] = []
        on_path: set[str] = set()
        stack: list[tuple[str, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                path.pop()
                on_path.discard(node)
                done.add(node)
            elif node in on_path:
                return [*path[path.index(node) :], node]
            elif node not in done and node in parents:
                path.append(node)
                on_path.add(node)
                stack.append((node, True))
                stack.extend((parent, False) for parent in parents[node])
    return []
