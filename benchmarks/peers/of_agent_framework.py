"""Microsoft's agent-framework: the compaction strategy that it derives from a model's context window."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from agent_framework import Content, ContextWindowCompactionStrategy, apply_compaction
from agent_framework import Message as FrameworkMessage

from ctxguard.harness.contestants import Course, Message

from .translated import TranslatedContestant, calls_of

_NUMBER = "number"


class Compacted(TranslatedContestant):
    """Compact before each call a list of messages that lives on, as an agent with a `compaction_strategy` does."""

    def __init__(self, course: Course) -> None:
        super().__init__(course)
        self._state: list[FrameworkMessage] = []
        self._done = 0
        self._loop = asyncio.new_event_loop()
        tokenizer = _Tokenizer(course.count_text)
        self._strategy = ContextWindowCompactionStrategy(
            max_context_window_tokens=max(4, course.available), max_output_tokens=0, tokenizer=tokenizer
        )

    def send(self, end: int) -> object:
        """Return the messages that are not excluded."""
        messages = self.course.messages
        self._state += [_message(number, messages[number]) for number in range(self._done, end)]
        self._done = end
        return self._loop.run_until_complete(apply_compaction(self._state, strategy=self._strategy))

    def original(self, message: FrameworkMessage) -> Message:
        """Return the message of the session by its number, or what the library wrote in place of tool results."""
        number = message.additional_properties.get(_NUMBER)
        if number is None:
            return {"role": str(message.role), "content": message.text}
        return self.course.messages[number]

    def __del__(self) -> None:
        """Close the loop that ran the strategy."""
        self._loop.close()


class _Tokenizer:
    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count

    def count_tokens(self, text: str) -> int:
        return self._count(text)


def _message(number: int, message: Message) -> FrameworkMessage:
    properties = {_NUMBER: number}
    return FrameworkMessage(
        role=str(message["role"]), contents=list(_contents(message)), additional_properties=properties
    )


def _contents(message: Message) -> Iterator[Content]:
    text = str(message["content"])
    if message["role"] == "tool":
        yield Content.from_function_result(str(message["tool_call_id"]), result=text)
        return
    if text:
        yield Content.from_text(text)
    for call in calls_of(message):
        yield Content.from_function_call(call.id, call.name, arguments=call.arguments)
