"""A baseline answerer without a model: it quotes the sentences of the context that share most with the question, and cites them.

Here: the rule. Not here: how good its answers are (`quality`), any generation.

Rule. Terms are stems of the query's language without stop words and without the words that only ask (`ASKING`; character pairs in
scripts without spaces). A term weighs
log(1 + n / (0.5 + sentences that have it)), n being the sentences of the context. A sentence's share is the weight of the query's
terms that it has, half counted where only the rest of its passage has them, over the weight of all. Where the query asks for a
number or a date (`ASKS`), a sentence without a digit has its share lowered by a fifth. The best sentence answers, earlier ones
first among equals. Another one is added where it has terms of the query that those before it lack. Where the best share is below
`least`, or that sentence alone has less than `alone`, the context has no answer: it refuses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import regex

from rag_eval_pipeline.stages.answering.said import Cited, Said, Source
from rag_eval_pipeline.text.analysers import get_analyser
from rag_eval_pipeline.text.claims import Claim, has_text, same_words
from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.text.sentences import sentences

REFUSALS = {
    "en": "The provided context does not contain the answer.",
    "es": "El contexto proporcionado no contiene la respuesta.",
}
"""What it says where nothing answers, by language; English for all others."""
ASKS = regex.compile(
    r"(?i)\b(?:how (?:many|much|long|old|far|often|tall|high|big|large)|when|what (?:year|date|day|time|percentage|number|age)|"
    r"which (?:year|date|day)|cu[aá]nt[oa]s?|cu[aá]ndo|qu[eé] (?:año|fecha|día|hora|porcentaje|número|edad)|en qu[eé] (?:año|fecha|día))\b"
)
"""A query that asks for a number or a date (en, es)."""
ASKING = {
    "en": regex.compile(
        r"(?i)\b(?:how (?:many|much|long|old|far|often|tall|high|big|large)|how|what|who|whom|whose|which|when|where|why|do|does|did)\b"
    ),
    "es": regex.compile(r"(?i)\b(?:qu[eé]|qui[eé]n(?:es)?|cu[aá]l(?:es)?|cu[aá]ndo|cu[aá]nt[oa]s?|c[oó]mo|d[oó]nde)\b"),
}
"""Words that only ask, by language: an answer has them by chance, so lacking them says nothing."""
HALF, WITHOUT_DIGIT = 0.5, 0.8


@dataclass(frozen=True)
class _Sentence:
    text: str
    source: Source
    terms: frozenset[str]
    around: frozenset[str]


def answer(
    query: str, language: str | None, sources: Sequence[Source], *, least: float, alone: float, most: int
) -> Said:
    """The answer that the rule gives.

    Args:
        query: what is asked.
        language: of the query.
        sources: the context.
        least: smallest share of the best sentence.
        alone: smallest share that it has by itself.
        most: sentences, at most.
    """
    terms = _asked(query, language)
    found = [each for source in sources for each in _sentences(source, language)]
    weights = _weights(terms, found)
    total = math.fsum(weights.values())
    if not found or not total:
        return refusal(language)
    wants_digit = bool(ASKS.search(query))
    shares = [_share(each, weights, total, wants_digit) for each in found]
    best = max(range(len(found)), key=lambda index: (shares[index], -index))
    own = math.fsum(weights[term] for term in found[best].terms & terms) / total
    if shares[best] < least or own < alone:
        return refusal(language)
    chosen = _chosen(found, shares, terms, best, most)
    return _quoted([found[index] for index in chosen], shares[best])


def refusal(language: str | None) -> Said:
    """What it says where nothing answers."""
    return Said(REFUSALS.get(primary(language), REFUSALS["en"]), refused=True)


def _asked(query: str, language: str | None) -> frozenset[str]:
    """Terms of what is asked about; of all words where nothing but asking words is there."""
    analyser, asking = get_analyser(language), ASKING.get(primary(language))
    about = analyser.tokens(asking.sub(" ", query)) if asking else []
    return frozenset(about or analyser.tokens(query))


def _sentences(source: Source, language: str | None) -> list[_Sentence]:
    texts, terms, around = _analysed(source.text, source.language, language)
    return [_Sentence(text, source, own, around) for text, own in zip(texts, terms, strict=True)]


@lru_cache(maxsize=8192)
def _analysed(
    text: str, spoken: str | None, language: str | None
) -> tuple[tuple[str, ...], tuple[frozenset[str], ...], frozenset[str]]:
    """Sentences of a passage, the terms of each, and of all: many queries are given the same passage."""
    spans = [(start, end) for start, end in sentences(text, spoken) if has_text(text[start:end])]
    texts = tuple(" ".join(text[start:end].split()) for start, end in spans)
    analyser = get_analyser(language)
    terms = tuple(frozenset(analyser.tokens(part)) for part in texts)
    return texts, terms, frozenset().union(*terms)


def _weights(terms: frozenset[str], found: Sequence[_Sentence]) -> dict[str, float]:
    counts = Counter(term for each in found for term in each.terms & terms)
    return {term: math.log(1 + len(found) / (0.5 + counts[term])) for term in sorted(terms)}


def _share(sentence: _Sentence, weights: dict[str, float], total: float, wants_digit: bool) -> float:
    credit = math.fsum(
        weight * (1.0 if term in sentence.terms else HALF)
        for term, weight in weights.items()
        if term in sentence.around
    )
    lacking = wants_digit and not any(character.isdecimal() for character in sentence.text)
    return credit / total * (WITHOUT_DIGIT if lacking else 1.0)


def _chosen(
    found: Sequence[_Sentence], shares: Sequence[float], terms: frozenset[str], best: int, most: int
) -> list[int]:
    """The best sentence and those that add terms of the query to it, in the order of the context."""
    chosen, covered, said = [best], found[best].terms & terms, {same_words(found[best].text)}
    while len(chosen) < most:
        left = [
            i for i in range(len(found)) if found[i].terms & terms - covered and same_words(found[i].text) not in said
        ]
        if not left:
            break
        following = max(left, key=lambda i: (len(found[i].terms & terms - covered), shares[i], -i))
        chosen.append(following)
        covered |= found[following].terms & terms
        said.add(same_words(found[following].text))
    return sorted(chosen)


def _quoted(chosen: Sequence[_Sentence], share: float) -> Said:
    claims, at = [], 0
    for number, each in enumerate(chosen, 1):
        claims.append(Claim(f"c{number}", each.text, at, at + len(each.text)))
        at += len(each.text) + 1
    cited = tuple(
        Cited(str(each.source.position), "passage", claim.claim_id) for each, claim in zip(chosen, claims, strict=True)
    )
    return Said(
        " ".join(each.text for each in chosen),
        tuple(claims),
        citations=cited,
        refused=False,
        confidence=min(share, 1.0),
    )
