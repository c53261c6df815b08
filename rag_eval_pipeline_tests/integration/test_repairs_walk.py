"""Each repair of chunking and lists in a small pipeline that runs: its tables hold, and everything below them runs on."""

import polars as pl
import pytest

from rag_eval_pipeline.attribution.units import build_units
from rag_eval_pipeline.stages.graph import BY_NAME, STAGES, inputs_of, walk
from rag_eval_pipeline.stages.retrieval.holding import first_held
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform, name_of
from rag_eval_pipeline_tests.integration.house import downstream, home_of
from rag_eval_pipeline_tests.small import write_mixed

PIPELINE = {
    "retrieval": {
        "bm25": {"kind": "bm25", "depth": 20},
        "dense": {"kind": "dense", "depth": 20},
        "both": {"kind": "rrf", "lanes": ["bm25", "dense"]},
    },
    "chunking": {"splitter": "fixed", "size": 12, "overlap": 2, "unit": "words"},
    "embedding": {"max_tokens": 12},
    "indexing": {"kind": "ivf", "nlist": 8, "nprobe": 1},
    "filtering": {"extractor": "rules", "fields": {"doc_class": {"old": ["travel", "invoices"]}}},
    "reranking": {"reranker": "lexical", "depth": 10},
    "pii": None,
}
"""It cuts through quotes, truncates, looks into one cell of eight, and filters two queries for the wrong documents."""
GAINS = {"chunking": 1, "filtering": 5, "indexing": 10}
"""Cut-offs at which these repairs are known to give evidence back here; others may hurt, and that is no fault of theirs."""
REPAIRED = ("chunking", "embedding", "indexing", "filtering", "fusion", "reranking")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    root = tmp_path_factory.mktemp("repairs")
    write_mixed(root / "corpora", PIPELINE)
    subject = Subject.open(home_of(root), "mixed@v1", workers=0)
    for stage in STAGES:
        subject.run(stage)
    frames = {name: subject.frame(name) for stage in STAGES for name in stage.tables}
    return subject, {**subject.outside(), **frames}


def truth_of(subject, frames, k=None):
    version = subject.version
    made = build_units(version.gold, frames, version.settings)
    dev = made.units.filter(pl.col("query_id").is_in(["q1", "q2", "q3"])) if k else made.units.clear()
    dev_pieces = made.pieces.join(dev, on=["query_id", "evidence_id"], how="semi")
    return Truth(version.gold, version.settings, *made, dev, dev_pieces, k)


def recall(subject, frames, k=5):
    truth = truth_of(subject, frames)
    units = truth.units.filter("eligible")
    held = first_held(frames["ranked_runs"].filter(pl.col("retriever") == "both"), truth.pieces, units, 0.9)
    return held.filter(pl.col("place") <= k).height / units.height


@pytest.mark.parametrize("name", REPAIRED)
def test_a_repaired_stage_holds_its_declaration_is_repaired_once_and_runs_on(base, name):
    subject, frames = base
    stage, config = BY_NAME[name], subject.configs[name]
    repair = stage.door("repair", "repair")
    before, after = inputs_of(stage, frames, config), {table: frames[table] for table in stage.tables}
    truth = truth_of(subject, frames, k=5 if name == "fusion" else None)
    made = repair(before, after, truth, config)
    assert made.keys() == after.keys()
    assert any(made[table] is not after[table] for table in after), "the pipeline was made so that each has work"
    for declared in stage.writes:
        assert made[name_of(declared)].equals(conform(declared, made[name_of(declared)]))
    again = repair(before, made, truth, config)
    assert all(again[table] is made[table] for table in made)
    known = walk(downstream(name), {**frames, **made}, subject.configs, Runtime.plain())
    if name in GAINS:
        assert recall(subject, known, GAINS[name]) > recall(subject, frames, GAINS[name])


def test_all_repairs_together_run_one_after_the_other(base):
    subject, known = base
    for stage in STAGES:
        if stage.name not in REPAIRED:
            continue
        made = walk([stage], known, subject.configs, Runtime.plain())
        truth = truth_of(subject, made, k=5 if stage.name == "fusion" else None)
        after = {table: made[table] for table in stage.tables}
        fixed = stage.door("repair", "repair")(
            inputs_of(stage, made, subject.configs[stage.name]), after, truth, subject.configs[stage.name]
        )
        later = {s.name for s in STAGES[STAGES.index(stage) + 1 :]} - set(REPAIRED)
        known = {**made, **fixed}
        known = walk([s for s in downstream(stage.name) if s.name in later], known, subject.configs, Runtime.plain())
    assert recall(subject, known) > recall(*base)
