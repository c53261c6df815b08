"""Vectors as columns of a frame, and vectors that a user brings: checked, scaled to unit length, matched to their items."""

from __future__ import annotations

import numpy as np
import polars as pl

from rag_eval_pipeline.models.encoder import ModelError

SHOWN = 5


def vector_column(vectors: np.ndarray) -> pl.Series:
    """Rows of a matrix as a column List[Float32]."""
    return pl.Series(np.ascontiguousarray(vectors, dtype=np.float32)).cast(pl.List(pl.Float32))


def vector_matrix(column: pl.Series) -> np.ndarray:
    """A column of vectors as a float32 matrix; (0, 0) where it is empty.

    Raises:
        ModelError: the vectors have several dimensions.
    """
    if column.is_empty():
        return np.zeros((0, 0), dtype=np.float32)
    if (sizes := column.list.len().unique().sort()).len() != 1:
        raise ModelError(f"vectors have {sizes.to_list()} dimensions; make them all with one model")
    return column.explode().cast(pl.Float32).to_numpy().reshape(len(column), -1)


def imported_vectors(given: pl.DataFrame | None, ids: pl.Series, output: str, item: str) -> pl.DataFrame:
    """The vectors of `ids` from a user's file: id, vector (unit length), model.

    Args:
        given: frame of outputs/<output>.parquet: id, vector, model; None where there is no such file.
        ids: items that need a vector; further ids in the file are left aside.
        output: name of the file, for messages.
        item: what an id names, for messages.

    Raises:
        ModelError: the file is absent, misses or repeats items, mixes models or dimensions, or a vector has no direction.
    """
    file = f"outputs/{output}.parquet"
    if given is None:
        raise ModelError(f"{file} is absent: `import: true` takes the vectors from it; add it, or set `import: false`")
    wanted = given.join(ids.alias("id").to_frame(), on="id", how="semi")
    if repeated := wanted.filter(pl.col("id").is_duplicated())["id"].unique().sort().to_list():
        raise ModelError(
            f"{file}: {len(repeated)} {item} ids stand there twice, first {repeated[:SHOWN]}; keep one row each"
        )
    missing = ids.filter(~ids.is_in(wanted["id"].implode())).sort().to_list()
    if missing:
        raise ModelError(
            f"{file}: {len(missing)} of {len(ids)} {item}s have no vector, first {missing[:SHOWN]}; "
            f"add them, or import the {item}s that the file was made for"
        )
    _one_model(wanted, file)
    matrix = vector_matrix(wanted["vector"]).astype(np.float64)
    norms = np.sqrt((matrix**2).sum(axis=1, keepdims=True)) if len(matrix) else np.ones((0, 1))
    wrong = ~(np.isfinite(norms) & (norms > 0)).ravel()
    if wrong.any():
        first = wanted["id"].filter(pl.Series(wrong)).sort().to_list()
        raise ModelError(
            f"{file}: {len(first)} vectors are zero, NaN or infinite, first {first[:SHOWN]}; encode them again"
        )
    if not len(matrix):
        return wanted.select("id", "vector", "model")
    return wanted.select("id", vector_column(matrix / norms).alias("vector"), "model")


def same_model(documents: pl.DataFrame, queries: pl.DataFrame) -> None:
    """Refuse chunk and query vectors that cannot be compared: another model or another dimension.

    Raises:
        ModelError: names both sides.
    """
    if documents.is_empty() or queries.is_empty():
        return
    ours, theirs = documents["model"][0], queries["model"][0]
    sizes = len(documents["vector"][0]), len(queries["vector"][0])
    if ours != theirs or sizes[0] != sizes[1]:
        raise ModelError(
            f"chunks were embedded by {ours!r} ({sizes[0]} dimensions), queries by {theirs!r} ({sizes[1]}): "
            "embed both with one model, or import both"
        )


def _one_model(wanted: pl.DataFrame, file: str) -> None:
    if wanted["model"].null_count():
        raise ModelError(f"{file}: {wanted['model'].null_count()} rows name no model; fill the column `model`")
    if len(models := wanted["model"].unique().sort().to_list()) > 1:
        raise ModelError(f"{file}: vectors of several models {models[:SHOWN]}; encode all with one")
    if len(sizes := wanted["vector"].list.len().unique().sort().to_list()) > 1:
        raise ModelError(f"{file}: vectors of {sizes} dimensions; encode all with one model")
