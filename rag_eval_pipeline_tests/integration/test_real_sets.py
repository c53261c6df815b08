"""Public labelled sets through the whole pipeline: published figures, anchored evidence, and books that balance.

The quick half needs no encoder and no recogniser of personal data; the `full` half runs the pipelines as users have them.
All figures are read where a user reads them: in the DuckDB file.
"""

import json
from itertools import pairwise

import pytest
import yaml

from rag_eval_pipeline.corpus.importers import import_corpus
from rag_eval_pipeline_tests.integration.house import Run

pytestmark = pytest.mark.integration

LEXICAL = {"bm25": {"kind": "bm25"}}
SCIFACT = {
    "corpus_file": "corpus.jsonl.gz",
    "queries_file": "beir/queries.train.jsonl",
    "qrels_file": "beir/qrels/train.tsv",
    "split": "train",
    "language": "en",
}
SILENT = {"answering": None}
SIZES = {"small": {"size": 64, "overlap": 8}, "large": {"size": 512, "overlap": 64}}


def sql(home, question, **values):
    """Rows of a question, asked as a user does: read-only, closed after."""
    import duckdb

    with duckdb.connect(str(home.database), read_only=True) as connection:
        return connection.execute(question, values).fetchall()


def bring(home, format, source, corpus, *, preset="default", **options):
    """Import a set as version v1."""
    return import_corpus(format, source, home.corpora, corpus, "v1", pipeline_preset=preset, **options)


def drop_dense(home, corpus):
    """The preset as it was written, but for its dense lane: no encoder is needed then. Nobody answers, nothing is repaired."""
    path = home.corpora / corpus / "corpus.yaml"
    settings = yaml.safe_load(path.read_text("utf-8"))
    del settings["pipeline"]["retrieval"]["dense"]
    settings["pipeline"] |= SILENT
    settings["ledger"] = settings.get("ledger", {}) | {"repairs": "off"}
    path.write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")


def lay_over(home, corpus, name, **sections):
    """A candidate pipeline."""
    path = home.corpora / corpus / "pipelines" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({"pipeline": sections}), "utf-8")


def mean(home, key, metric, k, *, retriever="", unit="document"):
    """A figure of the scorecard over all items."""
    subject, _, pipeline = key.partition("#")
    rows = sql(
        home,
        """
        SELECT mean FROM scorecard WHERE corpus_version = $subject AND pipeline = $pipeline AND slice_name = 'all'
        AND metric = $metric AND k = $k AND retriever = $retriever AND unit = $unit
        """,
        subject=subject, pipeline=pipeline or "default", metric=metric, k=k, retriever=retriever, unit=unit,
    )  # fmt: skip
    assert len(rows) == 1, (metric, k, retriever, unit, rows)
    return rows[0][0]


def lost(home, key, stage, *, retriever="bm25", k=10):
    """What a stage cost: units lost there first, and their share of recall."""
    subject, _, pipeline = key.partition("#")
    rows = sql(
        home,
        """
        SELECT lost_units, lost_recall FROM loss_waterfall WHERE corpus_version = $subject AND pipeline = $pipeline
        AND stage = $stage AND retriever = $retriever AND k = $k AND slice_name = 'all'
        """,
        subject=subject, pipeline=pipeline or "default", stage=stage, retriever=retriever, k=k,
    )  # fmt: skip
    return rows[0]


def gold_lines(run):
    """Units as the JSONL has them: quotes, and judged documents where there are none."""
    gold = run.subject.version.folder / "gold"
    if (quotes := gold / "evidence.jsonl").is_file():
        return sum(1 for line in quotes.read_text("utf-8").splitlines() if line.strip())
    lines = [line.split("\t") for line in (gold / "qrels.tsv").read_text("utf-8").splitlines() if line.strip()]
    return sum(cells[-1].lstrip("-").isdecimal() and int(cells[-1]) >= 1 for cells in lines)


def check_books(home, run):
    """1 − Σ lost − recall of the ranking table = 0, nothing impossible, every gold line is a unit; for all groups."""
    subject, _, pipeline = run.subject.key.text.partition("#")
    which = {"subject": subject, "pipeline": pipeline or "default"}
    groups = sql(
        home,
        """
        WITH lost AS (
            SELECT retriever, k, slice_name, slice_value, sum(lost_recall) FILTER (stage NOT IN ('context', 'answering')) AS lost,
                max(abs(residual)) AS residual, max(impossible) AS impossible, bool_and(books_ok) AS ok,
                max(n_units + n_ineligible) AS units
            FROM loss_waterfall WHERE corpus_version = $subject AND pipeline = $pipeline GROUP BY ALL
        ), ranked AS (
            SELECT retriever, k, slice_name, slice_value, mean AS recall FROM scorecard
            WHERE corpus_version = $subject AND pipeline = $pipeline AND metric = 'recall' AND unit = 'evidence'
        )
        SELECT slice_name, abs(1 - lost - recall), residual, impossible, ok, units
        FROM lost LEFT JOIN ranked USING (retriever, k, slice_name, slice_value)
        """,
        **which,
    )
    assert groups
    for slice_name, apart, residual, impossible, ok, units in groups:
        # A slice by document has another denominator a query than the ranking table: its figure is in the run's own check.
        assert slice_name == "doc_class" or apart <= 1e-12
        assert (residual <= 1e-12, impossible, ok) == (True, 0, True)
        assert slice_name != "all" or units == gold_lines(run)
    run.check_books()


