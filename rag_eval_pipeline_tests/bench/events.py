"""The event log with open connections against Dagster's own: the events of one run, stored and read again."""

import tempfile
from collections.abc import Callable

import dagster as dg
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from rag_eval_pipeline.orchestration.events import EventLog
from rag_eval_pipeline_tests.bench.timing import Result, in_turn


def stored(repeats: int, assets: int = 25) -> Result:
    """Each side in a new folder; syncing is part of what differs, so that wall time depends on the disk and CPU doesn't."""
    with dg.DagsterInstance.ephemeral() as instance, tempfile.TemporaryDirectory() as folder:
        entries = _entries(instance, assets)

        def storing(kind: type[SqliteEventLogStorage]) -> Callable[[], list[dg.EventLogEntry]]:
            def store() -> list[dg.EventLogEntry]:
                log = kind(tempfile.mkdtemp(dir=folder))
                log.register_instance(instance)
                for entry in entries:
                    log.store_event(entry)
                found = list(log.get_logs_for_run(entries[0].run_id))
                log.dispose()
                return found

            return store

        ours, theirs = storing(EventLog), storing(SqliteEventLogStorage)
        assert ours() == theirs() == entries
        what = f"{len(entries)} events of a run of {assets} assets with a check each, stored and read"
        return in_turn(what, "Dagster's SqliteEventLogStorage", ours, theirs, "same events", repeats)


def _entries(instance: dg.DagsterInstance, assets: int) -> list[dg.EventLogEntry]:
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    made = [_asset(f"table_{number}") for number in range(assets)]
    run = dg.materialize(made, instance=instance, partition_key="a", run_config=quiet)
    return list(instance.all_logs(run.run_id))


def _asset(name: str) -> dg.AssetsDefinition:
    @dg.asset(
        name=name,
        partitions_def=dg.StaticPartitionsDefinition(["a"]),
        check_specs=[dg.AssetCheckSpec("schema", asset=name)],
    )
    def made() -> dg.MaterializeResult:
        check = dg.AssetCheckResult(check_name="schema", passed=True)
        return dg.MaterializeResult(metadata={"rows": 3}, data_version=dg.DataVersion("1"), check_results=[check])

    return made
