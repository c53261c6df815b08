"""Jobs: the whole evaluation in one process (the default), and the same with a process a step."""

import dagster as dg

from rag_eval_pipeline.orchestration.partitions import SUBJECTS

EVALUATE = dg.define_asset_job(
    "evaluate",
    selection=dg.AssetSelection.all(),
    partitions_def=SUBJECTS,
    executor_def=dg.in_process_executor,
    description="Every asset of one corpus version, in one process: imports are paid once.",
)

EVALUATE_MULTIPROCESS = dg.define_asset_job(
    "evaluate_multiprocess",
    selection=dg.AssetSelection.all(),
    partitions_def=SUBJECTS,
    executor_def=dg.multiprocess_executor.configured({"max_concurrent": 2, "start_method": {"spawn": {}}}),
    description="The same assets and tables, a process a step: for large corpora on machines with many cores.",
)
