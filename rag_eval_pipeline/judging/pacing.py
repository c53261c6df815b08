"""Limits of asking: requests and tokens a minute, and a spending cap that is never passed.

Here: who may send when, and whether at all. Not here: sending (`client`). Everything runs in one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

WINDOW_S = 60.0
SLACK_S = 0.25
"""A minute is counted so much longer, since requests reach the endpoint later than they were sent, some more than others."""
LATE_S = 0.25
"""How far behind its even pace sending may catch up."""


@dataclass
class Slot:
    """Tokens that a request takes of the minute; corrected once they are known."""

    at: float
    tokens: float


class Pace:
    """At most so many requests and tokens in any minute, requests at an even pace.

    Args:
        requests: a minute; None: no limit.
        tokens: a minute; None: no limit.
    """

    def __init__(self, requests: float | None, tokens: float | None) -> None:
        self._requests, self._tokens = requests, tokens
        self._sent: deque[float] = deque()
        self._slots: deque[Slot] = deque()
        self._total = 0.0
        self._next = 0.0
        self._paused = 0.0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    def pause(self, seconds: float) -> None:
        """Nobody sends for so long: the endpoint asked for it."""
        self._paused = max(self._paused, time.monotonic() + seconds)

    async def turn(self, tokens: float) -> Slot:
        """Wait until a request of so many tokens may be sent. First come, first served."""
        async with self._turn:
            while (wait := self._wait(tokens)) > 0:
                self._freed.clear()
                try:
                    await asyncio.wait_for(self._freed.wait(), wait)
                except TimeoutError:
                    continue
            now = time.monotonic()
            slot = Slot(now, tokens)
            if self._requests is not None:
                self._sent.append(now)
                self._next = max(self._next, now - LATE_S) + WINDOW_S / self._requests
            if self._tokens is not None:
                self._slots.append(slot)
                self._total += tokens
            return slot

    def correct(self, slot: Slot, tokens: float) -> None:
        """What a request really took."""
        if self._tokens is not None and slot.at > time.monotonic() - WINDOW_S - SLACK_S:
            self._total += tokens - slot.tokens
            slot.tokens = tokens
            self._freed.set()

    def _wait(self, tokens: float) -> float:
        """Seconds until such a request may be sent, as far as it is known now."""
        now = time.monotonic()
        wait = self._paused - now
        old = now - WINDOW_S - SLACK_S
        if self._requests is not None:
            while self._sent and self._sent[0] <= old:
                self._sent.popleft()
            if len(self._sent) >= max(1, int(self._requests)):
                wait = max(wait, self._sent[0] - old)
            wait = max(wait, self._next - now)
        if self._tokens is not None:
            while self._slots and self._slots[0].at <= old:
                self._total -= self._slots.popleft().tokens
            if self._slots and self._total + tokens > self._tokens:
                wait = max(wait, self._slots[0].at - old)
        return wait


class Budget:
    """Money that may still be spent. What is under way counts with the most that it may cost.

    Args:
        most: the cap; None: no cap.
    """

    def __init__(self, most: float | None) -> None:
        self._most = most
        self.spent = 0.0
        self._before = 0.0
        self._reserved = 0.0
        self._under_way = 0
        self._changed = asyncio.Condition()

    async def reserve(self, at_most: float) -> bool:
        """Put money aside for one try; waits while what is under way may still cost less. False: the cap could be passed."""
        if self._most is None:
            return True
        async with self._changed:
            await self._changed.wait_for(lambda: self._fits(at_most) or not self._under_way)
            if not self._fits(at_most):
                return False
            self._reserved += at_most
            self._under_way += 1
            return True

    async def settle(self, at_most: float, cost: float | None) -> None:
        """What a try cost; None: not known, so it counts with the most that it may have."""
        self.spent += at_most if cost is None else cost
        if self._most is None:
            return
        async with self._changed:
            self._reserved -= at_most
            self._under_way -= 1
            self._changed.notify_all()

    def earlier(self, cost: float) -> None:
        """What counts against the cap and was not asked by this run, or is not known to have ended."""
        self._before += cost

    def _fits(self, at_most: float) -> bool:
        return self._most is None or self._before + self.spent + self._reserved + at_most <= self._most + 1e-12
