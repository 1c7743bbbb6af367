"""The contestants of `ctxguard bench` that need no other library: ctxguard, and two simple alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ctxguard.adapting.adapter import with_adapter_stages
from ctxguard.adapting.registry import find_adapter
from ctxguard.errors import BudgetExceededError
from ctxguard.harness.contestants import ChatContestant, Course, GaveUpError, Message
from ctxguard.history import exchanges
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens.artifact_counter import REPLY_TOKENS


class Ours:
    """ctxguard itself, with defaults: append new messages to a session of the default stabilizer."""

    def __init__(self, course: Course) -> None:
        self._adapter = find_adapter("openai")
        chain = with_adapter_stages(Stabilizer(course.budget, counter=course.counter), self._adapter)
        self._session = chain.session(tools=course.tools, overhead=REPLY_TOKENS)
        self._native = course.messages
        self._artifacts = self._adapter.read(course.messages)
        self._done = 0

    def send(self, end: int) -> object:
        """Return the artifacts of the context."""
        self._session.extend(self._artifacts[self._done : end])
        self._done = end
        try:
            return self._session.context().artifacts
        except BudgetExceededError as error:
            raise GaveUpError from error

    def chat(self, sent: object) -> Sequence[Message]:
        """Return the context as messages."""
        return cast("list[Message]", self._adapter.write(self._native, sent))  # type: ignore[arg-type]  # from `send`


class Whole(ChatContestant):
    """Send the history as it is."""

    def send(self, end: int) -> object:
        """Return the history."""
        return self.course.messages[:end]


class Rolling(ChatContestant):
    """Send system prompts and the longest tail of exchanges that fits, after the user message of its first turn."""

    def __init__(self, course: Course) -> None:
        super().__init__(course)
        self._messages = course.messages
        self._available = course.available
        self._tokens = [course.count([message]) for message in course.messages]
        self._artifacts = find_adapter("openai").read(course.messages)

    def send(self, end: int) -> object:
        """Return the messages that are kept."""
        fixed = [n for n in range(end) if self._messages[n]["role"] == "system"]
        spoken = [n for n in range(end) if self._messages[n]["role"] != "system"]
        available = self._available - sum(self._tokens[n] for n in fixed)
        units = [[spoken[p] for p in e.positions] for e in exchanges([self._artifacts[n] for n in spoken])]
        kept = self._tail(units, available)
        if kept is None:
            raise GaveUpError
        return [self._messages[n] for n in sorted({*fixed, *kept})]

    def _tail(self, units: Sequence[Sequence[int]], available: int) -> set[int] | None:
        openers: list[int | None] = []
        for number, unit in enumerate(units):
            is_user = self._messages[unit[0]]["role"] == "user"
            openers.append(number if is_user else openers[-1] if openers else None)
        best: set[int] | None = None
        tail: set[int] = set()
        for number in range(len(units) - 1, -1, -1):
            tail |= set(units[number])
            opener = openers[number]
            held = tail | (set() if opener is None else set(units[opener]))
            if sum(self._tokens[n] for n in tail) > available:
                break
            if sum(self._tokens[n] for n in held) <= available and (opener is not None or number == 0):
                best = held
        return best
