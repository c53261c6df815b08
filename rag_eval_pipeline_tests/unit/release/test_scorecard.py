import polars as pl
import pytest

from rag_eval_pipeline.measures.intervals import confidence_interval
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.release.scorecard import scorecard
from rag_eval_pipeline.stages.subject import quality_table
from rag_eval_pipeline.warehouse.measurement import measurement, measurements
from rag_eval_pipeline.warehouse.table import conform

METRICS = (
    Metric("recall", "", "higher"),
    Metric("leaked", "", "lower", high=float("inf")),
    Metric("f1", "", "higher"),
    Metric("hit", "", "higher"),
)
N = 48


def measured():
    """Recall and hits of 48 queries, 4 without a value; one count a document; one aggregate."""
    rows = []
    for at in range(N):
        value = None if at % 12 == 0 else (at % 5) / 4
        status = "no_gold" if value is None else "scored"
        rows.append(measurement("recall", "query", f"q{at:02d}", value, status=status, k=3))
        rows.append(measurement("hit", "query", f"q{at:02d}", float(at % 3 > 0), k=3))
    rows += [measurement("leaked", "document", f"d{at}", float(at == 0)) for at in range(20)]
    rows.append(measurement("f1", "corpus", "all", 0.5))
    number = pl.col("item_id").str.slice(1).cast(pl.Int64, strict=False)
    query = pl.col("item_type") == "query"
    frame = measurements(rows).with_columns(
        corpus_version=pl.lit("c@v"),
        pipeline=pl.lit("default"),
        evaluation_id=pl.lit("e"),
        stage=pl.lit("retrieval"),
        language=pl.when(query).then(pl.when(number % 2 == 0).then(pl.lit("en")).otherwise(pl.lit("es"))),
        intent=pl.when(query).then(pl.when(number < 40).then(pl.lit("howto")).otherwise(pl.lit("fact"))),
        answerable=pl.when(query).then(True),
        tags=pl.when(query & (number < 5))
        .then(pl.lit(["rare", "new"]))
        .when(query)
        .then(pl.lit([], pl.List(pl.String))),
    )
    return conform(quality_table("retrieval"), frame)


def of(card, **where):
    return card.filter(**({"slice_name": "all"} | where)).row(0, named=True)


def test_every_mean_has_the_interval_of_its_items():
    frame = measured()
    card = scorecard(frame, METRICS, ["intent", "language"])
    values = frame.filter(pl.col("metric") == "recall")["value"].drop_nulls()
    expected = confidence_interval(values, low=0, high=1)
    row = of(card, metric="recall")
    assert (row["mean_low"], row["mean_high"]) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert (row["interval"], row["n_clusters"], row["n_valued"], row["n_expected"]) == ("bca", 44, 44, N)
    assert of(card, metric="hit")["interval"] == "clopper_pearson"
    assert of(card, metric="recall", slice_name="intent", slice_value="fact")["interval"] == "bounded"


def test_a_mean_without_an_interval_says_why():
    card = scorecard(measured(), METRICS, [])
    found = {
        row["metric"]: (row["interval"], row["mean_low"]) for row in card.filter(slice_name="all").iter_rows(named=True)
    }
    assert found["leaked"] == ("no_bounds", None)
    assert found["f1"] == ("aggregate", None)


def test_slices_are_crossed_two_by_two_and_tags_and_answerable_always_made():
    card = scorecard(measured(), METRICS, ["intent", "language"])
    names = set(card["slice_name"])
    assert names == {"all", "intent", "language", "answerable", "tags", "intent×language"}
    values = set(card.filter(slice_name="intent×language")["slice_value"])
    assert values == {"howto×en", "howto×es", "fact×en", "fact×es"}
    crossed = of(card, metric="hit", slice_name="intent×language", slice_value="fact×es")
    assert crossed["n_valued"] == 4
    assert of(card, metric="recall", slice_name="tags", slice_value="new")["n_expected"] == 5
    assert of(card, metric="recall", slice_name="answerable")["slice_value"] == "true"


def test_queries_of_a_cluster_count_as_one_group():
    clusters = pl.DataFrame(
        {"query_id": [f"q{at:02d}" for at in range(N)], "cluster_id": [f"c{at // 6}" for at in range(N)]}
    )
    frame = measured()
    alone, together = (of(scorecard(frame, METRICS, [], each), metric="hit") for each in (clusters.clear(), clusters))
    assert (alone["interval"], alone["n_clusters"]) == ("clopper_pearson", N)
    assert (together["interval"], together["n_clusters"]) == ("bounded", 8)
    assert together["mean"] == alone["mean"]
    partly = clusters.with_columns(pl.when(pl.col("cluster_id") == "c0").then("cluster_id"))
    assert of(scorecard(frame, METRICS, [], partly), metric="hit")["n_clusters"] == N - 5


def test_the_order_of_rows_changes_nothing():
    frame = measured()
    card = scorecard(frame, METRICS, ["intent", "language"])
    assert scorecard(frame.sample(fraction=1, shuffle=True, seed=1), METRICS, ["intent", "language"]).equals(card)


def test_an_undeclared_metric_is_an_error():
    with pytest.raises(ValueError, match="without a declaration"):
        scorecard(measured(), METRICS[:2], [])
