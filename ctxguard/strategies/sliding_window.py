"""Keep the latest messages, and older ones that match a rule."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.history import RECALLED, History, record_title
from ctxguard.settings import whole_number
from ctxguard.stages.error_reports import reports_error
from ctxguard.strategies.keep import Choice, Keep, Past


@dataclass(frozen=True, slots=True)
class PreservationRule:
    """A rule for artifacts that are kept although they are older than the window.

    Attributes:
        name: the name of the rule.
        keeps: takes an artifact and its number among the messages, counted from 0; returns whether it is kept.
    """

    name: str
    keeps: Callable[[Artifact, int], bool]


_SAVED_SCREENSHOT: Final = re.compile(
    r"screen[ _-]?shot[^\n]{0,120}?[\w/\\.-]\.(?:png|jpe?g|webp)\b|\.(?:png|jpe?g|webp)\b[^\n]{0,120}?screen[ _-]?shot",
    re.IGNORECASE,
)


def _reports_error(artifact: Artifact, _number: int) -> bool:
    return reports_error(artifact)


@lru_cache(maxsize=2)
def _folded(text: str) -> str:
    """Return a text normalized for comparison; several rules in a row request that of the same text."""
    return text.casefold()


class Mentions:
    """A predicate: the artifact's text contains one of these phrases, as whole words in any case."""

    def __init__(self, *phrases: str) -> None:
        self._phrases = [phrase.casefold() for phrase in phrases]
        self._pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, self._phrases)) + r")(?!\w)")

    def __call__(self, artifact: Artifact, _number: int) -> bool:
        """Look for the phrases: as substrings first, which is far cheaper and nearly always enough."""
        text = _folded(artifact.text)
        return any(phrase in text for phrase in self._phrases) and bool(self._pattern.search(text))


def _is_first_instruction(artifact: Artifact, number: int) -> bool:
    return number == 0 and artifact.kind is Kind.USER


def _holds_screenshot(artifact: Artifact, _number: int) -> bool:
    """Return whether an artifact contains an image, or names the file that a screenshot was saved to."""
    if not isinstance(artifact.content, str) and any(part.kind == "image" for part in artifact.content):
        return True
    # The name of a tool often contains "screenshot" although its output is only a file name.
    text = f"{artifact.name or ''} {artifact.text}" if artifact.kind is Kind.TOOL else artifact.text
    return _SAVED_SCREENSHOT.search(text) is not None


def _is_record(artifact: Artifact, _number: int) -> bool:
    return record_title(artifact) not in (None, RECALLED)


FIRST_INSTRUCTIONS: Final = PreservationRule("first instructions", _is_first_instruction)
ERRORS: Final = PreservationRule("errors", _reports_error)
STATE_CHANGES: Final = PreservationRule("state changes", Mentions("logged in", "cart updated", "order completed"))
SCREENSHOTS: Final = PreservationRule("screenshots", _holds_screenshot)
RECORDS: Final = PreservationRule("records", _is_record)
"""Summaries and checkpoints: what they sum up is nowhere else in the context."""
DEFAULT_RULES: Final = (FIRST_INSTRUCTIONS, ERRORS, STATE_CHANGES, SCREENSHOTS, RECORDS)
"""What a window keeps of older messages by default."""


def is_preserved(rules: Sequence[PreservationRule], history: History, number: int) -> bool:
    """Return whether an exchange contains an artifact that a rule keeps. System and task artifacts are not messages."""
    ahead = bisect_left(history.authority, history.start(number))
    members = enumerate(history.members(number), history.start(number) - ahead)
    return any(rule.keeps(artifact, place) for place, artifact in members for rule in rules)


