"""Spans, the `Detector` protocol, the choice among overlapping spans, and the checks of given texts and labels."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, Protocol, runtime_checkable

from ctxguard.errors import ConfigError


class Span(NamedTuple):
    """The position and label of one finding in a string; it never contains the value.

    Attributes:
        start: Offset of the first character.
        end: Offset after the last character.
        label: The kind of data (`EMAIL`, `PHONE`, `CREDIT_CARD`, …).
        score: Confidence in the finding, from 0 to 1.
    """

    start: int
    end: int
    label: str
    score: float = 1.0


@runtime_checkable
class Detector(Protocol):
    """The interface of everything that finds personal data in a string."""

    @property
    def name(self) -> str:
        """The detector's name in error messages and reports; it never contains text that was searched."""
        ...

    def find(self, text: str) -> Sequence[Span]:
        """Return the findings in a string, sorted by offset and without overlaps."""
        ...


# The part of a span from its first to its last letter or digit.
_REST: Final = re.compile(r"[^\W_](?:[\s\S]*[^\W_])?")
# Words decide where names and addresses end. Of two overlapping spans, the longer one is right, so the characters that
# only the shorter one has are not part of a value.
_WORDED: Final = frozenset({"PERSON", "ADDRESS"})


def resolve(spans: Iterable[Span], text: str = "") -> tuple[Span, ...]:
    """Resolve overlaps: keep the longest span, then the one with the highest score, then the first one.

    A span that is not kept is reduced to its parts outside the kept spans, so every character that was found stays
    covered. The exception is a name or an address that overlaps a kept span with the same label: it is dropped.

    Args:
        spans: Findings in order of rule precedence; they may overlap.
        text: The string in which they were found. If given, separators at the edges of the reduced parts are trimmed.

    Returns:
        The kept spans and the reduced parts, sorted by offset and without overlaps. Takes O(n log n) time.
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
    """Return the start offset of a (rank, span) pair. Used as a sort key."""
    return ranked[1].start


def _untangled(entangled: list[tuple[int, Span]], text: str) -> Sequence[Span]:
    """Resolve a group of spans in which each span overlaps another one of the group."""
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
    """Return the parts of a span that are outside all kept spans; `kept` is sorted and without overlaps."""
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


_TYPO: Final = 0.75  # the similarity of `EMAIL` with two letters swapped is 0.8, that of `PERSON_NAME` and `PERSON` 0.7
RULE_SET: Final = "RuleSet('name', (rule, …))"
"""How to write a rule set, for error messages."""


def require_labels(labels: Iterable[str], known: Collection[str], *, setting: str, others: bool = False) -> None:
    """Raise an error for labels that no rule has.

    Args:
        labels: The labels to check.
        known: The labels of the rules.
        setting: The setting that the error names.
        others: Whether detectors other than rules may define further labels. An unknown label is then an error only if
            it resembles a known one, because it is probably a typo.

    Raises:
        ConfigError: If a label is unknown.
    """
    from difflib import get_close_matches  # only needed for an error

    for label in set(labels).difference(known):
        near = get_close_matches(str(label).upper(), known, n=1, cutoff=_TYPO)
        if near or not others:
            hint = f" (did you mean {near[0]!r}?)" if near else f"; there are {', '.join(sorted(known))}"
            raise ConfigError(f"unknown label {label!r}{hint}", setting=setting)


def check_text(text: object) -> None:
    """Raise a TypeError if `text` is not a string, naming only its type, because its content may be personal data."""
    if not isinstance(text, str):
        raise TypeError(f"expected a string, got {type(text).__name__}; decode bytes, and write numbers as str(…)")


def require_strings(values: object, setting: str) -> list[str]:
    """Return `values` (those of `allow` or `deny`) as a list of strings.

    Raises:
        ConfigError: If `values` is a single string, is not iterable, or contains something other than strings.
    """
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        listed = list(values)
        if all(isinstance(value, str) for value in listed):
            return listed
    raise ConfigError(f"{setting} must be a list of strings: ['…']", setting=setting)
