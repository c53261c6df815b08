"""OffsetMap: where each code point of an output text came from in its source text. Maps compose.

A map is a sorted list of segments (out_start, out_end, src_start, src_end, exact). Exact: lengths are equal and characters
correspond one by one. Not exact: the whole output segment was made from the whole source segment (a mask, a composed
accent). Output that no segment covers was written by the stage and has no source.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np


class Segment(NamedTuple):
    """Output code points [out_start, out_end) came from source code points [src_start, src_end)."""

    out_start: int
    out_end: int
    src_start: int
    src_end: int
    exact: bool = True


class OffsetMap:
    """Segments sorted by output, with lookups both ways."""

    def __init__(self, segments: Iterable[Segment | Sequence[int] | dict[str, int]]) -> None:
        self.segments = [Segment(**s) if isinstance(s, dict) else Segment(*s) for s in segments]  # type: ignore[arg-type]
        for s in self.segments:
            if s.exact and s.out_end - s.out_start != s.src_end - s.src_start:
                raise ValueError(f"an exact segment has equal lengths, found {s}")
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if after.out_start < before.out_end:
                raise ValueError(
                    f"segments are sorted by output and do not overlap there, found {before} before {after}"
                )
        self._starts = [segment.out_start for segment in self.segments]

    @classmethod
    def identity(cls, length: int) -> OffsetMap:
        """The map of a text that was not changed."""
        return cls([Segment(0, length, 0, length)] if length else [])

    @classmethod
    def keep(cls, ranges: Iterable[tuple[int, int]]) -> OffsetMap:
        """The map of a text made by joining source ranges, in their order."""
        out, segments = 0, []
        for start, end in ranges:
            if end > start:
                segments.append(Segment(out, out + end - start, start, end))
                out += end - start
        return cls(segments)

    def rows(self) -> list[dict[str, int]]:
        """Segments as rows of a table's `offsets` column."""
        return [segment._asdict() for segment in self.segments]

    def source(self, start: int, end: int) -> list[tuple[int, int]]:
        """Source ranges from which output [start, end) derives, in output order; replacements count whole."""
        found = []
        index = max(0, bisect_right(self._starts, start) - 1)
        for segment in self.segments[index:]:
            if segment.out_start >= end:
                break
            low, high = max(start, segment.out_start), min(end, segment.out_end)
            if low >= high:
                continue
            if segment.exact:
                shift = segment.src_start - segment.out_start
                found.append((low + shift, high + shift))
            else:
                found.append((segment.src_start, segment.src_end))
        return found

    def forward(self, positions: np.ndarray) -> np.ndarray:
        """First output position of each source position; −1 where it is gone or was replaced, or is −1 already.

        Only exact segments carry a character on: a replaced character does not survive.
        """
        positions = np.asarray(positions, dtype=np.int64)
        result = np.full(positions.shape, -1, dtype=np.int64)
        for starts, ends, shifts in self._layers:
            index = np.searchsorted(starts, positions, side="right") - 1
            found = (index >= 0) & (positions >= 0)
            index = np.clip(index, 0, None)
            output = positions + shifts[index]
            found &= (positions < ends[index]) & ((result < 0) | (output < result))
            result[found] = output[found]
        return result

    @cached_property
    def _layers(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Exact segments as arrays (starts, ends, shifts) by source, split so that no layer overlaps itself.

        A text that repeats a source range needs more than one; `forward` takes the earliest output.
        """
        layers: list[list[Segment]] = []
        pending = [s for s in self.segments if s.exact and s.src_end > s.src_start]
        while pending:
            ordered = sorted(pending, key=lambda s: s.src_start)
            if all(a.src_end <= b.src_start for a, b in itertools.pairwise(ordered)):
                layers.append(ordered)
                break
            layer, pending = _first_layer(pending)
            layers.append(layer)
        return [
            (
                np.array([s.src_start for s in layer], dtype=np.int64),
                np.array([s.src_end for s in layer], dtype=np.int64),
                np.array([s.out_start - s.src_start for s in layer], dtype=np.int64),
            )
            for layer in layers
        ]

    def forward_range(self, start: int, end: int) -> tuple[int, int] | None:
        """Smallest output range that holds everything derived from source [start, end); None if all of it is gone."""
        if start >= end:
            return None
        low: int | None = None
        high = 0
        for segment in self.segments:
            if segment.src_end <= start or segment.src_start >= end or segment.out_start == segment.out_end:
                continue
            if segment.exact:
                first = segment.out_start + max(start - segment.src_start, 0)
                last = segment.out_end - max(segment.src_end - end, 0)
            else:
                first, last = segment.out_start, segment.out_end
            low = first if low is None else min(low, first)
            high = max(high, last)
        return None if low is None else (low, high)

    def then(self, earlier: OffsetMap) -> OffsetMap:
        """Compose: this map's source is `earlier`'s output; the result goes from this output to that source."""
        segments: list[Segment] = []
        for segment in self.segments:
            if not segment.exact:
                ranges = earlier.source(segment.src_start, segment.src_end)
                if ranges:
                    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
                    segments.append(Segment(segment.out_start, segment.out_end, low, high, False))
                continue
            shift = segment.out_start - segment.src_start
            index = max(0, bisect_right(earlier._starts, segment.src_start) - 1)
            for before in earlier.segments[index:]:
                low, high = max(segment.src_start, before.out_start), min(segment.src_end, before.out_end)
                if before.out_start >= segment.src_end:
                    break
                if low >= high:
                    continue
                if before.exact:
                    back = before.src_start - before.out_start
                    segments.append(Segment(low + shift, high + shift, low + back, high + back))
                else:
                    segments.append(Segment(low + shift, high + shift, before.src_start, before.src_end, False))
        return OffsetMap(segments)


def _first_layer(segments: list[Segment]) -> tuple[list[Segment], list[Segment]]:
    """Segments (in output order) that overlap no earlier one in the source, sorted by source; and the others."""
    starts: list[int] = []
    layer: list[Segment] = []
    rest: list[Segment] = []
    for segment in segments:
        at = bisect_right(starts, segment.src_start)
        clash = (at > 0 and layer[at - 1].src_end > segment.src_start) or (
            at < len(layer) and layer[at].src_start < segment.src_end
        )
        if clash:
            rest.append(segment)
            continue
        starts.insert(at, segment.src_start)
        layer.insert(at, segment)
    return layer, rest
