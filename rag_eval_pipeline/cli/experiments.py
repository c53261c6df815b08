"""Commands that experiment: `inject`, `score-attribution`, `render`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
import typer
from rich.table import Table as RichTable

from rag_eval_pipeline.cli import app, console, plain
from rag_eval_pipeline.warehouse.home import Home

if TYPE_CHECKING:
    from rag_eval_pipeline.release.reading import Evaluation

Frame = Callable[[str], pl.DataFrame]


@app.command()
def inject(
    key: Annotated[str, typer.Argument(help="a healthy version that is evaluated", show_default=False)],
    seed: Annotated[int, typer.Option(help="other seed, other places")],
    target: Annotated[str, typer.Option("--as", help="VERSION or VERSION#pipeline of the twin")],
    faults: Annotated[Path | None, typer.Option(help="YAML: faults: {kind: {rate: 0.1}}; default: every kind")] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="two kinds on each unit; makes two more twins")] = False,
) -> None:
    """Make a faulty twin of an evaluated version: known faults, and as many decoys beside the evidence."""
    import yaml

    from rag_eval_pipeline.corpus.keys import Key
    from rag_eval_pipeline.experiments.injector.plan import FaultsError, read_faults
    from rag_eval_pipeline.experiments.injector.twin import inject as make
    from rag_eval_pipeline.release.reading import Evaluation

    home = Home.find()
    healthy = Key.parse(key)
    wanted = None
    if faults is not None:
        try:
            wanted = read_faults(yaml.safe_load(faults.read_text("utf-8")))
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
            raise FaultsError(
                f"{faults} is no YAML in UTF-8 ({type(error).__name__}); write `faults: {{kind: {{rate: 0.1}}}}`"
            ) from None
    evaluation = Evaluation.latest(home, healthy.text)
    twin = make(
        home,
        healthy,
        evaluation.frame,
        evaluation.manifest.evaluation_id,
        target,
        seed=seed,
        faults=wanted,
        pairs=pairs,
    )
    real = [plant for plant in twin.plants if not plant.decoy]
    console.print(f"made {twin.key.text}: {len(real)} faults, {len(twin.plants) - len(real)} decoys")
    for kind, why in sorted(twin.info.left_out.items()):
        console.print(f"[yellow]{kind}:[/] {plain(why)}", highlight=False, soft_wrap=True)
    console.print(f"manifest: {plain(twin.manifest)}", soft_wrap=True)
    keys = [twin.key.text, *twin.info.alone]
    console.print("next: " + ", ".join(f"rag-eval run {one}" for one in keys), soft_wrap=True)
    console.print(
        f"then: rag-eval score-attribution {twin.key.text} --healthy {healthy.text} --json OUT", soft_wrap=True
    )


@app.command("score-attribution")
def score_attribution(
    key: Annotated[str, typer.Argument(help="a twin that is evaluated", show_default=False)],
    healthy: Annotated[str, typer.Option(help="the version that it is a twin of")],
    manifest: Annotated[Path | None, typer.Option(help="plants.jsonl; default: where inject wrote it")] = None,
    out: Annotated[Path | None, typer.Option("--json", help="write all scores, misses with them")] = None,
) -> None:
    """Compare the ledger's blame with what was planted."""
    from rag_eval_pipeline.corpus.keys import Key
    from rag_eval_pipeline.experiments.manifest import PLANTS, folder_of, read_info, read_plants
    from rag_eval_pipeline.experiments.scoring import halves, score

    home = Home.find()
    path = manifest or folder_of(home.root, Key.parse(key)) / PLANTS
    plants = read_plants(path)
    info = read_info(path.parent)
    alone = [_evaluated(home, one) for one in info.alone] if info else []
    there = [frame for frame in alone if frame is not None]
    both = list(zip(there, halves(plants), strict=True)) if len(there) == 2 else []
    if info and info.alone and not both:
        console.print(
            f"[yellow]pairs:[/] {', '.join(info.alone)} are not evaluated, so either planted stage counts as right",
            highlight=False,
        )
    if info and info.evaluation_id != (newest := _evaluation(home, healthy).manifest.evaluation_id):
        console.print(
            f"[yellow]{healthy}:[/] the twin was made of evaluation {info.evaluation_id}, the newest is {newest}; run both "
            "again if code, labels or settings changed in between",
            highlight=False,
            soft_wrap=True,
        )
    scores = score(_latest(home, healthy), _latest(home, key), plants, both)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(scores, indent=2, ensure_ascii=False) + "\n", "utf-8")
    _show(key, scores)


def _evaluation(home: Home, key: str) -> Evaluation:
    from rag_eval_pipeline.release.reading import Evaluation

    return Evaluation.latest(home, key)


def _latest(home: Home, key: str) -> Frame:
    return _evaluation(home, key).frame


def _evaluated(home: Home, key: str) -> Frame | None:
    from rag_eval_pipeline.release.reading import NoEvaluationError

    try:
        return _latest(home, key)
    except NoEvaluationError:
        return None


def _show(key: str, scores: dict[str, Any]) -> None:
    table = RichTable(title=f"blame and plant, {key}")
    for name in ("kind", "must be blamed", "plants", "changing", "rows", "right", "accuracy", "blamed"):
        table.add_column(name)
    for kind, one in scores["by_kind"].items():
        verdict = scores["whole"].get(kind)
        rows, right = (verdict["rows"], verdict["right_rows"]) if verdict else (one["rows"], one["right"])
        blamed = ", ".join(
            f"{stage} {count}" for stage, count in (verdict["stages"] if verdict else one["blamed"]).items()
        )
        table.add_row(
            kind, one["stage"], str(one["n_plants"]), str(one["n_changing"]), str(rows), str(right),
            _percent(right / rows if rows else None), blamed,
        )  # fmt: skip
    console.print(table)
    console.print(
        f"accuracy {_percent(scores['accuracy'])} of {scores['n_scored']} rows; pairs {_percent(scores['pair_accuracy'])} of "
        f"{scores['n_pair_rows']}; false blame {_percent(scores['false_blame'])} of {scores['n_changed']} changed rows; "
        f"decoys moved {scores['decoys_moved']} units of {scores['n_decoys']} decoys; "
        f"{len(scores['unchanged'])} of {scores['n_plants']} faults changed no unit",
        soft_wrap=True,
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f} %"


@app.command()
def render(
    key: Annotated[str, typer.Argument(help="a version of text documents", show_default=False)],
    target: Annotated[str, typer.Option("--as", help="CORPUS@VERSION to write")],
    medium: Annotated[str, typer.Option(help="pdf | scan | html")],
    chars: Annotated[int, typer.Option(help="about so many characters a document")] = 5000,
    documents: Annotated[int | None, typer.Option(help="most documents")] = None,
    queries: Annotated[int, typer.Option(help="most queries a document")] = 6,
    dpi: Annotated[int, typer.Option(help="of scanned pages")] = 150,
    seed: Annotated[int, typer.Option(help="other seed, other documents and queries")] = 0,
) -> None:
    """Print a plain-text corpus as PDF, scanned pages or HTML, its texts as transcripts: where parsing faults can act."""
    from rag_eval_pipeline.corpus.keys import Key
    from rag_eval_pipeline.experiments.render import render as make

    made = Key.parse(target)
    counts = make(
        Home.find().corpora, Key.parse(key), made, medium, chars=chars, documents=documents, queries=queries, dpi=dpi,
        seed=seed,
    )  # fmt: skip
    console.print(f"made {made.subject}: {counts[0]} documents, {counts[1]} queries; next: rag-eval run {made.subject}")
