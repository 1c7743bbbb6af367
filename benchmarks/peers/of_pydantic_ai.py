"""PydanticAI: a history processor, and the sliding window of pydantic-ai-harness."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, cast

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from ctxguard.harness.contestants import Course, Message

from .translated import calls_of, user_message

KEPT_MESSAGES = 20


class OfPydanticAI:
    """The messages as requests and responses; consecutive prompts and tool results form one request.

    System prompts are kept apart, as an agent's `instructions` are.
    """

    def __init__(self, course: Course) -> None:
        self.course = course
        self.state: list[ModelMessage] = []
        self._done = 0
        self._own: dict[int, tuple[object, Message]] = {}
        self._system: list[Message] = []
        self.available = course.available_beside_system

    def grown(self, end: int) -> list[ModelMessage]:
        """Return the state with what is new."""
        for message in self.course.messages[self._done : end]:
            if message["role"] == "system":
                self._system.append(message)
            elif message["role"] == "assistant":
                self.state.append(ModelResponse(parts=self._held(message, _said(message))))
            elif self.state and isinstance(self.state[-1], ModelRequest):
                last = self.state[-1]
                self.state[-1] = ModelRequest(parts=[*last.parts, *self._held(message, _asked(message))])
            else:
                self.state.append(ModelRequest(parts=self._held(message, _asked(message))))
        self._done = end
        return self.state

    def _held(self, message: Message, parts: Iterator[Any]) -> list[Any]:
        held = list(parts)
        self._own.update({id(part): (part, message) for part in held})  # held, so that its id stays its own
        return held

    def chat(self, sent: object) -> Sequence[Message]:
        """Return what was sent as Chat Completions messages, behind the system prompts; each response once."""
        return [*self._system, *self.spoken(cast("list[ModelMessage]", sent))]

    def spoken(self, messages: Sequence[ModelMessage]) -> list[Message]:
        """Return messages without the system prompts."""
        found: list[Message] = []
        for message in messages:
            own = [self._chat(part) for part in message.parts]
            found += own[:1] if isinstance(message, ModelResponse) else own
        return found

    def _chat(self, part: Any) -> Message:
        known = self._own.get(id(part))
        if known is not None:
            return known[1]
        text = str(getattr(part, "content", ""))
        if isinstance(part, ToolReturnPart):
            return {"role": "tool", "content": text, "tool_call_id": part.tool_call_id}
        return user_message(text)


def _said(message: Message) -> Iterator[Any]:
    calls = list(calls_of(message))
    if message["content"] or not calls:
        yield TextPart(str(message["content"]))
    yield from (ToolCallPart(call.name, call.arguments, tool_call_id=call.id) for call in calls)


def _asked(message: Message) -> Iterator[Any]:
    text = str(message["content"])
    if message["role"] == "tool":
        yield ToolReturnPart("tool", text, tool_call_id=str(message["tool_call_id"]))
    else:
        yield UserPromptPart(text)


class Processor(OfPydanticAI):
    """Keep the latest messages, as the history processor of the documentation does.

    As the documentation warns, calls stay with their returns: a tail that would begin with returns begins with the
    response in front of them.
    """

    def send(self, end: int) -> object:
        """Return the messages that are kept."""
        messages = self.grown(end)
        start = len(messages) - KEPT_MESSAGES
        if start <= 0:
            return list(messages)
        if any(isinstance(part, ToolReturnPart) for part in messages[start].parts):
            start -= 1
        return messages[start:]


class Sliding(OfPydanticAI):
    """`SlidingWindowCompaction`, whose result lives on from call to call."""

    def __init__(self, course: Course) -> None:
        from pydantic_ai_harness.compaction import SlidingWindowCompaction, compact_now

        super().__init__(course)
        self._compact: Any = compact_now
        self._strategy = SlidingWindowCompaction(
            max_tokens=self.available, keep_tokens=max(1, self.available // 2), tokenizer=course.count_text
        )
        self._loop = asyncio.new_event_loop()

    def send(self, end: int) -> object:
        """Return the messages of the state, compacted where they exceed the budget."""
        messages = self.grown(end)
        if self.course.count(self.spoken(messages)) > self.available:
            self.state = list(self._loop.run_until_complete(self._run(messages)))
        return list(self.state)

    async def _run(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        from pydantic_ai.models.test import TestModel

        return cast("list[ModelMessage]", await self._compact(self._strategy, messages, model=TestModel()))

    def __del__(self) -> None:
        """Close the loop that ran the strategy."""
        self._loop.close()
