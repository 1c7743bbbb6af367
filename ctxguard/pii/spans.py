"""Say where personal data stands in a text: spans, and the protocol of whatever finds them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["Detector", "Span", "resolve"]


@dataclass(frozen=True, slots=True)
class Span:
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
        The chosen ones, sorted, none touching another's characters. Takes n log n steps.
    """
    ranked = sorted(spans, key=lambda span: (span.start - span.end, -span.score))
    if len(ranked) < 2:
        return tuple(ranked)
    return _disjoint(ranked)


def _disjoint(ranked: Sequence[Span]) -> tuple[Span, ...]:
    """Take spans greedily; starts and ends of the taken ones stay sorted side by side."""
    taken: list[tuple[int, int]] = []
    kept: list[Span] = []
    for span in ranked:
        place = bisect_left(taken, (span.end, -1))
        if place and taken[place - 1][1] > span.start:
            continue
        taken.insert(place, (span.start, span.end))
        kept.append(span)
    return tuple(sorted(kept, key=lambda span: span.start))
