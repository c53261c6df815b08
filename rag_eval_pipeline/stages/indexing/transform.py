"""Build the vector index: flat, HNSW or IVF, from the same vectors always the same bytes.

Here: which vectors go in, under which name. How an index is built and searched is `models/ann`; lists are made in `retrieval`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from rag_eval_pipeline.models.ann import build_index
from rag_eval_pipeline.models.vectors import vector_matrix
from rag_eval_pipeline.stages.indexing.tables import IndexFiles
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

NAME = "chunks"


class IndexingConfig(BaseModel):
    """Section `indexing` of corpus.yaml.

    Attributes:
        kind: flat is exact; hnsw and ivf are approximate.
        m: HNSW: neighbours of a node.
        ef_construction: HNSW: candidates while building.
        ef_search: HNSW: candidates while searching; at least as many as are asked for.
        nlist: IVF: cells; lowered to the number of chunks where there are fewer.
        nprobe: IVF: cells searched.
        seed: of HNSW's levels and IVF's clustering.
        enabled: set by the graph: whether some lane searches vectors.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Literal["flat", "hnsw", "ivf"] = "hnsw"
    m: int = Field(32, ge=2, le=512)
    ef_construction: int = Field(200, ge=1)
    ef_search: int = Field(64, ge=1)
    nlist: int = Field(64, ge=1)
    nprobe: int = Field(8, ge=1)
    seed: int = Field(0, ge=0, lt=2**31)
    enabled: bool = True

    def params(self) -> dict[str, str | int]:
        """The parameters that this kind of index obeys."""
        own = {"flat": (), "hnsw": ("m", "ef_construction", "ef_search", "seed"), "ivf": ("nlist", "nprobe", "seed")}
        return {"kind": self.kind, **{name: getattr(self, name) for name in own[self.kind]}}


CONFIG = IndexingConfig


def run(frames: Mapping[str, pl.DataFrame], config: IndexingConfig, runtime: Runtime) -> dict[str, pl.DataFrame]:
    """One index over all vectors (several of a chunk that has windows); no row where no lane needs one, or where there is no chunk."""
    embeddings = frames["embeddings"].sort("chunk_id", "window")
    if not config.enabled or embeddings.is_empty():
        return {"index_files": conform(IndexFiles, [])}
    runtime.progress("indexing", 0, 1)
    started = time.perf_counter()
    blob = build_index(vector_matrix(embeddings["vector"]), config.params())
    row = {
        "index_name": NAME,
        "kind": config.kind,
        "params": json.dumps(config.params(), sort_keys=True),
        "chunk_ids": embeddings["chunk_id"].to_list(),
        "blob": blob,
        "bytes": len(blob),
        "seconds": time.perf_counter() - started,
    }
    runtime.progress("indexing", 1, 1)
    return {"index_files": conform(IndexFiles, [row])}
