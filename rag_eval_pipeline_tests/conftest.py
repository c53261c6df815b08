"""Fixtures for all tests: the real labelled sets, and the size at which generated tests run."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent
SHARED = Path(os.environ.get("RAG_EVAL_SHARED", ROOT.parent / "shared"))

quiet = {"deadline": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("quick", max_examples=100, **quiet)
settings.register_profile("full", max_examples=1_000, **quiet)  # measures ask for ten times as many: see `sizes`
settings.load_profile(os.environ.get("RAG_EVAL_PROFILE", "quick"))


def shared_path(*parts: str) -> Path:
    """A path in the shared material; the test skips where it is absent, and fails where it is required."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        if os.environ.get("RAG_EVAL_REQUIRE_DATA") == "1":
            pytest.fail(f"{'/'.join(parts)} is required (RAG_EVAL_REQUIRE_DATA=1) and absent")
        pytest.skip(f"{'/'.join(parts)} is not here; set RAG_EVAL_SHARED to the folder that holds data/ and cases/")
    return path


@pytest.fixture(scope="session")
def shared():
    """`shared("data", "xquad")` is a path in the shared material."""
    return shared_path


@pytest.fixture(scope="session")
def known_wrong():
    """Cases on which public tools answer wrongly, by id."""
    return {case["id"]: case for case in json.loads(shared_path("cases", "known_wrong.json").read_text("utf-8"))}


@pytest.fixture(scope="session")
def worked():
    """Worked examples with exact values."""
    return json.loads(shared_path("cases", "worked.json").read_text("utf-8"))
