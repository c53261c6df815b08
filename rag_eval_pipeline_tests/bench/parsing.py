"""Tables against apted with rapidfuzz, pages against rapidfuzz alone."""

import os
import random
import string
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable
from dataclasses import replace

from rapidfuzz.distance import Levenshtein

from rag_eval_pipeline.measures import cer, teds, wer
from rag_eval_pipeline_tests.bench.timing import Result, in_turn
from rag_eval_pipeline_tests.unit.measures.test_tables import reference_teds

FIRST_CALL = """
import time
from rag_eval_pipeline.measures import teds
started = time.perf_counter()
teds("<table><tr><td>1</td></tr></table>", "<table><tr><td>2</td></tr></table>")
print(time.perf_counter() - started)
"""


def made_table(rng: random.Random, rows: int, columns: int) -> str:
    """A table with a head, spans here and there, and cells of one to four words."""

    def cell() -> str:
        words = ("".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))) for _ in range(rng.randint(1, 4)))
        span = ' colspan="2"' if rng.random() < 0.03 else ""
        return f"<td{span}>{' '.join(words)}</td>"

    lines = [f"<tr>{''.join(cell() for _ in range(columns))}</tr>" for _ in range(rows)]
    return f"<table><thead>{lines[0]}</thead><tbody>{''.join(lines[1:])}</tbody></table>"


def misread(rng: random.Random, table: str) -> str:
    """One letter in fifty another, one cell in thirty lost, a row joined with the next."""
    pieces = table.replace("<", "\0<").replace(">", ">\0").split("\0")
    pieces = [p if p.startswith("<") else _letters(rng, p) for p in pieces]
    cells = "".join(pieces).split("</td>")
    kept = [c for i, c in enumerate(cells) if i in {0, len(cells) - 1} or rng.random() > 0.03]
    return "</td>".join(kept).replace("</tr><tr>", "", 1)


def _letters(rng: random.Random, text: str) -> str:
    return "".join(rng.choice("xyz") if c.isalpha() and rng.random() < 0.02 else c for c in text)


def tables(repeats: int) -> list[Result]:
    """TEDS of a table and itself misread; the peer's trees are part of its time, as ours are."""
    results = []
    for rows, columns, times in ((3, 3, 50), (20, 8, 10), (50, 10, 3)):
        rng = random.Random(rows)
        gold = made_table(rng, rows, columns)
        read = misread(rng, gold)
        apart = abs(teds(gold, read) - reference_teds(gold, read))

        def ours(gold: str = gold, read: str = read, times: int = times) -> list[float]:
            return [teds(gold, read) for _ in range(times)]

        def theirs(gold: str = gold, read: str = read) -> float:
            return reference_teds(gold, read)

        found = in_turn(
            f"TEDS: {rows} × {columns} cells", "apted + rapidfuzz", ours, theirs, f"equal to {apart:.0e}", repeats
        )
        # Ours is too short to time once.
        each = [type(spent)(spent.wall / times, spent.cpu / times) for spent in found.ours]
        results.append(replace(found, ours=each))
    with tempfile.TemporaryDirectory() as folder:
        first, again = (_first_call(folder) for _ in range(2))
    note = f"{results[-1].agreement}; first call: compiled {first:.1f} s, from the cache {again:.2f} s"
    return [*results[:-1], replace(results[-1], agreement=note)]


def _first_call(cache: str) -> float:
    """Seconds of a first call in a process of its own: compiled where `cache` is empty, loaded where it is not."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    told = subprocess.run(
        [sys.executable, "-c", FIRST_CALL], env=environment, capture_output=True, text=True, check=True
    )
    return float(told.stdout)


def pages(repeats: int, length: int = 10_000, times: int = 20) -> list[Result]:
    """Error rates of a page misread at 3 % of its characters; both sides normalise."""
    rng = random.Random(0)
    reference = "".join(rng.choices(string.ascii_lowercase + "áñ" + "    ", k=length))
    output = "".join(c if rng.random() > 0.03 else rng.choice(["", "x", c + "e"]) for c in reference)

    def form(text: str) -> str:
        return " ".join(unicodedata.normalize("NFC", text).split())

    def peer_cer() -> float:
        a, b = form(reference), form(output)
        return Levenshtein.distance(a, b) / len(a)

    def peer_wer() -> float:
        a, b = form(reference).split(), form(output).split()
        return Levenshtein.distance(a, b) / len(a)

    pairs: list[tuple[str, Callable, Callable[[], float]]] = [("CER", cer, peer_cer), ("WER", wer, peer_wer)]
    return [
        in_turn(
            f"{name}: {length:,} characters, {times} times",
            "rapidfuzz, normalised",
            lambda rate=rate: [rate(reference, output) for _ in range(times)],
            lambda peer=peer: [peer() for _ in range(times)],
            f"equal to {abs((rate(reference, output).value or 0) - peer()):.0e}",
            repeats,
        )
        for name, rate, peer in pairs
    ]
