"""How far a judge may be believed on this corpus: its judgments against people's, by slice, and what follows from it.

Here: judgments and labels joined, agreement, thresholds, the corrected rate, and whether a judge counts as calibrated. Not here: the
formulas (`measures.agreement`, `measures.powered`), who judged (the judging room).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from rag_eval_pipeline.judging.families import kinship
from rag_eval_pipeline.judging.human import HumanVerdicts
from rag_eval_pipeline.judging.rubrics import CITATION, NUGGET, REFUSAL
from rag_eval_pipeline.judging.verifiers import Passage
from rag_eval_pipeline.measures.agreement import Agreement, agreement
from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.text.claims import Claim

LEAST = 30
"""Items that people and the judge both judged, at least, for it to count as calibrated."""
CALIBRATION = "calibration"
"""The split on which thresholds are chosen."""
SLICES = ("split", "intent", "language", "answerable", "kinship")
ITEMISED = (CITATION.id, NUGGET.id)
"""Rubrics that say nothing of an answer as a whole."""
BESIDE_CLAIMS = (*ITEMISED, REFUSAL.id)
"""Rubrics of what people's labels of claims say nothing of: no judge is calibrated in them."""
UNCALIBRATED = '"calibrated": false'
"""As it stands in the parameters of a figure."""
Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Item:
    """One judgment of a judge beside people's.

    Attributes:
        item_id: answer and claim, or the answer.
        query_id: of the answer.
        cluster: of the query.
        found: the judge's label; None: it failed.
        people: theirs; None: nobody labelled it.
        score: the judge's, where higher is better; None where it has none.
        slices: slice -> value.
    """

    item_id: str
    query_id: str
    cluster: str
    found: str | None
    people: str | None
    score: float | None
    slices: Mapping[str, str]


def claim_items(frames: Frames, queries: pl.DataFrame, verdicts: pl.DataFrame) -> dict[str, list[Item]]:
    """Verifier -> its verdicts on the first answer of each query.

    Args:
        frames: `answers`, `answer_claims`, `claim_verdicts`.
        queries: of gold.
        verdicts: of gold.
    """
    people = _people(frames, verdicts)
    about = _about(frames, queries)
    found: dict[str, list[Item]] = {}
    rows = frames["claim_verdicts"].sort("verifier", "answer_id", "claim_id")
    for answer, claim, verifier, label, score in rows.select(
        "answer_id", "claim_id", "verifier", "label", "score"
    ).iter_rows():
        if answer in about:
            made = found.setdefault(verifier, [])
            # A probability of being contradicted says nothing of how near to supported a claim is.
            rating = score if label != "contradicted" else None
            made.append(_item(f"{answer}/{claim}", about[answer], verifier, label, people.get((answer, claim)), rating))
    return found


def answer_items(frames: Frames, queries: pl.DataFrame, verdicts: pl.DataFrame) -> dict[tuple[str, str], list[Item]]:
    """(Judge, rubric) -> its judgments of the first answer of each query, as pass or fail.

    Rubrics of citations, facts and refusals are left out: people label claims. For people an answer passes
    where all its claims are supported, and fails where one is not; else they said nothing of it.
    """
    said: dict[str, list[str | None]] = {}
    people = _people(frames, verdicts)
    for answer, claim in frames["answer_claims"].select("answer_id", "claim_id").iter_rows():
        said.setdefault(answer, []).append(people.get((answer, claim)))
    about = _about(frames, queries)
    found: dict[tuple[str, str], list[Item]] = {}
    rows = frames["judge_evals"].filter(~pl.col("rubric").is_in(BESIDE_CLAIMS)).sort("judge", "rubric", "answer_id")
    for answer, judge, rubric, fails, score in rows.select(
        "answer_id", "judge", "rubric", "is_unsatisfactory", "score"
    ).iter_rows():
        if answer in about:
            label = None if fails is None else "fail" if fails else "pass"
            rating = None if score is None else float(score)
            item = _item(answer, about[answer], judge, label, _whole(said.get(answer, [])), rating)
            found.setdefault((judge, rubric), []).append(item)
    return found


def _whole(labels: Sequence[str | None]) -> str | None:
    if any(label is not None and label != "supported" for label in labels):
        return "fail"
    return "pass" if labels and all(labels) else None


def _people(frames: Frames, verdicts: pl.DataFrame) -> dict[tuple[str, str], str]:
    """(Answer, claim) -> what most annotators said."""
    human = HumanVerdicts(verdicts.iter_rows(named=True))
    judged = set(human.answers)
    found: dict[tuple[str, str], str] = {}
    for answer, claim, text in frames["answer_claims"].select("answer_id", "claim_id", "text").iter_rows():
        if answer in judged:
            label = human.of(answer).verify([Claim(claim, text)], [Passage("", "")])[0].label
            if label is not None:
                found[answer, claim] = label
    return found


