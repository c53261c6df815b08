"""How well metadata was found: entities by type, relations, titles by source, and how far sources agree with what is declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures.entities import ALL, SCHEMES, EntityCounts, entity_scores, macro_f1, relation_scores
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.measures.structure import Block, title_exact, title_similarity
from rag_eval_pipeline.stages.metadata.sources import FIELDS, iso_date
from rag_eval_pipeline.text.derivation import derive
from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.text.normalise import normalise
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

FORM = "nfc+ws"
METRICS: tuple[Metric, ...] = (
    Metric("entity_precision", "Right entities / entities found; params.scheme says when one is right", "higher"),
    Metric("entity_recall", "Right entities / labelled entities", "higher"),
    Metric("entity_f1", "Harmonic mean of the two", "higher"),
    Metric("entity_macro_f1", "Mean entity F1 over types", "higher"),
    Metric("relation_precision", "Right triples / triples found", "higher"),
    Metric("relation_recall", "Right triples / labelled triples", "higher"),
    Metric("relation_f1", "Harmonic mean of the two", "higher"),
    Metric("source_title_exact", "1 where the title that params.source gives is the labelled one", "higher"),
    Metric("source_title_similarity", "1 - edits / characters of the longer of the two titles", "higher"),
    Metric("field_found", "1 where params.source gives a usable value of params.field", "neither"),
    Metric("field_agrees", "1 where that value is what documents.jsonl declares", "higher"),
)


def measure(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any, settings: Settings) -> pl.DataFrame:
    """Entities and relations against their labels (an empty list is one), titles against `structure`, fields against declarations."""
    rows = [*_entity_rows(frames, gold, config), *_relation_rows(frames, gold, config)]
    rows += [*_title_rows(frames, gold), *_field_rows(frames)]
    return measurements(rows)


# Entities and relations ------------------------------------------------------------------------------------------------


def _entity_rows(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any) -> Iterator[dict[str, Any]]:
    labels = {doc: spans or [] for doc, spans in gold.entities.select("doc_id", "spans").iter_rows()}
    labels = {doc: spans for doc, spans in labels.items() if doc in set(frames["documents"]["doc_id"])}
    totals: dict[tuple[str, str], EntityCounts] = {}
    if labels and config.extractor:
        found: dict[str, list[tuple[int, int, str]]] = {}
        for doc_id, *span in frames["entities"].select("doc_id", "start", "end", "type").iter_rows():
            found.setdefault(doc_id, []).append((span[0], span[1], span[2]))
        texts = _texts(frames, gold, list(labels))
        for doc_id, spans in sorted(labels.items()):
            expected, lost = carried([(s["start"], s["end"], s["type"]) for s in spans], *texts[doc_id])
            for key, counts in entity_scores(expected, found.get(doc_id, [])).items():
                totals[key] = totals.get(key, EntityCounts()) + counts
            for key in ((scheme, kind) for scheme in SCHEMES for *_, lost_kind in lost for kind in (lost_kind, ALL)):
                totals[key] = totals.get(key, EntityCounts()) + EntityCounts(missed=1)
    reason = "no_gold" if not labels else "off"
    for scheme in SCHEMES:
        kinds = sorted(kind for s, kind in totals if s == scheme and kind != ALL)
        for kind in (*kinds, ALL):
            yield from _ratio_rows("entity", totals.get((scheme, kind)), kind, {"scheme": scheme}, reason)
        mean = macro_f1(totals[scheme, kind] for kind in kinds)
        status = {"status": "scored" if mean is not None else reason if not totals else "no_prediction"}
        yield measurement("entity_macro_f1", "corpus", ALL, mean, unit="entity", params={"scheme": scheme}, **status)


def _texts(frames: Mapping[str, pl.DataFrame], gold: Gold, wanted: list[str]) -> dict[str, tuple[str, str]]:
    """Reference and parsed text of labelled documents."""
    parsed = dict(frames["parsed"].filter(pl.col("doc_id").is_in(wanted)).select("doc_id", "text").iter_rows())
    references = dict(gold.references.filter(pl.col("doc_id").is_in(wanted)).select("doc_id", "text").iter_rows())
    texts = {doc: parsed.get(doc) or "" for doc in wanted}
    return {doc: (str(references.get(doc, text)), text) for doc, text in texts.items()}


def carried(
    spans: list[tuple[int, int, str]], reference: str, parsed: str
) -> tuple[list[tuple[int, int, str]], list[tuple[int, int, str]]]:
    """Labelled spans as spans of the parsed text, and those of which the parser kept nothing: they are missed."""
    if reference == parsed:
        return spans, []
    places = derive(parsed, reference)
    there, lost = [], []
    for start, end, kind in spans:
        found = [int(place) for place in places.forward(np.arange(start, end)) if place >= 0]
        if found:
            there.append((min(found), max(found) + 1, kind))
        else:
            lost.append((start, end, kind))
    return there, lost


def _relation_rows(frames: Mapping[str, pl.DataFrame], gold: Gold, config: Any) -> Iterator[dict[str, Any]]:
    known = set(frames["documents"]["doc_id"])
    labels = {doc: triples or [] for doc, triples in gold.relations.iter_rows() if doc in known}
    total: EntityCounts | None = None
    if labels and config.extractor:
        found: dict[str, list[tuple[str, str, str]]] = {}
        for doc_id, *triple in frames["relations"].select("doc_id", "subject", "relation", "object").iter_rows():
            found.setdefault(doc_id, []).append((triple[0], triple[1], triple[2]))
        total = EntityCounts()
        for doc_id, triples in labels.items():
            right, labelled, predicted = relation_scores(triples, found.get(doc_id, []))
            total += EntityCounts(correct=right, missed=labelled - right, spurious=predicted - right)
    yield from _ratio_rows("relation", total, ALL, {}, "no_gold" if not labels else "off")


def _ratio_rows(
    name: str, counts: EntityCounts | None, kind: str, params: dict[str, Any], reason: str
) -> Iterator[dict[str, Any]]:
    """Precision, recall and F1. NULL: nothing labelled, nothing found, or the extractor is off."""
    item = "corpus" if kind == ALL else "type"
    parts = {"precision": (0.0, 0.0, reason), "recall": (0.0, 0.0, reason), "f1": (0.0, 0.0, reason)}
    if counts is not None:
        parts = {
            "precision": (counts.right, counts.predicted, "no_prediction"),
            "recall": (counts.right, counts.labelled, "no_gold"),
            "f1": (2 * counts.right, counts.labelled + counts.predicted, "no_gold"),
        }
    for part, (top, bottom, why) in parts.items():
        value = {"numerator": top, "denominator": bottom} if bottom else {"status": why}
        yield measurement(
            f"{name}_{part}", item, kind, top / bottom if bottom else None, unit=name, params=params, **value
        )


# Fields ----------------------------------------------------------------------------------------------------------------


def _title_rows(frames: Mapping[str, pl.DataFrame], gold: Gold) -> Iterator[dict[str, Any]]:
    """The labelled title (see parsing) against that of each source, and against the one that was believed (`chosen`)."""
    labelled = {
        doc: [Block(block["kind"], block["text"], block["level"]) for block in blocks or ()]
        for doc, blocks in gold.structure.iter_rows()
    }
    titles = frames["metadata_values"].filter(field="title")
    given = {(doc, source): value for doc, source, value in titles.select("doc_id", "source", "value").iter_rows()}
    best = titles.filter("chosen").select("doc_id", "value").iter_rows()
    given |= {(doc, "chosen"): value for doc, value in best}
    sources = sorted({source for _, source in given} | {"chosen"})
    for doc_id in frames["documents"]["doc_id"].sort():
        for source in sources:
            common: dict[str, Any] = {"unit": "document", "params": {"source": source}}
            reference = labelled.get(doc_id)
            if reference is None:
                for name in ("source_title_exact", "source_title_similarity"):
                    yield measurement(name, "document", doc_id, None, status="no_gold", **common)
                continue
            value = given.get((doc_id, source))
            read = [] if value is None else [Block("title", value, 1)]
            for name, score in (("source_title_exact", title_exact), ("source_title_similarity", title_similarity)):
                measured = score(reference, read, FORM)
                yield measurement(name, "document", doc_id, measured.value, status=measured.status, **common)


def _field_rows(frames: Mapping[str, pl.DataFrame]) -> Iterator[dict[str, Any]]:
    """By field and source that any document has: whether a document has it, and whether it says what is declared."""
    values = {
        (doc, field, source): (value, valid)
        for doc, field, source, value, valid in frames["metadata_values"]
        .select("doc_id", "field", "source", "value", "valid")
        .iter_rows()
    }
    pairs = sorted({(field, source) for _, field, source in values if source != "declared"})
    pairs = pairs or [(FIELDS[0], "file_name")]
    for doc_id in frames["documents"]["doc_id"].sort():
        for field, source in pairs:
            common: dict[str, Any] = {"unit": "document", "params": {"field": field, "source": source}}
            value, valid = values.get((doc_id, field, source), (None, False))
            yield measurement("field_found", "document", doc_id, float(valid), **common)
            declared, _ = values.get((doc_id, field, "declared"), (None, False))
            if declared is None or value is None:
                why = "not_declared" if declared is None else "not_found"
                yield measurement("field_agrees", "document", doc_id, None, status=why, **common)
            else:
                yield measurement("field_agrees", "document", doc_id, float(_same(field, value, declared)), **common)


def _same(field: str, value: str, declared: str) -> bool:
    """Dates by day, languages by primary subtag, other fields in `nfc+ws+casefold`."""
    if field in {"published_at", "modified_at"}:
        return (iso_date(value) or value)[:10] == (iso_date(declared) or declared)[:10]
    if field == "language":
        return primary(value) == primary(declared)
    return normalise(value, "nfc+ws+casefold") == normalise(declared, "nfc+ws+casefold")
