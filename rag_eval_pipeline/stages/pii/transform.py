"""Find personal data in clean text and mask it. What it cost the evidence belongs to attribution, how well to `quality`.

Our own patterns for dates and Spanish identifiers, presidio's recognisers for the rest: shapes, checksums and context words, no
model. Names and places need one.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rag_eval_pipeline.engine.plugins import load
from rag_eval_pipeline.stages.pii import dates, phones, recognizers_es
from rag_eval_pipeline.stages.pii.patterns import Rule, find_all
from rag_eval_pipeline.stages.pii.tables import Masked, PiiSpans
from rag_eval_pipeline.text.entities import EXTRA_MODEL, model_identity
from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.text.offsets import OffsetMap, Segment
from rag_eval_pipeline.warehouse.config import Switch
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

Rows = dict[str, list[dict[str, Any]]]

RECOGNIZERS: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "EMAIL_ADDRESS": ("EmailRecognizer", None),
    "PHONE_NUMBER": ("PhoneRecognizer", None),
    "CREDIT_CARD": ("CreditCardRecognizer", None),
    "IBAN_CODE": ("IbanRecognizer", None),
    "IP_ADDRESS": ("IpRecognizer", None),
    "MAC_ADDRESS": ("MacAddressRecognizer", None),
    "URL": ("UrlRecognizer", None),
    "CRYPTO": ("CryptoRecognizer", None),
    "UUID": ("UuidRecognizer", None),
    "ES_PASSPORT": ("EsPassportRecognizer", ("es",)),
    "US_SSN": ("UsSsnRecognizer", ("en",)),
    "US_ITIN": ("UsItinRecognizer", ("en",)),
    "US_PASSPORT": ("UsPassportRecognizer", ("en",)),
    "US_BANK_NUMBER": ("UsBankRecognizer", ("en",)),
    "US_DRIVER_LICENSE": ("UsLicenseRecognizer", ("en",)),
    "MEDICAL_LICENSE": ("MedicalLicenseRecognizer", ("en",)),
    "UK_NHS": ("NhsRecognizer", ("en",)),
    "UK_NINO": ("UkNinoRecognizer", ("en",)),
    "IT_FISCAL_CODE": ("ItFiscalCodeRecognizer", ("it",)),
    "IT_VAT_CODE": ("ItVatCodeRecognizer", ("it",)),
    "DE_TAX_ID": ("DeTaxIdRecognizer", ("de",)),
}
"""Entity → presidio's recogniser and the languages in which it is used (None: all, once)."""
OWN: dict[str, tuple[str, ...] | None] = {"DATE_TIME": None, **dict.fromkeys(recognizers_es.ENTITIES, ("es",))}
"""Entities of our own patterns, likewise; those of `recognizers_es` also help presidio's IBAN_CODE."""
LANGUAGES = {**{entity: only for entity, (_, only) in RECOGNIZERS.items()}, **OWN}
MODEL_ENTITIES = ("PERSON", "LOCATION", "ORGANIZATION", "NRP")
"""Entities that only a language model finds."""
REGIONS = {"en": ("US", "GB"), "es": ("ES", "MX"), "fr": ("FR",), "de": ("DE",), "it": ("IT",), "pt": ("PT", "BR")}
CONTEXT = {
    "EMAIL_ADDRESS": ["email", "e-mail", "mail", "correo", "electrónico"],
    "PHONE_NUMBER": [
        "phone",
        "telephone",
        "cell",
        "mobile",
        "call",
        "fax",
        "tel",
        "teléfono",
        "tfno",
        "móvil",
        "llame",
    ],
    "CREDIT_CARD": ["credit", "card", "visa", "mastercard", "tarjeta", "crédito"],
    "IBAN_CODE": ["iban", "bank", "account", "transaction", "cuenta", "banco"],
}
"""Context words in the languages that one language-independent recogniser serves."""
NEEDS = {
    "EMAIL_ADDRESS": re.compile("@"),
    "CREDIT_CARD": re.compile(r"(?:\d[ -]?){13}"),
    "IP_ADDRESS": re.compile(r"\d\.\d{1,3}\.\d{1,3}\.\d|:[0-9A-Fa-f]{0,4}:"),
    "IBAN_CODE": re.compile(r"[A-Za-z]{2}\d{2}"),
}
"""What a text must have for presidio's recogniser to find anything: looking for this is quicker than its own expression."""
UNSPACED = frozenset({"EMAIL_ADDRESS", "IP_ADDRESS"})
"""Entities that hold no white space: only the words that have what they need are read."""

