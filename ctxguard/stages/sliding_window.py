"""Keep the latest messages, and older ones that a rule wants kept."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft, Follower
from ctxguard.history import RECALLED, History, record_title
from ctxguard.settings import whole_number
from ctxguard.stages.alone import applied
from ctxguard.stages.error_reports import reports_error
from ctxguard.stages.followed import FollowedStage
from ctxguard.stages.selection import check_every, selected, task_of


@dataclass(frozen=True, slots=True)
class PreservationRule:
    """Describe which artifacts stay outside the window.

    Attributes:
        name: what the rule is called.
        keeps: takes an artifact and its number among the messages, counted from 0; tells whether it stays.
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
    """Return a text folded for comparison; several rules in a row ask for that of the same one."""
    return text.casefold()


def mentions(*phrases: str) -> Callable[[Artifact, int], bool]:
    """Return a predicate: the artifact's text holds one of these phrases, as whole words in any case."""
    return _Mentions(phrases)


class _Mentions:
    """Look for phrases."""

    def __init__(self, phrases: tuple[str, ...]) -> None:
        self._phrases = [phrase.casefold() for phrase in phrases]
        self._pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, self._phrases)) + r")(?!\w)")

    def __call__(self, artifact: Artifact, _number: int) -> bool:
        # A substring test first: it is far cheaper than the expression and nearly always enough.
        text = _folded(artifact.text)
        return any(phrase in text for phrase in self._phrases) and bool(self._pattern.search(text))


def _is_first_instruction(artifact: Artifact, number: int) -> bool:
    return number == 0 and artifact.kind is Kind.USER


def _holds_screenshot(artifact: Artifact, _number: int) -> bool:
    """Return whether an artifact holds an image, or names the file that a screenshot was saved to."""
    if not isinstance(artifact.content, str) and any(part.kind == "image" for part in artifact.content):
        return True
    # The name of a tool often says "screenshot" where its output is only a file name.
    text = f"{artifact.name or ''} {artifact.text}" if artifact.kind is Kind.TOOL else artifact.text
    return _SAVED_SCREENSHOT.search(text) is not None


def _is_record(artifact: Artifact, _number: int) -> bool:
    return record_title(artifact) not in (None, RECALLED)


FIRST_INSTRUCTIONS: Final = PreservationRule("first instructions", _is_first_instruction)
ERRORS: Final = PreservationRule("errors", _reports_error)
STATE_CHANGES: Final = PreservationRule("state changes", mentions("logged in", "cart updated", "order completed"))
SCREENSHOTS: Final = PreservationRule("screenshots", _holds_screenshot)
RECORDS: Final = PreservationRule("records", _is_record)
"""Summaries and checkpoints: what they stand for is nowhere else."""
DEFAULT_RULES: Final = (FIRST_INSTRUCTIONS, ERRORS, STATE_CHANGES, SCREENSHOTS, RECORDS)
"""What stays outside the window unless told otherwise."""


def preserved_by(rules: Sequence[PreservationRule], history: History, begin: int, end: int) -> list[int]:
    """Return the numbers of the exchanges from `begin` up to `end` that hold what some rule keeps.

    The rules number all artifacts except system and task ones.
    """
    return [number for number in range(begin, end) if _is_preserved(rules, history, number)]


def _is_preserved(rules: Sequence[PreservationRule], history: History, number: int) -> bool:
    # System and task artifacts are in no exchange and are not counted as messages.
    ahead = bisect_left(history.authority, history.start(number))
    members = enumerate(history.members(number), history.start(number) - ahead)
    return any(rule.keeps(artifact, place) for place, artifact in members for rule in rules)


