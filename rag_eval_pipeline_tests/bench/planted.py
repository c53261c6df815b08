"""Planted faults at full size: healthy runs, twins, scores. `python -m rag_eval_pipeline_tests.bench.planted OUT KEY SPEC…`

A spec is a letter and a seed: `s7` singles, `p7` pairs, `i7` a starved index. RAG_EVAL_DATA names the data folder. Stages, evidence
and ledger are run in this process, without Dagster and without the other measures; books are checked.
`--together OUT` adds up what stands in OUT.
"""

import json
import shutil
import sys
import time
from pathlib import Path

from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.experiments.injector.twin import inject
from rag_eval_pipeline.experiments.matrix import KINDS
from rag_eval_pipeline.experiments.scoring import halves, score, together
from rag_eval_pipeline.release.evaluated import EVALUATED, evaluate
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.home import Home

NEEDED = ("evidence", "retrieval_quality", "attribution")
RATE = 0.09


def run(home, key):
    """Tables of a key by name, and its evaluation_id."""
    started, used = time.time(), time.process_time()
    subject = Subject.open(home, key, workers=0)
    for stage in STAGES:
        subject.run(stage)
    for step in EVALUATED:
        if step.name in NEEDED:
            evaluate(step, subject)
    made = {table for stage in STAGES for table in stage.tables}

    def frame(name):
        return subject.frame(name) if name in made else subject.kept(name)

    if not frame("loss_waterfall")["books_ok"].all():
        raise SystemExit(f"the books of {key} don't balance")
    print(f"  {key}: {time.time() - started:.0f} s, {time.process_time() - used:.0f} s of CPU", flush=True)
    return frame, subject.evaluation_id


def campaign(home, out, healthy, specs):
    """Make, run and score one twin a spec."""
    key = Key.parse(healthy)
    tables, evaluation_id = run(home, healthy)
    for spec in specs:
        for name in (spec, f"{spec}.first", f"{spec}.second"):
            shutil.rmtree(home.corpora / key.corpus / name, ignore_errors=True)
            (home.manifests / "_subjects" / f"{key.corpus}@{name}.json").unlink(missing_ok=True)
        faults = {"starved_index": {}} if spec[0] == "i" else {k.name: {"rate": RATE} for k in KINDS if not k.whole}
        twin = inject(
            home, key, tables, evaluation_id, spec, seed=int(spec[1:]), faults=faults, pairs=spec[0] == "p"
        )  # fmt: skip
        spoiled, _ = run(home, twin.key)
        alone = [(run(home, one)[0], half) for one, half in zip(twin.info.alone, halves(twin.plants), strict=False)]
        found = score(tables, spoiled, twin.plants, alone)
        found["left_out"] = twin.info.left_out
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{key.corpus}-{spec}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False), "utf-8")
        shown = (
            "accuracy",
            "n_scored",
            "pair_accuracy",
            "n_pair_rows",
            "false_blame",
            "n_changed",
            "decoys_moved",
            "n_plants",
        )
        print(f"{key.corpus} {spec}:", {name: found[name] for name in shown}, found["beside"], flush=True)


def main():
    if sys.argv[1] == "--together":
        scores = [json.loads(path.read_text("utf-8")) for path in sorted(Path(sys.argv[2]).glob("*.json"))]
        print(json.dumps(together(scores), indent=1))
        return
    out, healthy, *specs = sys.argv[1:]
    campaign(Home.find(), Path(out), healthy, specs)


if __name__ == "__main__":
    main()
