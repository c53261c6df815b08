"""Declaration of the querying room."""

from rag_eval_pipeline.stages.querying.tables import PreparedQueries, QueryEmbeddings
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="querying",
    phase="retrieve",
    description="Makes queries ready to be searched: language and vector.",
    reads=(),
    inputs=(
        "queries.query_id", "queries.text", "queries.language", "queries.principal", "output:query_embeddings",
    ),
    imports=lambda config: config.imported or config.embedding.imported,
    writes=(PreparedQueries, QueryEmbeddings),
    has_quality=False,
    libraries=("py3langid", "sentence-transformers", "transformers", "tokenizers", "torch"),
    kinds=("pytorch", "huggingface"),
    expects=("queries", "query_id"),
)  # fmt: skip
