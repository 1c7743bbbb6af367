"""Strands: the sliding window, which reduces the messages of an agent in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.types.exceptions import ContextWindowOverflowException

from ctxguard.harness.contestants import Course, GaveUpError, Message

from .translated import calls_of, edited

COMPRESS_AT = 0.7
"""Share of the window at which Strands compresses before a call, its default."""
_NUMBER = "number"


class Sliding:
    """Reduce once above 70% of the budget, as proactive compression does, and recover while it is exceeded.

    Results in a row are one message of the user's, as Bedrock has it.
    """

    def __init__(self, course: Course) -> None:
        self._course = course
        self._manager = SlidingWindowConversationManager(pin_first=1)
        self._state: list[Any] = []
        self._done = 0
        self._available = course.available_beside_system

    def send(self, end: int) -> object:
        """Return the messages of the agent, with the number of the call for its system prompts."""
        for number in range(self._done, end):
            self._append(number)
        self._done = end
        agent: Any = SimpleNamespace(messages=self._state)
        if self._tokens() > COMPRESS_AT * self._available:
            self._manager.reduce_context(agent)
        overflow = ContextWindowOverflowException("the budget is exceeded")
        try:
            while self._tokens() > self._available:
                self._manager.reduce_context(agent, e=overflow)
        except ContextWindowOverflowException as error:
            raise GaveUpError from error
        return end, list(self._state)

    def _append(self, number: int) -> None:
        message = self._course.messages[number]
        if message["role"] == "system":
            return
        block = {"content": list(_blocks(message)), _NUMBER: [number]}
        last = self._state[-1] if self._state else None
        if message["role"] == "tool" and last is not None and "toolResult" in last["content"][-1]:
            last["content"] += block["content"]
            last[_NUMBER].append(number)
            return
        self._state.append({"role": "assistant" if message["role"] == "assistant" else "user", **block})

    def _tokens(self) -> int:
        return self._course.count([m for message in self._state for m in self._chat(message)])

    def chat(self, sent: object) -> Sequence[Message]:
        """Return what was sent as Chat Completions messages, the system prompts first."""
        end, state = cast("tuple[int, list[Any]]", sent)
        system = [m for m in self._course.messages[:end] if m["role"] == "system"]
        return [*system, *(m for message in state for m in self._chat(message))]

    def _chat(self, message: Mapping[str, Any]) -> Iterator[Message]:
        for place, number in enumerate(message[_NUMBER]):
            own = self._course.messages[number]
            if own["role"] == "tool":
                yield edited(own, str(message["content"][place]["toolResult"]["content"][0].get("text", "")))
            else:
                yield own


def _blocks(message: Message) -> Iterator[dict[str, object]]:
    text = str(message["content"])
    if message["role"] == "tool":
        found = {"toolUseId": message["tool_call_id"], "status": "success", "content": [{"text": text}]}
        yield {"toolResult": found}
        return
    if text:
        yield {"text": text}
    for call in calls_of(message):
        yield {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.arguments}}
