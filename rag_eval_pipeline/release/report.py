"""The report of an evaluation: one HTML file that loads nothing, and a short form in Markdown for a pull request.

Here: which figures are shown, in what order, and how they are hidden and escaped. Not here: what a figure means (its own
room), the stories (`stories`), the pictures (`pictures`), the look (`report.html.j2`).

Every string went through the redactor, passages of texts by place as well. Scripts: one of ours, named by its hash in the
page's content policy, which forbids every other and every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from markupsafe import Markup, escape

from rag_eval_pipeline.attribution.order import AFTER, STAGES
from rag_eval_pipeline.attribution.regressions import version_diff
from rag_eval_pipeline.attribution.story import why
from rag_eval_pipeline.corpus.faults import CorpusError
from rag_eval_pipeline.release import gating
from rag_eval_pipeline.release.answered import Answered, answered, doubt_of
from rag_eval_pipeline.release.comparing import baseline
from rag_eval_pipeline.release.evaluated import MEASURED
from rag_eval_pipeline.release.judges import judges_of, pictures_of
from rag_eval_pipeline.release.pictures import STYLE, colour_of, flow_picture, waterfall_picture
from rag_eval_pipeline.release.pictures.answers import refusals_picture, reliability_picture
from rag_eval_pipeline.release.pictures.waterfall import given_back, signed
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.release.stories import QueryPage, Stories, lost_queries
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline.warehouse.manifests import Comparison, Manifest, Manifests
from rag_eval_pipeline.warehouse.redact import Redactor
from rag_eval_pipeline.warehouse.store import Store, Stored

LARGEST = 5_000_000
"""Bytes of a page; stories are left out until it fits."""
STORIES = 150
DOCUMENTS = 20
LOST_ROWS = 1_000
CHANGED_ROWS = 40

CHANGES = {
    "newly_lost": "newly lost",
    "recovered": "recovered",
    "still_lost": "still lost",
    "new_unit": "new in the books",
    "removed_unit": "no longer in the books",
    "kept": "kept",
}


def report_path(home: Home, key: str, evaluation_id: str) -> Path:
    """Where an evaluation's page is written."""
    return home.reports / key / f"{evaluation_id}.html"


def write_report(evaluation: Evaluation, path: Path | None = None) -> Path:
    """Write the page, whole or not at all.

    Args:
        evaluation: a complete one.
        path: file to write; by default `reports/<key>/<evaluation_id>.html`.

    Returns:
        Its path.
    """
    path = path or report_path(evaluation.home, evaluation.manifest.key, evaluation.manifest.evaluation_id)
    write_text(path, html_report(evaluation))
    return path


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def html_report(evaluation: Evaluation) -> str:
    """The page as text, at most `LARGEST` bytes of it."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rag_eval_pipeline", "release"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"signed": signed, "slug": slug, "passage": _passage, "colour": colour_of}
    script = resources.files("rag_eval_pipeline.release").joinpath("report.js").read_text("utf-8")
    template = environment.get_template("report.html.j2")
    content, limit = _content(evaluation), STORIES
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    while True:
        told = content | _told(content, limit) | {"script": Markup(script), "script_hash": digest}  # noqa: S704 - ours
        text = template.render(told)
        if len(text.encode()) <= LARGEST or limit == 0:
            return text
        limit //= 2


def _told(content: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """The stories that fit, taken from each cause in turn, and how many there are beside them."""
    chosen = set(_in_turn(content["lost"])[:limit])
    stories = [story for story in content["stories"] if story["query_id"] in chosen]
    return {"stories": stories, "told": chosen, "untold": content["n_lost_queries"] - len(stories)}


def _in_turn(lost: Sequence[Mapping[str, Any]]) -> list[str]:
    """Queries of each stage and cause in turn, so that a common cause does not crowd out a rare one."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in lost:
        group = groups.setdefault((row["first_loss_stage"], row["cause"] or ""), [])
        if row["query_id"] not in group:
            group.append(row["query_id"])
    longest = max((len(group) for group in groups.values()), default=0)
    return list(dict.fromkeys(group[i] for i in range(longest) for group in groups.values() if i < len(group)))


# What is shown ---------------------------------------------------------------------------------------------------------


