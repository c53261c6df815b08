"""What an asset's page shows: numbers that plot over versions, a picture, a small table, the SQL, counts, path, column schema."""

import base64
from typing import Any

import dagster as dg
import polars as pl

from rag_eval_pipeline.attribution.regressions import STATES, version_diff
from rag_eval_pipeline.release.comparing import Result
from rag_eval_pipeline.release.gating import Gated, findings, what_to_do
from rag_eval_pipeline.release.pictures import flow_picture, waterfall_picture
from rag_eval_pipeline.release.report import report_path
from rag_eval_pipeline.stages.subject import Subject
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
        "sql": dg.MetadataValue.md(f"```sql\n{query_of(name, subject)}\n```"),
        "reused": reused,
        "path": stored.path.removeprefix(str(subject.home.root)).lstrip("/"),
    }


def query_of(name: str, subject: Subject) -> str:
    """The SQL by which an analyst reads the table in the published database."""
    key = subject.key
    return f"SELECT * FROM current_{name} WHERE corpus_version = '{key.subject}' AND pipeline = '{key.pipeline}'"


def quality_metadata(frame: pl.DataFrame) -> dict[str, Any]:
    """Means by metric: one number a metric (they plot over versions), and a table of them."""
    groups = ["retriever", "metric", "unit", "k", "params"]
    means = (
        frame.group_by(groups)
        .agg(
            pl.col("value").mean().alias("mean"),
            pl.len().alias("n"),
            pl.col("value").is_not_null().sum().alias("valued"),
        )
        .sort(groups)
    )
    numbers: dict[str, Any] = {}
    for row in means.iter_rows(named=True):
        at = f"@{row['k']}" if row["k"] else ""
        parts = [row["retriever"], f"{row['metric']}{at}", row["unit"], "" if row["params"] == "{}" else row["params"]]
        if row["mean"] is not None:
            numbers[" ".join(part for part in parts if part)] = float(row["mean"])
    return {**dict(list(numbers.items())[:40]), "measures": markdown(means.head(ROWS))}


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
    table = shown.select("stage", "ceiling_after", "lost_recall", "lost_units")
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


def markdown(frame: pl.DataFrame) -> dg.MarkdownMetadataValue:
    """A small frame as a table; numbers rounded for people."""
    header = "| " + " | ".join(frame.columns) + " |\n|" + "---|" * frame.width
    lines = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in frame.head(ROWS).iter_rows()]
    return dg.MetadataValue.md("\n".join([header, *lines]))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")