@dataclass(frozen=True, slots=True)
class _WindowNote:
    """The notes of a sliding window on an exchange.

    Attributes:
        stays: whether it is kept when it is older than the window.
        counts: whether it is counted among the exchanges to drop; a stage's message is not.
        end: how many messages there are up to its end; those that stages wrote do not count.
        opener: number of the user message that opened its turn. It does not count as waiting until the turn is over,
            and is kept as long as the whole turn is.
        opened: number of exchanges before that turn that may be dropped.
        leaving: the exchange that may be dropped once this one is counted: itself, or the opener of the previous turn.
        total: number of exchanges that may be dropped up to here.
    """

    stays: bool = False
    counts: bool = False
    end: int = 0
    opener: int | None = None
    opened: int = 0
    leaving: int | None = None
    total: int = 0


class SlidingWindow(Keep[_WindowNote]):
    """Keep the latest messages and, of the older ones, the exchanges that match a rule; in order, each once.

    An exchange that begins before the window and extends into it is kept whole. As a stage, the window collects some
    exchanges before it drops them at once: between two such moves the prompt's prefix stays the same. `apply` returns
    the window as of now.

    Args:
        window_size: messages in the window, including tool results; never fewer are kept.
        rules: rules for older messages to keep.
        every: exchanges that are dropped at once; 1 moves the window with each, None means a third of `window_size`.

    Raises:
        ConfigError: a setting is not a whole number or below 1.
    """

    def __init__(
        self, window_size: int = 15, *, rules: Sequence[PreservationRule] = DEFAULT_RULES, every: int | None = None
    ) -> None:
        self.window_size = whole_number(window_size, "window_size", unit="messages", least=1)
        self.rules = tuple(rules)
        every = max(1, window_size // 3) if every is None else every
        super().__init__(self._latest, self._noted, every=every, name="SlidingWindow")

    def apply(self, messages: Iterable[Artifact]) -> list[Artifact]:
        """Return the artifacts that are kept as of now. The input is not changed."""
        return Keep.apply(SlidingWindow(self.window_size, rules=self.rules, every=1), messages)

    def _noted(self, past: Past[_WindowNote], number: int) -> _WindowNote:
        history, span = past.history, past.history.spans[number]
        before = past.notes[number - 1] if number else _WindowNote()
        is_written = span.has_user_role and not span.is_asked
        stays = span.is_pinned or number == past.task or is_preserved(self.rules, history, number)
        counts = not (stays or is_written or number in history.asked[:1])
        itself = number if counts else None
        opener, leaving = before.opener, itself
        if span.is_asked:
            opener, leaving = itself, self._released(before)
        end = before.end if is_written else before.end + span.end - span.start
        total = before.total + (leaving is not None)
        return _WindowNote(stays, counts, end, opener, total if span.is_asked else before.opened, leaving, total)

    def _released(self, last: _WindowNote) -> int | None:
        """Return the message that opened a turn that is over; None if it was dropped with a part of the turn."""
        return last.opener if last.total - last.opened <= last.total % self.every else None

    def _latest(self, past: Past[_WindowNote], _end: int) -> Choice | None:
        """Choose the older exchanges to keep: those that match a rule, and those that still wait to be dropped."""
        history, notes = past.history, past.notes
        if not notes:
            return None
        last = notes[-1] if len(notes) == len(history) else self._noted(past, len(notes))
        outside = bisect_right(notes, last.end - self.window_size, key=attrgetter("end"))
        if not outside:
            return None
        newest = notes[outside - 1]
        released = self._released(newest) if history.spans[outside].is_asked else None
        waiting = (newest.total + (released is not None)) % self.every
        newest_first = chain([released], (notes[n].leaving for n in range(outside - 1, -1, -1)))
        waits = list(islice((n for n in newest_first if n is not None), waiting + 1))
        # The exchange that was dropped last: older messages that do not count were dropped with it.
        edge = waits.pop() if len(waits) > waiting else -1
        chosen = (
            n
            for n, note in enumerate(notes[:outside])
            if note.stays or n in waits or (n > edge and (not note.counts or n == newest.opener))
        )
        return Choice(chosen, outside, f"older than the latest {self.window_size} messages")