WINDOW = 20_000
OVERLAP = 1_000
"""Long texts are read in windows; a span is taken from the window in which it has OVERLAP/2 code points on both sides."""


class Span(NamedTuple):
    """A span of personal data, code points in the clean text."""

    start: int
    end: int
    type: str
    score: float | None


class PiiConfig(BaseModel):
    """Section `pii` of corpus.yaml; null is `enabled: false`: nothing is masked.

    Attributes:
        entities: presidio's names of what to find; further names come from `recognizers`.
        action: `mask` writes <TYPE>; `replace` <TYPE_n>, n by distinct value in the document; `hash` <TYPE:digest of the
            salted value>, equal over all documents.
        salt: of `hash`. Short values can be guessed from an unsalted digest.
        languages: whose recognisers and context words are used.
        score_threshold: findings below are dropped.
        regions: countries of phone numbers written without prefix; null: by language. They dominate the time.
        models: language → spaCy model (package or folder) for PERSON and other names; each reads the documents that hold text
            in its language, and those of unknown language.
        recognizers: import paths of presidio `EntityRecognizer` classes, made without arguments.
        imported: take outputs/pii_spans.jsonl instead (`import` in corpus.yaml).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    enabled: bool = True
    entities: tuple[str, ...] = ("EMAIL_ADDRESS", "PHONE_NUMBER")
    action: Literal["mask", "replace", "hash"] = "mask"
    salt: str = ""
    languages: tuple[str, ...] = ("en", "es")
    score_threshold: float = Field(0.35, ge=0, le=1)
    regions: tuple[str, ...] | None = None
    models: dict[str, str] = Field(default_factory=dict)
    recognizers: tuple[str, ...] = ()
    imported: Switch = Field(False, alias="import")

    @field_validator("languages")
    @classmethod
    def _some_language(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("languages: name at least one")
        return value

    @model_validator(mode="after")
    def _usable(self) -> PiiConfig:
        if self.enabled and not self.imported:
            for entity in self.entities:
                self._check(entity)
        return self

    def _check(self, entity: str) -> None:
        if entity in MODEL_ENTITIES:
            if not self.models and find_spec(EXTRA_MODEL) is None:
                raise ValueError(
                    f"{entity} needs a language model and none is installed: install the extra `spacy-en` "
                    f"(pip install 'rag_eval_pipeline[spacy-en]'), or name one under pipeline.pii.models, e.g. "
                    "{en: /path/to/model}"
                )
        elif entity not in LANGUAGES and not self.recognizers:
            raise ValueError(_unknown(entity, [*LANGUAGES, *MODEL_ENTITIES]))
        elif entity in LANGUAGES:
            only = LANGUAGES[entity]
            if only and not set(only) & set(self.languages):
                raise ValueError(f"{entity} is found in {', '.join(only)} only; add it to pipeline.pii.languages")


CONFIG = PiiConfig


def identity(config: PiiConfig) -> dict[str, Any]:
    """What each language model is, where one is used: another model under the same name finds other names."""
    used = _models(config)
    return {"models": {language: model_identity(model) for language, model in used.items()}} if used else {}


def languages_without_model(config: PiiConfig) -> list[str]:
    """Languages in which names are wanted and no model looks for them."""
    used = _models(config)
    return sorted({primary(language) for language in config.languages} - {*map(primary, used)}) if used else []


def _models(config: PiiConfig) -> dict[str, str]:
    """Language -> model that looks for names; none where no names are looked for."""
    wanted = config.enabled and not config.imported and set(config.entities) & set(MODEL_ENTITIES)
    return dict(_engine_key(config).models) if wanted else {}


def _unknown(entity: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(entity.upper(), known, n=1, cutoff=0.5)
    offer = f"; did you mean {near[0]}?" if near else ""
    return f"unknown entity {entity!r}{offer} Known are {', '.join(known)}"


def run(frames: Mapping[str, pl.DataFrame], config: PiiConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """Find and mask personal data in every document that dedup kept.

    Raises:
        ValueError: an import that is absent, names unknown documents or has spans outside of the clean text.
    """
    kept = frames["dedup"].filter("kept").select("doc_id")
    items = frames["cleaned"].select("doc_id", "text").join(kept, on="doc_id", how="semi").sort("doc_id")
    items = _with_languages(items, frames["section_languages"], config)
    given = pl.lit(
        None, pl.List(pl.Struct({"start": pl.Int64, "end": pl.Int64, "type": pl.String, "score": pl.Float64}))
    )
    if config.imported and config.enabled:
        items = _with_import(items, frames)
    else:
        items = items.with_columns(given.alias("spans"))
    tables = [PiiSpans, Masked]
    made = runtime.map("pii", one, items, config, reads=["text", "spans", "languages"], writes=tables, failed=failed)
    return {"pii_spans": conform(PiiSpans, made["pii_spans"]), "masked": conform(Masked, made["masked"])}


SPOKEN = 0.1
"""Share of a document's letters, at least, in a language whose model is to read it: a menu in another one is not enough."""


