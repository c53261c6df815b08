"""Time two ways of doing one thing in turn, so that what else the machine does hits both alike."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Spent:
    """Seconds on the wall, and of CPU in this process."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Result:
    """What a comparison found.

    Attributes:
        what: what was done, with its size.
        peer: what it is compared with.
        ours: one entry a repeat.
        theirs: likewise; empty where there is no peer.
        agreement: how the two results were compared before they were timed.
    """

    what: str
    peer: str
    ours: list[Spent]
    theirs: list[Spent]
    agreement: str

    @property
    def ratios(self) -> list[float]:
        """Their wall time over ours, by repeat: above 1 ours is faster."""
        return [their.wall / our.wall for our, their in zip(self.ours, self.theirs, strict=False)]

    @property
    def row(self) -> list[str]:
        """Cells of the table."""
        seconds = f"{median(s.wall for s in self.ours):.3g}"
        if not self.theirs:
            cpu = f"CPU {median(s.cpu for s in self.ours):.3g} s; "
            return [self.what, self.peer, "–", "–", "–", seconds, "–", cpu + self.agreement]
        cpu = median(their.cpu / our.cpu for our, their in zip(self.ours, self.theirs, strict=True))
        spread = f"{min(self.ratios):.2g}–{max(self.ratios):.2g}"
        peer = f"{median(s.wall for s in self.theirs):.3g}"
        return [self.what, self.peer, f"{median(self.ratios):.2g}", spread, f"{cpu:.2g}", seconds, peer, self.agreement]


HEAD = ["what", "peer", "peer ÷ ours", "spread", "by CPU", "ours, s", "peer, s", "results"]


def spend(work: Callable[[], object]) -> Spent:
    """Run once and take the time."""
    before, started = os.times(), time.perf_counter()
    work()
    wall, after = time.perf_counter() - started, os.times()
    return Spent(wall, max(after.user + after.system - before.user - before.system, 1e-3))


def in_turn(
    what: str, peer: str, ours: Callable[[], object], theirs: Callable[[], object], agreement: str, repeats: int
) -> Result:
    """Repeat both, one after the other; who begins changes each time."""
    found: tuple[list[Spent], list[Spent]] = ([], [])
    for number in range(repeats):
        order = ((0, ours), (1, theirs)) if number % 2 == 0 else ((1, theirs), (0, ours))
        for side, work in order:
            found[side].append(spend(work))
    return Result(what, peer, *found, agreement)


def table(results: list[Result]) -> str:
    """Markdown."""
    rows = [HEAD, ["---"] * len(HEAD), *(result.row for result in results)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
