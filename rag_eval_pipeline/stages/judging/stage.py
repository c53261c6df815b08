"""Declaration of the judging room."""

from rag_eval_pipeline.stages.judging.tables import ClaimVerdicts, JudgeEvals, JudgeProbes
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="judging",
    phase="answer",
    description="Says of each claim whether the context supports it, and lets a judge rate answers where one is configured.",
    reads=("answers", "answer_claims", "answer_citations", "contexts", "chunks", "prepared_queries"),
    inputs=("nuggets",),
    labels=lambda config: config.reads_gold_claims,
    writes=(ClaimVerdicts, JudgeEvals, JudgeProbes),
    libraries=("sentence-transformers", "torch"),
)
