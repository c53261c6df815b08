"""Decide for each query which documents it may find: entitlement by principal always, a predicate where one is extracted.

Here: whose predicate is applied, and how hard. What a predicate means and who may see what is `corpus/predicates`; lists
are cut to the scope in `retrieval`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rag_eval_pipeline.corpus.predicates import Matcher, PredicateError, visible
from rag_eval_pipeline.engine.plugins import is_import_path, load
from rag_eval_pipeline.stages.filtering.rules import Rules
from rag_eval_pipeline.stages.filtering.tables import AppliedFilters, Scopes
from rag_eval_pipeline.warehouse.memo import digest
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

BUILT_IN = ("gold", "rules", "import")
ENTITLEMENT = "entitlement"
NO_PRINCIPALS = pl.DataFrame(schema={"principal": pl.String, "tenant": pl.String, "groups": pl.List(pl.String)})


class FilteringConfig(BaseModel):
    """Section `filtering` of corpus.yaml; `filtering: null` is entitlement alone.

    Attributes:
        extractor: `gold` (the labelled predicate), `rules`, `import` (outputs/filters.jsonl), or `package.module:Class`.
        mode: hard excludes, soft boosts.
        boost: soft: added to the score of preferred documents, as a share of the list's score range.
        fields: for `rules`: field -> value -> phrases; `locale: {}` takes the values of the documents.
        options: keyword arguments of the user's class.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    extractor: str | None = None
    mode: Literal["hard", "soft"] = "hard"
    boost: float = Field(0.1, ge=0)
    fields: dict[str, dict[str, tuple[str, ...]]] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> FilteringConfig:
        if self.extractor is not None and self.extractor not in BUILT_IN and not is_import_path(self.extractor):
            raise ValueError(
                f"extractor {self.extractor!r} is none of {', '.join(BUILT_IN)} and no import path package.module:Class"
            )
        if self.extractor == "rules" and not self.fields:
            raise ValueError(
                "extractor `rules` needs `fields`, for example {locale: {}, doc_class: {policy: [policy, rules]}}"
            )
        return self


CONFIG = FilteringConfig


class Extractor(Protocol):
    """A user's own extractor: `Class(**options)`."""

    def extract(self, query: dict[str, Any], documents: pl.DataFrame) -> dict[str, Any] | None:
        """The predicate of a query (query_id, text, language, principal); None for none. Same arguments, same answer."""
        ...


@dataclass(frozen=True)
class Asked:
    """A query's predicate before it is applied."""

    predicate: dict[str, Any] | None
    producer: str


