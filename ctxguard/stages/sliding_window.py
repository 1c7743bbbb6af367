"""Keep the latest messages, and older ones that a rule wants kept."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.history import is_record, stands_in
from ctxguard.settings import whole_number
from ctxguard.stages.alone import applied
from ctxguard.stages.cuts import with_cut
from ctxguard.stages.error_reports import reports_error
from ctxguard.stages.growing import Followed, GrowingHistory
from ctxguard.stages.selection import SelectedHistory, check_every, selected
from ctxguard.tokens.text_cache import TextCache

__all__ = [
    "DEFAULT_RULES",
    "ERRORS",
    "FIRST_INSTRUCTIONS",
    "SCREENSHOTS",
    "STATE_CHANGES",
    "PreservationRule",
    "SlidingWindow",
    "mentions",
    "preserved_by",
    "reports_error",
]


@dataclass(frozen=True, slots=True)
class PreservationRule:
    """Say which artifacts stay outside the window.

    Attributes:
        name: what the rule is called.
        keeps: takes an artifact and its number among the messages, counted from 0; tells whether it stays.
    """

    name: str
    keeps: Callable[[Artifact, int], bool]


_SCREENSHOTS: Final[TextCache[bool]] = TextCache(4_000_000)


def _reports_error(artifact: Artifact, _number: int) -> bool:
    return reports_error(artifact)


@lru_cache(maxsize=2)
def _folded(text: str) -> str:
    """Return a text folded for comparison; several rules in a row ask for that of the same one."""
    return text.casefold()


def _remembered(known: TextCache[bool], text: str, judge: Callable[[str], bool]) -> bool:
    verdict = known.get(text)
    if verdict is None:
        verdict = judge(text)
        known.put(text, verdict)
    return verdict


def mentions(*phrases: str) -> Callable[[Artifact, int], bool]:
    """Return a predicate: the artifact's text holds one of these phrases, as whole words in any case."""
    return _Mentions(phrases)


class _Mentions:
    """Look for phrases. Copies and pickles start with nothing remembered."""

    def __init__(self, phrases: tuple[str, ...]) -> None:
        self.phrases = phrases
        self._folded = [phrase.casefold() for phrase in phrases]
        self._pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, self._folded)) + r")(?!\w)")
        self._known: TextCache[bool] = TextCache(4_000_000)

    def __call__(self, artifact: Artifact, _number: int) -> bool:
        return _remembered(self._known, artifact.text, self._judge)

    def __reduce__(self) -> tuple[type[_Mentions], tuple[tuple[str, ...]]]:
        return _Mentions, (self.phrases,)

    def _judge(self, text: str) -> bool:
        return any(phrase in _folded(text) for phrase in self._folded) and bool(self._pattern.search(_folded(text)))


def _is_first_instruction(artifact: Artifact, number: int) -> bool:
    return number == 0 and artifact.kind is Kind.USER


_SAVED_SCREENSHOT: Final = re.compile(
    r"screen[ _-]?shot[^\n]{0,120}?[\w/\\.-]\.(?:png|jpe?g|webp)\b|\.(?:png|jpe?g|webp)\b[^\n]{0,120}?screen[ _-]?shot",
    re.IGNORECASE,
)


def _holds_screenshot(artifact: Artifact, _number: int) -> bool:
    """Tell whether an artifact holds an image, or names the file that a screenshot was saved to."""
    if not isinstance(artifact.content, str) and any(part.kind == "image" for part in artifact.content):
        return True
    text = f"{artifact.name or ''} {artifact.text}" if artifact.kind is Kind.TOOL else artifact.text
    return _remembered(_SCREENSHOTS, text, lambda text: _SAVED_SCREENSHOT.search(text) is not None)


def _is_record(artifact: Artifact, _number: int) -> bool:
    return is_record(artifact)


FIRST_INSTRUCTIONS: Final = PreservationRule("first instructions", _is_first_instruction)
ERRORS: Final = PreservationRule("errors", _reports_error)
STATE_CHANGES: Final = PreservationRule("state changes", mentions("logged in", "cart updated", "order completed"))
SCREENSHOTS: Final = PreservationRule("screenshots", _holds_screenshot)
RECORDS: Final = PreservationRule("records", _is_record)
"""Summaries and checkpoints: what they stand for is nowhere else."""
DEFAULT_RULES: Final = (FIRST_INSTRUCTIONS, ERRORS, STATE_CHANGES, SCREENSHOTS, RECORDS)
"""What stays outside the window unless told otherwise."""


def preserved_by(
    rules: Sequence[PreservationRule], history: GrowingHistory, begin: int = 0, end: int | None = None
) -> list[int]:
    """Return the numbers of the exchanges that hold what some rule keeps.

    Args:
        rules: a message's number counts all artifacts but system and task ones.
        history: the exchanges.
        begin: number of the first exchange to judge.
        end: number behind the last one; None means all.
    """
    found = history.units[begin:end]
    ahead = bisect_left(history.authority, found[0].start) if found else 0
    numbers, later = [], history.authority[ahead:]
    for number, unit in enumerate(found, begin):
        while later and later[0] < unit.start:
            later, ahead = later[1:], ahead + 1
        members = ((history.artifacts[p], p - ahead) for p in range(unit.start, unit.end))
        if any(rule.keeps(artifact, place) for artifact, place in members for rule in rules):
            numbers.append(number)
    return numbers


