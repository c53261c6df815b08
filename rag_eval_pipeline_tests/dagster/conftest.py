"""Fixtures: a data folder, and runs on an ephemeral instance (no files, no daemon, nothing left behind)."""

from contextlib import contextmanager

import dagster as dg
import pytest

from rag_eval_pipeline_tests.integration.conftest import home, parts  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def forget_instances():
    """Dagster remembers, for loading definitions, the last instance that a context was built with, gone or not."""
    yield
    from dagster._core.storage.defs_state import base

    base._current_storage.set(None)


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def on_ephemeral(monkeypatch, instance):
    """`rag-eval run` in this process, on the ephemeral instance."""
    from rag_eval_pipeline.orchestration import running

    @contextmanager
    def same(_home):
        yield instance

    monkeypatch.setattr(running, "instance", same)
    return instance


@pytest.fixture
def cli(monkeypatch, capsys):
    """`cli("run", "small@v1")` → (exit code, standard output, standard error)."""
    from rag_eval_pipeline.cli import console, errors, main

    for output in (console, errors):  # made at import, in whatever width the process had then
        monkeypatch.setattr(output, "width", 200)

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["rag-eval", *arguments])
        try:
            main()
            code = 0
        except SystemExit as exit_:
            code = exit_.code or 0
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
