"""The personal strings of an evaluation: what the redactor hides wherever text is shown."""

from __future__ import annotations

import polars as pl

from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.table import Table, string, table

TERMS = "pii_terms"


@table(
    TERMS,
    "One row a personal string of the evaluation, predicted or labelled: what the redactor hides. Never published.",
)
class PiiTerms(Table):
    """Working store only."""

    term = string("The string", privacy="source", key=True)
    origin = string("labelled | predicted", key=True)


def pii_terms(subject: Subject) -> dict[str, pl.DataFrame]:
    """Personal strings of a subject: labelled in the reference texts, predicted in the clean texts."""
    gold = subject.version.gold
    references = dict(gold.references.iter_rows())
    labelled = {
        references[doc_id][span["start"] : span["end"]]
        for doc_id, spans in gold.pii.iter_rows()
        if doc_id in references
        for span in spans
    }
    texts = dict(subject.frame("cleaned").select("doc_id", "text").iter_rows())
    spans = subject.frame("pii_spans").select("doc_id", "start", "end").iter_rows()
    predicted = {texts[doc_id][start:end] for doc_id, start, end in spans}
    rows = [
        {"term": term, "origin": origin}
        for origin, terms in (("labelled", labelled), ("predicted", predicted))
        for term in sorted(terms)
        if term.strip()
    ]
    return {TERMS: pl.DataFrame(rows, schema={"term": pl.String, "origin": pl.String})}