def units(home, key):
    """(units, anchored, restored exactly) of a key."""
    subject, _, pipeline = key.partition("#")
    question = """
        SELECT count(*), count(*) FILTER (anchored), count(*) FILTER (similarity = 1) FROM evidence_units
        WHERE corpus_version = $subject AND pipeline = $pipeline
    """
    return sql(home, question, subject=subject, pipeline=pipeline or "default")[0]


@pytest.mark.parametrize("language", [pytest.param("en", marks=pytest.mark.full), "es"])
def test_bm25_finds_the_paragraph_of_a_question_and_every_unit_is_anchored(home, shared, language):
    source = shared("data", "xquad", f"xquad.{language}.half.json")
    bring(home, "squad", source, "xquad", preset="paper", language=language)
    drop_dense(home, "xquad")
    run = Run(home, "xquad@v1", database=True)
    check_books(home, run)
    assert mean(home, "xquad@v1", "ndcg", 10, retriever="bm25") >= 0.95
    asked = sum(
        len(p["qas"]) for article in json.loads(source.read_text("utf-8"))["data"] for p in article["paragraphs"]
    )
    assert units(home, "xquad@v1") == (asked, asked, asked) == (612, 612, 612)


@pytest.mark.full
def test_another_chunk_size_changes_what_chunking_loses(home, shared):
    bring(home, "spans", shared("data", "chunking_evaluation"), "spans", language="en")
    sizes = {name: SIZES[name] for name in ("small", "large")}
    for name, chunking in sizes.items():
        lay_over(home, "spans", name, retrieval=LEXICAL, chunking=chunking, pii=None, **SILENT)
    runs = {name: Run(home, f"spans@v1#{name}", database=name == "large") for name in sizes}
    check_sizes(home, runs, "bm25")
    assert not runs["large"].computed_stages & {"source", "parsing", "enriching", "cleaning", "dedup", "pii"}


def check_sizes(home, runs, retriever):
    """Runs stand side by side, by rising chunk size: each splits less evidence than the one before, and loses otherwise."""
    listed = sql(home, "SELECT pipeline, status FROM evaluations WHERE corpus_version = 'spans@v1' ORDER BY pipeline")
    assert listed == [(name, "complete") for name in sorted(runs)]
    for run in runs.values():
        check_books(home, run)
        assert units(home, run.subject.key.text) == (344, 344, 344)
    split = [mean(home, run.subject.key.text, "evidence_split_rate", 0, unit="evidence") for run in runs.values()]
    assert split[0] > 0
    assert all(more > less for more, less in pairwise(split))
    blamed = [lost(home, run.subject.key.text, "chunking", retriever=retriever)[0] for run in runs.values()]
    assert blamed[0] > blamed[-1] == 0
    found = [
        mean(home, run.subject.key.text, "recall", 1, retriever=retriever, unit="evidence") for run in runs.values()
    ]
    assert len(set(found)) == len(found)


@pytest.mark.full
def test_bm25_gives_the_published_figures_of_scifact(home, shared):
    bring(home, "beir", shared("data", "scifact"), "scifact", preset="paper", **SCIFACT)
    drop_dense(home, "scifact")
    check_scifact(home, Run(home, "scifact@v1", database=True, workers=2))


def check_scifact(home, run):
    check_books(home, run)
    key = run.subject.key.text
    assert len(run.subject.version.gold.queries) == 809
    assert mean(home, key, "ndcg", 10, retriever="bm25") == pytest.approx(0.6945, abs=0.01)
    assert mean(home, key, "recall", 100, retriever="bm25") == pytest.approx(0.9264, abs=0.01)


@pytest.mark.full
def test_scifact_by_the_paper_and_by_the_default_pipeline(home, shared):
    """The bundled encoder's figure, and what personal data, duplicates and chunks cost: one corpus, two pipelines."""
    bring(home, "beir", shared("data", "scifact"), "scifact", **SCIFACT)
    paper = Run(home, "scifact@v1#paper", workers=2)
    default = Run(home, "scifact@v1", database=True, workers=2)
    check_scifact(home, paper)
    assert mean(home, "scifact@v1#paper", "ndcg", 10, retriever="dense") >= 0.6
    assert not default.computed_stages & {"source", "parsing", "enriching", "cleaning"}
    check_books(home, default)
    # The encoder sees 256 word pieces: whole abstracts are cut in the first pipeline, chunks of 256 hardly in the second.
    cut = {key: mean(home, key, "truncated_tokens", 0, unit="token") for key in ("scifact@v1#paper", "scifact@v1")}
    assert cut["scifact@v1#paper"] > cut["scifact@v1"]


@pytest.mark.full
def test_the_default_pipeline_on_exact_spans_beside_two_chunk_sizes(home, shared):
    bring(home, "spans", shared("data", "chunking_evaluation"), "spans", language="en")
    for name, chunking in SIZES.items():
        lay_over(home, "spans", name, chunking=chunking)
    keys = {"small": "spans@v1#small", "default": "spans@v1", "large": "spans@v1#large"}
    check_sizes(
        home, {name: Run(home, key, database=name == "large", workers=2) for name, key in keys.items()}, "hybrid"
    )
