"""What an asset's page shows: numbers that plot over versions, a picture, a small table, the SQL, counts, path, column schema."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import polars as pl

from rag_eval_pipeline.attribution.regressions import STATES, version_diff
from rag_eval_pipeline.measures.metric import Metric
from rag_eval_pipeline.release.answered import doubt
from rag_eval_pipeline.release.comparing import Result, baseline
from rag_eval_pipeline.release.evaluated import metrics_of
from rag_eval_pipeline.release.gating import Gated, findings, what_to_do
from rag_eval_pipeline.release.pictures import Bar, bars_picture, flow_picture, waterfall_picture
from rag_eval_pipeline.release.pictures.ingestion import grid_picture, quality_pictures
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.release.report import report_path
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.manifests import Manifest
from rag_eval_pipeline.warehouse.store import Stored
from rag_eval_pipeline.warehouse.table import Table, name_of, privacy_of

ROWS = 20


def column_schema(schema: type[Table]) -> dg.TableSchema:
    """Columns with types and meanings, from the table's declaration."""
    keys = set(schema.primary_key())
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=name,
                type=str(column.dtype),
                description=_meaning(column),
                constraints=dg.TableColumnConstraints(nullable=column.nullable, unique=keys == {name}),
            )
            for name, column in schema.columns().items()
        ]
    )


def _meaning(column: Any) -> str:
    """A column's meaning; how it is published where that is not as it is."""
    shown = {"masked": " (published masked)", "source": " (published as length and hash)"}
    return f"{column.description or ''}{shown.get(privacy_of(column), '')}"


def stored_metadata(schema: type[Table], stored: Stored, subject: Subject, reused: bool) -> dict[str, Any]:
    """Metadata of any stored table."""
    name = name_of(schema)
    return {
        "rows": stored.rows,
        "dagster/row_count": stored.rows,
        "sql": dg.MetadataValue.md(f"```sql\n{query_of(name, subject)}\n```"),
        "reused": reused,
        "path": stored.path.removeprefix(str(subject.home.root)).lstrip("/"),
    }


def table_metadata(schema: type[Table], frame: pl.DataFrame) -> dict[str, Any]:
    """A stage's table in figures, never in its own words: shares that are filled, by status; a row a column."""
    if frame.is_empty():
        return {}
    shares = []
    if "status" in frame.columns:
        counts = frame["status"].value_counts(sort=True).head(ROWS)
        shares = [Bar(f"status {name}", n / frame.height, f"{n:,}") for name, n in counts.iter_rows()]
    filled = {c: frame.height - frame[c].null_count() for c, column in schema.columns().items() if column.nullable}
    shares += [Bar(f"{name} has a value", n / frame.height, f"{n:,}") for name, n in filled.items()]
    title = f"{name_of(schema)}: shares of its {frame.height:,} rows"
    drawn = bars_picture(
        shares[:ROWS], title, "; ".join(f"{b.name}: {b.told}" for b in shares), head="rows", alone=True
    )
    numbers = {
        f"share {bar.name.removeprefix('status ')}": bar.share for bar in shares if bar.name.startswith("status")
    }
    picture = {"picture": image(drawn, title)} if drawn else {}
    return {**picture, "columns": markdown(_profile(schema, frame), frame.width), **numbers}


def _profile(schema: type[Table], frame: pl.DataFrame) -> pl.DataFrame:
    """A row a column: how many values, how many different ones, and between which numbers they lie."""
    rows = []
    for name, column in schema.columns().items():
        series = frame[name]
        plain = not series.dtype.is_nested() and series.dtype != pl.Binary
        spread = series.dtype.is_numeric() and privacy_of(column) == "none"
        rows.append(
            {
                "column": name,
                "values": frame.height - series.null_count(),
                "different": series.drop_nulls().n_unique() if plain else None,
                "least": float(series.min()) if spread and series.count() else None,  # type: ignore[arg-type]
                "mean": float(series.mean()) if spread and series.count() else None,  # type: ignore[arg-type]
                "most": float(series.max()) if spread and series.count() else None,  # type: ignore[arg-type]
            }
        )
    schema_of = {
        "column": pl.String,
        "values": pl.Int64,
        "different": pl.Int64,
        "least": pl.Float64,
        "mean": pl.Float64,
        "most": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema_of, orient="row")


