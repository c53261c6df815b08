"""Rows for people: the waterfall as bars, a document as blocks beside their source, a story as lines with styles.

Printing belongs to the command line.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rag_eval_pipeline.attribution.story import introduction
from rag_eval_pipeline.corpus.faults import suggestion
from rag_eval_pipeline.release.answered import doubt_of
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.release.stories import Excerpt, Part, QueryPage, UnitPage
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.redact import Redactor

BAR = 24
LAYERS = {"parsed": 0, "cleaned": 1, "masked": 2}


def waterfall_rows(evaluation: Evaluation, retriever: str, k: int) -> dict[str, str]:
    """Stage → bar, recall still possible after it, what it lost, and a mark where a verifier that is not calibrated said so.

    `served` is last.
    """
    frame = evaluation.frame("loss_waterfall").filter(
        (pl.col("retriever") == retriever) & (pl.col("k") == k) & (pl.col("slice_name") == "all")
    )
    rows: dict[str, str] = {}
    recall, units, queries, doubt = 0.0, 0, 0, doubt_of(evaluation)
    for row in frame.sort("position").iter_rows(named=True):
        lost = f"−{row['lost_recall']:.3f} ({row['lost_units']})" if row["lost_units"] else ""
        mark = f"({doubt})" if row["stage"] == "answering" and doubt else ""
        rows[row["stage"]] = " ".join(
            part for part in (_bar(row["ceiling_after"]), f"{row['ceiling_after']:.3f}", lost, mark) if part
        )
        recall, units, queries = row["recall"], row["n_units"], row["n_queries"]
    rows["served"] = f"{_bar(recall)} {recall:.3f} evidence recall, {units} units of {queries} queries"
    return rows


def document_rows(evaluation: Evaluation, doc_id: str, stage: str) -> pl.DataFrame:
    """One row a block: page, kind, its range in the parsed text, and the stage's text of it, redacted.

    Raises:
        LookupError: the version has no such document, or the stage no text of it.
    """
    if stage not in LAYERS:
        raise LookupError(f"stage {stage!r} has no text; choose one of {list(LAYERS)}")
    parsed = _row(evaluation, "parsed", doc_id)
    blocks = evaluation.frame("blocks").filter(pl.col("doc_id") == doc_id).sort("block")
    text, chain = parsed["text"], OffsetMap.identity(len(parsed["text"]))
    for layer in ("cleaned", "masked")[: LAYERS[stage]]:
        row = _row(evaluation, layer, doc_id)
        text, chain = row["text"], OffsetMap(row["offsets"]).then(chain)
    redactor = evaluation.redactor
    rows = []
    for block in blocks.iter_rows(named=True):
        place = chain.forward_range(block["start"], block["end"])
        shown = redactor.text(text[place[0] : place[1]]) if place else "(removed)"
        where = f"p. {block['page']}" if block["page"] is not None else ""
        kind = block["kind"] + (f" {block['level']}" if block["level"] is not None else "")
        rows.append({"where": where, "kind": kind, "parsed": f"{block['start']}–{block['end']}", "text": shown})
    if not rows:
        told = redactor.text(text) or f"({parsed['error']})"
        rows = [{"where": "", "kind": parsed["status"], "parsed": f"0–{len(parsed['text'])}", "text": told}]
    return pl.DataFrame(rows)


Line = list[tuple[str, str]]
"""Stretches of (words, rich style)."""
STYLES = {
    "kept": "bold cyan",
    "other": "bold red underline",
    "gone": "red reverse",
    "hidden": "dim",
    "cut": "yellow",
    "skip": "dim",
}
SIGNS = {"held": ("✓", "green"), "degraded": ("~", "yellow"), "restored": ("~", "yellow")}


def story_lines(page: QueryPage, redactor: Redactor) -> Iterator[Line]:
    """A story as lines for a terminal: the question, each piece of evidence, its steps, its passages, its places."""
    yield [(f"{page.query_id}: {page.question}", "bold")]
    yield [(f"{page.retriever} serves {page.k} items", "dim")]
    for unit in page.units:
        yield [("", "")]
        yield from _unit_lines(unit, redactor)


def _unit_lines(unit: UnitPage, redactor: Redactor) -> Iterator[Line]:
    story = unit.story
    for line in introduction(story):
        yield [(redactor.text(line), "")]
    for step in story.steps:
        sign, colour = ("✗", "red") if step.first_loss else SIGNS.get(step.state, ("✗", "red"))
        style = "bold red" if step.first_loss else ""
        yield [(f"  {sign} ", colour), (f"{step.stage:<11}", style), (redactor.text(step.sentence), style)]
    for end in story.ends:
        style = "bold green" if end.served else "bold red"
        yield [(f"  {end.retriever}, k={end.k}: {redactor.text(end.sentence)}", style)]
    if all(end.served or end.stage == "ineligible" for end in story.ends):
        return
    for name, value in unit.filter:
        yield [(f"  {name}: ", "dim"), (value, "")]
    for excerpt in unit.excerpts:
        yield from _excerpt_lines(excerpt)
    if any(place[name] for place in unit.places for name in ("served", "found", "exact", "document")):
        yield [("  Where it stood, by rank (exact search → as found → as served; best of its document)", "dim")]
        for place in unit.places:
            exact, found, served, document = (place[name] or "–" for name in ("exact", "found", "served", "document"))
            yield [(f"    {place['retriever']:<12} {exact} → {found} → {served}; {document}", "")]


def _excerpt_lines(excerpt: Excerpt) -> Iterator[Line]:
    page = f", page {excerpt.page}" if excerpt.page is not None else ""
    note = f", {excerpt.note}" if excerpt.note else ""
    yield [(f"  {excerpt.title} ({excerpt.doc_id}{page}{note}):", "dim")]
    line: Line = [("    │ ", "dim")]
    for part in excerpt.parts:
        for number, words in enumerate(_shown(part).split("\n")):
            if number:
                yield line
                line = [("    │ ", "dim")]
            line.append((words, STYLES.get(part.mark, "")))
    yield line


def _shown(part: Part) -> str:
    """What a terminal without colours must show too."""
    match part.mark:
        case "cut":
            return " ✂ "
        case "gone":
            return f"[{part.text}]"
        case "other":
            return f"{{{part.text}}}"
        case _:
            return part.text.replace("\t", "  ")


def _row(evaluation: Evaluation, table: str, doc_id: str) -> dict:
    found = evaluation.frame(table).filter(pl.col("doc_id") == doc_id)
    if found.is_empty():
        known = evaluation.frame("documents")["doc_id"].to_list()
        there = doc_id in known
        where = "was dropped before this stage" if there else f"is not in this version; {suggestion(doc_id, known)}"
        raise LookupError(f"document {doc_id!r} {where} (no row in {table})")
    return found.row(0, named=True)


def _bar(share: float) -> str:
    full = round(max(0.0, min(1.0, share)) * BAR)
    return "█" * full + "░" * (BAR - full)
