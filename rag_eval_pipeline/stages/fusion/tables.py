"""Tables of the fusion room: lists made of lanes."""

from rag_eval_pipeline.warehouse.run_list import RunList
from rag_eval_pipeline.warehouse.table import table


@table("fused_runs", "One row an item of a fused list, best first.")
class FusedRuns(RunList):
    pass


@table("exact_fused_runs", "The same fusion over exact lanes, where some lane's index is approximate.")
class ExactFusedRuns(RunList):
    pass