def _content(evaluation: Evaluation) -> dict[str, Any]:
    """Everything on the page, personal strings hidden."""
    manifest, retriever, k = evaluation.manifest, *served(evaluation)
    waterfall = waterfall_rows(evaluation, retriever, k)
    lost = lost_queries(evaluation, retriever, k)
    stories = Stories(evaluation, retriever, k)
    wanted = _in_turn(lost.to_dicts())[:STORIES]
    order = {query: number for number, query in enumerate(lost["query_id"].unique(maintain_order=True))}
    told = [stories.of(query) for query in sorted(wanted, key=order.__getitem__)]
    causes = _causes(lost)
    repairs = repairs_of(evaluation, retriever, k)
    told_answers, doubt = answered(evaluation), doubt_of(evaluation)
    shown = {
        **headline(evaluation),
        "key": manifest.key,
        "evaluation_id": manifest.evaluation_id,
        "started": manifest.started,
        "source_text": bool(manifest.config.get("publish", {}).get("source_text")),
        "waterfall": [row | {"causes": causes.get(row["stage"], []), "doubt": doubt if row["stage"] == "answering" else "", "repair": _repair_cells(repairs.get(row["stage"]))} for row in waterfall if row["stage"] != "unanchored" or row["lost_units"]],
        "repaired": bool(repairs),
        "beside": [_repair_cells(row) | {"stage": name} for name, row in repairs.items() if row["kind"] != "stage"],
        "degraded": _degraded(evaluation, retriever),
        "slices": _slices(evaluation, retriever, k),
        "documents": _documents(lost),
        "lost": [row | {"why": why(row["first_loss_stage"], row["cause"])} for row in lost.head(LOST_ROWS).to_dicts()],
        "n_lost": lost.height,
        "n_lost_queries": len(order),
        "questions": _questions(evaluation, list(order)),
        "stories": [_plain_story(page) for page in told],
        "answers": None if told_answers is None else [row | {"given": _given(row["params"])} for row in told_answers.rows],
        "judges": judges_of(evaluation),
        "scorecard": _scorecard(evaluation),
        "coverage": _coverage(evaluation),
        "statuses": _statuses(evaluation),
        "provenance": _provenance(manifest),
        "config": yaml.safe_dump(manifest.config, sort_keys=True, allow_unicode=True),
        "tables": sorted((name, entry["rows"], entry["content_hash"][:16]) for name, entry in manifest.tables.items()),
    }  # fmt: skip
    pictures = {
        "waterfall_svg": Markup(waterfall_picture(waterfall, _players(repairs))),  # noqa: S704 - escaped there
        "flow_svg": Markup(flow_picture(waterfall, causes)),  # noqa: S704 - escaped there
        "judges_svg": [Markup(drawn) for drawn in pictures_of(evaluation)],  # noqa: S704 - escaped there
        "answers_svg": [Markup(drawn) for drawn in _answer_pictures(told_answers)],  # noqa: S704 - escaped there
        "style": Markup(STYLE),  # noqa: S704 - ours
    }
    return _hide(shown, evaluation.redactor) | pictures


def _answer_pictures(told: Answered | None) -> list[str]:
    """Who was refused, and the reliability curve; those that have something to show."""
    if told is None:
        return []
    drawn = (refusals_picture(told.quadrants, told.unknown), reliability_picture(told.curve, told.outcome))
    return [picture for picture in drawn if picture]


def served(evaluation: Evaluation) -> tuple[str, int]:
    """The retriever and cut-off that are served, as far as they were measured."""
    ks = evaluation.frame("loss_waterfall")["k"].unique().sort().to_list()
    k = evaluation.serve_k
    return evaluation.served, k if k in ks or not ks else int(ks[-1])


def waterfall_rows(evaluation: Evaluation, retriever: str, k: int) -> list[dict[str, Any]]:
    """Rows of `loss_waterfall` over all units, in order."""
    frame = evaluation.frame("loss_waterfall").filter(
        (pl.col("retriever") == retriever) & (pl.col("k") == k) & (pl.col("slice_name") == "all")
    )
    return frame.sort("position").to_dicts()


def headline(evaluation: Evaluation) -> dict[str, Any]:
    """What a reader is to know first: recall with its interval, what was lost most, the gate, and the change since the baseline."""
    retriever, k = served(evaluation)
    rows = waterfall_rows(evaluation, retriever, k)
    first = rows[0] if rows else dict.fromkeys(("recall", "n_units", "n_queries", "n_ineligible"), 0)
    in_books = [row for row in rows if row["stage"] not in AFTER]
    worst = sorted(
        (row for row in in_books if row["lost_units"]), key=lambda row: (-row["lost_recall"], row["position"])
    )
    low, high = _interval(evaluation, retriever, k)
    return {
        "retriever": retriever,
        "k": k,
        "recall": first["recall"],
        "recall_low": low,
        "recall_high": high,
        "n_units": first["n_units"],
        "n_queries": first["n_queries"],
        "n_ineligible": first["n_ineligible"],
        "n_served": first["n_units"] - sum(row["lost_units"] for row in in_books),
        "worst": [{"stage": row["stage"], "units": row["lost_units"], "recall": row["lost_recall"]} for row in worst],
        "unseen": list(rows[0]["unseen_stages"] or []) if rows else [],
        "books_ok": all(row["books_ok"] for row in rows),
        "gate": gate_of(evaluation),
        "change": change(evaluation, retriever, k),
    }


