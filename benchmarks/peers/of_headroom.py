"""headroom: `compress`, which takes and gives Chat Completions messages."""

from __future__ import annotations

import os

os.environ.setdefault("HEADROOM_OFFLINE", "1")  # no update check, no download of models or prices

from headroom import compress

from ctxguard.harness.contestants import ChatContestant, Course, Message


class Compressed(ChatContestant):
    """Compress the history anew at each call, as its guide and its guardrails in gateways do; it knows no budget."""

    def send(self, end: int) -> object:
        """Return the compressed messages; its ML model, which would be downloaded, is off."""
        return _compressed([*self.course.messages[:end]], 0)


class Live(ChatContestant):
    """Compress what is new since the call before, as it asks of programs with a loop of their own."""

    def __init__(self, course: Course) -> None:
        super().__init__(course)
        self._state: list[Message] = []
        self._done = 0

    def send(self, end: int) -> object:
        """Return what was sent before, and what is new, compressed."""
        frozen = len(self._state)
        self._state = _compressed([*self._state, *self.course.messages[self._done : end]], frozen)
        self._done = end
        return list(self._state)


def _compressed(messages: list[Message], frozen: int) -> list[Message]:
    given = [dict(message) for message in messages]
    return list(compress(given, model="gpt-4o", kompress_model="disabled", frozen_message_count=frozen).messages)
