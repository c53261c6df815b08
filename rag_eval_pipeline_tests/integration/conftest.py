"""Fixtures of the house's tests: a data folder, and components that can be given by import path."""

import os
import sys

import pytest

from rag_eval_pipeline_tests.integration.house import PARTS, home_of


@pytest.fixture(autouse=True, scope="session")
def parts():
    """`rag_eval_parts:Class` can be imported, here and in workers."""
    sys.path.insert(0, str(PARTS))
    os.environ.setdefault("RAG_EVAL_ENCODER_THREADS", "1")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RAG_EVAL_DATA", str(tmp_path))
    monkeypatch.setenv("RAG_EVAL_TEST_LOG", str(tmp_path / "parsed.log"))
    monkeypatch.delenv("RAG_EVAL_STORE", raising=False)
    return home_of(tmp_path)
