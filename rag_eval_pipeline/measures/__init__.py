"""Pure maths on arrays and frames; nothing here knows a corpus. The names below are stable."""

from rag_eval_pipeline.measures.agreement import (
    Agreement,
    LengthControlled,
    OrderFlips,
    agreement,
    g_eval_score,
    length_controlled,
    order_flips,
    self_consistency,
)
from rag_eval_pipeline.measures.ann import ann_recall
from rag_eval_pipeline.measures.answers import (
    FlagScores,
    NuggetScores,
    asserted_without_support,
    atomic_facts,
    faithfulness,
    flag_scores,
    nugget_scores,
    unseen_entities,
)
from rag_eval_pipeline.measures.availability import evidence_availability
from rag_eval_pipeline.measures.calibration import brier, ece, reliability_curve
from rag_eval_pipeline.measures.citations import (
    CitationScores,
    citation_scores,
    context_citation_coverage,
    sources_shown,
)
from rag_eval_pipeline.measures.classes import ClassScores, class_scores
from rag_eval_pipeline.measures.correctness import (
    NumericAgreement,
    exact_match,
    negation_agreement,
    normalise_answer,
    numeric_agreement,
    token_f1,
)
from rag_eval_pipeline.measures.errors import ErrorSpan, error_spans
from rag_eval_pipeline.measures.fidelity import Coverage, Measured, cer, coverage, wer
from rag_eval_pipeline.measures.filters import FalseExclusion, false_exclusion
from rag_eval_pipeline.measures.fusion import convex_fusion, rrf
from rag_eval_pipeline.measures.intervals import Interval, confidence_interval, mean_intervals
from rag_eval_pipeline.measures.metric import Metric, Unmeasured
from rag_eval_pipeline.measures.paired import (
    DifferentItemsError,
    detectable_effect,
    holm,
    needed_n,
    paired_interval,
    paired_intervals,
    paired_randomisation,
    verdict,
)
from rag_eval_pipeline.measures.pairs import BCubed, PairScores, b_cubed, pair_scores
from rag_eval_pipeline.measures.powered import Powered, prediction_powered
from rag_eval_pipeline.measures.ranking import rank_measures, trec_table
from rag_eval_pipeline.measures.refusing import RefusalScores, refusal_scores, why_refuse
from rag_eval_pipeline.measures.shares import Mean, Share, mean_of, share
from rag_eval_pipeline.measures.spans import Counts, mask_prf, span_scores
from rag_eval_pipeline.measures.structure import (
    Block,
    HeadingScores,
    ReadingOrder,
    heading_scores,
    list_integrity,
    match_blocks,
    reading_order,
    title_exact,
    title_similarity,
)
from rag_eval_pipeline.measures.tables import TableScore, match_tables, table_score, teds

__all__ = [
    "Agreement",
    "BCubed",
    "Block",
    "CitationScores",
    "ClassScores",
    "Counts",
    "Coverage",
    "DifferentItemsError",
    "ErrorSpan",
    "FalseExclusion",
    "FlagScores",
    "HeadingScores",
    "Interval",
    "LengthControlled",
    "Mean",
    "Measured",
    "Metric",
    "NuggetScores",
    "NumericAgreement",
    "OrderFlips",
    "PairScores",
    "Powered",
    "ReadingOrder",
    "RefusalScores",
    "Share",
    "TableScore",
    "Unmeasured",
    "agreement",
    "ann_recall",
    "asserted_without_support",
    "atomic_facts",
    "b_cubed",
    "brier",
    "cer",
    "citation_scores",
    "class_scores",
    "confidence_interval",
    "context_citation_coverage",
    "convex_fusion",
    "coverage",
    "detectable_effect",
    "ece",
    "error_spans",
    "evidence_availability",
    "exact_match",
    "faithfulness",
    "false_exclusion",
    "flag_scores",
    "g_eval_score",
    "heading_scores",
    "holm",
    "length_controlled",
    "list_integrity",
    "mask_prf",
    "match_blocks",
    "match_tables",
    "mean_intervals",
    "mean_of",
    "needed_n",
    "negation_agreement",
    "normalise_answer",
    "nugget_scores",
    "numeric_agreement",
    "order_flips",
    "pair_scores",
    "paired_interval",
    "paired_intervals",
    "paired_randomisation",
    "prediction_powered",
    "rank_measures",
    "reading_order",
    "refusal_scores",
    "reliability_curve",
    "rrf",
    "self_consistency",
    "share",
    "sources_shown",
    "span_scores",
    "table_score",
    "teds",
    "title_exact",
    "title_similarity",
    "token_f1",
    "trec_table",
    "unseen_entities",
    "verdict",
    "wer",
    "why_refuse",
]
