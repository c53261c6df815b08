"""What follows from an edit: the pipeline's own transforms are run on the documents that changed, stage by stage.

A fault is laid over a stage's output by that stage's own import (outputs/ and `import: true`), so what the twin will do is
what was done here. Where faults are planted belongs in `edits`; files in `twin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from rag_eval_pipeline.corpus.outputs import OUTPUTS
from rag_eval_pipeline.experiments.injector.edits import Cut, Join, Merge, Planned, Redaction, TextEdit
from rag_eval_pipeline.experiments.injector.state import State
from rag_eval_pipeline.stages.graph import BY_NAME, inputs_of
from rag_eval_pipeline.warehouse.runtime import Runtime

LAYERS: dict[type, str] = {Merge: "dedup", Redaction: "pii_spans", Cut: "chunks", Join: "chunks"}
STAGE_OF = {"parsed": "parsing", "cleaned": "cleaning", "dedup": "dedup", "pii_spans": "pii", "chunks": "chunking"}
"""Output -> the stage that takes it by `import: true`."""
CLEAN_KINDS = frozenset({"boilerplate_over_removal"})


def layer_of(planned: Planned, edit: Any) -> str | None:
    """The output that an edit is laid over; None where it is laid over a file or a setting."""
    if isinstance(edit, TextEdit):
        return "cleaned" if planned.kind in CLEAN_KINDS else "parsed"
    return LAYERS.get(type(edit))


def by_layer(planned: Iterable[Planned]) -> dict[str, dict[str, list[Any]]]:
    """Edits by output and document, those of decoys with them."""
    found: dict[str, dict[str, list[Any]]] = {}
    for fault in planned:
        for one in (fault, fault.decoy):
            for edit in one.edits if one else ():
                layer = layer_of(fault, edit)
                if layer is not None and one is not None and one.doc_id is not None:
                    found.setdefault(layer, {}).setdefault(one.doc_id, []).append(edit)
    return found


def propagate(state: State, planned: Sequence[Planned], *, dedup: bool = True) -> tuple[State, dict[str, pl.DataFrame]]:
    """The state after all edits, and the outputs over which some were laid, for all documents.

    Args:
        state: the healthy one; it is left alone.
        planned: faults with their decoys.
        dedup: look for duplicates anew where a text changed; a planner that looks one document ahead does not need it.
    """
    edits = by_layer(planned)
    chain = _Chain(state.copy(), edits)
    for fault in planned:
        for unit in fault.reworded:
            chain.state.reworded.setdefault(unit.doc_id, {})[unit.id] = unit
    changed = chain.parsed()
    changed = chain.cleaned(changed)
    changed = chain.deduped(changed, dedup)
    changed = chain.masked(changed)
    chain.chunked(changed)
    return chain.state, chain.outputs


class _Chain:
    """One pass through the text stages. Each method gets the documents that changed before it, and returns those after it."""

    def __init__(self, state: State, edits: Mapping[str, dict[str, list[Any]]]) -> None:
        self.state, self.edits = state, edits
        self.outputs: dict[str, pl.DataFrame] = {}
        self._outside = state.subject.outside()

    def parsed(self) -> set[str]:
        """Lay edits over the parsed texts."""
        edits = self.edits.get("parsed", {})
        if edits:
            rows = [self._parsed_row(doc_id, edits.get(doc_id, [])) for doc_id in self._read("parsed")]
            self._import("parsed", rows, set(edits))
        return set(edits)

    def _read(self, layer: str) -> list[str]:
        return [doc_id for doc_id, text in sorted(self.state.texts(layer).items()) if text.strip()]

    def _parsed_row(self, doc_id: str, edits: Sequence[TextEdit]) -> dict[str, Any]:
        row = self.state.rows("parsed", doc_id)[0]
        blocks = sorted(self.state.rows("blocks", doc_id), key=lambda block: block["block"])
        tables = sorted(self.state.rows("parsed_tables", doc_id), key=lambda table: table["table_no"])
        text, moved = edit_text(row["text"], blocks, edits)
        shown = [{name: block[name] for name in ("kind", "level", "page", "start", "end")} for block in moved]
        html = row.get("html")
        return {"doc_id": doc_id, "text": text, "blocks": shown, "tables": [t["html"] for t in tables], "html": html}

    def cleaned(self, changed: set[str]) -> set[str]:
        """Clean what changed, and lay edits over it."""
        self._rerun("cleaning", changed)
        edits = self.edits.get("cleaned", {})
        if edits:
            texts = self.state.texts("cleaned")
            rows = [
                {"doc_id": doc_id, "text": edit_text(texts[doc_id], [], edits.get(doc_id, []))[0]}
                for doc_id in self._read("cleaned")
            ]
            self._import("cleaned", rows, set(edits))
        return changed | set(edits)

    def deduped(self, changed: set[str], again: bool) -> set[str]:
        """Find duplicates anew, and lay removals over them; documents whose text or fate changed."""
        before = set(self.state.kept)
        if changed and again:
            self._rerun("dedup", None)
        edits = [merge for merges in self.edits.get("dedup", {}).values() for merge in merges]
        if edits:
            removed = self.state.frames["dedup"].filter(~pl.col("kept"))
            rows = [
                {"kept": survivor, "removed": doc_id, "similarity": None}
                for doc_id, survivor in removed.select("doc_id", "survivor").iter_rows()
            ]
            rows += [{"kept": merge.kept, "removed": merge.removed, "similarity": 0.9} for merge in edits]
            self._import("dedup", rows, None)
        return changed | (before ^ set(self.state.kept))

    def masked(self, changed: set[str]) -> set[str]:
        """Mask what changed, and lay spans over it."""
        self._rerun("pii", changed)
        edits = self.edits.get("pii_spans", {})
        if edits:
            spans = self.state.frames["pii_spans"].select("doc_id", "start", "end", "type", "score").to_dicts()
            spans += [
                {"doc_id": doc_id, "start": one.start, "end": one.end, "type": one.type, "score": 0.9}
                for doc_id, found in edits.items()
                for one in found
            ]
            self._import("pii_spans", sorted(spans, key=lambda s: (s["doc_id"], s["start"], s["end"])), set(edits))
        return changed | set(edits)

    def chunked(self, changed: set[str]) -> None:
        """Cut what changed, and lay other edges over it."""
        self._rerun("chunking", changed)
        edits = self.edits.get("chunks", {})
        if edits:
            rows = []
            texts = self.state.texts("masked")
            for doc_id in sorted(texts):
                chunks = [c for c in self.state.rows("chunks", doc_id) if c["status"] == "ok"]
                rows += edit_chunks(doc_id, texts[doc_id], chunks, edits.get(doc_id, []))
            self._import("chunks", rows, set(edits))

    def _import(self, output: str, rows: list[dict[str, Any]], changed: set[str] | None) -> None:
        frame = pl.DataFrame(rows, schema=OUTPUTS[output], orient="row")
        self.outputs[output] = frame
        stage = BY_NAME[STAGE_OF[output]]
        # A section that was off (dedup) is turned on by its import.
        config = self.state.subject.configs[stage.name].model_copy(update={"imported": True, "enabled": True})
        part = frame if changed is None else frame.filter(pl.col("doc_id").is_in(sorted(changed)))
        self._run(stage.name, changed, config, {f"output:{output}": part})

    def _rerun(self, stage: str, changed: set[str] | None) -> None:
        if changed is None or changed:
            self._run(stage, changed, self.state.subject.configs[stage], {})

    def _run(self, name: str, changed: set[str] | None, config: Any, more: Mapping[str, pl.DataFrame]) -> None:
        """Run a stage on some documents, or on all, and put its rows in place of theirs."""
        stage = BY_NAME[name]
        known = {**self._outside, **self.state.frames, **more}
        given = {table: _part(frame, changed) for table, frame in inputs_of(stage, known, config).items()}
        made = stage.door("transform", "run")(given, config, Runtime.plain(self.state.subject.version.folder))
        new = {}
        for table in stage.tables:
            if changed is None:
                new[table] = made[table]
                continue
            rest = self.state.frames[table].filter(~pl.col("doc_id").is_in(sorted(changed)))
            new[table] = pl.concat([rest, made[table].select(rest.columns)]).sort("doc_id", maintain_order=True)
        self.state.replace(**new)


def _part(frame: pl.DataFrame, changed: set[str] | None) -> pl.DataFrame:
    if changed is None or "doc_id" not in frame.columns:
        return frame
    return frame.filter(pl.col("doc_id").is_in(sorted(changed)))


def edit_text(
    text: str, blocks: Sequence[Mapping[str, Any]], edits: Sequence[TextEdit]
) -> tuple[str, list[dict[str, Any]]]:
    """The text after edits that do not overlap, and its blocks; a block that lost all its text is gone."""
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    parts, at = [], 0
    shifts: list[tuple[int, int, int, int]] = []
    length = 0
    for edit in ordered:
        if edit.start < at:
            raise ValueError(f"edits overlap at {edit.start}")
        parts.append(text[at : edit.start])
        length += edit.start - at
        new = "" if edit.moved else edit.text
        shifts.append((edit.start, edit.end, length, length + len(new)))
        parts.append(new)
        length += len(new)
        at = edit.end
    parts.append(text[at:])

    def place(offset: int) -> int:
        shift = 0
        for start, end, new_start, new_end in shifts:
            if offset <= start:
                break
            if offset < end:
                return min(new_start + (offset - start), new_end)
            shift = new_end - end
        return offset + shift

    result = "".join(parts)
    moved = [{**block, "start": place(block["start"]), "end": place(block["end"])} for block in blocks]
    kept = [block for block in moved if result[block["start"] : block["end"]].strip()]
    for edit in ordered:
        if edit.moved:
            result = f"{result.rstrip()}\n\n"
            page = kept[-1]["page"] if kept else None
            start, result = len(result), result + edit.text.strip()
            kept.append({"kind": "paragraph", "level": None, "page": page, "start": start, "end": len(result)})
    return result, kept


def edit_chunks(
    doc_id: str, text: str, chunks: Sequence[Mapping[str, Any]], edits: Sequence[Cut | Join]
) -> list[dict[str, Any]]:
    """Chunks after cuts and joins, in order; those that were not touched keep their ids."""
    rows = sorted(
        ({"chunk_id": c["chunk_id"], "start": c["start"], "end": c["end"]} for c in chunks),
        key=lambda row: (row["start"], row["end"]),
    )
    for edit in edits:
        rows = _cut(text, rows, edit.at) if isinstance(edit, Cut) else _join(rows, edit.chunk_ids)
    return [
        {
            "chunk_id": r["chunk_id"],
            "doc_id": doc_id,
            "text": text[r["start"] : r["end"]],
            "start": r["start"],
            "end": r["end"],
        }
        for r in rows
    ]


def _cut(text: str, rows: list[dict[str, Any]], at: int) -> list[dict[str, Any]]:
    """Every chunk over `at` ends there, and one begins there; of chunks that overlapped, the longer halves stay."""
    over = [row for row in rows if row["start"] < at < row["end"]]
    if not over:
        return rows
    low, high = min(row["start"] for row in over), max(row["end"] for row in over)
    left_end = low + len(text[low:at].rstrip())
    right_start = at + len(text[at:high]) - len(text[at:high].lstrip())
    halves = [
        {"chunk_id": f"{over[0]['chunk_id']}-a", "start": low, "end": left_end},
        {"chunk_id": f"{over[-1]['chunk_id']}-b", "start": right_start, "end": high},
    ]
    halves = [half for half in halves if half["end"] > half["start"]]
    return sorted([row for row in rows if row not in over] + halves, key=lambda row: (row["start"], row["end"]))


def _join(rows: list[dict[str, Any]], ids: Sequence[str]) -> list[dict[str, Any]]:
    mine = [row for row in rows if row["chunk_id"] in ids]
    if not mine:
        return rows
    whole = {
        "chunk_id": mine[0]["chunk_id"],
        "start": min(row["start"] for row in mine),
        "end": max(row["end"] for row in mine),
    }
    return sorted([row for row in rows if row not in mine] + [whole], key=lambda row: (row["start"], row["end"]))
