"""Split queries so that no document and no cluster stands on both sides.

Whether splits leak is checked at loading, in `checks`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import polars as pl

from rag_eval_pipeline.corpus.faults import Faults
from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.jsonl import objects
from rag_eval_pipeline.corpus.lines import Split
from rag_eval_pipeline.measures.pairs import connected


def make_splits(gold: Gold, shares: Mapping[str, float], seed: int = 0) -> pl.DataFrame:
    """Assign every query to a split; queries that share a document or a cluster, directly or by others, stay together.

    Groups go, largest first and equal ones in a seeded order, to the split that is furthest below its share.

    Args:
        gold: labels with queries, evidence and qrels.
        shares: share of the queries by split; they are scaled to sum to 1.
        seed: of the order among groups of equal size.

    Returns:
        query_id, split; sorted by query_id.

    Raises:
        ValueError: a split's name is unknown, or no share is positive.
    """
    if unknown := sorted(set(shares) - set(get_args(Split))):
        raise ValueError(f"unknown splits {unknown}; known: {', '.join(get_args(Split))}")
    wanted = {name: share for name, share in sorted(shares.items()) if share > 0}
    if not wanted or any(share < 0 for share in shares.values()):
        raise ValueError("shares must be positive, such as {'dev': 0.3, 'test': 0.7}")
    groups = sorted(query_groups(gold), key=lambda group: (-len(group), _draw(seed, group[0])))
    total = sum(len(group) for group in groups)
    scale = sum(wanted.values())
    filled = dict.fromkeys(wanted, 0)
    rows: list[tuple[str, str]] = []
    for group in groups:
        target = max(wanted, key=lambda name: (wanted[name] / scale * total - filled[name], name))
        filled[target] += len(group)
        rows.extend((query, target) for query in group)
    return pl.DataFrame(sorted(rows), schema={"query_id": pl.String, "split": pl.String}, orient="row")


def query_groups(gold: Gold) -> list[list[str]]:
    """Queries that documents (evidence, or judged relevant) or clusters tie together; each group sorted."""
    asked = gold.queries.select("query_id", "cluster_id")
    judged = gold.qrels.filter(pl.col("grade") >= 1).select("query_id", "doc_id")
    needed = pl.concat([gold.evidence.select("query_id", "doc_id"), judged]).join(asked, on="query_id", how="semi")
    ties = [(("query", query), ("query", query)) for query in asked["query_id"]]
    ties += [(("query", query), ("cluster", cluster)) for query, cluster in asked.drop_nulls().iter_rows()]
    ties += [(("query", query), ("document", doc)) for query, doc in needed.iter_rows()]
    chains = connected(ties)
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for query in sorted(asked["query_id"]):
        groups[chains["query", query]].append(query)
    return list(groups.values())


def _draw(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}\0{name}".encode()).hexdigest()


def write_splits(path: Path, splits: pl.DataFrame) -> int:
    """Write splits into a queries.jsonl, leaving all else of each line as it is; replaced by rename.

    Returns:
        How many lines changed.

    Raises:
        CorpusError: a line is no JSON object.
    """
    assigned = dict(splits.select("query_id", "split").iter_rows())
    faults, lines, changed = Faults(), [], 0
    for _, value in objects(path, path.name, faults):
        split = assigned.get(value.get("query_id", ""))
        if split is not None and value.get("split") != split:
            value["split"] = split
            changed += 1
        lines.append(json.dumps(value, ensure_ascii=False))
    faults.refuse()
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    beside.write_text("\n".join(lines) + "\n", "utf-8")
    beside.replace(path)
    return changed
