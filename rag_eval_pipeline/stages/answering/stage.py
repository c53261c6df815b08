"""Declaration of the answering room."""

from rag_eval_pipeline.stages.answering.tables import AnswerCitations, AnswerClaims, Answers
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="answering",
    phase="answer",
    description="Answers each query from its context, with claims and citations.",
    reads=("contexts", "chunks", "prepared_queries"),
    inputs=("output:answers",),
    imports=lambda config: config.answerer == "import",
    writes=(Answers, AnswerClaims, AnswerCitations),
    libraries=("PyStemmer", "bm25s", "regex"),
    expects=("prepared_queries", "query_id"),
    measures=("evidence_units", "evidence_pieces", "ranked_runs", "claim_verdicts", "judge_evals"),
)
