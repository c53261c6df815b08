"""How many generated inputs a test sees: few in `make test`, many in `make verify` (RAG_EVAL_PROFILE=full)."""

import os

from hypothesis import settings

FULL = os.environ.get("RAG_EVAL_PROFILE", "quick") == "full"


def examples(quick: int, full: int) -> settings:
    """So many in either profile."""
    return settings(max_examples=full if FULL else quick)


measured = examples(100, 10_000)
"""For measures: formulas on small inputs, held against an oracle on ten thousand of them."""
