"""`python -m rag_eval_pipeline_tests.bench [CASE …] [--repeats N]`: ratios against named peers, as a table."""

import argparse
import os
import platform
import sys

from rag_eval_pipeline_tests.bench import cases, events, ledger, parsing
from rag_eval_pipeline_tests.bench.timing import Result, table

CASES = {
    "ranking": cases.ranking,
    "cer": cases.error_rate,
    "pages": parsing.pages,
    "tables": parsing.tables,
    "exact": cases.exact,
    "signatures": cases.signatures,
    "anchoring": cases.anchoring,
    "memo": cases.memoised,
    "events": events.stored,
    "ledger": cases.ledger,
    "large_ledger": ledger.large,
}


def main() -> None:
    """Run the cases that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m rag_eval_pipeline_tests.bench", description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], help="which; all by default")
    parser.add_argument("--repeats", type=int, default=5, help="of each side, in turn (memo: at most 3)")
    asked = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}\n"
    )
    results: list[Result] = []
    for name in asked.cases or CASES:
        print(f"{name} …", file=sys.stderr, flush=True)
        found = CASES[name](min(asked.repeats, 3) if name == "memo" else asked.repeats)
        results += found if isinstance(found, list) else [found]
        print("  " + " | ".join(results[-1].row), file=sys.stderr, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