@dataclass(slots=True)
class _Watched(SelectedHistory):
    """Hold a history, which of its exchanges the rules keep, and where the window moved.

    The last exchange may still grow: it is not judged, and stays anyway.

    Attributes:
        seen: exchanges that were taken in.
        ends: messages up to the end of each exchange, those that stages wrote not counted.
        preserved: numbers of those that a rule keeps.
        moves: for each move, the number of exchanges that had come and that of the first one in the window.
    """

    seen: int = 0
    ends: list[int] = field(default_factory=list)
    preserved: list[int] = field(default_factory=list)
    moves: list[tuple[int, int]] = field(default_factory=list)
    _outside: int = 0
    _waiting: int = 0

    def slide(self, rules: Sequence[PreservationRule], size: int, every: int, task: int | None) -> None:
        """Take in what is new, and move the window where enough exchanges wait to leave it."""
        begin, end = self.seen, max(self.seen, len(self.units) - 1)
        self.preserved += preserved_by(rules, self, begin, end)
        del self.ends[begin:]
        written = self.units[begin - 1].end - self.ends[-1] if begin else 0
        for number in range(begin, len(self.units)):
            written += stands_in(self.members(number)[0])
            self.ends.append(self.units[number].end - written)
        for number in range(begin, end):
            edge = self.ends[number] - size
            while self.ends[self._outside] <= edge:
                self._waiting += self._goes(self._outside, task)
                self._outside += 1
            if self._leaving(self._waiting, self._outside, task) >= every:
                self.moves.append((number + 1, self._outside))
                self._waiting = 0
        self.seen = end

    def first(self, end: int, size: int, every: int, task: int | None) -> int:
        """Return the first exchange of the window when so many exchanges had come."""
        if end <= self.seen:
            moves = bisect_right(self.moves, (end, end))
            return self.moves[moves - 1][1] if moves else 0
        outside = bisect_right(self.ends, self.ends[-1] - size, lo=self._outside, hi=end)
        waiting = self._waiting + sum(self._goes(number, task) for number in range(self._outside, outside))
        leaves = self._leaving(waiting, outside, task) >= every
        return outside if leaves else self.first(self.seen, size, every, task)

    def _leaving(self, waiting: int, outside: int, task: int | None) -> int:
        """Return how many exchanges would go if the window began there: the message that opens its turn stays."""
        begin = self.moves[-1][1] if self.moves else 0
        users = bisect_right(self.users, outside)
        opener = self.users[users - 1] if users else outside
        return waiting - (begin <= opener < outside and self._goes(opener, task))

    def _goes(self, number: int, task: int | None) -> bool:
        """Tell whether an exchange counts as waiting: not what opens the history, stays for good, or a stage wrote."""
        unit, opens = self.units[number], self.users[:1] == [number]
        kept = bisect_left(self.preserved, number)
        stays = opens or number == task or unit.pinned or self.preserved[kept : kept + 1] == [number]
        return not stays and unit.asks == unit.user


class SlidingWindow:
    """Keep the latest messages and, from before them, the exchanges that a rule keeps; in order, each once.

    An exchange that begins before the window and reaches into it stays whole. As a stage, the window lets some
    exchanges wait before it drops them at once: between two such moves the prompt's prefix stays as it was. `apply`
    gives the window as of now.

    Args:
        window_size: messages of the window, tool results counted; never fewer are kept.
        rules: what stays outside of it.
        every: exchanges that leave the window at once; 1 means that it moves with each, None a third of `window_size`.

    Raises:
        ConfigError: a setting is no whole number or below 1.
    """

    name = "SlidingWindow"

    def __init__(
        self, window_size: int = 15, *, rules: Sequence[PreservationRule] = DEFAULT_RULES, every: int | None = None
    ) -> None:
        self.window_size = whole_number(window_size, "window_size", unit="messages", least=1)
        self.rules = tuple(rules)
        self.every = check_every(max(1, window_size // 3) if every is None else every)
        self._histories = Followed(_Watched)

    def apply(self, messages: Iterable[Artifact]) -> list[Artifact]:
        """Return the artifacts that stay as of now. The input is not changed."""
        return applied(SlidingWindow(self.window_size, rules=self.rules, every=1), messages)

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with the window and what is kept outside of it."""
        if len(draft.artifacts) <= self.window_size:
            return with_cut(draft, draft, None)
        with self._histories.following(draft) as history:
            task = history.task(draft)
            history.slide(self.rules, self.window_size, self.every, task)

            def choose(first: int) -> list[int]:
                return history.preserved[: bisect_left(history.preserved, first)]

            def settle(end: int) -> int:
                return history.first(end, self.window_size, self.every, task)

            return selected(draft, history, choose, settle, f"older than the latest {self.window_size} messages")
