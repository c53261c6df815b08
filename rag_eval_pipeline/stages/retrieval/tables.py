"""Tables of the retrieval room: each lane's list."""

from rag_eval_pipeline.warehouse.run_list import RunList
from rag_eval_pipeline.warehouse.table import table


@table("runs", "One row an item of a lane's list, best first.")
class Runs(RunList):
    pass


@table("exact_runs", "The same lanes with exact search, for lanes whose index is approximate.")
class ExactRuns(RunList):
    pass
