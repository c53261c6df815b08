"""The ledger in words: one query's story, stage by stage.

Here: sentences made of the ledger's numbers and ids. Not here: excerpts of texts (`release.stories`), colours and pages. Quotes
are those of `evidence_units`, which are masked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from rag_eval_pipeline.attribution.order import AFTER, STAGES

QUOTE = 160
"""Characters of a quote that are shown."""

ORDER = {stage: place for place, stage in enumerate((*STAGES, *AFTER))}
LISTS = frozenset(STAGES[STAGES.index("search") :])
"""Stages that are about places in lists."""

WORDS = {
    "missing_document": "no carrier's document is in this version",
    "unanchored": "the quote was not found in the parsed text, and the document has no reference text; label it anew",
    "missing": "no place in the parsed text is similar enough",
    "token": "a critical token (number, date, code, negation) did not survive",
    "characters": "too few of its characters are left",
    "reading_order": "its words stand out of order or far apart in the parsed text",
    "merged": "its document was removed as a duplicate",
    "policy": "it is labelled personal data, and was rightly masked",
    "cut": "a chunk edge goes through it, and its parts were not found together",
    "dropped": "no chunks, taken together, hold it",
    "truncated": "the encoder did not see it: its chunk is too long",
    "possible": "the encoder did not see it; a sparse lane had the chunk, so this is a possible cause only",
    "not_found": "no lane found it within its depth, even by exact search",
    "approximate": "exact search had it in time, the approximate index had not",
    "fused_out": "a lane had it in time, the fused list had not",
    "demoted": "it was served before the reranker and not after",
    "below_k": "it stands below the cut-off",
    "ignored": "nothing that holds it is cited, and no supported claim stands on it",
    "refused": "the answer is a refusal",
    "empty": "the answer is empty",
    "no_answer": "there is no answer",
}


@dataclass(frozen=True)
class Step:
    """What one stage did to a unit.

    Attributes:
        stage: stage.
        retriever: whose list, or empty.
        state: the ledger's state; `lost` where this stage is the first loss of the fate that is told.
        rank: rank at which the list holds it, if it does.
        sentence: in words.
        first_loss: this is where it was lost.
    """

    stage: str
    retriever: str
    state: str
    rank: int | None
    sentence: str
    first_loss: bool = False


@dataclass(frozen=True)
class End:
    """How it ended for one retriever and cut-off. `stage` is the first loss, `served` or `ineligible`."""

    retriever: str
    k: int
    served: bool
    stage: str
    cause: str | None
    rank: int | None
    context_held: bool | None
    answer_used: bool | None
    sentence: str


@dataclass(frozen=True)
class UnitStory:
    """One piece of evidence: what it is, what each stage did, how it ended, and where it stood in each list.

    `places` has a row a retriever: rank in its `exact` list, as it was `found`, and as it is `served` (None: not held).
    """

    query_id: str
    evidence_id: str
    doc_id: str
    kind: str
    quote: str
    critical: tuple[str, ...]
    hop: int | None
    eligible: bool
    steps: tuple[Step, ...]
    ends: tuple[End, ...]
    places: tuple[dict[str, Any], ...]


def tell(
    query_id: str,
    units: pl.DataFrame,
    ledger: pl.DataFrame,
    fate: pl.DataFrame,
    retriever: str | None = None,
    k: int | None = None,
) -> list[UnitStory]:
    """What happened to each piece of a query's evidence, stage by stage.

    Args:
        query_id: the query.
        units: evidence_units.
        ledger: evidence_ledger.
        fate: evidence_fate.
        retriever: tell of this one only.
        k: tell of this cut-off only.

    Raises:
        LookupError: the query has no evidence in the measured split.
    """
    mine = units.filter(pl.col("query_id") == query_id).sort("evidence_id")
    if mine.is_empty():
        raise LookupError(
            f"query {query_id!r} has no evidence in this evaluation; see gold/evidence.jsonl and evaluate.split"
        )
    ledger, fate = (frame.filter(pl.col("query_id") == query_id) for frame in (ledger, fate))
    return [_unit_story(unit, ledger, fate, retriever, k) for unit in mine.iter_rows(named=True)]


def introduction(unit: UnitStory) -> list[str]:
    """Lines that say what the evidence is."""
    what = "the whole document" if unit.kind == "document" else f"“{short(unit.quote)}”"
    lines = [f"Evidence {unit.evidence_id} in {unit.doc_id}: {what}"]
    if unit.critical:
        lines.append(f"  must keep: {', '.join(unit.critical)}")
    if not unit.eligible:
        lines.append("  outside the books: the caller may not see its document")
    return lines


def short(text: str, length: int = QUOTE) -> str:
    """At most `length` characters, with a sign where some were left out."""
    return text if len(text) <= length else text[: length - 1] + "…"


def why(stage: str, cause: str | None) -> str:
    """A cause in words."""
    if stage == "filtering":
        return f"the filter that was applied (by {cause}) excludes it"
    return WORDS.get(cause or "", cause or "")


def _unit_story(
    unit: Mapping[str, Any], ledger: pl.DataFrame, fate: pl.DataFrame, retriever: str | None, k: int | None
) -> UnitStory:
    rows = [row for row in ledger.iter_rows(named=True) if row["evidence_id"] == unit["evidence_id"]]
    ends = [
        row
        for row in fate.sort("retriever", "k").iter_rows(named=True)
        if row["evidence_id"] == unit["evidence_id"]
        and (retriever is None or row["retriever"] == retriever)
        and (k is None or row["k"] == k)
    ]
    return UnitStory(
        unit["query_id"],
        unit["evidence_id"],
        unit["doc_id"],
        unit["kind"],
        unit["quote"],
        tuple(unit["critical"] or ()),
        unit["hop"],
        unit["eligible"],
        tuple(_steps(unit, rows, ends, retriever)),
        tuple(_end(row) for row in ends),
        tuple(_places(rows)),
    )


def _steps(
    unit: Mapping[str, Any], rows: list[dict[str, Any]], ends: list[dict[str, Any]], retriever: str | None
) -> list[Step]:
    """In order. After a loss, what later stages have not explains nothing, and is left out."""
    lost_at = {end["retriever"]: end for end in ends if not end["served"] and end["eligible"]}
    one = ends[0] if len(ends) == 1 else None
    steps, gone = [], False
    for row in sorted(rows, key=lambda r: (ORDER[r["stage"]], r["retriever"])):
        if retriever is not None and row["retriever"] not in {"", retriever}:
            continue
        stage = row["stage"]
        end = one if not row["retriever"] else lost_at.get(row["retriever"])
        first = end is not None and end["eligible"] and end["first_loss_stage"] == stage and not end["served"]
        if stage == "unanchored" and row["held"]:
            continue
        if gone and not first and not row["held"]:
            continue
        if (
            stage in {"search", "indexing"}
            and end is not None
            and not first
            and row["hold_rank"] is None
            and not row["held"]
        ):
            continue
        state = "lost" if first and row["state"] not in {"policy", "unanchored"} else row["state"]
        sentence = SENTENCES[stage](_Told(unit, row, json.loads(row["detail"]), end if first else None, end))
        steps.append(Step(stage, row["retriever"], state, row["hold_rank"], sentence, first))
        gone = gone or first or (not row["held"] and not row["retriever"])
    return steps


@dataclass(frozen=True)
class _Told:
    """What a sentence is made of. `fate` is there where this stage is the first loss; `end` where one fate is told."""

    unit: Mapping[str, Any]
    row: Mapping[str, Any]
    detail: Mapping[str, Any]
    fate: Mapping[str, Any] | None
    end: Mapping[str, Any] | None

    @property
    def lost(self) -> bool:
        return self.fate is not None or not self.row["held"]

    @property
    def cause(self) -> str:
        return str(self.fate["cause"] or "") if self.fate else ""

    @property
    def share(self) -> str:
        """`64 of its 65 characters`."""
        return f"{self.detail.get('chars', 0)} of its {self.detail.get('n_chars', self.unit['n_chars'])} characters"

    @property
    def broken(self) -> str:
        """`, not the critical token “24 months”`."""
        tokens = self.unit["critical"] or []
        names = [f"“{tokens[i]}”" for i in self.detail.get("broken_tokens") or [] if i < len(tokens)]
        many = "tokens" if len(names) > 1 else "token"
        return f"; it must keep the {many} {', '.join(names)} and does not" if names else ""


def _source(told: _Told) -> str:
    missing = told.detail.get("missing_documents") or []
    if told.lost:
        return f"no document that carries it is in this version (missing: {', '.join(missing) or told.unit['doc_id']})"
    also = f"; a copy that could carry it, {', '.join(missing)}, is not" if missing else ""
    return f"its document is in this version{also}"


def _unanchored(told: _Told) -> str:
    return WORDS["unanchored"]


def _parsing(told: _Told) -> str:
    status = told.detail.get("status", "")
    similarity = told.row["similarity"]
    like = f" (similarity {similarity:.3f})" if similarity is not None else ""
    if told.unit["kind"] == "document":
        return "its document has no text after parsing" if told.lost else "its document was read"
    if told.cause == "reading_order":
        return WORDS["reading_order"]
    if told.row["state"] == "restored":
        return "the parsed text does not hold it, the cleaned text does"
    if told.lost and status in {"changed", "unanchored"}:
        return f"no place in the parsed text is similar enough to it{like}"
    if told.lost and status not in {"exact", "aligned", "scattered", "ok"}:
        return f"the parser gave no text of its document ({status or 'no row'})"
    if not told.lost and status == "exact":
        return "the parser read it word for word"
    return f"the parser read {told.share}{like}{told.broken}"


def _cleaning(told: _Told) -> str:
    cleaner = told.detail.get("cleaner")
    who = f"the cleaner ({cleaner})" if cleaner not in {None, "", "none"} else "cleaning"
    if told.unit["kind"] == "document":
        return f"{who} left nothing of its document" if told.lost else f"{who} kept its document"
    chars, all_chars = told.detail.get("chars", 0), told.detail.get("n_chars", told.unit["n_chars"])
    if told.lost:
        return f"{who} left {chars} of its {all_chars} characters{told.broken}"
    return f"{who} kept it" if chars == all_chars else f"{who} kept {told.share}"


def _dedup(told: _Told) -> str:
    removed = [
        f"{item['doc_id']} was removed as a duplicate of {item['survivor']}"
        + (f" (similarity {item['similarity']:.3f})" if item.get("similarity") is not None else "")
        for item in told.detail.get("removed") or []
    ]
    if told.lost:
        kept = ", which does not hold it, or is labelled as another document or edition"
        return "; ".join(removed) + kept if removed else "its document was removed"
    return "; ".join(removed) + "; a kept document holds it" if removed else "its document was kept"


def _pii(told: _Told) -> str:
    types = told.detail.get("types") or []
    masked = f" (masked: {', '.join(types)})" if types else ""
    if told.row["state"] == "policy" or told.cause == "policy":
        return f"{WORDS['policy']}{masked}"
    if told.lost:
        return f"masking left {told.share}{masked}{told.broken}"
    return f"some of it was masked, and it is still held{masked}" if types else "nothing of it was masked"


def _chunking(told: _Told) -> str:
    chunks = told.detail.get("chunk_ids") or []
    named = ", ".join(chunks[:4]) + (f" and {len(chunks) - 4} more" if len(chunks) > 4 else "")
    if told.cause == "cut":
        return f"{WORDS['cut']} ({named})"
    if told.lost:
        return f"{WORDS['dropped']}" + (f"; some of it is in {named}" if chunks else "")
    if told.row["state"] == "degraded":
        return f"no single chunk holds it; {named} do together"
    return f"it stands whole in {named}"


def _filtering(told: _Told) -> str:
    producer = told.detail.get("producer") or "none"
    if told.lost:
        return f"the filter that was applied (by {producer}) excludes what holds it"
    return (
        "no filter was applied"
        if producer == "none"
        else f"the filter that was applied (by {producer}) lets it through"
    )


def _embedding(told: _Told) -> str:
    seen, tokens = told.detail.get("encoded_tokens"), told.detail.get("tokens")
    share = f" ({seen} of {tokens} word pieces of its chunks)" if tokens is not None else ""
    return f"the encoder did not see it{share}" if told.lost else f"the encoder saw it{share}"


def _search(told: _Told) -> str:
    rank = told.row["hold_rank"]
    if told.lost:
        return WORDS["not_found"]
    return f"by exact search it stands at rank {rank}" if rank else "a lane finds it by exact search"


def _indexing(told: _Told) -> str:
    exact, real = told.detail.get("exact_rank"), told.detail.get("real_rank")
    return f"the index has it at {_at(real)}, exact search at {_at(exact)}"


def _fusion(told: _Told) -> str:
    lanes = ", ".join(f"{lane['lane']} {lane['hold_rank'] or '–'}" for lane in told.detail.get("lanes") or [])
    real = told.detail.get("real_rank", told.row["hold_rank"])
    return f"the fused list has it at {_at(real)}" + (f" (lanes: {lanes})" if lanes else "")


def _reranking(told: _Told) -> str:
    before, after = told.detail.get("real_rank"), told.detail.get("hold_rank", told.row["hold_rank"])
    return (
        f"the reranker moved it from {_at(before)} to {_at(after)}"
        if before != after
        else f"the reranker left it at {_at(after)}"
    )


def _rank(told: _Told) -> str:
    served = f"; {told.end['k']} items are served" if told.end else ""
    return f"it stands at {_at(told.row['hold_rank'])}{served}"


def _context(told: _Told) -> str:
    return "the assembled context does not hold it" if told.lost else "the assembled context holds it"


def _answering(told: _Told) -> str:
    if not told.lost:
        return "the answer stands on it"
    return f"the answer does not stand on it: {WORDS[told.detail.get('why') or 'ignored']}"


def _at(rank: int | None) -> str:
    return "no rank" if rank is None else f"rank {rank}"


SENTENCES: dict[str, Callable[[_Told], str]] = {
    "source": _source,
    "unanchored": _unanchored,
    "parsing": _parsing,
    "cleaning": _cleaning,
    "dedup": _dedup,
    "pii": _pii,
    "chunking": _chunking,
    "filtering": _filtering,
    "embedding": _embedding,
    "search": _search,
    "indexing": _indexing,
    "fusion": _fusion,
    "reranking": _reranking,
    "rank": _rank,
    "context": _context,
    "answering": _answering,
}


def _end(row: Mapping[str, Any]) -> End:
    stage, cause = row["first_loss_stage"], row["cause"]
    if not row["eligible"]:
        stage, sentence = "ineligible", "not counted"
    elif row["served"]:
        after = ""
        if row["context_held"] is False:
            after = " but the context does not hold it"
        elif row.get("answer_used") is False:
            after = f" but the answer does not stand on it: {WORDS[row['answer_cause'] or 'ignored']}"
        sentence = f"served at rank {row['rank']}{after}"
    else:
        sentence = f"lost at {stage} ({cause}): {why(stage, cause)}"
    return End(
        row["retriever"], row["k"], row["served"], stage, cause, row["rank"], row["context_held"], row.get("answer_used"), sentence
    )  # fmt: skip


def _places(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By retriever: rank in the exact list, in the list as it was found, and as it is served."""
    found: dict[str, dict[str, int | None]] = {}
    for row in rows:
        if row["stage"] not in LISTS:
            continue
        mine, detail = found.setdefault(row["retriever"], {}), json.loads(row["detail"])
        match row["stage"]:
            case "search":
                mine["exact"] = row["hold_rank"]
            case "indexing" | "fusion" | "reranking":
                mine["found"] = detail.get("real_rank")
            case "rank":
                mine["served"] = row["hold_rank"]
    return [
        {"retriever": name, "exact": ranks.get("exact"), "found": ranks.get("found", ranks.get("served")), "served": ranks.get("served")}
        for name, ranks in sorted(found.items())
    ]  # fmt: skip