def _interval(evaluation: Evaluation, retriever: str, k: int) -> tuple[float | None, float | None]:
    """The scorecard's interval of evidence recall, where the scorecard has intervals."""
    score = evaluation.frame("scorecard")
    if not {"mean_low", "mean_high"} <= set(score.columns):
        return None, None
    found = score.filter(
        (pl.col("stage") == "retrieval") & (pl.col("metric") == "recall") & (pl.col("unit") == "evidence")
        & (pl.col("retriever") == retriever) & (pl.col("k") == k) & (pl.col("slice_name") == "all")
    )  # fmt: skip
    return (found["mean_low"][0], found["mean_high"][0]) if found.height == 1 else (None, None)


def gate_of(evaluation: Evaluation) -> dict[str, Any]:
    """What the release gate says of the evaluation: verdict, findings that decide it first, and what to do."""
    try:
        gated = gating.judge(evaluation.home, evaluation.manifest.key, evaluation_id=evaluation.manifest.evaluation_id)
    except CorpusError as error:
        reason = f"corpus.yaml is wrong now, so nobody knows the rules: {error}"
        return {"verdict": "missing_evidence", "findings": [], "refusals": [reason], "steps": [], "baseline": ""}
    return {
        "verdict": gated.decision.verdict,
        "findings": gating.findings(gated).to_dicts(),
        "refusals": list(gated.decision.refusals),
        "steps": gating.what_to_do(gated),
        "baseline": gated.baseline,
    }


def repairs_of(evaluation: Evaluation, retriever: str, k: int) -> dict[str, dict[str, Any]]:
    """Rows of `stage_repairs` by stage, in order; empty where repairs were not run."""
    if "stage_repairs" not in evaluation.manifest.tables:
        return {}
    frame = evaluation.frame("stage_repairs").filter((pl.col("retriever") == retriever) & (pl.col("k") == k))
    return {row["stage"]: row for row in frame.sort("position", "stage").iter_rows(named=True)}