def query_of(name: str, subject: Subject) -> str:
    """The SQL by which an analyst reads the table in the published database."""
    key = subject.key
    return f"SELECT * FROM current_{name} WHERE corpus_version = '{key.subject}' AND pipeline = '{key.pipeline}'"


GROUPS = ["retriever", "metric", "unit", "k", "params"]
"""What makes a figure of a quality table."""


def quality_metadata(room: str, frame: pl.DataFrame, subject: Subject) -> dict[str, Any]:
    """Means by metric: numbers that plot over versions, a picture and a table beside the baseline, and what to do."""
    means, against = _means(frame), _before(f"{room}_quality", subject)
    before = against.means if against.means is not None else means.clear()
    beside = means.join(
        before.select(*GROUPS, pl.col("mean").alias("before")), on=GROUPS, how="left", nulls_equal=True
    ).sort(GROUPS)
    beside = beside.with_columns((pl.col("mean") - pl.col("before")).alias("change"))
    declared = {metric.name: metric for metric in metrics_of(room)}
    numbers = {_label(row): float(row["mean"]) for row in means.iter_rows(named=True) if row["mean"] is not None}
    better = pl.col("metric").replace_strict({name: m.better for name, m in declared.items()}, default="")
    columns = [*GROUPS[:4], "mean", "before", "change", "better", "n", "valued"]
    drawn = _quality_picture(room, beside, declared, against.sentence)
    read = {"dedup": subject.frame("dedup")} if room == "dedup" else {}
    own = {name: image(svg, about) for name, (svg, about) in quality_pictures(room, frame, read).items()}
    return {
        **own,
        **({"picture": image(drawn, f"figures of {room}")} if drawn else {}),
        "measures": markdown(beside.with_columns(better=better).select(columns)),
        "baseline": against.sentence,
        "what_to_do": dg.MetadataValue.md(_next_steps(room, beside, declared, subject)),
        **dict(list(numbers.items())[:40]),
    }


def sweep_metadata(frame: pl.DataFrame) -> dict[str, Any]:
    """The grid of dedup's sweep as a picture and a table; its best B³ plots over versions."""
    drawn = grid_picture(frame)
    columns = ["num_perm", "threshold", "pairs", "pair_precision", "pair_recall", "b_cubed_f1", "false_merge_rate", "removed", "bytes", "seconds"]  # fmt: skip
    best = frame["b_cubed_f1"].max()
    return {
        **({"picture": image(drawn, "what dedup finds by hash functions and threshold")} if drawn else {}),
        "sweep": markdown(frame.select(columns), frame.height),
        **({} if best is None else {"best B³ F1": float(best)}),  # type: ignore[arg-type]
    }


def _means(frame: pl.DataFrame) -> pl.DataFrame:
    return (
        frame.group_by(GROUPS)
        .agg(
            pl.col("value").mean().alias("mean"),
            pl.len().alias("n"),
            pl.col("value").is_not_null().sum().alias("valued"),
        )
        .sort(GROUPS)
    )


def _label(row: dict[str, Any]) -> str:
    at = f"@{row['k']}" if row["k"] else ""
    parts = [row["retriever"], f"{row['metric']}{at}", row["unit"], "" if row["params"] == "{}" else row["params"]]
    return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class _Before:
    """The same table of the baseline, as means, and which that is."""

    sentence: str
    means: pl.DataFrame | None = None


