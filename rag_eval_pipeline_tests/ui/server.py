"""`dagster dev` on a free port and a home of its own, ended with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
START_SECONDS = 180


@dataclass(frozen=True)
class Server:
    """A running UI."""

    url: str
    home: Path
    log: Path

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """One GraphQL request."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found["errors"]
        return dict(found["data"])


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serve(home: Path) -> Iterator[Server]:
    """Start the UI on a home (RAG_EVAL_DATA), as `make ui` does."""
    dagster_home = home / "dagster_home"
    dagster_home.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "dagster.yaml", dagster_home / "dagster.yaml")
    port, log = free_port(), home / "ui.log"
    environment = os.environ | {
        "RAG_EVAL_DATA": str(home),
        "DAGSTER_HOME": str(dagster_home),
        "RAG_EVAL_ENCODER_THREADS": "1",
    }
    command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port), "-w", "workspace.yaml"]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    server = Server(f"http://127.0.0.1:{port}", home, log)
    try:
        _await(server, process)
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


LOADED = "{ workspaceOrError { ... on Workspace { locationEntries { loadStatus } } } }"


def _await(server: Server, process: subprocess.Popen[bytes]) -> None:
    """Wait until the code location is loaded."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise AssertionError(f"dagster dev ended:\n{server.log.read_text()[-3000:]}")
        with contextlib.suppress(OSError):
            entries = server.ask(LOADED)["workspaceOrError"].get("locationEntries", [])
            if entries and all(entry["loadStatus"] == "LOADED" for entry in entries):
                return
        time.sleep(1)
    raise AssertionError(f"no UI after {START_SECONDS} s:\n{server.log.read_text()[-3000:]}")
