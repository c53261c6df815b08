"""Claims of an answer: cut by rule from its text, or given; and what makes a list of claims unfit to be judged.

Here: spans, which mark belongs to which claim, checks. Not here: whether a claim holds (judging) and what share does (measures).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import regex

from rag_eval_pipeline.text.clauses import clauses
from rag_eval_pipeline.text.marks import blanked, marks_of
from rag_eval_pipeline.text.normalise import normalise
from rag_eval_pipeline.text.refusals import is_courtesy, is_refusal
from rag_eval_pipeline.text.sentences import trimmed

_WORDS = regex.compile(r"[\p{L}\p{N}]")
_EDGES = regex.compile(r"^[^\p{L}\p{N}%€$£¥₹+\-−]+|[^\p{L}\p{N}%€$£¥₹°]+$")


class ClaimError(ValueError):
    """Claims that can't be judged; the message names them by place, never by text, and says what to do."""


@dataclass(frozen=True)
class Claim:
    """One thing that an answer asserts.

    Attributes:
        claim_id: unique in its answer.
        text: what it says, without citation marks.
        start: first code point in the answer; None where it has no place there.
        end: behind its last code point.
        cites: ids that its citation marks name, in order, each once.
    """

    claim_id: str
    text: str
    start: int | None = None
    end: int | None = None
    cites: tuple[str, ...] = ()


def has_text(text: str | None) -> bool:
    """Whether there is a letter or a digit: white space, zero-width characters and punctuation support nothing."""
    return bool(text) and bool(_WORDS.search(text or ""))


def same_words(text: str) -> str:
    """A text as duplicates are compared: NFC, white space and case folded, no punctuation at its ends."""
    return _EDGES.sub("", normalise(text, "nfc+ws+casefold"))


def split_claims(answer: str, language: str | None = None, known: Collection[str] = ()) -> list[Claim]:
    """Claims of an answer, in order, as clauses with a place.

    Left out: refusals, courtesy, questions, lead-ins of lists (they end with a colon), and what was said before: a repeated
    clause adds its citations to the first. A citation mark belongs to the clause that it stands in or behind.

    Args:
        answer: the text.
        language: BCP 47; None: the rules of all languages.
        known: ids that may be cited; a bracket is a mark if all its ids are known or hold a digit.
    """
    text = blanked(answer, known)
    spans = [span for span in (trimmed(text, *s) for s in clauses(text, language)) if span[0] < span[1]]
    cited = _cited(spans, [(mark.start, mark.ids) for mark in marks_of(answer, known)])
    first: dict[str, int] = {}
    for index, (start, end) in enumerate(spans):
        if not _asserts(text[start:end]):
            continue
        place = first.setdefault(same_words(text[start:end]), index)
        if place != index:
            cited[place] += cited[index]
    return [
        Claim(f"c{number}", normalise(text[slice(*spans[index])]), *spans[index], tuple(dict.fromkeys(cited[index])))
        for number, index in enumerate(sorted(first.values()), 1)
    ]


def as_claims(texts: Iterable[str | Claim], answer: str | None = None) -> list[Claim]:
    """Given claims, checked; texts get the ids c1, c2 …, and a place where they stand in the answer once and word for word.

    Raises:
        ClaimError: as `check_claims`.
    """
    claims = []
    for number, given in enumerate(texts, 1):
        claim = Claim(f"c{number}", given) if isinstance(given, str) else given
        if answer and claim.start is None and has_text(claim.text) and answer.count(claim.text) == 1:
            start = answer.index(claim.text)
            claim = Claim(claim.claim_id, claim.text, start, start + len(claim.text), claim.cites)
        claims.append(claim)
    check_claims(claims)
    return claims


def check_claims(claims: Sequence[Claim]) -> None:
    """Refuse claims that would count nothing, or one thing twice.

    Raises:
        ClaimError: a claim is blank, its id or text occurs twice, or two of them share characters of the answer.
    """
    faults: list[str] = []
    ids: dict[str, int] = {}
    texts: dict[str, int] = {}
    for index, claim in enumerate(claims):
        if not has_text(claim.text):
            faults.append(f"claims[{index}] is blank; write what is claimed or leave it out")
            continue
        if (other := ids.setdefault(claim.claim_id, index)) != index:
            faults.append(f"claims[{index}] has the id of claims[{other}] ({claim.claim_id!r}); give each its own")
        if (other := texts.setdefault(same_words(claim.text), index)) != index:
            faults.append(f"claims[{index}] repeats claims[{other}]; keep one")
    faults += _overlaps(claims)
    if faults:
        raise ClaimError("; ".join(faults))


def _overlaps(claims: Sequence[Claim]) -> list[str]:
    placed = sorted((c.start, c.end, i) for i, c in enumerate(claims) if c.start is not None and c.end is not None)
    faults, reach, holder = [], -1, -1
    for start, end, index in placed:
        if start < reach:
            faults.append(
                f"claims[{index}] overlaps claims[{holder}] at code point {start} of the answer; cut them apart"
            )
        if end > reach:
            reach, holder = end, index
    return faults


def _cited(spans: Sequence[tuple[int, int]], marks: Sequence[tuple[int, tuple[str, ...]]]) -> list[list[str]]:
    """Ids by span: of marks inside it or behind it, before the next one starts; the first span also has those before it."""
    cited: list[list[str]] = [[] for _ in spans]
    for position, ids in marks:
        before = [index for index, (start, _) in enumerate(spans) if start <= position]
        if spans:
            cited[before[-1] if before else 0] += ids
    return cited


def _asserts(clause: str) -> bool:
    if not has_text(clause) or clause.rstrip().endswith(":"):
        return False
    return not is_refusal(clause) and not is_courtesy(clause)
