"""Findings in a text: spans, and the protocol of detectors."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple, Protocol, runtime_checkable


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


# What is left of a finding without the separators at its edges.
_REST: Final = re.compile(r"[^\W_](?:[\s\S]*[^\W_])?")
# Words tell where these end: of two readings the longer is right, and what the other has in addition is no value.
_WORDED: Final = frozenset({"PERSON", "ADDRESS"})


def resolve(spans: Iterable[Span], text: str = "") -> tuple[Span, ...]:
    """Choose among overlapping findings: the longest, then the one with the highest score, then the first.

    The others keep what no chosen one covers, from its first to its last letter or digit: whatever was found is
    covered.

    Args:
        spans: findings in the order of their rules; they may overlap.
        text: the text in which they were found; without it, what the others keep may begin or end with separators.

    Returns:
        The chosen ones and what the others keep, sorted and without overlaps. Takes O(n log n) time.
    """
    ordered = sorted(enumerate(spans), key=start_of)
    kept: list[Span] = []
    entangled: list[tuple[int, Span]] = []
    reach = 0
    for ranked in ordered:
        span = ranked[1]
        if span.start >= reach:
            kept += _untangled(entangled, text)
            entangled = []
        entangled.append(ranked)
        reach = max(reach, span.end)
    return (*kept, *_untangled(entangled, text))


def start_of(ranked: tuple[int, Span]) -> int:
    """Return where a span begins that stands beside a number."""
    return ranked[1].start


def _untangled(entangled: list[tuple[int, Span]], text: str) -> Sequence[Span]:
    """Return the findings to keep of a group in which each overlaps another one."""
    if len(entangled) < 2:
        return [span for _, span in entangled]
    kept: list[Span] = []
    for _, span in sorted(entangled, key=_rank):
        for part in _free(span, kept, text):
            insort(kept, part)
    return kept


def _rank(ranked: tuple[int, Span]) -> tuple[int, float, int]:
    place, span = ranked
    return span.start - span.end, -span.score, place


def _free(span: Span, kept: Sequence[Span], text: str) -> Sequence[Span]:
    """Return the parts of a finding that none of these covers, which are sorted and without overlaps."""
    first, last = bisect_left(kept, (span.start,)), bisect_left(kept, (span.end,))
    first -= first > 0 and kept[first - 1].end > span.start
    over = kept[first:last]
    if not over:
        return [span]
    if span.label in _WORDED and any(one.label == span.label for one in over):
        return ()
    edges = [span.start, *chain.from_iterable(one[:2] for one in over), span.end]
    places = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
    if text:
        places = [rest.span() for place in places if (rest := _REST.search(text, *place)) is not None]
    return [Span(start, end, span.label, span.score) for start, end in places]
