"""Put the project together for Dagster."""

import warnings

import dagster as dg

warnings.filterwarnings("ignore", category=dg.PreviewWarning)
warnings.filterwarnings("ignore", category=dg.BetaWarning)


def build_defs() -> dg.Definitions:
    """All assets, checks, jobs, sensors and schedules. In-process by default: a 10–20 s import is paid once a run."""
    from rag_eval_pipeline.orchestration.assets import all_assets
    from rag_eval_pipeline.orchestration.jobs import EVALUATE, EVALUATE_MULTIPROCESS
    from rag_eval_pipeline.orchestration.schedules import nightly
    from rag_eval_pipeline.orchestration.sensors import corpus_changes, corpus_mirror, failed_runs, notifications

    return dg.Definitions(
        assets=all_assets(),
        jobs=[EVALUATE, EVALUATE_MULTIPROCESS],
        sensors=[corpus_changes, corpus_mirror, failed_runs, notifications],
        schedules=[nightly],
        executor=dg.in_process_executor,
    )
