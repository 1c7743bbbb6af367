"""ctxguard itself: the default policy with masking and every check, as it is shipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ctxguard.adapting.adapter import with_adapter_stages
from ctxguard.adapting.registry import find_adapter
from ctxguard.errors import BudgetExceededError
from ctxguard.harness.peers.course import Course, GaveUpError, Message
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens import REPLY_TOKENS


class Ours:
    """Append what is new to a session of the default stabilizer."""

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
        """Return them as messages."""
        return cast("list[Message]", self._adapter.write(self._native, sent))  # type: ignore[arg-type]  # from `send`
