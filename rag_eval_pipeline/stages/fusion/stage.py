"""Declaration of the fusion room."""

from rag_eval_pipeline.stages.fusion.tables import ExactFusedRuns, FusedRuns
from rag_eval_pipeline.stages.stage import Stage

STAGE = Stage(
    name="fusion",
    phase="retrieve",
    description="Makes one list of several lanes, by reciprocal ranks or by weighted scores.",
    reads=("runs", "exact_runs"),
    writes=(FusedRuns, ExactFusedRuns),
    has_quality=False,
)
