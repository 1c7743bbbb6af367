"""headroom: `compress`, which takes and gives Chat Completions messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from headroom import compress

from ctxguard.harness.peers.course import Course, Message


class Compressed:
    """Compress the history anew at each call."""

    def __init__(self, course: Course) -> None:
        self._course = course

    def send(self, end: int) -> object:
        """Return the compressed messages; its ML model, which would be downloaded, is off."""
        messages = [dict(message) for message in self._course.messages[:end]]
        return compress(messages, model="gpt-4o", model_limit=self._course.room, kompress_model="disabled").messages

    def chat(self, sent: object) -> Sequence[Message]:
        """Return them unchanged."""
        return cast("list[Message]", sent)
