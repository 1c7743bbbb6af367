"""Findings in a text: spans, and the protocol of detectors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Span(NamedTuple):
    """Mark one finding in a text; holds offsets, never the value.

    Attributes:
        start: offset of its first character in the `str`.
        end: offset after its last character.
        label: what it is (`EMAIL`, `PHONE`, `CREDIT_CARD`, …).
        score: how sure the finder is, 0 to 1.
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
        """What errors and reports call it; never part of a text."""
        ...

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings, sorted and without overlaps."""
        ...


def resolve(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Choose among overlapping findings: the longest, then the surest, then the one that came first.

    Args:
        spans: findings in the order of their rules; they may overlap.

    Returns:
        The chosen ones, sorted and without overlaps. Takes n log n steps.
    """
    ordered = sorted(enumerate(spans), key=_start)
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


def _start(ranked: tuple[int, Span]) -> int:
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
    """Choose spans greedily, best first; `taken` is sorted, so that overlaps are found by bisection."""
    taken: list[tuple[int, int]] = []
    kept: list[Span] = []
    for span in ranked:
        place = bisect_left(taken, (span.end, -1))
        if place and taken[place - 1][1] > span.start:
            continue
        taken.insert(place, (span.start, span.end))
        kept.append(span)
    return tuple(sorted(kept, key=lambda span: span.start))
