"""Findings in a text: spans, and the protocol of detectors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Span(NamedTuple):
    """One finding in a text: its offsets, never its value.

    Attributes:
        start: offset of its first character in the `str`.
        end: offset after its last character.
        label: what it is (`EMAIL`, `PHONE`, `CREDIT_CARD`, …).
        score: confidence in the finding, 0 to 1.
    """

    start: int
    end: int
    label: str
    score: float = 1.0


@runtime_checkable
class Detector(Protocol):
    """Find personal data in a text."""

    @property
    def name(self) -> str:
        """The detector's name in errors and reports; never part of a text."""
        ...

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings, sorted and without overlaps."""
        ...


def resolve(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Choose among overlapping findings: the longest, then the one with the highest score, then the first.

    Args:
        spans: findings in the order of their rules; they may overlap.

    Returns:
        The chosen ones, sorted and without overlaps. Takes O(n log n) time.
    """
    ordered = sorted(enumerate(spans), key=start_of)
    kept: list[Span] = []
    entangled: list[tuple[int, Span]] = []
    reach = 0
    for ranked in ordered:
        span = ranked[1]
        if span.start >= reach:
            kept += _untangled(entangled)
            entangled = []
        entangled.append(ranked)
        reach = max(reach, span.end)
    return (*kept, *_untangled(entangled))


def start_of(ranked: tuple[int, Span]) -> int:
    """Return where a span begins that stands beside a number."""
    return ranked[1].start


def _untangled(entangled: list[tuple[int, Span]]) -> Sequence[Span]:
    """Return the findings to keep of a group in which each overlaps another one."""
    if len(entangled) < 2:
        return [span for _, span in entangled]
    return _disjoint([span for _, span in sorted(entangled, key=_rank)])


def _rank(ranked: tuple[int, Span]) -> tuple[int, float, int]:
    place, span = ranked
    return span.start - span.end, -span.score, place


def _disjoint(ranked: Sequence[Span]) -> tuple[Span, ...]:
    """Choose spans greedily, best first; `taken` is sorted, so overlaps are found by bisection."""
    taken: list[tuple[int, int]] = []
    kept: list[Span] = []
    for span in ranked:
        place = bisect_left(taken, (span.end, -1))
        if place and taken[place - 1][1] > span.start:
            continue
        taken.insert(place, (span.start, span.end))
        kept.append(span)
    return tuple(sorted(kept, key=lambda span: span.start))