def _with_languages(items: pl.DataFrame, sections: pl.DataFrame, config: PiiConfig) -> pl.DataFrame:
    """With the languages whose models read each document; without any model they decide nothing, and are left out."""
    if not _models(config):
        return items.with_columns(languages=pl.lit([], pl.List(pl.String)))
    letters = sections.group_by("doc_id", "language").agg(pl.col("letters").sum())
    spoken = (
        letters.filter(
            pl.col("letters") >= SPOKEN * pl.col("letters").sum().over("doc_id"), pl.col("language") != "und"
        )
        .group_by("doc_id")
        .agg(pl.col("language").sort().alias("languages"))
    )
    return items.join(spoken, on="doc_id", how="left").with_columns(pl.col("languages").fill_null([]))


def _with_import(items: pl.DataFrame, frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    output = frames.get("output:pii_spans")
    if output is None:
        raise ValueError("pipeline.pii.import is set but outputs/pii_spans.jsonl is absent; add it or remove `import`")
    if unknown := sorted(set(output["doc_id"]) - set(frames["cleaned"]["doc_id"])):
        raise ValueError(
            f"outputs/pii_spans.jsonl: {len(unknown)} documents are not in this version, first {unknown[:3]}"
        )
    lengths = items.select("doc_id", pl.col("text").str.len_chars().cast(pl.Int64).alias("length"))
    placed = output.select("doc_id", "start", "end", "type", pl.col("score").cast(pl.Float64)).join(
        lengths, on="doc_id"
    )
    wrong = placed.filter(
        (pl.col("start") < 0) | (pl.col("end") <= pl.col("start")) | (pl.col("end") > pl.col("length"))
    )
    if len(wrong):
        first = wrong.row(0, named=True)
        raise ValueError(
            f"outputs/pii_spans.jsonl: {len(wrong)} spans do not fit their clean text, first {first['doc_id']} "
            f"[{first['start']}, {first['end']}) of {first['length']} code points; offsets count code points of the clean text"
        )
    spans = (
        placed.sort("doc_id", "start", "end", "type")
        .group_by("doc_id", maintain_order=True)
        .agg(pl.struct("start", "end", "type", "score").alias("spans"))
    )
    return items.join(spans, on="doc_id", how="left").with_columns(pl.col("spans").fill_null([]))


def prepare(config: PiiConfig) -> None:
    """Load presidio once a worker, outside of the time limit."""
    if config.enabled and not config.imported:
        _engine(_engine_key(config))


def one(item: dict[str, Any], config: PiiConfig) -> Rows:
    """Spans and masked text of one document."""
    text = item["text"]
    if not config.enabled or not text:
        spans: list[Span] = []
    elif item["spans"] is not None:
        spans = [Span(s["start"], s["end"], s["type"], s["score"]) for s in item["spans"]]
    else:
        spans = find(text, config, item.get("languages"))
    masked, offsets = mask(text, spans, config.action, config.salt)
    row = {"text": masked, "offsets": offsets.rows(), "status": "ok" if text.strip() else "empty", "error": None}
    unique = {(s.start, s.end, s.type): s for s in spans}
    return {"pii_spans": [unique[key]._asdict() for key in sorted(unique)], "masked": [row]}


def failed(item: dict[str, Any], status: str, error: str) -> Rows:
    """No masked text: a document that was not searched must not go on."""
    return {"pii_spans": [], "masked": [{"text": "", "offsets": [], "status": status, "error": error}]}


# Masking ---------------------------------------------------------------------------------------------------------------


def mask(text: str, spans: Iterable[Span], action: str = "mask", salt: str = "") -> tuple[str, OffsetMap]:
    """The text with spans replaced, and its map; a replacement is an inexact segment over the whole span."""
    parts: list[str] = []
    segments: list[Segment] = []
    numbers: dict[tuple[str, str], int] = {}
    position = out = 0

    def add(piece: str, start: int, end: int, exact: bool) -> None:
        nonlocal out
        if piece:
            parts.append(piece)
            segments.append(Segment(out, out + len(piece), start, end, exact))
            out += len(piece)

    for span in merged(spans):
        add(text[position : span.start], position, span.start, True)
        add(_replacement(text[span.start : span.end], span.type, action, salt, numbers), span.start, span.end, False)
        position = span.end
    add(text[position:], position, len(text), True)
    return "".join(parts), OffsetMap(segments)


def _replacement(value: str, kind: str, action: str, salt: str, numbers: dict[tuple[str, str], int]) -> str:
    if action == "mask":
        return f"<{kind}>"
    if action == "hash":
        return f"<{kind}:{hashlib.sha256(f'{salt}{value}'.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}>"
    of_kind = sum(1 for known, _ in numbers if known == kind)
    return f"<{kind}_{numbers.setdefault((kind, value), of_kind + 1)}>"


def merged(spans: Iterable[Span]) -> list[Span]:
    """Disjoint spans that hold the same characters; of overlapping ones the best scored, then longest, names the type.

    The union, not the best one alone: what the other covers would leak.
    """
    groups: list[list[Span]] = []
    reach = -1
    for span in sorted(spans, key=lambda s: (s.start, s.end, s.type)):
        if span.start < reach:
            groups[-1].append(span)
        else:
            groups.append([span])
        reach = max(reach, span.end)
    result = []
    for group in groups:
        best = min(group, key=lambda s: (-(s.score or 0.0), s.start - s.end, s.start, s.type))
        result.append(Span(group[0].start, max(s.end for s in group), best.type, best.score))
    return result


# Finding ---------------------------------------------------------------------------------------------------------------


def find(text: str, config: PiiConfig, languages: Sequence[str] | None = None) -> list[Span]:
    """Disjoint spans of personal data in a text of any length.

    Args:
        text: a document.
        config: what is looked for.
        languages: of the text; models of other ones don't read it. None or empty: unknown.
    """
    engine = _engine(_engine_key(config))
    found = [
        Span(start + low, end + low, kind, score)
        for low, high in windows(len(text))
        for start, end, kind, score in engine.analyze(text[low:high], languages)
        if _belongs(start + low, low, high, len(text))
    ]
    return merged(_trimmed(text, span) for span in found)


def windows(length: int) -> list[tuple[int, int]]:
    """Overlapping windows over a text."""
    if length <= WINDOW:
        return [(0, length)]
    starts = range(0, length - OVERLAP, WINDOW - OVERLAP)
    return [(start, min(start + WINDOW, length)) for start in starts]


def _belongs(start: int, low: int, high: int, length: int) -> bool:
    """Whether this window, of the two that may see a span, is the one that decides on it."""
    first = low if low == 0 else low + OVERLAP // 2
    last = high if high == length else high - OVERLAP // 2
    return first <= start < last


def _trimmed(text: str, span: Span) -> Span:
    value = text[span.start : span.end]
    start = span.start + len(value) - len(value.lstrip())
    return span._replace(start=start, end=max(start + len(value.strip()), start + 1))


class _Key(NamedTuple):
    entities: tuple[str, ...]
    languages: tuple[str, ...]
    threshold: float
    regions: tuple[str, ...]
    models: tuple[tuple[str, str], ...]
    recognizers: tuple[str, ...]


def _engine_key(config: PiiConfig) -> _Key:
    regions = config.regions
    if regions is None:
        regions = tuple(dict.fromkeys(region for name in config.languages for region in REGIONS.get(name, ())))
    models = dict(config.models)
    if not models and set(config.entities) & set(MODEL_ENTITIES):
        models = {"en": EXTRA_MODEL}
    return _Key(
        config.entities,
        config.languages,
        config.score_threshold,
        regions,
        tuple(sorted(models.items())),
        config.recognizers,
    )


@lru_cache(maxsize=2)
def _engine(key: _Key) -> Engine:
    return Engine(key)


class Engine:
    """presidio analysers, one for each language that has recognisers; a recogniser for all languages runs only once."""

    def __init__(self, key: _Key) -> None:
        with _hidden("torch", "transformers", unless=bool(key.models)):
            import_module("presidio_analyzer")

        # presidio logs what it looks for, warnings included, text excepted; a run's log has no use for it.
        logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
        self._key = key
        first = key.languages[0]
        by_language: dict[str, list[Any]] = {}
        for entity in key.entities:
            if entity in RECOGNIZERS:
                only = RECOGNIZERS[entity][1]
                for language in only or (first,):
                    if language in key.languages:
                        by_language.setdefault(language, []).append(_recognizer(entity, language, key.regions))
        self._add_users_own(by_language)
        models = {name: path for name, path in key.models if set(key.entities) & set(MODEL_ENTITIES)}
        for language in models:
            by_language.setdefault(language, []).append(_named_entities(language, key.entities))
        self._rules = _rules(key)
        self._analyzers = {
            language: _Analyzer(language, recognizers, models.get(language), key)
            for language, recognizers in by_language.items()
        }

    def analyze(self, text: str, languages: Sequence[str] | None = None) -> list[tuple[int, int, str, float]]:
        """(start, end, type, score) by patterns of all languages and models of the text's, best first where equal; may overlap."""
        found = {
            (start, end, kind): score for start, end, kind, score in find_all(self._rules, text, self._key.threshold)
        }
        for language, analyzer in self._analyzers.items():
            for result in analyzer.analyze(text, not languages or primary(language) in languages):
                place = (result.start, result.end, result.entity_type)
                found[place] = max(found.get(place, 0.0), float(result.score))
        return [(*place, score) for place, score in sorted(found.items())]

    def _add_users_own(self, by_language: dict[str, list[Any]]) -> None:
        offered: set[str] = set()
        for path in self._key.recognizers:
            recognizer = load(path)()
            offered.update(recognizer.supported_entities)
            by_language.setdefault(recognizer.supported_language, []).append(recognizer)
        known = {*LANGUAGES, *MODEL_ENTITIES, *offered}
        for entity in self._key.entities:
            if entity not in known:
                raise ValueError(f"pipeline.pii.entities: {_unknown(entity, sorted(known))}")


def _rules(key: _Key) -> list[Rule]:
    """Our own patterns for what is looked for."""
    found = dates.rules(key.languages) if "DATE_TIME" in key.entities else []
    if "es" in key.languages:
        found = found + [rule for entity in key.entities for rule in recognizers_es.RULES.get(entity, ())]
    return found


class _Analyzer:
    """presidio's analysis in one language, with less work for the same findings.

    presidio reads every text with the whole of spaCy's pipeline before it looks for anything. Patterns need that only for their
    context words: without a model, what stands before a finding is tokenised; with one, a text is read for names, and for
    lemmas only where a pattern with context words was found.
    """

    def __init__(self, language: str, recognizers: list[Any], model: str | None, key: _Key) -> None:
        from presidio_analyzer import AnalyzerEngine, EntityRecognizer, RecognizerRegistry
        from presidio_analyzer.context_aware_enhancers import LemmaContextAwareEnhancer
        from presidio_analyzer.predefined_recognizers import SpacyRecognizer

        self._language = language
        self._named = next((recognizer for recognizer in recognizers if isinstance(recognizer, SpacyRecognizer)), None)
        self._patterns = [recognizer for recognizer in recognizers if recognizer is not self._named]
        self._threshold = key.threshold
        self._nlp = _nlp_engine(language, model)
        self._entities = sorted({e for r in recognizers for e in r.supported_entities} & set(key.entities))
        by_others = {e for recognizer in self._patterns for e in recognizer.supported_entities}
        self._unnamed = [entity for entity in self._entities if entity in by_others]
        self._enhancer = LemmaContextAwareEnhancer()
        self._distinct = EntityRecognizer.remove_duplicates
        # A user's own recogniser may need the whole text's tokens, lemmas and entities.
        self._whole = bool(key.recognizers)
        self._engine = AnalyzerEngine(
            registry=RecognizerRegistry(recognizers=recognizers, supported_languages=[language]),
            nlp_engine=self._nlp,
            supported_languages=[language],
        )

    def analyze(self, text: str, named: bool = True) -> list[Any]:
        """Results of presidio at or above the threshold; names only where they are wanted."""
        wanted = self._entities if named else self._unnamed
        if not wanted:
            return []
        if self._whole:
            return list(
                self._engine.analyze(text, language=self._language, entities=wanted, score_threshold=self._threshold)
            )
        with_model = self._named is not None and named
        found = self._with_model(text, self._named) if with_model else self._by_patterns(text)
        return list(self._distinct([result for result in found if result.score >= self._threshold]))

    def _by_patterns(self, text: str) -> list[Any]:
        return [self._in_context(text, result, recognizer) for result, recognizer in self._matches(text)]

    def _with_model(self, text: str, named: Any) -> list[Any]:
        """Names, and patterns with the model's lemmas as context."""
        document = self._nlp.read_names(text)
        names = named.analyze(text, self._entities, self._nlp.artifacts(document))
        matches = self._matches(text)
        results = [result for result, _ in matches]
        if any(recognizer.context for _, recognizer in matches):
            artifacts = self._nlp.artifacts(self._nlp.add_lemmas(document))
            results = self._enhancer.enhance_using_context(text, results, artifacts, self._patterns)
        return [*names, *results]

    def _matches(self, text: str) -> list[tuple[Any, Any]]:
        """What patterns find, with the recogniser of each; before context."""
        return [
            (result, recognizer)
            for recognizer in self._patterns
            if any(entity not in NEEDS or NEEDS[entity].search(text) for entity in recognizer.supported_entities)
            for result in self._found(text, recognizer)
        ]

    def _found(self, text: str, recognizer: Any) -> list[Any]:
        """A recogniser's results, from the words that may hold one where it finds nothing with white space."""
        if not set(recognizer.supported_entities) <= UNSPACED:
            return list(recognizer.analyze(text, self._entities, None))
        results = []
        for low, high in _words_with(NEEDS[recognizer.supported_entities[0]], text):
            for result in recognizer.analyze(text[low:high], self._entities, None):
                result.start, result.end = result.start + low, result.end + low
                results.append(result)
        return results

    def _in_context(self, text: str, result: Any, recognizer: Any) -> Any:
        """The result, its score raised where presidio would raise it: a context word among the last words before it."""
        if not recognizer.context:
            return result
        reach = _CONTEXT_REACH
        while True:
            low = _word_start(text, result.start - reach)
            high = _word_end(text, result.end)
            artifacts = self._nlp.process_text(text[low:high], self._language)
            before = sum(1 for place in artifacts.tokens_indices if place + low < result.start)
            words = set(artifacts.keywords)
            kept = sum(1 for lemma in artifacts.lemmas[:before] if lemma.lower() in words)
            # Keywords are told apart from stop words and punctuation; presidio counts them, wherever they stand.
            if low == 0 or kept > self._enhancer.context_prefix_count:
                break
            reach *= 4
        start, end = result.start, result.end
        result.start, result.end = start - low, end - low
        (raised,) = self._enhancer.enhance_using_context(text[low:high], [result], artifacts, [recognizer])
        raised.start, raised.end = start, end
        return raised


_CONTEXT_REACH = 150


def _words_with(needed: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """Words between white space that hold a match, each once."""
    words: list[tuple[int, int]] = []
    for match in needed.finditer(text):
        if words and match.start() < words[-1][1]:
            continue
        low = match.start()
        while low > 0 and not text[low - 1].isspace():
            low -= 1
        words.append((low, _word_end(text, match.end())))
    return words


def _word_start(text: str, place: int) -> int:
    """The nearest place at or before, where a word begins behind a single space; tokens then are as in the whole text."""
    while place > 0 and not (text[place - 1] == " " and not text[place].isspace() and not text[place - 2].isspace()):
        place -= 1
    return max(place, 0)


def _word_end(text: str, place: int) -> int:
    while place < len(text) and not text[place].isspace():
        place += 1
    return place


@contextmanager
def _hidden(*names: str, unless: bool) -> Iterator[None]:
    """Import presidio as if optional packages were not installed: patterns need none, and they double its time and memory."""
    hidden = [] if unless else [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


def _recognizer(entity: str, language: str, regions: tuple[str, ...]) -> Any:
    from presidio_analyzer import predefined_recognizers

    name = RECOGNIZERS[entity][0]
    context = CONTEXT.get(entity)
    if entity == "PHONE_NUMBER":
        return phones.recognizer(language, regions, CONTEXT["PHONE_NUMBER"])
    if entity == "EMAIL_ADDRESS":
        return _email_recognizer(language)
    return getattr(predefined_recognizers, name)(
        supported_language=language, **({"context": context} if context else {})
    )


def _email_recognizer(language: str) -> Any:
    from presidio_analyzer.predefined_recognizers import EmailRecognizer
    from tldextract import TLDExtract

    # The list of suffixes that comes with the package: presidio's default would fetch one, and results depend on the day.
    suffixes = TLDExtract(suffix_list_urls=(), cache_dir=None)

    class Emails(EmailRecognizer):
        """Validates domains without the network."""

        def validate_result(self, pattern_text: str) -> bool:
            return bool(suffixes(pattern_text).fqdn)

    return Emails(supported_language=language, context=CONTEXT["EMAIL_ADDRESS"], name="EmailRecognizer")


def _named_entities(language: str, entities: tuple[str, ...]) -> Any:
    from presidio_analyzer.predefined_recognizers import SpacyRecognizer

    wanted = [entity for entity in entities if entity in MODEL_ENTITIES]
    return SpacyRecognizer(supported_language=language, supported_entities=wanted)


def _nlp_engine(language: str, model: str | None) -> Any:
    import spacy
    from presidio_analyzer.nlp_engine import SpacyNlpEngine

    pipeline = _pipeline(spacy, language, model)
    pipeline.max_length = WINDOW * 10
    deferred = _deferred(pipeline)

    class Pipelines(SpacyNlpEngine):
        """A ready-made pipeline: nothing is looked up or downloaded. A blank one has no lemmas, so words stand for them."""

        def process_text(self, text: str, language: str) -> Any:
            return self.artifacts(pipeline(text))

        def read_names(self, text: str) -> Any:
            """A document with entities; lemmas may be missing."""
            return pipeline(text, disable=deferred)

        def add_lemmas(self, document: Any) -> Any:
            """The document of `read_names` as the whole pipeline would have made it."""
            for name in deferred:
                document = pipeline.get_pipe(name)(document)
            return document

        def artifacts(self, document: Any) -> Any:
            """What recognisers read."""
            if model is None:
                for token in document:
                    token.lemma_ = token.lower_
            return self._doc_to_nlp_artifact(document, language)

    engine: Any = Pipelines(models=[{"lang_code": language, "model_name": model or f"blank-{language}"}])
    engine.nlp = {language: pipeline}
    return engine


_FOR_LEMMAS = frozenset({"tagger", "morphologizer", "attribute_ruler", "lemmatizer", "trainable_lemmatizer"})
_FOR_NAMES = frozenset({"tok2vec", "transformer", "curated_transformer", "parser", "senter", "sentencizer", "ner"})


def _deferred(pipeline: Any) -> list[str]:
    """Parts of a spaCy pipeline that names do not depend on, in order; none where it has parts that are not known here.

    The parser stays: an entity does not go beyond the sentence that it sees.
    """
    kinds = {name: pipeline.get_pipe_meta(name).factory for name in pipeline.pipe_names}
    if not set(kinds.values()) <= _FOR_LEMMAS | _FOR_NAMES:
        return []
    return [name for name, kind in kinds.items() if kind in _FOR_LEMMAS]


def _pipeline(spacy: Any, language: str, model: str | None) -> Any:
    if model is None:
        return spacy.blank(language)
    if find_spec(model) is None if re.fullmatch(r"\w+", model) else not Path(model).is_dir():
        raise ValueError(
            f"pipeline.pii.models.{language}: {model!r} is neither an installed model nor a folder; for English install the "
            "extra `spacy-en`"
        )
    return spacy.load(model)
