"""What is computed again after a change, and what is not; and that what was computed before stays readable."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.versions import bump_version
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.stages.subject import FrozenError, Subject
from rag_eval_pipeline.warehouse.manifests import Manifests
from rag_eval_pipeline_tests.integration.house import ROOT, Run, downstream, environment, home_of, rag_eval
from rag_eval_pipeline_tests.small import QUICK, SUBJECTS, write_corpus, write_jsonl

pytestmark = pytest.mark.integration
BELOW_CHUNKING = {"chunking", *(stage.name for stage in downstream("chunking"))}
ABOVE = {"source", "parsing", "enriching", "cleaning", "dedup", "pii"}


def parsed_lines(home):
    log = home.root / "parsed.log"
    return log.read_text("utf-8").splitlines() if log.is_file() else []


def edit_document(folder, number=0):
    path = folder / "documents" / f"{SUBJECTS[number]}-{number}.md"
    path.write_text(path.read_text("utf-8") + "\nOne more line, written later.\n", "utf-8")
    return path


def add_label(home, number=0):
    gold = home.corpora / "small" / "gold"
    rows = [json.loads(line) for line in (gold / "evidence.jsonl").read_text("utf-8").splitlines()]
    second = {
        "query_id": f"q{number}",
        "evidence_id": "e2",
        "doc_id": f"{SUBJECTS[number]}-{number}.md",
        "quote": f"# Policy on {SUBJECTS[number]}",
    }
    write_jsonl(gold / "evidence.jsonl", [*rows, second])


def add_pipeline(home, name="small-chunks", **chunking):
    folder = home.corpora / "small" / "pipelines"
    folder.mkdir(exist_ok=True)
    body = {"pipeline": {"chunking": {**QUICK["chunking"], "size": 15, "overlap": 0, **chunking}}}
    (folder / f"{name}.yaml").write_text(json.dumps(body), "utf-8")
    return f"small@v1#{name}"


def test_two_pipelines_of_a_version_share_what_they_have_in_common_and_stand_side_by_side(home):
    import duckdb

    write_corpus(home.corpora, documents=4, pipeline={**QUICK, "parsing": {"parser": "rag_eval_parts:Counting"}})
    first = Run(home, "small@v1", workers=1)
    assert len(parsed_lines(home)) == 4
    second = Run(home, add_pipeline(home), database=True)
    assert len(parsed_lines(home)) == 4, "parsing ran again for another chunk size"
    assert second.computed_stages == BELOW_CHUNKING
    assert all(second.did[name] == "reused" for name in ABOVE)
    for name in ("parsed", "cleaned", "masked"):
        assert first.manifest.tables[name]["path"] == second.manifest.tables[name]["path"]
    assert second.frame("chunks").height > first.frame("chunks").height
    with duckdb.connect(str(home.database), read_only=True) as con:
        listed = con.sql("SELECT pipeline, status FROM evaluations ORDER BY pipeline").fetchall()
        assert listed == [("default", "complete"), ("small-chunks", "complete")]
        counts = dict(con.sql("SELECT pipeline, count(*) FROM current_chunks GROUP BY 1").fetchall())
        assert counts == {"default": first.frame("chunks").height, "small-chunks": second.frame("chunks").height}
        assert con.sql("SELECT count(DISTINCT pipeline_id) FROM parsed").fetchall() == [(1,)]
        assert con.sql("SELECT count(DISTINCT pipeline) FROM current_evidence_fate").fetchall() == [(2,)]


def test_what_was_parsed_once_is_not_parsed_again_and_tables_equal_a_fresh_rebuild(home, tmp_path):
    folder = write_corpus(
        home.corpora, documents=6, pipeline={**QUICK, "parsing": {"parser": "rag_eval_parts:Counting"}}
    )
    first = Run(home, "small@v1", workers=2)
    assert sorted(parsed_lines(home)) == sorted(path.name for path in (folder / "documents").iterdir())
    assert Run(home, "small@v1").computed == set()
    assert len(parsed_lines(home)) == 6

    bump_version(home.corpora, Key.parse("small@v1"), "v2")
    changed = edit_document(home.corpora / "small" / "v2")
    second = Run(home, "small@v2")
    assert parsed_lines(home)[6:] == [changed.name]
    assert second.counts["parsing"] == (5, 1)
    assert second.counts["chunking"] == (5, 1)

    other = home_of(tmp_path / "elsewhere")
    shutil.copytree(home.corpora, other.corpora)
    fresh = Run(other, "small@v2")
    assert fresh.counts["parsing"] == (0, 6)
    assert fresh.hashes == second.hashes
    assert fresh.subject.ids == second.subject.ids
    assert {n for n in first.hashes if first.hashes[n] != second.hashes[n]} >= {
        "documents",
        "parsed",
        "cleaned",
        "chunks",
    }


def test_a_label_makes_a_new_evaluation_and_computes_no_stage(home):
    write_corpus(home.corpora, documents=4)
    first = Run(home, "small@v1")
    add_label(home)
    second = Run(home, "small@v1")
    assert second.manifest.evaluation_id != first.manifest.evaluation_id
    assert second.computed_stages == set()
    assert second.frame("evidence_units").height == first.frame("evidence_units").height + 1
    old = Manifests(home.manifests).find("small@v1", first.manifest.evaluation_id)
    assert old == first.manifest
    assert Evaluation(home, old).frame("evidence_units").height == 4
    assert Evaluation.latest(home, "small@v1").manifest.evaluation_id == second.manifest.evaluation_id
    second.check_books()


def test_what_is_measured_is_measured_again_and_config_keeps_the_key(home):
    write_corpus(home.corpora, documents=4)
    first = Run(home, "small@v1")
    write_settings(home, evaluate={"k": [2]})
    second = Run(home, "small@v1")
    assert second.computed_stages == set()
    assert second.manifest.evaluation_id != first.manifest.evaluation_id
    write_settings(home, evaluate={"k": [2]}, pipeline={**QUICK, "chunking": {**QUICK["chunking"], "size": 30}})
    third = Run(home, "small@v1")
    assert {"chunking", "retrieval"} <= third.computed_stages <= BELOW_CHUNKING
    assert {m.evaluation_id for m in Manifests(home.manifests).of("small@v1")} == {
        run.manifest.evaluation_id for run in (first, second, third)
    }


def write_settings(home, **settings):
    path = home.corpora / "small" / "corpus.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **settings}), "utf-8")


@pytest.mark.parametrize("edit", ["content", "added", "removed", "documents.jsonl"])
def test_documents_are_frozen_once_a_key_has_run(home, edit):
    folder = write_corpus(home.corpora, documents=4)
    subject = Subject.open(home, "small@v1")
    subject.run(STAGES[0])  # an evaluation need not be complete for its key to have run
    if edit == "content":
        edit_document(folder)
    elif edit == "added":
        (folder / "documents" / "new.md").write_text("New.", "utf-8")
    elif edit == "removed":
        (folder / "documents" / f"{SUBJECTS[3]}-3.md").unlink()
    else:
        write_jsonl(
            folder / "documents.jsonl",
            [{"path": f"{SUBJECTS[0]}-0.md", "doc_id": f"{SUBJECTS[0]}-0.md", "doc_class": "policy"}],
        )
    for key in ("small@v1", add_pipeline(home)):
        with pytest.raises(FrozenError, match=re.escape("rag-eval bump small@v1 NEW_VERSION")):
            Subject.open(home, key)


def test_bump_and_run_compute_only_what_changed(home):
    write_corpus(home.corpora, documents=5)
    Run(home, "small@v1")
    done = rag_eval(home, "bump", "small@v1", "v2")
    assert done.returncode == 0, done.stderr
    edit_document(home.corpora / "small" / "v2", 2)
    second = Run(home, "small@v2")
    assert {name: second.counts[name] for name in ("parsing", "enriching", "cleaning", "chunking")} == dict.fromkeys(
        ("parsing", "enriching", "cleaning", "chunking"), (4, 1)
    )
    assert second.frame("documents").height == 5


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    """The package and the tests, copied: edits there are read by processes that have it first on their path."""
    root = tmp_path_factory.mktemp("copy")
    ignore = shutil.ignore_patterns("__pycache__", "unit", "ui", "bench", "dagster")
    shutil.copytree(
        ROOT / "rag_eval_pipeline", root / "rag_eval_pipeline", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "rag_eval_pipeline_tests", root / "rag_eval_pipeline_tests", ignore=ignore)
    return root


def change(root, module, old, new):
    path = root / "rag_eval_pipeline" / module
    text = path.read_text("utf-8")
    assert old in text, f"{module} has no {old!r} any more: choose another edit"
    path.write_text(text.replace(old, new, 1), "utf-8")


def run_copy(root, home, *options):
    env = environment(home)
    env["PYTHONPATH"] = str(root)
    done = subprocess.run(
        [sys.executable, "-m", "rag_eval_pipeline_tests.integration.house", "small@v1", *options],
        env=env,
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.full
def test_an_edit_of_code_changes_what_hangs_on_it_and_nothing_else(home, edited):
    write_corpus(home.corpora, documents=3)
    before = Run(home, "small@v1")
    # A docstring in a room, in a helper of a room and in a measure: nothing changes.
    for module in (
        "stages/chunking/splitters.py",
        "stages/parsing/transform.py",
        "measures/ranking.py",
        "stages/subject.py",
    ):
        path = edited / "rag_eval_pipeline" / module
        path.write_text(path.read_text("utf-8").replace('"""', '"""Said in other words. ', 1), "utf-8")
    words = run_copy(edited, home, "--ids")
    assert words["ids"] == before.subject.ids
    assert words["evaluation"] == before.manifest.evaluation_id
    # A measure: the evaluation is another one, no stage's table is.
    change(
        edited,
        "stages/chunking/quality.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nEDITED = 1\n",
    )
    change(
        edited,
        "measures/ranking.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nEDITED = 1\n",
    )
    measured = run_copy(edited, home)
    assert measured["ids"] == before.subject.ids
    assert measured["evaluation"] != before.manifest.evaluation_id
    assert {name for name, did in measured["did"].items() if did == "computed"} & {
        stage.name for stage in STAGES
    } == set()
    assert all(did == "computed" for name, did in measured["did"].items() if name.endswith("_quality"))
    # A helper that chunking imports: chunks and all below, nothing above.
    change(
        edited,
        "stages/chunking/splitters.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nEDITED = 1\n",
    )
    helped = run_copy(edited, home)
    assert {name for name, id_ in helped["ids"].items() if id_ != before.subject.ids[name]} == BELOW_CHUNKING
    done = {name for name, did in helped["did"].items() if did == "computed"} & {stage.name for stage in STAGES}
    assert done == BELOW_CHUNKING
    assert helped["hashes"]["chunks"] == before.hashes["chunks"], "the edit does nothing, so the rows are the same"


def test_gold_claims_are_part_of_the_judging_stages_identity_only_where_a_judge_looks_for_them(home):
    judge = {"base_url": "http://localhost:1/v1", "model": "m"}
    for corpus, rubrics in (("plain", ["answer"]), ("looking", ["answer", "nugget"])):
        section = {"judge": judge, "rubrics": rubrics}
        write_corpus(home.corpora, corpus, documents=2, pipeline={**QUICK, "judging": section})
        file, found = home.corpora / corpus / "gold" / "claims.jsonl", []
        for text, vital in (("It is 3 EUR.", True), ("It is 3 EUR.", False), ("It is 9 EUR.", True)):
            write_jsonl(file, [{"query_id": "q0", "claim_id": "n1", "text": text, "vital": vital}])
            subject = Subject.open(home, f"{corpus}@v1")
            found.append({**subject.ids, "evaluation": subject.evaluation_id})
        moved = [{name for name in found[0] if row[name] != found[0][name]} for row in found]
        assert moved == [set(), {"evaluation"}, {"evaluation", *(["judging"] if corpus == "looking" else [])}]


OUTPUT_ROWS = {
    "cleaned": {"doc_id": "refunds-0.md", "text": "One line."},
    "dedup": {"kept": "refunds-0.md", "removed": "refunds-1.md", "similarity": 1.0},
    "pii_spans": {"doc_id": "refunds-0.md", "start": 0, "end": 4, "type": "PERSON"},
    "chunks": {"chunk_id": "c1", "doc_id": "refunds-0.md", "text": "One line."},
    "runs/mine": {"query_id": "q0", "item_id": "c1", "rank": 1, "score": 1.0},
    "contexts": {"query_id": "q0", "position": 0, "text": "One line."},
    "answers": {"answer_id": "a0", "query_id": "q0", "answer": "One line."},
}
IMPORTING = {
    "cleaned": {"cleaning": {"import": True}},
    "dedup": {"dedup": {"import": True}},
    "pii_spans": {"pii": {"import": True}},
    "chunks": {"chunking": {"import": True}},
    "runs/mine": {"retrieval": {"mine": {"kind": "import", "run": "mine"}}},
    "contexts": {"context": {"import": True}},
    "answers": {"answering": {"answerer": "import"}},
}


@pytest.mark.parametrize("output", OUTPUT_ROWS)
def test_a_file_of_outputs_decides_a_stage_only_where_it_is_imported(home, output):
    write_corpus(home.corpora, "plain", documents=2, pipeline=QUICK)
    folder = home.corpora / "plain"
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "importing.yaml").write_text(json.dumps({"pipeline": IMPORTING[output]}), "utf-8")
    file = folder / "v1" / "outputs" / f"{output}.jsonl"
    file.parent.mkdir(parents=True)

    def state(key):
        subject = Subject.open(home, key)
        return {**subject.ids, "evaluation": subject.evaluation_id}, subject.parts

    plain, importing = [state("plain@v1")], []
    row = (
        json.dumps(OUTPUT_ROWS[output])
        .replace("refunds-0", f"{SUBJECTS[0]}-0")
        .replace("refunds-1", f"{SUBJECTS[1]}-1")
    )
    for text in (row, row.replace("One line", "Two lines").replace("1.0", "0.9").replace('"end": 4', '"end": 5')):
        file.write_text(text + "\n", "utf-8")
        plain.append(state("plain@v1"))
        importing.append(state("plain@v1#importing"))
    assert plain[0] == plain[1] == plain[2]
    stage = next(iter(IMPORTING[output]))
    (first, _), (second, _) = importing
    below = {stage, *(found.name for found in downstream(stage)), "evaluation"}
    assert {name for name in first if first[name] != second[name]} == below


def test_the_label_of_a_filter_decides_filtering_only_where_it_goes_by_labels(home):
    write_corpus(home.corpora, "plain", documents=2, pipeline=QUICK)
    folder = home.corpora / "plain"
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "gold.yaml").write_text('{"pipeline": {"filtering": {"extractor": "gold"}}}', "utf-8")
    file = folder / "gold" / "queries.jsonl"
    before = {key: Subject.open(home, key).ids for key in ("plain@v1", "plain@v1#gold")}
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    write_jsonl(file, [{**row, "filter": {"doc_class": "policy"}} for row in rows])
    assert Subject.open(home, "plain@v1").ids == before["plain@v1"]
    after = Subject.open(home, "plain@v1#gold").ids
    moved = {name for name in after if after[name] != before["plain@v1#gold"][name]}
    assert moved == {"filtering", *(below.name for below in downstream("filtering"))}