class SlidingWindow(FollowedStage):
    """Keep the latest messages and, from before them, the exchanges that a rule keeps; in order, each once.

    An exchange that begins before the window and reaches into it stays whole. As a stage, the window lets some
    exchanges wait before it drops them at once: between two such moves the prompt's prefix stays as it was. `apply`
    gives the window as of now.

    Args:
        window_size: messages of the window, tool results counted; never fewer are kept.
        rules: what stays outside of it.
        every: exchanges that leave the window at once; 1 means that it moves with each, None a third of `window_size`.

    Raises:
        ConfigError: a setting is not a whole number or below 1.
    """

    name = "SlidingWindow"

    def __init__(
        self, window_size: int = 15, *, rules: Sequence[PreservationRule] = DEFAULT_RULES, every: int | None = None
    ) -> None:
        self.window_size = whole_number(window_size, "window_size", unit="messages", least=1)
        self.rules = tuple(rules)
        self.every = check_every(max(1, window_size // 3) if every is None else every)

    def apply(self, messages: Iterable[Artifact]) -> list[Artifact]:
        """Return the artifacts that stay as of now. The input is not changed."""
        return applied(SlidingWindow(self.window_size, rules=self.rules, every=1), messages)

    def begin(self, draft: Draft, /) -> Follower:
        """Return the window of one conversation."""
        return _Sliding(self, draft)


@dataclass(frozen=True, slots=True)
class _Edge:
    """Describe where a window begins after so many exchanges.

    Attributes:
        begin: first exchange of the window: those before it were dropped, unless they are kept.
        outside: first exchange that is not too old.
        waiting: exchanges between the two that count as waiting to be dropped.
    """

    begin: int = 0
    outside: int = 0
    waiting: int = 0


class _Sliding:
    """Follow one conversation. The last exchange may still grow: it is not judged by the rules, and stays anyway."""

    def __init__(self, stage: SlidingWindow, draft: Draft) -> None:
        self._stage = stage
        self._history = History(draft.counter.artifact)
        self._draft = draft
        self._preserved: list[int] = []
        self._ends: list[int] = []
        self._edge = _Edge()

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:  # noqa: ARG002 - as every follower
        """Take in what comes next."""
        history = self._history
        history.extend(artifacts)
        begin, end = len(self._ends), len(history) - 1
        self._preserved += preserved_by(self._stage.rules, history, begin, end)
        for number in range(begin, end):
            self._ends.append(self._end_of(number))
            self._edge = self._moved(self._edge, number)

    def result(self, draft: Draft) -> Draft:
        """Return the draft with the window and what is kept outside of it."""
        size = self._stage.window_size
        if len(draft.artifacts) <= size:
            return draft
        last = len(self._history) - 1
        self._ends.append(self._end_of(last))
        first = self._moved(self._edge, last).begin
        self._ends.pop()
        outside = self._preserved[: bisect_left(self._preserved, first)]
        return selected(draft, self._history, outside, first, reason=f"older than the latest {size} messages")

    def _end_of(self, number: int) -> int:
        """Return how many messages there are up to the end of an exchange, those that stages wrote not counted."""
        span = self._history.spans[number]
        before = self._ends[number - 1] if number else 0
        return before + (span.end - span.start) * (span.is_asked == span.has_user_role)

    def _moved(self, edge: _Edge, number: int) -> _Edge:
        """Return the edge once one more exchange has come: it moves where enough exchanges wait."""
        oldest = self._ends[number] - self._stage.window_size
        outside = bisect_right(self._ends, oldest, lo=edge.outside, hi=number + 1)
        waiting = edge.waiting + sum(map(self._waits, range(edge.outside, outside)))
        opener = None if outside >= len(self._history) else self._history.opener(outside)
        stays = opener is not None and opener >= edge.begin and self._waits(opener)  # it opens the window's first turn
        return _Edge(outside, outside) if waiting - stays >= self._stage.every else _Edge(edge.begin, outside, waiting)

    def _waits(self, number: int) -> bool:
        """Return whether an exchange counts as waiting: it does not stay for good, and no stage wrote it."""
        history, place = self._history, bisect_left(self._preserved, number)
        is_kept = self._preserved[place : place + 1] == [number] or number in history.asked[:1]
        span = history.spans[number]
        stays = is_kept or span.is_pinned or number == task_of(self._draft, history)
        return not stays and span.is_asked == span.has_user_role
