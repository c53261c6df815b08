"""Pure maths on arrays and frames; nothing here knows a corpus. The names below are stable."""

from rag_eval_pipeline.measures.ann import ann_recall
from rag_eval_pipeline.measures.availability import evidence_availability
from rag_eval_pipeline.measures.fidelity import Coverage, Measured, cer, coverage, wer
from rag_eval_pipeline.measures.filters import FalseExclusion, false_exclusion
from rag_eval_pipeline.measures.fusion import convex_fusion, rrf
from rag_eval_pipeline.measures.metric import Metric, Unmeasured
from rag_eval_pipeline.measures.pairs import BCubed, PairScores, b_cubed, pair_scores
from rag_eval_pipeline.measures.ranking import rank_measures, trec_table
from rag_eval_pipeline.measures.spans import Counts, mask_prf, span_scores

__all__ = [
    "BCubed",
    "Counts",
    "Coverage",
    "FalseExclusion",
    "Measured",
    "Metric",
    "PairScores",
    "Unmeasured",
    "ann_recall",
    "b_cubed",
    "cer",
    "convex_fusion",
    "coverage",
    "evidence_availability",
    "false_exclusion",
    "mask_prf",
    "pair_scores",
    "rank_measures",
    "rrf",
    "span_scores",
    "trec_table",
    "wer",
]