def _about(frames: Frames, queries: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Answer -> its query, slices and model; first answers alone."""
    first = frames["answers"].filter(pl.col("sample") == 1).select("answer_id", "query_id", "model")
    known = queries.select("query_id", "split", "intent", "language", "answerable", "cluster_id")
    return {row["answer_id"]: row for row in first.join(known, on="query_id").iter_rows(named=True)}


def _item(
    name: str, about: Mapping[str, Any], judge: str, found: str | None, people: str | None, score: float | None
) -> Item:
    values = {key: about[key] for key in ("split", "intent", "language", "answerable")}
    slices = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in values.items()
        if value is not None
    }
    slices["kinship"] = kinship(judge, about["model"])
    return Item(name, about["query_id"], about["cluster_id"] or about["query_id"], found, people, score, slices)


def agreed(items: Sequence[Item], passes: Collection[str] = ("supported", "pass")) -> Agreement:
    """Agreement over labelled items, with clusters of queries.

    Raises:
        Unmeasured: `no_gold`.
    """
    return agreement([i.found for i in items], [i.people for i in items], passes, [i.cluster for i in items])


def by_slice(items: Sequence[Item]) -> Iterable[tuple[str, str, list[Item]]]:
    """All items, then those of each slice: name, value, items."""
    yield "all", "all", list(items)
    for name in SLICES:
        for value in sorted({item.slices[name] for item in items if name in item.slices}):
            yield name, value, [item for item in items if item.slices.get(name) == value]


# --- thresholds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Threshold:
    """Least score that passes, chosen where κ with people is best; of equals the strictest.

    Attributes:
        value: the score.
        kappa: on the items it was chosen on: too good, look at others.
        n: those items.
    """

    value: float
    kappa: float
    n: int


def choose_threshold(items: Sequence[Item]) -> Threshold:
    """The threshold that agrees best with people on the calibration split.

    Raises:
        Unmeasured: `no_calibration_split`: nothing labelled with a score is in it; `one_class`: no threshold can agree beyond
            chance there.
    """
    chosen = [i for i in items if i.slices.get("split") == CALIBRATION and i.people and i.found]
    if not any(item.score is not None for item in chosen):
        raise Unmeasured("no_calibration_split")
    best: tuple[float, float] | None = None
    for value in sorted({item.score for item in chosen if item.score is not None}):
        kappa = _kappa(chosen, value)
        if kappa is not None and (best is None or (kappa, value) >= best):
            best = kappa, value
    if best is None:
        raise Unmeasured("one_class")
    return Threshold(best[1], best[0], len(chosen))


def at(items: Sequence[Item], threshold: float) -> list[Item]:
    """Items outside the calibration split, with pass or fail by score on both sides' terms."""
    rest = [item for item in items if item.slices.get("split") != CALIBRATION]
    return [replace(item, found=_passes(item, threshold), people=_two(item.people)) for item in rest]


def _passes(item: Item, threshold: float) -> str | None:
    if item.found is None:
        return None
    return "pass" if item.score is not None and item.score >= threshold else "fail"


def _two(label: str | None) -> str | None:
    return None if label is None else "pass" if label in ("supported", "pass") else "fail"


def _kappa(items: Sequence[Item], threshold: float) -> float | None:
    """Cohen's κ of two classes by its counts; None where chance alone agrees always."""
    pairs = [(_two(item.people) == "pass", _passes(item, threshold) == "pass") for item in items]
    n = len(pairs)
    observed = sum(a == b for a, b in pairs) / n
    one, other = sum(a for a, _ in pairs) / n, sum(b for _, b in pairs) / n
    chance = one * other + (1 - one) * (1 - other)
    return None if chance >= 1 - 1e-12 else (observed - chance) / (1 - chance)


# --- who counts --------------------------------------------------------------------------------------------------------


def why_uncalibrated(items: Sequence[Item]) -> str | None:
    """Why a judge is not calibrated on this corpus, and what to do; None where it is."""
    try:
        found = agreed(items)
    except Unmeasured:
        return f"nobody labelled what it judged; write verdicts.jsonl for at least {LEAST} claims"
    if found.n_both < LEAST:
        return f"{found.n_both} labelled items that it judged; label at least {LEAST}"
    if found.kappa is None:
        return "one label throughout, so agreement by chance is certain; label items of other classes, too"
    return None


def calibrated(frames: Frames, queries: pl.DataFrame, verdicts: pl.DataFrame) -> dict[str, bool]:
    """Verifier or judge -> whether it is calibrated on this corpus. A judge of answers needs all its rubrics calibrated."""
    found = {name: why_uncalibrated(items) is None for name, items in claim_items(frames, queries, verdicts).items()}
    for (judge, rubric), items in answer_items(frames, queries, verdicts).items():
        found[f"{judge} {rubric}"] = why_uncalibrated(items) is None
    return found


def labelled(rows: pl.DataFrame, known: Callable[[], Mapping[str, bool]]) -> pl.DataFrame:
    """Measured rows with `calibrated` among the parameters of every figure that stands on a verifier or judge.

    Who is not known is not calibrated. The lexical verifier is no exception; people are.

    Args:
        rows: of a room's `measure`.
        known: gives who is calibrated; asked only where a figure stands on anybody.
    """
    speaking = pl.col("params").str.contains('"(verifier|judge|assigner)"')
    texts = rows.filter(speaking)["params"].unique().to_list()
    if not texts:
        return rows
    names = known()
    return rows.with_columns(pl.col("params").replace({text: _with_mark(text, names) for text in texts}))


def _with_mark(params: str, known: Mapping[str, bool]) -> str:
    given = json.loads(params)
    name = given.get("verifier") or given.get("assigner") or f"{given['judge']} {given.get('rubric', '')}"
    if name == "human":
        return params
    return json.dumps({**given, "calibrated": bool(known.get(name, False))}, sort_keys=True)
