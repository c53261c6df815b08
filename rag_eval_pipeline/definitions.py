"""Dagster's entry point."""

from rag_eval_pipeline.orchestration.build import build_defs

defs = build_defs()
