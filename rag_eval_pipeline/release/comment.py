"""The report in short, as Markdown for a pull request's comment. What is shown at length stands in `report`."""

from __future__ import annotations

import re
from typing import Any

from rag_eval_pipeline.attribution.order import AFTER
from rag_eval_pipeline.attribution.story import short, why
from rag_eval_pipeline.release.pictures.waterfall import given_back, signed
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.release.report import headline, repairs_of, waterfall_rows
from rag_eval_pipeline.release.stories import lost_queries

ROWS = 20
BAR = 20
_LIVE = re.compile(r"([\\`*_{}\[\]<>#|~!@&])")
"""What Markdown, HTML or a code host would act on: text of documents and queries acts on nothing."""


def markdown_report(evaluation: Evaluation) -> str:
    """Headline, rules, change, waterfall, and the first lost pieces of evidence."""
    told = headline(evaluation)
    redactor = evaluation.redactor
    lines = [f"### {plain(evaluation.manifest.key)}: recall@{told['k']} {told['recall']:.3f}", ""]
    lines += [*_verdict(told), "", *_waterfall(evaluation, told["retriever"], told["k"]), ""]
    lines += _changes(told) + _lost(evaluation, told["retriever"], told["k"])
    lines.append(f"<sub>evaluation {evaluation.manifest.evaluation_id}, gold {evaluation.manifest.gold_hash[:12]}, "
                 f"{evaluation.manifest.started}</sub>")  # fmt: skip
    return redactor.text("\n".join(lines) + "\n")


def plain(text: object) -> str:
    """Text that Markdown shows as it is, in one line."""
    return (
        _LIVE.sub(r"\\\1", " ".join(str(text).split()))
        .replace("\\@", "@\u200b")
        .replace("\\<", "&lt;")
        .replace("\\>", "&gt;")
    )


def _verdict(told: dict[str, Any]) -> list[str]:
    lost = told["n_units"] - told["n_served"]
    interval = (
        f" (95 % interval {told['recall_low']:.3f} to {told['recall_high']:.3f})"
        if told["recall_low"] is not None
        else ""
    )
    lines = [
        f"**{told['n_served']} of {told['n_units']}** labelled pieces of evidence are in the first {told['k']} items of "
        f"{plain(told['retriever'])}{interval}; **{lost}** were lost"
        + (": " + ", ".join(f"{row['stage']} {row['units']}" for row in told["worst"]) if told["worst"] else "")
        + "."
    ]
    if not told["books_ok"]:
        lines.append("**The books do not balance: read no figure before that is mended.**")
    change = told["change"]
    if change and change["recall"] and change["recall"]["delta"] is not None:
        row = change["recall"]
        between = f" (95 % interval {signed(row['low'])} to {signed(row['high'])})" if row["low"] is not None else ""
        lines.append(
            f"Since {plain(change['against'])}: **{signed(row['delta'])}**{between}; {row['newly_lost']} newly lost, "
            f"{row['recovered']} recovered."
        )
    gate = told["gate"]
    lines += ["", f"Release gate: **{gate['verdict'].replace('_', ' ')}**"]
    lines += [f"- not decided: {plain(reason)}" for reason in gate["refusals"]]
    lines += [
        f"- {'✓' if f['verdict'] == 'pass' else '✗'} {f['verdict'].replace('_', ' ')}: {plain(f['figure'])} "
        f"{plain(f['limit'])}: {plain(f['why'])}"
        for f in gate["findings"]
    ]
    return lines


def _waterfall(evaluation: Evaluation, retriever: str, k: int) -> list[str]:
    repairs = repairs_of(evaluation, retriever, k)
    head = "| stage | possible after it | | lost recall | units |" + (" given back |" if repairs else "")
    lines = [head, "| --- | ---: | --- | ---: | ---: |" + (" ---: |" if repairs else "")]
    for row in waterfall_rows(evaluation, retriever, k):
        if row["stage"] in AFTER or (row["stage"] == "unanchored" and not row["lost_units"]):
            continue
        full = round(max(0.0, min(1.0, row["ceiling_after"])) * BAR)
        lost = f"−{row['lost_recall']:.3f} | {row['lost_units']}" if row["lost_units"] else " | "
        line = f"| {row['stage']} | {row['ceiling_after']:.3f} | `{'█' * full}{'░' * (BAR - full)}` | {lost} |"
        if repairs:
            repair = repairs.get(row["stage"])
            line += f" {given_back(repair) if repair and repair['recovered_recall'] is not None else ''} |"
        lines.append(line)
    return lines


def _changes(told: dict[str, Any]) -> list[str]:
    groups = [
        row for row in (told["change"] or {"groups": []})["groups"] if row["state"] in {"newly_lost", "recovered"}
    ]
    if not groups:
        return []
    lines = ["| now | stage | cause | document | look at | units |", "| --- | --- | --- | --- | --- | ---: |"]
    for row in groups[:ROWS]:
        cells = (row["says"], row["stage"], row["cause"], row["document_change"], row["points_at"], row["units"])
        lines.append("| " + " | ".join(plain("" if cell is None else cell) for cell in cells) + " |")
    return [*lines, ""]


def _lost(evaluation: Evaluation, retriever: str, k: int) -> list[str]:
    lost = lost_queries(evaluation, retriever, k)
    if lost.is_empty():
        return ["No piece of evidence was lost.", ""]
    asked = dict(evaluation.frame("prepared_queries").select("query_id", "text").iter_rows())
    lines = [f"<details><summary>{lost.height} lost pieces of evidence</summary>", "",
             "| query | question | lost at | because | document |", "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for row in lost.head(ROWS).iter_rows(named=True):
        question = short(evaluation.redactor.text(asked.get(row["query_id"]) or ""), 90)
        cells = (
            row["query_id"],
            question,
            row["first_loss_stage"],
            why(row["first_loss_stage"], row["cause"]),
            row["doc_id"],
        )
        lines.append("| " + " | ".join(plain(cell) for cell in cells) + " |")
    if lost.height > ROWS:
        key = evaluation.manifest.key
        lines += [
            "",
            f"{lost.height - ROWS} more: `rag-eval losses {key}`; one at length: `rag-eval fate {key} QUERY_ID`",
        ]
    return [*lines, "", "</details>", ""]
