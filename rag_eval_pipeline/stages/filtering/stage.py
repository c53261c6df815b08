"""Declaration of the filtering room."""

from rag_eval_pipeline.stages.filtering.tables import AppliedFilters, Scopes
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="filtering",
    phase="retrieve",
    description="Decides which documents each query may find: who asks, and the predicate that is applied.",
    reads=("documents", "dedup", "prepared_queries"),
    inputs=("queries.filter", "principals", "output:filters"),
    imports=lambda config: config.extractor == "import",
    labels=lambda config: config.extractor == "gold",
    writes=(AppliedFilters, Scopes),
    measures=("runs", "fused_runs", "ranked_runs", "contexts"),
    expects=("prepared_queries", "query_id"),
)
