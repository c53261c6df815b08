"""Named entities and relations of a text, by a spaCy model or a user's own class.

Here: spans and triples of one text. Not here: how well they were found (`quality`), personal data (the pii room).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

from rag_eval_pipeline.engine.plugins import is_import_path, load
from rag_eval_pipeline.text.entities import EXTRA_MODEL, missing_model
from rag_eval_pipeline.text.languages import primary

PIECE = 50_000
"""Code points that a model reads at a time, cut at a paragraph: its memory grows with the text."""
Span = tuple[int, int, str]
Triple = tuple[str, str, str]


class Namer(Protocol):
    """A user's own extractor, made without arguments, once a worker."""

    def name(self, text: str, language: str | None) -> Mapping[str, Any]:
        """`spans`: [(start, end, type)], code points; and optionally `triples`: [(subject, relation, object)]."""
        ...


def models_of(models: Mapping[str, str]) -> dict[str, str]:
    """Language → model; the extra's English one where none is named."""
    return dict(models) or {"en": EXTRA_MODEL}


def missing(extractor: str | None, models: Mapping[str, str]) -> str | None:
    """Why entities can't be found, and what to do; None where they can, or are not asked for."""
    if extractor != "spacy":
        return None
    for language, model in models_of(models).items():
        if why := missing_model(language, model):
            return why.replace("ledger.entity_models", "pipeline.metadata.models")
    return None


@lru_cache(maxsize=4)
def namer_of(extractor: str, models: tuple[tuple[str, str], ...]) -> Namer:
    """The extractor, loaded once a process."""
    return load(extractor)() if is_import_path(extractor) else SpacyNamer(dict(models))


class SpacyNamer:
    """Entities of a spaCy model, and who does what to whom by its parse.

    A relation is a verb with an entity in its subject and one in its object or in a phrase that depends on it; its name is the
    verb's lemma, with the preposition where there is one.
    """

    def __init__(self, models: Mapping[str, str]) -> None:
        import spacy

        self._models = {language: spacy.load(model) for language, model in models_of(models).items()}

    def name(self, text: str, language: str | None) -> Mapping[str, Any]:
        """Spans and triples of the whole text."""
        spoken = primary(language)
        model = self._models.get(spoken) if spoken else next(iter(self._models.values()))
        if model is None:
            return {"spans": [], "triples": []}
        spans: list[Span] = []
        triples: list[Triple] = []
        for start, end in pieces(text):
            document = model(text[start:end])
            spans += [(start + e.start_char, start + e.end_char, e.label_) for e in document.ents]
            triples += _triples(document)
        return {"spans": spans, "triples": triples}


def pieces(text: str, size: int = PIECE) -> Iterator[tuple[int, int]]:
    """Ranges that cover a text, at most `size` long, cut behind a blank line or line break where there is one."""
    start = 0
    while start < len(text):
        end = min(start + size, len(text))
        if end < len(text):
            cut = max(text.rfind("\n\n", start, end), text.rfind("\n", start + size // 2, end))
            end = cut + 1 if cut > start else end
        yield start, end
        start = end


def _triples(document: Any) -> list[Triple]:
    entity_of = {token.i: entity for entity in document.ents for token in entity}

    def named(token: Any) -> list[str]:
        return list(dict.fromkeys(entity_of[t.i].text for t in token.subtree if t.i in entity_of))

    found: list[Triple] = []
    for verb in document:
        if verb.pos_ not in {"VERB", "AUX"}:
            continue
        subjects = [name for child in verb.children if child.dep_ in {"nsubj", "nsubjpass"} for name in named(child)]
        for child in verb.children:
            if child.dep_ in {"dobj", "obj", "attr", "dative", "oprd"}:
                objects = [(verb.lemma_, name) for name in named(child)]
            elif child.dep_ in {"prep", "agent"}:
                objects = [(f"{verb.lemma_} {child.lower_}", name) for name in named(child)]
            elif child.dep_ == "obl":
                case = next((c.lower_ for c in child.children if c.dep_ == "case"), "")
                objects = [(f"{verb.lemma_} {case}".strip(), name) for name in named(child)]
            else:
                continue
            found += [
                (subject, relation, name) for subject in subjects for relation, name in objects if subject != name
            ]
    return list(dict.fromkeys(found))
