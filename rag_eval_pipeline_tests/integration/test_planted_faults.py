"""A twin of a small corpus: made without touching the healthy version, run like any version, and blamed where it was spoiled."""

import hashlib
import json

import pytest
import yaml

from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.experiments.injector.twin import UnfitError, inject
from rag_eval_pipeline.experiments.manifest import read_plants
from rag_eval_pipeline.experiments.scoring import halves, score
from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.small import FILL, QUICK, write_corpus, write_jsonl

PIPELINE = {
    **QUICK,
    "chunking": {"splitter": "recursive", "size": 30, "overlap": 5, "unit": "words"},
    "filtering": {"extractor": "gold", "mode": "hard"},
    "reranking": {"reranker": "lexical", "depth": 20},
}
ONE_EACH = {
    kind: {"count": 1}
    for kind in (
        "wrong_tag",
        "false_merge",
        "ocr_digit_flip",
        "boilerplate_over_removal",
        "cut_quote",
        "harmful_reranker",
    )
}

pytestmark = pytest.mark.integration


def digest_of(folder):
    # Hashes of files by path and time are kept beside the memo; they are no computed values.
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "file_hashes.json")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    home = home_of(tmp_path_factory.mktemp("planted"))
    folder = write_corpus(home.corpora, "shop", documents=20, pipeline=PIPELINE)
    for number in range(3):
        text = f"# Bare {number}\n\nNobody asks about shelf {number + 70} of store {number + 5}.\n\n{FILL * (number + 1)}\n"
        (folder / "documents" / f"bare-{number}.md").write_text(text, "utf-8")
    names = sorted(path.name for path in (folder / "documents").iterdir())
    shelves = {name: "even" if index % 2 else "odd" for index, name in enumerate(names)}
    listed = [{"doc_id": name, "path": name, "metadata": {"shelf": shelf}} for name, shelf in shelves.items()]
    write_jsonl(folder / "documents.jsonl", listed)
    gold = home.corpora / "shop" / "gold"
    evidence = [json.loads(line) for line in (gold / "evidence.jsonl").read_text("utf-8").splitlines()]
    of_query = {row["query_id"]: shelves[row["doc_id"]] for row in evidence}
    queries = [json.loads(line) for line in (gold / "queries.jsonl").read_text("utf-8").splitlines()]
    write_jsonl(gold / "queries.jsonl", [{**row, "filter": {"shelf": of_query[row["query_id"]]}} for row in queries])
    return home, Run(home, "shop@v1")


def planted(healthy, target, **options):
    home, run = healthy
    options = {"seed": 3, "faults": ONE_EACH, **options}
    return inject(home, Key.parse("shop@v1"), run.frame, run.manifest.evaluation_id, target, **options)


@pytest.fixture(scope="module")
def twin(healthy):
    home, _ = healthy
    before = digest_of(home.corpora / "shop" / "v1"), digest_of(home.memo), digest_of(home.manifests)
    made = planted(healthy, "twin")
    assert (digest_of(home.corpora / "shop" / "v1"), digest_of(home.memo), digest_of(home.manifests)) == before
    return made, Run(home, made.key.text)


def test_every_kind_asked_for_is_planted_with_its_decoy(twin):
    made, _ = twin
    plants = read_plants(made.manifest)
    assert made.info.left_out == {}
    assert {plant.kind for plant in plants if not plant.decoy} == set(ONE_EACH)
    assert {plant.decoy_of for plant in plants if plant.decoy} == {p.plant_id for p in plants if not p.decoy}
    assert all(plant.touched for plant in plants if not plant.decoy)
    assert not any(plant.touched for plant in plants if plant.decoy)


def test_the_ledger_blames_what_was_planted(healthy, twin):
    made, run = twin
    run.check_books()
    found = score(healthy[1].frame, run.frame, read_plants(made.manifest))
    assert found["n_scored"] > 20
    assert found["misses"] == []
    assert (found["accuracy"], found["false_blame"], found["decoys_moved"]) == (1.0, 0.0, 0)
    for kind in ("wrong_tag", "false_merge", "ocr_digit_flip", "boilerplate_over_removal"):
        assert found["by_kind"][kind]["n_changing"] == 1, kind


def test_documents_that_no_plant_reaches_have_the_same_chunks(healthy, twin):
    made, run = twin
    edited = {doc_id for plant in made.plants for doc_id in (*plant.documents, plant.doc_id)}
    before, after = (set(one.frame("dedup").filter("kept")["doc_id"]) for one in (healthy[1], run))
    edited |= before ^ after  # an edited text may be nobody's duplicate any more
    columns = ["doc_id", "chunk_id", "start", "end", "text", "section", "page", "tokens", "status"]

    def rest(frame):
        return [row for row in frame.select(columns).iter_rows() if row[0] not in edited]

    assert rest(run.frame("chunks")) == rest(healthy[1].frame("chunks"))


def test_the_same_seed_plants_the_same_and_another_one_elsewhere(healthy, twin):
    again = planted(healthy, "again")
    assert again.plants == twin[0].plants
    assert planted(healthy, "other", seed=4).plants != again.plants


def test_a_twin_may_be_a_pipeline_and_pairs_have_a_twin_of_each_half(healthy):
    home, _ = healthy
    made = planted(healthy, "both#planted", pairs=True, faults=None)
    assert (home.corpora / "shop" / "pipelines" / "planted.yaml").is_file()
    first, second = halves(made.plants)
    assert len(first) == len(second) > 0
    assert [plant.pair_id for plant in first] == [plant.pair_id for plant in second]
    for key in (made.key.text, *made.info.alone):
        text = home.corpora / "shop" / Key.parse(key).version / "corpus.yaml"
        path = text if text.is_file() else home.corpora / "shop" / "pipelines" / "planted.yaml"
        assert yaml.safe_load(path.read_text("utf-8"))["pipeline"]
    with pytest.raises(FileExistsError):
        planted(healthy, "more#planted")


def test_a_corpus_without_quotes_is_refused_with_what_to_add(healthy):
    home, run = healthy
    folder = home.corpora / "bare" / "v1" / "documents"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("A text.", "utf-8")
    (home.corpora / "bare" / "corpus.yaml").write_text(json.dumps({"pipeline": PIPELINE}), "utf-8")
    with pytest.raises(UnfitError, match=r"evidence\.jsonl"):
        inject(home, Key.parse("bare@v1"), run.frame, "x", "twin", seed=1)