def _before(name: str, subject: Subject) -> _Before:
    """What `gates.baseline` stands for, seen from an evaluation that is not complete yet."""
    now = Manifest(
        key=subject.key.text, evaluation_id=subject.evaluation_id, status="complete", tables={}, ids={},
        config=subject.version.settings.model_dump(mode="json", by_alias=True), gold_hash="", documents_hash="",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    found = baseline(subject.home, now)
    if found.manifest is None or name not in found.manifest.tables:
        return _Before(found.sentence if found.manifest is None else f"{found.sentence}, which has no {name}")
    try:
        rows = Evaluation(subject.home, found.manifest).frame(name)
    except OSError:
        return _Before(f"{found.sentence}, whose {name} is not in the store any more")
    sentence = f"{found.sentence}; plain means of each side's own items: `release_delta` has the paired intervals"
    return _Before(sentence, _means(rows) if set(GROUPS) <= set(rows.columns) else None)


def _quality_picture(room: str, beside: pl.DataFrame, declared: Mapping[str, Metric], sentence: str) -> str:
    """Bars of the figures that lie between 0 and 1 by declaration; a line across where the baseline was."""
    shares = [
        Bar(_label(row), row["mean"], f"{row['mean']:.4g}", row["before"])
        for row in beside.iter_rows(named=True)
        if row["mean"] is not None and (m := declared.get(row["metric"])) and (m.low, m.high) == (0.0, 1.0)
    ]
    about = "; ".join(f"{bar.name} {bar.told}" for bar in shares[:ROWS])
    return bars_picture(
        shares[:ROWS], f"{room}: means; a line across is the baseline ({sentence})", about, head="mean", alone=True
    )


def _next_steps(room: str, beside: pl.DataFrame, declared: Mapping[str, Metric], subject: Subject) -> str:
    """What got worse, the items to look at first, and the commands that tell more."""
    steps = []
    sign = {name: {"higher": 1.0, "lower": -1.0}.get(metric.better, 0.0) for name, metric in declared.items()}
    gain = pl.col("change") * pl.col("metric").replace_strict(sign, default=0.0, return_dtype=pl.Float64)
    worse = beside.with_columns(gain=gain).filter(pl.col("gain") < 0).sort("gain").head(3)
    if worse.height:
        named = ", ".join(f"`{_label(row)}` by {abs(row['change']):.4g}" for row in worse.iter_rows(named=True))
        steps.append(f"Worse than the baseline: {named}. `release_delta` says which of it is more than chance.")
    main = next((m for m in declared.values() if m.better != "neither"), None)
    if main is not None:
        order = "ASC" if main.better == "higher" else "DESC"
        sql = f"{query_of(f'{room}_quality', subject)} AND metric = '{main.name}' AND value IS NOT NULL ORDER BY value {order} LIMIT 20"
        steps.append(f"Its worst items:\n\n```sql\n{sql}\n```")
    steps.append(f"Rows without a value: `SELECT status, count(*) FROM current_{room}_quality GROUP BY ALL`.")
    steps.append(
        f"Where evidence was lost here: `rag-eval losses '{subject.key.text}'`; what mending it gives: `stage_repairs`."
    )
    return "\n".join(f"- {step}" for step in steps)


def comparison_metadata(name: str, frame: pl.DataFrame, result: Result) -> dict[str, Any]:
    """Numbers that plot over versions and one small table, for what the evaluation serves."""
    served = frame.filter((pl.col("retriever") == result.now.served) & (pl.col("k") == result.now.serve_k))
    if name == "version_regressions":
        counts = {state: int((served["state"] == state).sum()) for state in STATES}
        shown = version_diff(served).filter(pl.col("state") != "kept").drop("retriever", "k")
        changes = {"changed": "; ".join(result.changes.named()) or "no stage's config, code, model or inputs"}
        return {**counts, "version_diff": markdown(shown), **changes}
    if name == "release_delta":
        everything = frame.filter(pl.col("slice_name") == "all")
        counts = {
            f"{word} figures": int((everything["direction"] == word).sum())
            for word in ("better", "worse", "inconclusive")
        }
        columns = [
            "stage",
            "retriever",
            "metric",
            "unit",
            "k",
            "before",
            "now",
            "delta",
            "low",
            "high",
            "n",
            "p",
            "direction",
        ]
        worst = everything.filter(pl.col("direction") == "worse").sort("p", "stage", "metric", "k").select(columns)
        return {**counts, "worse": markdown(worst)}
    if name == "version_recall":
        row = served.row(0, named=True) if served.height else {}
        numbers = {
            n: float(row[n]) for n in ("recall_before", "recall_now", "delta", "low", "high") if row.get(n) is not None
        }
        columns = ["retriever", "k", "recall_before", "recall_now", "delta", "low", "high", "n_queries", "status"]
        return {**numbers, "recall": markdown(frame.select(columns))}
    return {}


def gate_metadata(gated: Gated) -> dict[str, Any]:
    """Verdict, what was compared, findings as a table, power, and what to do; the figures found plot over versions."""
    decision = gated.decision
    power = "no relative rule" if decision.power is None else "{:.0%} to {:.0%}".format(*decision.power)
    numbers = {f"{f.label} {f.limit}"[:100]: float(f.found) for f in decision.findings if f.found is not None}
    return {
        "verdict": decision.verdict,
        "compared": gated.baseline,
        "findings": markdown(findings(gated)),
        "power": power,
        "what_to_do": dg.MetadataValue.md("\n".join(f"- {line}" for line in what_to_do(gated))),
        "failed_limits": sum(f.verdict == "fail" for f in decision.findings),
        **dict(list(numbers.items())[:40]),
    }


def waterfall_metadata(frame: pl.DataFrame, subject: Subject) -> dict[str, Any]:
    """The picture of what is served, its recall and losses as numbers that plot over versions, and where the report lies."""
    retriever, k = str(subject.configs["context"].serve), subject.version.settings.evaluate.serve_k
    shown = frame.filter(
        (pl.col("retriever") == retriever) & (pl.col("k") == k) & (pl.col("slice_name") == "all")
    ).sort("position")
    if shown.is_empty():
        return report_metadata(subject)
    rows = shown.to_dicts()
    numbers: dict[str, Any] = {f"{retriever} recall@{k}": float(rows[0]["recall"])}
    numbers |= {f"lost at {row['stage']}": float(row["lost_recall"]) for row in rows if row["lost_units"]}
    said = doubt(subject.frame("claim_verdicts"), subject.calibrated_judges)
    told_by = pl.when(pl.col("stage") == "answering").then(pl.lit(said)).otherwise(pl.lit("")).alias("told by")
    table = shown.select("stage", "ceiling_after", "lost_recall", "lost_units", *([told_by] if said else []))
    return {
        "waterfall": image(waterfall_picture(rows, alone=True), "where recall was lost, stage by stage"),
        "flow": image(flow_picture(rows, alone=True), "units of evidence on their way through the stages"),
        "losses": markdown(table),
        **numbers,
        **report_metadata(subject),
    }


def report_metadata(subject: Subject) -> dict[str, Any]:
    """Where the report of the subject's evaluation is, or will be once the asset `report` is made."""
    path = report_path(subject.home, subject.key.text, subject.evaluation_id)
    return {"report": dg.MetadataValue.path(str(path))}


def image(svg: str, about: str) -> dg.MarkdownMetadataValue:
    """A picture that travels in the metadata itself, so that the page asks for no file."""
    return dg.MetadataValue.md(f"![{about}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})")


def markdown(frame: pl.DataFrame, rows: int = ROWS) -> dg.MarkdownMetadataValue:
    """A small frame as a table; numbers rounded for people."""
    header = "| " + " | ".join(frame.columns) + " |\n|" + "---|" * frame.width
    lines = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in frame.head(rows).iter_rows()]
    return dg.MetadataValue.md("\n".join([header, *lines]))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")
