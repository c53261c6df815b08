"""A hook for tests of kills, and nothing else: without the variable it does nothing.

`RAG_EVAL_KILL_AT=<point>` ends the process there as `kill -9` does: no handler, no clean-up. Points are
`<stage or step>` (begun, nothing computed), `<stage or step>:before_write`, `<stage or step>:after_write`,
`<table>:temporary` (its file is written under the temporary name), and the same for `manifest` and `database`.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "RAG_EVAL_KILL_AT"


def reached(point: str) -> None:
    """End the process here, if a test asks for it."""
    if os.environ.get(VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)
