"""Follow a history as it grows: what was worked out from its beginning is worked out once.

Strategies are functions of the whole history, and a session calls them with one that is a little longer each time.
What they know of the exchanges they have seen is remembered by session and goes on from there where the very same
artifacts come back; memory makes it fast, results do not depend on it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.history import AUTHORITY, Unit, task_of, units
from ctxguard.prefix_memory import PrefixMemory

__all__ = ["Followed", "GrowingHistory"]


@dataclass(slots=True)
class GrowingHistory:
    """Hold the exchanges of one history, and where those stand that strategies look for.

    All lists but the last exchange's part of them only grow. Numbers are those of exchanges, positions those of
    artifacts.

    Attributes:
        artifacts: what has been seen.
        units: the exchanges.
        costs: tokens of each artifact.
        authority: positions of system and task artifacts.
        users: numbers of the messages that a user wrote.
        messages: numbers of the exchanges that hold a message.
        replies: numbers of the exchanges that the assistant begins.
        pinned: numbers of the pinned exchanges.
    """

    artifacts: tuple[Artifact, ...] = ()
    units: list[Unit] = field(default_factory=list)
    costs: list[int] = field(default_factory=list)
    authority: list[int] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    replies: list[int] = field(default_factory=list)
    pinned: list[int] = field(default_factory=list)

    def follow(self, draft: Draft) -> None:
        """Take in what is new, the last exchange anew: results may have come for it."""
        begin = self._reopened()
        self.artifacts = draft.artifacts
        new = draft.artifacts[begin:]
        self.costs += map(draft.counter.artifact, new)
        self.authority += [p for p, artifact in enumerate(new, begin) if artifact.kind in AUTHORITY]
        for unit in units(draft, begin):
            self._add(unit)

    def _add(self, unit: Unit) -> None:
        number = len(self.units)
        self.units.append(unit)
        if unit.asks:
            self.users.append(number)
        if unit.message:
            self.messages.append(number)
        if unit.pinned:
            self.pinned.append(number)
        if self.artifacts[unit.start].kind is Kind.ASSISTANT:
            self.replies.append(number)

    def _reopened(self) -> int:
        """Forget the last exchange, and return the position where it began."""
        if not self.units:
            self.costs.clear()
            self.authority.clear()
            return 0
        begin = self.units.pop().start
        del self.costs[begin:]
        del self.authority[bisect_left(self.authority, begin) :]
        for numbers in (self.users, self.messages, self.replies, self.pinned):
            if numbers and numbers[-1] == len(self.units):
                numbers.pop()
        return begin

    def start(self, number: int) -> int:
        """Return the position where an exchange begins; the end of the history for the one behind the last."""
        return self.units[number].start if number < len(self.units) else len(self.artifacts)

    def members(self, number: int) -> tuple[Artifact, ...]:
        """Return the artifacts of an exchange."""
        unit = self.units[number]
        return self.artifacts[unit.start : unit.end]

    def task(self, draft: Draft) -> int | None:
        """Return the number of the user message that is kept as the task."""
        task = task_of(draft)
        if task is None:
            return None
        return next((n for n in self.users if self.artifacts[self.units[n].start] is task), None)


H = TypeVar("H", bound=GrowingHistory)


class Followed(Generic[H]):
    """Remember histories. Safe for many threads: who follows a history has it alone.

    Args:
        make: makes an empty one.
    """

    def __init__(self, make: Callable[[], H]) -> None:
        self._make = make
        self._known: PrefixMemory[H] = PrefixMemory()

    @contextmanager
    def following(self, draft: Draft) -> Iterator[H]:
        """Give the history of a draft: the one that is remembered, brought up to date, or a new one."""
        settings = draft.budget, draft.overhead, draft.keep_recent, draft.keep_task, draft.counter.counter
        found = self._known.take(draft.artifacts, settings, begins_with=draft.begins_with)
        history = found.value if found else self._make()
        history.follow(draft)
        yield history
        self._known.keep(draft.artifacts, history, settings)
