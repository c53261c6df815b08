"""Repair equalities: R(repair(faulty)) against R(repair(healthy)), kind by kind.

`python -m rag_eval_pipeline_tests.bench.equalities [--complete] OUT KEY SEED KIND…`

For each kind a twin is made that has faults of this kind alone. Then the stage that must be blamed is repaired in both, everything
downstream is run again, and evidence recall is compared by retriever, k and query. RAG_EVAL_DATA names the data folder.
`--complete` first labels the main text and the duplicates of every document as the healthy pipeline has them, in the corpus itself:
work on a copy.
"""

import json
import shutil
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from rag_eval_pipeline.attribution.repairs.evaluate import REPAIRS, Study
from rag_eval_pipeline.attribution.repairs.runner import NOBODY
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.experiments.injector.twin import UnfitError, inject
from rag_eval_pipeline.experiments.matrix import BY_NAME
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline_tests.bench.planted import run

EXACT = 1e-9
RATE = 0.09


def label_all(home, key, tables):
    """Complete labels of cleaning and dedup: what the healthy pipeline made of every document and pair."""
    gold = home.corpora / key.corpus / "gold"
    gold.mkdir(exist_ok=True)
    texts = tables("cleaned").filter(pl.col("status") == "ok").select("doc_id", "text").sort("doc_id")
    _write(gold / "main_text.jsonl", texts.to_dicts())
    clusters = dict(tables("dedup").select("doc_id", "cluster_id").iter_rows())
    pairs = [
        {"doc_a": a, "doc_b": b, "duplicate": clusters[a] == clusters[b]} for a, b in combinations(sorted(clusters), 2)
    ]
    _write(gold / "duplicates.jsonl", pairs)


def _write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def values_of(home, key, stages):
    """Evidence recall of a key as it ran and with each of the stages repaired: (stage or None, k) -> retrievers × queries."""
    subject = Subject.open(home, key, workers=0)
    study = Study(
        base={name: subject.frame(name) for stage in STAGES for name in stage.tables},
        outside=subject.outside(),
        configs=subject.configs,
        runtime=subject.runtime(),
        gold=subject.version.gold,
        settings=subject.version.settings,
        units=subject.kept("evidence_units"),
        fate=subject.kept("evidence_fate"),
        repairs=REPAIRS,
    )
    coalitions = {None: NOBODY, **{stage: frozenset([stage]) for stage in stages}}
    study.runner.run([(coalition, k) for coalition in coalitions.values() for k in study.ks], study.values.note)
    found = {(name, k): study.values.by_query(asked, k) for name, asked in coalitions.items() for k in study.ks}
    return found, study.asking.queries


def compare(healthy, spoiled, stage, ks):
    """What the repair gave back, and how far it is from the healthy pipeline's repair."""
    apart, recovered, signs = [], [], []
    for k in ks:
        one, other = spoiled[stage, k], healthy[stage, k]
        apart.append(np.abs(one - other))
        gained = one.mean(axis=1) - spoiled[None, k].mean(axis=1)
        lost = healthy[None, k].mean(axis=1) - spoiled[None, k].mean(axis=1)
        recovered.append(gained)
        signs.append((np.sign(gained), np.sign(lost), lost))
    apart = np.stack(apart)
    lost = np.concatenate([lost for *_, lost in signs])
    gained = np.concatenate(recovered)
    moved = np.abs(lost) > EXACT
    return {
        "cells": int(lost.size),
        "cells_that_lost": int(moved.sum()),
        "greatest_difference_of_means": float(np.abs(apart_means(spoiled, healthy, stage, ks)).max()),
        "queries_apart": int((apart > EXACT).any(axis=(0, 1)).sum()),
        "same_sign": int((np.sign(gained[moved]) == np.sign(lost[moved])).sum()),
        "median_difference": float(np.median(np.abs(gained - lost)[moved])) if moved.any() else None,
    }


def apart_means(spoiled, healthy, stage, ks):
    """Differences of mean recall: ks × retrievers."""
    return np.stack([spoiled[stage, k].mean(axis=1) - healthy[stage, k].mean(axis=1) for k in ks])


def main():
    complete = "--complete" in sys.argv
    out, healthy, seed, *kinds = [argument for argument in sys.argv[1:] if argument != "--complete"]
    home, key = Home.find(), Key.parse(healthy)
    tables, evaluation_id = run(home, healthy)
    if complete:
        label_all(home, key, tables)
        tables, evaluation_id = run(home, healthy)
    base, queries = values_of(home, healthy, sorted({BY_NAME[kind].stage for kind in kinds}))
    ks = sorted({k for _, k in base})
    Path(out).mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        name = f"eq{seed}-{kind.replace('_', '-')}"
        shutil.rmtree(home.corpora / key.corpus / name, ignore_errors=True)
        (home.manifests / "_subjects" / f"{key.corpus}@{name}.json").unlink(missing_ok=True)
        faults = {kind: {} if BY_NAME[kind].whole else {"rate": RATE}}
        try:
            twin = inject(home, key, tables, evaluation_id, name, seed=int(seed), faults=faults)
        except UnfitError as error:
            print(error, flush=True)
            continue
        run(home, twin.key)
        stage = BY_NAME[kind].stage
        spoiled, same = values_of(home, twin.key, [stage])
        if same != queries:
            raise SystemExit(f"{twin.key} asks other queries than {healthy}")
        found = {"corpus": key.corpus, "seed": int(seed), "kind": kind, "stage": stage, "plants": len(twin.plants)}
        found |= compare(base, spoiled, stage, ks)
        (Path(out) / f"{key.corpus}-{name}.json").write_text(json.dumps(found, indent=1), "utf-8")
        print(found, flush=True)


if __name__ == "__main__":
    main()