def run(frames: Mapping[str, pl.DataFrame], config: FilteringConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """The predicate and the scope of every query, and the distinct scopes.

    Raises:
        ValueError: an unknown principal, a predicate that is not of the documented form, or no outputs/filters.jsonl.
    """
    kept = kept_documents(frames)
    scopes = ScopeTable(kept)
    # Gold predicates are data of the label file, loaded and checked there; a pipeline's are checked when they are applied.
    asked = _asked(frames, config, kept)
    callers = Callers(kept, frames.get("principals", NO_PRINCIPALS))
    matcher = Matcher(kept)
    rows = []
    for query_id, principal in frames["prepared_queries"].select("query_id", "principal").iter_rows():
        rows.append(applied(query_id, asked.get(query_id), callers(principal), matcher, scopes, config))
    return {
        "applied_filters": conform(AppliedFilters, pl.DataFrame(rows) if rows else []),
        "scopes": conform(Scopes, scopes.rows()),
    }


def kept_documents(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The documents that lists can hold, by doc_id."""
    return frames["documents"].join(frames["dedup"].filter("kept"), on="doc_id", how="semi").sort("doc_id")


def applied(
    query_id: str,
    asked: Asked | None,
    seen: np.ndarray,
    matcher: Matcher,
    scopes: ScopeTable,
    config: FilteringConfig,
) -> dict[str, Any]:
    """A query's row of `applied_filters`; its scopes are added to `scopes`.

    Args:
        query_id: query.
        asked: its predicate; None for entitlement alone.
        seen: mask of the kept documents that its caller may see.
        matcher: predicates over the kept documents.
        scopes: the scopes that there are.
        config: mode and boost.

    Raises:
        ValueError: a predicate that is not of the documented form.
    """
    if asked is None or asked.predicate is None:
        scope, preferred, mode, text, producer = scopes.add(seen), None, "none", None, ENTITLEMENT
    else:
        try:
            matched = seen & matcher(asked.predicate).to_numpy()
        except PredicateError as error:
            raise ValueError(f"query {query_id}: predicate of {asked.producer} cannot be applied: {error}") from error
        hard = config.mode == "hard"
        scope, preferred = scopes.add(matched if hard else seen), None if hard else scopes.add(matched)
        mode, producer = config.mode, asked.producer
        text = json.dumps(asked.predicate, sort_keys=True, ensure_ascii=False)
    return {
        "query_id": query_id, "scope_id": scope, "preferred_scope_id": preferred, "predicate": text, "mode": mode,
        "boost": config.boost if mode == "soft" else 0.0, "producer": producer,
    }  # fmt: skip


def _asked(frames: Mapping[str, pl.DataFrame], config: FilteringConfig, documents: pl.DataFrame) -> dict[str, Asked]:
    """Predicates by query, from whoever makes them; a query without an entry has none."""
    queries = frames["prepared_queries"]
    if config.extractor is None:
        return {}
    if config.extractor == "gold":
        return {query_id: Asked(predicate, "gold") for query_id, predicate in _gold(frames.get("queries"))}
    if config.extractor == "import":
        return _imported(frames.get("output:filters"))
    if config.extractor == "rules":
        rules = Rules(config.fields, documents)
        texts = queries.select("query_id", "text").iter_rows()
        return {query_id: Asked(rules.extract(text), "rules") for query_id, text in texts}
    extractor: Extractor = load(config.extractor)(**config.options)
    return {
        query["query_id"]: Asked(_plain(extractor.extract(query, documents), query, config.extractor), config.extractor)
        for query in queries.to_dicts()
    }


def _gold(queries: pl.DataFrame | None) -> Iterator[tuple[str, dict[str, Any]]]:
    if queries is not None:
        for query_id, text in queries.select("query_id", "filter").drop_nulls("filter").iter_rows():
            yield query_id, json.loads(text)


def _imported(given: pl.DataFrame | None) -> dict[str, Asked]:
    if given is None:
        raise ValueError(
            "filtering imports outputs/filters.jsonl, which is absent; add it, or choose another extractor"
        )
    asked: dict[str, Asked] = {}
    for query_id, predicate, producer in given.select("query_id", "predicate", "producer").iter_rows():
        one = Asked(None if predicate is None else json.loads(predicate), producer or "import")
        if asked.setdefault(query_id, one).predicate != one.predicate:
            raise ValueError(
                f"outputs/filters.jsonl: query {query_id} has several predicates; one a query is applied to all retrievers: "
                "keep one, or evaluate the retrievers as pipelines with an outputs/ of their own"
            )
    return asked


def _plain(predicate: Any, query: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    if predicate is None or isinstance(predicate, dict):
        return predicate
    raise ValueError(
        f"{path}.extract returned a {type(predicate).__name__} for query {query['query_id']}; return a predicate as dict, or None"
    )


class Callers:
    """Masks of what each principal may see, each made once."""

    def __init__(self, documents: pl.DataFrame, principals: pl.DataFrame) -> None:
        self._documents, self._principals = documents, principals
        self._masks: dict[str | None, np.ndarray] = {}

    def __call__(self, principal: str | None) -> np.ndarray:
        """Mask of the kept documents that a principal may see."""
        if principal not in self._masks:
            self._masks[principal] = visible(self._documents, principal, self._principals).to_numpy()
        return self._masks[principal]


class ScopeTable:
    """Distinct sets of documents, each under the hash of its content."""

    def __init__(self, documents: pl.DataFrame) -> None:
        self._ids = documents["doc_id"]
        self._known: dict[bytes, str] = {}
        self._rows: dict[str, dict[str, Any]] = {}

    def add(self, admitted: np.ndarray) -> str:
        """The scope_id of a mask over the kept documents."""
        mask = np.packbits(admitted).tobytes()
        if mask not in self._known:
            everything = bool(admitted.all())
            ids = [] if everything else self._ids.filter(pl.Series(admitted)).to_list()
            scope_id = "everything" if everything else digest(ids)
            self._known[mask] = scope_id
            self._rows[scope_id] = {"scope_id": scope_id, "everything": everything, "doc_ids": ids}
        return self._known[mask]

    def rows(self) -> list[dict[str, Any]]:
        """The table `scopes`."""
        return list(self._rows.values())
