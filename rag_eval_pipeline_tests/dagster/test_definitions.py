"""The definitions load fast, validate, and their specs change only in review."""

import json
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

SNAPSHOT = Path(__file__).parent / "specs.json"
HEAVY = [
    "torch",
    "sentence_transformers",
    "transformers",
    "spacy",
    "presidio_analyzer",
    "faiss",
    "duckdb",
    "matplotlib",
    "ray",
]


@pytest.fixture(scope="module")
def defs():
    from rag_eval_pipeline.definitions import defs

    return defs


def test_importing_the_definitions_loads_nothing_heavy():
    code = f"import sys, rag_eval_pipeline.definitions; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_definitions_validate(defs):
    dg.Definitions.validate_loadable(defs)


def specs(defs):
    graph = defs.resolve_asset_graph()
    found = {}
    for key in sorted(graph.get_all_asset_keys(), key=lambda k: k.to_user_string()):
        node = graph.get(key)
        checks = sorted(
            f"{c.name}{'!' if graph.get_check_spec(c).blocking else ''}" for c in graph.get_check_keys_for_assets({key})
        )
        found[key.to_user_string()] = {
            "group": node.group_name,
            "deps": sorted(parent.to_user_string() for parent in node.parent_keys),
            "checks": checks,
        }
    return found


def test_specs_are_as_reviewed(defs):
    """After a change that is meant, write the file anew: python -m rag_eval_pipeline_tests.dagster.test_definitions."""
    assert specs(defs) == json.loads(SNAPSHOT.read_text("utf-8"))


def test_every_asset_has_a_group_description_owner_kind_and_column_schema(defs):
    graph = defs.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description, key
        assert node.owners, key
        assert node.kinds, key
        assert node.tags.get("room"), key
        assert node.partitions_def is not None, key
        assert node.code_version or key.to_user_string() in {"evaluation", "duckdb_database", "report"}, key


def test_groups_are_in_pipeline_order_and_convex(defs):
    """An edge never goes back to an earlier phase, so groups draw as columns."""
    graph = defs.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        for parent in node.parent_keys:
            assert graph.get(parent).group_name <= node.group_name, f"{parent} -> {key}"


if __name__ == "__main__":
    from rag_eval_pipeline.definitions import defs as current

    SNAPSHOT.write_text(json.dumps(specs(current), indent=1) + "\n", "utf-8")
