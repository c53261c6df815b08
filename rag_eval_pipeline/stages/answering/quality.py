"""How good answers are: was the evidence there, was it used, is it cited, is the answer right, should it have refused.

Three questions with a denominator each; none is a stand-in for another. The measures themselves stand in `measures`; here they meet
the tables. Support and citations of one answer: `supporting`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.judging.lexical import LexicalVerifier
from rag_eval_pipeline.judging.rubrics import CITATION, NUGGET
from rag_eval_pipeline.judging.verifiers import Passage
from rag_eval_pipeline.measures.agreement import self_consistency
from rag_eval_pipeline.measures.answers import nugget_scores
from rag_eval_pipeline.measures.availability import evidence_availability
from rag_eval_pipeline.measures.calibration import Binning, brier, ece
from rag_eval_pipeline.measures.correctness import (
    exact_match,
    negation_agreement,
    normalise_answer,
    numeric_agreement,
    token_f1,
)
from rag_eval_pipeline.measures.evidence import hold_rank
from rag_eval_pipeline.measures.metric import Metric, Unmeasured
from rag_eval_pipeline.measures.refusing import why_refuse
from rag_eval_pipeline.measures.shares import Share
from rag_eval_pipeline.stages.answering.evidence import deciding
from rag_eval_pipeline.stages.answering.opinions import assignments, judge_of, judged_citations
from rag_eval_pipeline.stages.answering.supporting import (
    citation_facts,
    figure,
    must_assert,
    unseen_flag,
    verified,
)
from rag_eval_pipeline.stages.answering.transform import AnsweringConfig
from rag_eval_pipeline.stages.answering.views import Row, View, views
from rag_eval_pipeline.text.claims import Claim, has_text
from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.warehouse.measurement import measurement, measurements

METRICS: tuple[Metric, ...] = (
    Metric("evidence_availability", "Share of the gold claims with a supporting id in what the answer was given; @k: in the first k of the list", "higher"),
    Metric("evidence_used", "Share of the evidence in the context that the answer cites or stands on", "higher"),
    Metric("faithfulness", "Share of an answer's claims that the verifier found supported by its context", "higher"),
    Metric("unsupported_evidence_absent", "Share of claims not supported, where the context had no evidence", "lower"),
    Metric("unsupported_evidence_ignored", "Share of claims not supported, though the context had evidence", "lower"),
    Metric("atomic_facts", "As faithfulness, what is repeated or trivial counted once", "higher"),
    Metric("asserted_without_support", "1 where an answer asserts something that is not supported", "lower"),
    Metric("citation_precision", "Cited passages that support / cited; invented ones support nothing", "higher"),
    Metric("citation_recall", "Claims with a cited passage that supports them / claims", "higher"),
    Metric("dangling_citations", "Citations of what the answer was not given", "lower", high=math.inf, unit="citations"),
    Metric("citation_coverage", "Passages of the context that are cited / passages", "neither"),
    Metric("sources_shown", "1 where an answer names a source that it was given", "higher"),
    Metric("unseen_entities", "1 where a name in the answer stands nowhere in its context: a flag, never grounding", "lower"),
    Metric("unseen_entities_precision", "Of answers with that flag, those with a claim that is not supported", "higher"),
    Metric("unseen_entities_recall", "Of answers with a claim that is not supported, those with that flag", "higher"),
    Metric("nugget_vital", "Share of the vital gold claims that the answer holds", "higher"),
    Metric("nugget_all", "Share of all gold claims that the answer holds, those that are not vital weigh half", "higher"),
    Metric("exact_match", "1 where the answer equals a gold answer after SQuAD's normalisation", "higher"),
    Metric("token_f1", "F1 of words with the nearest gold answer, by SQuAD's rules", "higher"),
    Metric("numeric_agreement", "Share of the gold answer's numbers, dates and codes that the answer states", "higher"),
    Metric("negation_agreement", "1 where the answer denies exactly where gold does", "higher"),
    Metric("refusal_rate", "1 where the answer refuses", "neither"),
    Metric("refusal_precision", "Of refusals, those that are right", "higher"),
    Metric("refusal_recall", "Of queries that should be refused, those that are", "higher"),
    Metric("refusal_recall_out_of_scope", "The same, of queries that nothing answers", "higher"),
    Metric("refusal_recall_retrieval_miss", "The same, of queries whose evidence is not in the context", "higher"),
    Metric("false_refusal", "Of queries that should be answered, those that are refused", "lower"),
    Metric("self_consistency", "Share of a query's answers that equal the most frequent one", "higher"),
    Metric("answer_confidence", "Stated confidence", "neither"),
    Metric("answer_right", "1 where the answer counts as right for calibration (`params.outcome`)", "higher"),
    Metric("answer_brier", "Squared difference of stated confidence and outcome (`params.outcome`)", "lower"),
    Metric("answer_ece", "Expected calibration error in ten bins (`params.binning`, `params.outcome`)", "lower"),
    Metric("answer_tokens", "Tokens that the answerer wrote", "neither", high=math.inf, unit="tokens"),
    Metric("answer_cost", "Price of the answer", "lower", high=math.inf, unit="USD"),
)  # fmt: skip

F1_RIGHT = 0.5
"""Token F1 from which an answer counts as right for calibration."""
BINS = 10


def measure(
    frames: Mapping[str, pl.DataFrame], gold: Gold, config: AnsweringConfig, settings: Settings
) -> pl.DataFrame:
    """One row a query of the split and measure; calibration errors are rows of the corpus. Nothing where nothing answers.

    NULL with `no_gold`, `no_claims`, `judge_error` …, or with the answer's own state: `refused`, `empty`, `no_answer`, a failure.
    Against gold answers and claims what was not said scores 0 under that state.
    """
    if not config.enabled:
        return measurements([])
    found = list(views(frames, gold, settings))
    verifiers = _verifiers(frames, settings)
    judges = {rubric.name: judge_of(settings, rubric) for rubric in (CITATION, NUGGET)}
    rows = [row for view in found for row in _of_answer(view, verifiers, judges)]
    rows += _listed(found, frames, settings)
    rows += _calibrated(found, rows, verifiers)
    return measurements(rows)


def _verifiers(frames: Mapping[str, pl.DataFrame], settings: Settings) -> list[str]:
    """Those that gave verdicts; where no claim was there to judge, those that were asked for."""
    there: list[str] = (
        frames["claim_verdicts"]["verifier"].unique().sort().to_list() if "claim_verdicts" in frames else []
    )
    if there or "claim_verdicts" not in frames:
        return there
    section = settings.pipeline.get("judging", {})
    return sorted(section.get("verifiers", ["lexical"])) if isinstance(section, Mapping) else []


def _of_answer(view: View, verifiers: Sequence[str], judges: Mapping[str, str | None]) -> Iterator[Row]:
    yield _availability(view, view.given_ids)
    chosen = deciding(verifiers)
    yield figure(view, "evidence_used", "evidence", partial(_used, view), params={"verifier": chosen} if chosen else {})
    for verifier in verifiers:
        yield from verified(view, verifier)
    if (judge := judges[CITATION.name]) is not None:
        yield from judged_citations(view, judge)
    yield from citation_facts(view)
    yield unseen_flag(view)
    yield from _nuggets(view, partial(_lexical, view), {"assigner": verifier_name()})
    if (judge := judges[NUGGET.name]) is not None:
        yield from _nuggets(view, partial(assignments, view, judge), {"judge": judge, "rubric": NUGGET.id})
    yield from _against_gold(view)
    yield from _refusals(view)
    yield figure(view, "self_consistency", "query", partial(_consistency, view))
    yield _stated(view, "answer_confidence", "confidence", "no_confidence")
    yield _stated(view, "answer_tokens", "output_tokens", "not_counted", unit="token")
    yield _stated(view, "answer_cost", "cost", "no_price")


# --- evidence ---------------------------------------------------------------------------------------------------------


def _availability(view: View, given: frozenset[str], **fields: object) -> Row:
    def share() -> tuple[float, float]:
        claims = [nugget["supported_by"] or [] for nugget in view.nuggets]
        if claims and not any(claims):
            raise Unmeasured("no_support_labels")
        found = evidence_availability(claims, sorted(given))
        return found * len(claims), float(len(claims))

    return figure(view, "evidence_availability", "claim", share, **fields)


def _listed(found: Sequence[View], frames: Mapping[str, pl.DataFrame], settings: Settings) -> list[Row]:
    """Availability at k: over the served list instead of the context."""
    if not any(view.nuggets for view in found):
        return []
    retriever = frames["contexts"]["retriever"].first() if frames["contexts"].height else settings.evaluate.serve
    run = frames["ranked_runs"].filter(pl.col("retriever") == (retriever or ""))
    ranks = hold_rank(frames["evidence_pieces"], run, frames["evidence_units"], settings.ledger.hold)
    seen: dict[str, list[tuple[int, str]]] = {}
    for query_id, rank, chunk_id, doc_id in run.select("query_id", "rank", "chunk_id", "doc_id").iter_rows():
        seen.setdefault(query_id, []).extend(((rank, chunk_id), (rank, doc_id)))
    for query_id, evidence_id, rank in ranks.select("query_id", "evidence_id", "item_rank").iter_rows():
        seen.setdefault(query_id, []).append((rank, evidence_id))
    return [
        _availability(
            view,
            frozenset(name for rank, name in seen.get(view.query_id, ()) if rank <= k),
            k=k,
            retriever=str(retriever or ""),
        )
        for view in found
        for k in settings.evaluate.cuts
    ]


def _used(view: View) -> tuple[float, float]:
    if view.gold_state != "judged":
        raise Unmeasured(view.gold_state)
    given = [unit for unit in view.units if unit["given"]]
    if not given:
        raise Unmeasured("evidence_absent")
    return float(sum(unit["used"] for unit in given)), float(len(given))


# --- against gold -----------------------------------------------------------------------------------------------------


def _nuggets(view: View, assigned: Callable[[], Sequence[str]], params: Mapping[str, str]) -> Iterator[Row]:
    """Gold claims looked for in the answer. What was not said holds none of them, whoever looks."""
    said = view.state == "answered" and has_text(view.said)

    def share(part: str) -> Share:
        if not view.nuggets:
            raise Unmeasured("no_gold")
        found = assigned() if said else ["not_support"] * len(view.nuggets)
        scores = nugget_scores(
            {"vital": nugget["vital"], "assignment": each} for nugget, each in zip(view.nuggets, found, strict=True)
        )
        chosen: Share = getattr(scores, part)
        return chosen

    status = "scored" if view.state == "answered" else view.state
    for metric, part in (("nugget_vital", "vital"), ("nugget_all", "all")):
        yield figure(view, metric, "claim", partial(share, part), status=status, params=dict(params))


def verifier_name() -> str:
    """Who assigns nuggets where no judge does."""
    return LexicalVerifier.name


def _lexical(view: View) -> list[str]:
    """Assignments of the lexical verifier: support or not."""
    verifier, told = LexicalVerifier(view.language), [Passage("answer", view.said, view.language)]

    def assigned(nugget: Row) -> str:
        if not has_text(nugget["text"]):
            return "not_support"
        verdict = verifier.verify([Claim(nugget["claim_id"], nugget["text"])], told)[0]
        return "support" if verdict.label == "supported" else "not_support"

    return [assigned(nugget) for nugget in view.nuggets]


def articles(language: str | None) -> str:
    """Whose articles the normalisation leaves out."""
    name = primary(language or "en")
    return name if name in ("en", "es") else "none"


def _against_gold(view: View) -> Iterator[Row]:
    status = "scored" if view.state == "answered" else view.state

    def scored(compute: str) -> float:
        if not view.right:
            raise Unmeasured("no_gold")
        if compute == "numeric_agreement":  # a gold answer without numbers has no value, whatever was said
            return numeric_agreement(view.said if view.state == "answered" else "", view.right, view.language).value
        if view.state != "answered":
            return 0.0
        if compute == "negation_agreement":
            return negation_agreement(view.said, view.right, view.language)
        chosen = exact_match if compute == "exact_match" else token_f1
        return chosen(view.said, view.right, articles(view.language))

    for metric in ("exact_match", "token_f1", "numeric_agreement", "negation_agreement"):
        yield figure(view, metric, "query", partial(scored, metric), status=status)


# --- refusing ---------------------------------------------------------------------------------------------------------


def _refusals(view: View) -> Iterator[Row]:
    why = why_refuse(view.answerable, view.available)
    refused = view.state == "refused"
    failed = view.state not in ("answered", "refused", "empty")
    # What said nothing did not refuse; its state stands beside the 0.
    status = "scored" if view.state in ("answered", "refused") else view.state

    def of(reasons: tuple[str, ...], otherwise: str) -> float:
        if why is None:
            raise Unmeasured(view.gold_state if view.gold_state != "judged" else "no_gold")
        if why not in reasons:
            raise Unmeasured(otherwise)
        return float(refused)

    def precision() -> float:
        if not refused:
            raise Unmeasured("not_refused")
        if why is None:
            raise Unmeasured("no_gold")
        return float(why != "answer")

    def rate() -> float:
        if failed:
            raise Unmeasured(view.state)
        return float(refused)

    yield figure(view, "refusal_rate", "query", rate)
    yield figure(view, "refusal_precision", "query", precision)
    for metric, reasons in (
        ("refusal_recall", ("out_of_scope", "retrieval_miss")),
        ("refusal_recall_out_of_scope", ("out_of_scope",)),
        ("refusal_recall_retrieval_miss", ("retrieval_miss",)),
    ):
        yield figure(view, metric, "query", partial(of, reasons, "nothing_to_refuse"), status=status)
    yield figure(view, "false_refusal", "query", partial(of, ("answer",), "nothing_to_answer"), status=status)


# --- confidence, repeats, cost ----------------------------------------------------------------------------------------


def _consistency(view: View) -> float:
    said = [
        None
        if row["outcome"] is None
        else ""
        if row["refused"]
        else normalise_answer(row["answer"], articles(view.language))
        for row in view.samples
    ]
    return self_consistency(said)


def _stated(view: View, metric: str, column: str, otherwise: str, unit: str = "query") -> Row:
    def value() -> float:
        if view.answer is None or view.state == "no_answer":
            raise Unmeasured("no_answer")
        found = view.answer[column]
        if found is None:
            raise Unmeasured(otherwise)
        return float(found)

    return figure(view, metric, unit, value)


def _calibrated(found: Sequence[View], rows: Sequence[Row], verifiers: Sequence[str]) -> list[Row]:
    """Brier scores by query, and calibration errors of all, for each notion of being right that has values."""
    by_metric: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        if row["value"] is not None and row["metric"] in ("exact_match", "token_f1", "faithfulness"):
            by_metric.setdefault((row["metric"], str(row["params"])), {})[row["item_id"]] = row["value"]
    made: list[Row] = []
    for (metric, params), values in sorted(by_metric.items()):
        name = {"exact_match": "exact_match", "token_f1": f"token_f1>={F1_RIGHT}"}.get(metric, "all_supported")
        least = F1_RIGHT if metric == "token_f1" else 1.0
        chosen = {"outcome": name}
        if metric == "faithfulness":
            verifier = next(v for v in verifiers if f'"{v}"' in params)
            chosen["verifier"] = verifier
        made += _errors(found, {query: float(value >= least) for query, value in values.items()}, chosen)
    return made


def _errors(found: Sequence[View], right: Mapping[str, float], params: dict[str, str]) -> list[Row]:
    made: list[Row] = []
    stated: list[float | None] = []
    outcomes: list[float] = []
    for view in found:
        confidence = None if view.answer is None else view.answer["confidence"]

        def outcome(view: View = view) -> float:
            must_assert(view)
            if view.query_id not in right:
                raise Unmeasured("no_outcome")
            return right[view.query_id]

        def score(view: View = view, confidence: float | None = confidence) -> float:
            return brier([confidence], [outcome(view)])

        made.append(figure(view, "answer_right", "query", outcome, params=params))
        row = figure(view, "answer_brier", "query", score, params=params)
        made.append(row)
        if row["value"] is not None:
            stated.append(confidence)
            outcomes.append(right[view.query_id])
    binnings: tuple[Binning, ...] = ("width", "mass")
    for binning in binnings:
        keys = {**params, "binning": binning, "bins": BINS}
        try:
            value = ece(stated, outcomes, BINS, binning)
            made.append(measurement("answer_ece", "corpus", "all", value, unit="query", params=keys))
        except Unmeasured as error:
            made.append(
                measurement("answer_ece", "corpus", "all", None, unit="query", params=keys, status=error.reason)
            )
    return made
