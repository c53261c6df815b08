"""Whether the length read is plausible, without a reference: against documents of the same class and format.

Here: what is usual for a class, and who is far from it. Not here: lengths against a reference (`quality`).

Length is told by page where a format has pages, else by byte of the file. Its logarithm has a location (median) and a spread
(1.4826 · median absolute deviation) in each class; a document more than 3.5 spreads away is an outlier (Iglewicz and Hoaglin
1993, "How to detect and handle outliers").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.warehouse.measurement import measurement

METRICS: tuple[Metric, ...] = (
    Metric("length_plausible", "1 where the length read is usual for documents of the class and format", "higher"),
    Metric(
        "length_to_usual", "Characters read / those usual for its class, format and size", "neither", 0, float("inf")
    ),
)
MIN_CLASS = 10
"""Documents read that a class must have: below, its spread says too little."""
LIMIT = 3.5
"""Spreads from the location beyond which a length is an outlier."""
LEAST_SPREAD = 0.1
"""A narrower class counts as spread by 10 %: nothing within a factor of 1.4 of what is usual is an outlier."""
_CLASS = ("doc_class", "media", "per")


def length_rows(frames: Mapping[str, pl.DataFrame]) -> Iterator[dict[str, Any]]:
    """Two rows a document, in order of the documents.

    Args:
        frames: `documents` (doc_id, doc_class, media, bytes) and `parsed` (doc_id, text, status, pages).
    """
    for doc_id, per, read, expected, status in _judged(frames).iter_rows():
        fields: dict[str, Any] = {"params": json.dumps({"per": per}), "status": status}
        valued = expected is not None
        plausible = float(status == "scored") if valued else None
        yield measurement("length_plausible", "document", doc_id, plausible, unit="document", **fields)
        ratio = read / expected if valued else None
        counts = {"numerator": float(read), "denominator": expected} if valued else {}
        yield measurement("length_to_usual", "document", doc_id, ratio, unit="char", **fields, **counts)


def _judged(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """doc_id, per, characters read, those expected (NULL where the status says why), status."""
    parsed = frames["parsed"].select("doc_id", "status", "pages", pl.col("text").str.len_chars().alias("read"))
    documents = frames["documents"].select("doc_id", "doc_class", "media", "bytes")
    size, whole, location = pl.coalesce("pages", "bytes").clip(1), pl.col("status") == "ok", pl.col("location")
    return (
        documents.join(parsed, on="doc_id", how="left", maintain_order="left")
        .with_columns(pl.col("status").fill_null("missing"), pl.col("read").fill_null(0))
        .with_columns(
            pl.when(pl.col("pages").is_null()).then(pl.lit("byte")).otherwise(pl.lit("page")).alias("per"),
            ((1 + pl.col("read")) / size).log().alias("rate"),
        )
        .with_columns(
            whole.sum().over(_CLASS).alias("like"), pl.col("rate").filter(whole).median().over(_CLASS).alias("location")
        )
        .with_columns((pl.col("rate") - location).alias("away"))
        .with_columns((1.4826 * pl.col("away").abs().filter(whole).median()).over(_CLASS).alias("spread"))
        .with_columns(_verdict())
        .select(
            "doc_id",
            "per",
            "read",
            pl.when(_VALUED).then((location.exp() * size - 1).clip(1)).alias("expected"),
            "status",
        )
    )


def _verdict() -> pl.Expr:
    """The status: the parser's, too_few, or which side of what is usual."""
    away, far = pl.col("away"), LIMIT * pl.col("spread").clip(LEAST_SPREAD)
    return (
        pl.when(~pl.col("status").is_in(["ok", "empty"]))
        .then("status")
        .when(pl.col("like") < MIN_CLASS)
        .then(pl.lit("too_few"))
        .when(away < -far)
        .then(pl.lit("too_short"))
        .when(away > far)
        .then(pl.lit("too_long"))
        .otherwise(pl.lit("scored"))
        .alias("status")
    )


_VALUED = pl.col("status").is_in(["scored", "too_short", "too_long"])