def _players(repairs: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {stage: row for stage, row in repairs.items() if row["kind"] == "stage"}


def _repair_cells(repair: Mapping[str, Any] | None) -> dict[str, Any]:
    """A repair as a reader sees it; empty cells where there is none."""
    if repair is None or repair["recovered_recall"] is None:
        return {"recovered": "", "marginal": "", "shapley": "", "repairable": "", "hurt": None}
    marginal, shapley = repair["marginal_recall"], repair["shapley"]
    lost, mended = repair["n_lost"], repair["n_repairable"]
    bound = "≥ " if lost is not None and mended is not None and mended < lost else ""
    return {
        "recovered": bound + given_back(repair),
        "marginal": "" if marginal is None else signed(marginal),
        "shapley": "" if shapley is None else signed(shapley),
        "repairable": "" if lost is None or mended is None else f"{mended} of {lost}",
        "hurt": repair["queries_hurt"],
    }


def change(evaluation: Evaluation, retriever: str, k: int) -> dict[str, Any] | None:
    """What changed since the baseline; None where no comparison with it was made."""
    comparison = _comparison(evaluation)
    if comparison is None:
        return None
    frames = {
        name: _compared(evaluation, comparison, name).filter((pl.col("retriever") == retriever) & (pl.col("k") == k))
        for name in ("version_recall", "version_regressions")
    }
    recall = frames["version_recall"]
    groups = version_diff(frames["version_regressions"]).filter(pl.col("state") != "kept").to_dicts()
    newly = frames["version_regressions"].filter(pl.col("state") == "newly_lost")
    return {
        "against": comparison.key_before,
        "against_id": comparison.evaluation_before,
        "recall": recall.row(0, named=True) if recall.height else None,
        "groups": [row | {"says": CHANGES.get(row["state"], row["state"])} for row in groups[:CHANGED_ROWS]],
        "more": max(len(groups) - CHANGED_ROWS, 0),
        "newly_lost": newly.select("query_id", "evidence_id", "stage_now", "doc_id").sort("query_id", "evidence_id").to_dicts(),
        "stages": _changed_stages(frames["version_regressions"]),
    }  # fmt: skip


def _changed_stages(regressions: pl.DataFrame) -> list[str]:
    """Rooms that changed, with the parts that did; what is not known of old evaluations is left out."""
    named = {stage for stages in regressions["changed_stages"].to_list() for stage in stages or []}
    return sorted(stage for stage in named if not stage.endswith("unknown"))


def _comparison(evaluation: Evaluation) -> Comparison | None:
    """The stored comparison of this evaluation with its baseline, else the newest one."""
    mine = [
        c
        for c in Manifests(evaluation.home.manifests).comparisons()
        if c.evaluation_id == evaluation.manifest.evaluation_id
    ]
    chosen = baseline(evaluation.home, evaluation.manifest).manifest
    against = [c for c in mine if chosen is not None and c.evaluation_before == chosen.evaluation_id]
    found = against or sorted(mine, key=lambda c: c.made)[-1:]
    return found[0] if found else None


def _compared(evaluation: Evaluation, comparison: Comparison, name: str) -> pl.DataFrame:
    store, entry = Store(evaluation.home.store), comparison.tables[name]
    return store.read(Stored(name, store.path_of(entry["path"]), entry["content_hash"], entry["rows"]))


def _causes(lost: pl.DataFrame) -> dict[str, list[tuple[str, int]]]:
    counted = lost.group_by("first_loss_stage", "cause").len().sort(["len", "cause"], descending=[True, False])
    found: dict[str, list[tuple[str, int]]] = {}
    for stage, cause, count in counted.iter_rows():
        found.setdefault(stage, []).append((cause or "", count))
    return found


def _degraded(evaluation: Evaluation, retriever: str) -> dict[str, int]:
    """Units that a stage still holds, but changed elsewhere or split."""
    ledger = evaluation.frame("evidence_ledger").filter(
        (pl.col("state") == "degraded") & pl.col("retriever").is_in(["", retriever])
    )
    eligible = evaluation.frame("evidence_units").filter("eligible").select("query_id", "evidence_id")
    counted = ledger.join(eligible, on=["query_id", "evidence_id"], how="semi").group_by("stage").len()
    return dict(counted.iter_rows())


def _slices(evaluation: Evaluation, retriever: str, k: int) -> list[dict[str, Any]]:
    """Recall of each slice, and where it lost most."""
    frame = evaluation.frame("loss_waterfall").filter(
        (pl.col("retriever") == retriever)
        & (pl.col("k") == k)
        & (pl.col("slice_name") != "all")
        & ~pl.col("stage").is_in(AFTER)
    )
    rows = []
    for (name, value), group in frame.sort("slice_name", "slice_value", "position").group_by(
        "slice_name", "slice_value", maintain_order=True
    ):
        worst = group.sort("lost_recall", descending=True, maintain_order=True).row(0, named=True)
        rows.append(
            {
                "name": name,
                "value": value,
                "recall": worst["recall"],
                "units": worst["n_units"],
                "queries": worst["n_queries"],
                "stage": worst["stage"] if worst["lost_units"] else "",
                "lost": worst["lost_recall"],
                "lost_units": worst["lost_units"],
            }
        )
    return rows


def _documents(lost: pl.DataFrame) -> list[dict[str, Any]]:
    """Documents whose evidence was lost most, with the stages and queries."""
    order = {stage: number for number, stage in enumerate(STAGES)}
    grouped = (
        lost.sort("query_id")
        .group_by("doc_id")
        .agg(
            pl.len().alias("units"),
            pl.col("query_id").unique(maintain_order=True).alias("queries"),
            pl.struct("first_loss_stage", "cause").alias("losses"),
        )
        .sort(["units", "doc_id"], descending=[True, False])
    )
    rows = []
    for row in grouped.head(DOCUMENTS).iter_rows(named=True):
        pairs = sorted(
            {(r["first_loss_stage"], r["cause"] or "") for r in row["losses"]}, key=lambda p: order.get(p[0], 99)
        )
        rows.append({"doc_id": row["doc_id"], "units": row["units"], "queries": row["queries"], "losses": pairs})
    return rows


def _questions(evaluation: Evaluation, queries: Sequence[str]) -> dict[str, str]:
    asked = evaluation.frame("prepared_queries").filter(pl.col("query_id").is_in(list(queries)))
    return dict(asked.select("query_id", "text").iter_rows())


def _plain_story(page: QueryPage) -> dict[str, Any]:
    """A story as plain data; passages are escaped here, since they are hidden by place already."""
    told = asdict(page)
    told["lost"] = [unit.story.evidence_id for unit in page.lost]
    for unit in told["units"]:
        unit["nowhere"] = not any(
            rank for place in unit["places"] for name, rank in place.items() if name != "retriever"
        )
        for end in unit["story"]["ends"]:
            end["why"] = why(end["stage"], end["cause"])
        for excerpt in unit["excerpts"]:
            for part in excerpt["parts"]:
                part["text"] = escape(part["text"])
    return told


def _scorecard(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Every measure over all items."""
    score = evaluation.frame("scorecard").filter(pl.col("slice_name") == "all")
    for name in ("mean_low", "mean_high"):
        if name not in score.columns:
            score = score.with_columns(pl.lit(None, dtype=pl.Float64).alias(name))
    rooms = {stage.name: number for number, stage in enumerate(MEASURED)}
    rows = score.sort(
        pl.col("stage").replace_strict(rooms, default=len(rooms), return_dtype=pl.Int64),
        "metric", "retriever", "unit", "k", "params",
    ).to_dicts()  # fmt: skip
    return [row | {"given": _given(row["params"])} for row in rows]


def _given(params: str) -> str:
    given = json.loads(params)
    mark = ["uncalibrated"] if given.pop("calibrated", None) is False else []
    return ", ".join([*(f"{name} {value}" for name, value in sorted(given.items())), *mark])


def _coverage(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Measures that lack a value for some items, grouped where the reasons are the same."""
    score = evaluation.frame("scorecard").filter(
        (pl.col("slice_name") == "all") & (pl.col("n_valued") < pl.col("n_expected"))
    )
    grouped = (
        score.sort("metric")
        .group_by("stage", "item_type", "n_expected", "n_valued", "n_by_status", maintain_order=True)
        .agg(pl.col("metric").unique(maintain_order=True).alias("metrics"))
        .sort("stage", "item_type", "n_valued", "n_by_status")
    )
    return [
        row | {"reasons": {name: count for name, count in json.loads(row["n_by_status"]).items() if name != "scored"}}
        for row in grouped.iter_rows(named=True)
    ]


def _statuses(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Documents that a stage did not handle: table, status, count."""
    rows = []
    for name in ("documents", "parsed", "cleaned", "masked"):
        counted = evaluation.frame(name).filter(pl.col("status") != "ok").group_by("status").len().sort("status")
        rows += [{"table": name, "status": status, "documents": count} for status, count in counted.iter_rows()]
    return rows


def _provenance(manifest: Manifest) -> list[tuple[str, str]]:
    return [
        ("evaluation", manifest.evaluation_id),
        ("started", manifest.started),
        ("documents, hash", manifest.documents_hash),
        ("gold, hash", manifest.gold_hash),
        ("git revision", manifest.git_revision or "not in a checkout"),
        *sorted(manifest.versions.items()),
        *((f"{stage} (pipeline_id)", id_) for stage, id_ in sorted(manifest.ids.items())),
    ]


# Hiding and escaping ---------------------------------------------------------------------------------------------------


def _hide(value: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """The same data without personal strings; markup was hidden where it was made."""
    strings = sorted(set(_strings(value)))
    hidden = dict(zip(strings, redactor.column(pl.Series(strings, dtype=pl.String)), strict=True))
    return {name: _mapped(inner, hidden.__getitem__) for name, inner in value.items()}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str) and not isinstance(value, Markup):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return value if isinstance(value, Markup) else change(value)
    if isinstance(value, Mapping):
        return {name: _mapped(inner, change) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_mapped(inner, change) for inner in value)
    return value


def slug(text: str) -> str:
    """A name for an anchor: letters, digits, `-` and `_`; ids that lose something thereby end with a hash."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text)
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


MARKS = {
    "kept": ("mark", "kept", "evidence"),
    "other": ("ins", "other", "read instead"),
    "gone": ("del", "gone", "missing"),
    "hidden": ("span", "hidden", "personal data"),
    "skip": ("span", "faint", ""),
}


def _passage(parts: Sequence[Mapping[str, Any]]) -> Markup:
    """A passage with its marks."""
    drawn = []
    for part in parts:
        if part["mark"] == "cut":
            drawn.append(
                Markup('<span class="cut" title="edge of a chunk">✂<span class="sr"> edge of a chunk </span></span>')
            )
        elif part["mark"] in MARKS:
            tag, name, title = MARKS[part["mark"]]
            about = Markup(' title="{}"').format(title) if title else Markup("")
            drawn.append(Markup('<{0} class="{1}"{2}>{3}</{0}>').format(Markup(tag), name, about, part["text"]))  # noqa: S704
        else:
            drawn.append(escape(part["text"]))
    return Markup("").join(drawn)
