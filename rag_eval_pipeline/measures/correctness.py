"""Whether an answer says what gold says: exact match, token F1, numbers, negation. Never similarity of meaning.

Here: one answer against gold answers, the best of them. Not here: support by evidence (`answers`).
"""

from __future__ import annotations

import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import regex

from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.text.claims import has_text
from rag_eval_pipeline.text.critical import critical_tokens
from rag_eval_pipeline.text.quantities import Quantity, quantities, states
from rag_eval_pipeline.text.sentences import sentences
from rag_eval_pipeline.text.tokens import UNSPACED

ARTICLES = {"en": "a an the", "es": "el la los las un una unos unas", "none": ""}
"""What SQuAD's rules leave out for English, and MLQA's for Spanish."""
_PUNCTUATION = regex.compile(rf"[{regex.escape(string.punctuation)}\p{{P}}\p{{Cf}}]")
_UNSPACED = regex.compile(rf"[{UNSPACED}]\p{{M}}*")
_ARTICLE = {
    name: regex.compile(rf"\b(?:{'|'.join(words.split())})\b") if words else regex.compile(r"(?!)")
    for name, words in ARTICLES.items()
}


def normalise_answer(text: str, articles: str = "en") -> str:
    """SQuAD's normalisation: lower case, no punctuation, no articles, single spaces.

    Beyond it: NFC, all Unicode punctuation and invisible characters are left out, and characters of scripts without spaces
    are words.

    Args:
        text: an answer.
        articles: whose are left out: `en` (as SQuAD), `es` (as MLQA), `none`.

    Raises:
        ValueError: articles of another language.
    """
    if articles not in ARTICLES:
        raise ValueError(f"no articles are known for {articles!r}; use one of {', '.join(ARTICLES)}")
    lowered = regex.sub(r"\s+", " ", unicodedata.normalize("NFC", text).lower())
    bare = _ARTICLE[articles].sub(" ", _PUNCTUATION.sub("", lowered))
    return " ".join(_UNSPACED.sub(r" \g<0> ", bare).split())


def exact_match(answer: str, gold: Sequence[str], articles: str = "en") -> float:
    """1 where the answer equals a gold answer after `normalise_answer`.

    Raises:
        Unmeasured: `no_gold`.
    """
    found = normalise_answer(answer, articles)
    return _best(gold, lambda wanted: float(found == normalise_answer(wanted, articles)))


def token_f1(answer: str, gold: Sequence[str], articles: str = "en") -> float:
    """F1 over bags of words after `normalise_answer`, the best over gold answers (Rajpurkar et al. 2016, 2018).

    Where one of the two has no words: 1 if neither has, else 0.

    Raises:
        Unmeasured: `no_gold`.
    """
    found = normalise_answer(answer, articles).split()
    return _best(gold, lambda wanted: _f1(found, normalise_answer(wanted, articles).split()))


@dataclass(frozen=True)
class NumericAgreement:
    """Numbers, dates and codes of an answer against the gold answer that it agrees with best.

    Attributes:
        value: of gold's, the share that the answer states.
        stated: how many it states.
        expected: how many gold has.
        extra: how many the answer states that gold does not.
    """

    value: float
    stated: int
    expected: int
    extra: int

    @property
    def exact(self) -> bool:
        """Whether it states all of gold's and no other: "8 or 9" is not "8"."""
        return self.stated == self.expected and not self.extra


def numeric_agreement(answer: str, gold: Sequence[str], language: str | None = None) -> NumericAgreement:
    """Whether the numbers of gold are in the answer, by value and unit ("1,000 USD" is "a thousand dollars").

    Raises:
        Unmeasured: `no_gold`; `no_numbers`: no gold answer has any.
    """
    _check_gold(gold)
    found = _distinct(quantities(answer, language))
    wanted = [numbers for numbers in (_distinct(quantities(text, language)) for text in gold) if numbers]
    if not wanted:
        raise Unmeasured("no_numbers")
    return max((_numbers(found, numbers) for numbers in wanted), key=lambda n: (n.value, n.exact, -n.extra))


def negation_agreement(answer: str, gold: Sequence[str], language: str | None = None) -> float:
    """1 where the answer denies where gold denies, and not where it does not; over the best matching gold answer.

    Looked at is the sentence of the answer that shares most words with gold: an aside may deny something else.

    Raises:
        Unmeasured: `no_gold`. An answer without text agrees with nothing.
    """

    def agrees(wanted: str) -> tuple[float, float]:
        words = normalise_answer(wanted).split()
        spans = [answer[start:end] for start, end in sentences(answer, language)]
        nearest = max(spans, key=lambda part: _f1(normalise_answer(part).split(), words))
        closeness = _f1(normalise_answer(nearest).split(), words)
        return closeness, float(_denies(nearest, language) == _denies(wanted, language))

    _check_gold(gold)
    if not has_text(answer):
        return 0.0
    return max(agrees(wanted) for wanted in gold)[1]


def _denies(text: str, language: str | None) -> bool:
    return any(token.kind == "negation" for token in critical_tokens(text, language))


def _check_gold(gold: Sequence[str]) -> None:
    """One string would be read as a gold answer a character."""
    if isinstance(gold, str):
        raise ValueError("gold answers are a list of texts, found one string")
    if not gold:
        raise Unmeasured("no_gold")


def _best(gold: Sequence[str], score: Callable[[str], float]) -> float:
    _check_gold(gold)
    return max(score(wanted) for wanted in gold)


def _f1(found: Sequence[str], wanted: Sequence[str]) -> float:
    if not found or not wanted:
        return float(not found and not wanted)
    shared = (Counter(found) & Counter(wanted)).total()
    return 2 * shared / (len(found) + len(wanted))


def _distinct(numbers: Sequence[Quantity]) -> list[Quantity]:
    return list(dict.fromkeys(numbers))


def _numbers(found: Sequence[Quantity], wanted: Sequence[Quantity]) -> NumericAgreement:
    stated = sum(states(quantity, found) for quantity in wanted)
    extra = sum(not states(quantity, wanted) for quantity in found)
    return NumericAgreement(stated / len(wanted), stated, len(wanted), extra)
