"""Haystack: `CompactionHook` with a sliding window, which rewrites the state of an agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.compaction import CompactionHook, SlidingWindowCompactor

from ctxguard.harness.contestants import Course, Message

from .translated import TranslatedContestant, calls_of, edited, user_message

_NUMBER = "number"


class Compacted(TranslatedContestant):
    """Run the hook before each call on a state that lives on."""

    def __init__(self, course: Course) -> None:
        super().__init__(course)
        self._state = _State()
        self._done = 0
        self._hook = CompactionHook(
            compactor=SlidingWindowCompactor(), context_window=course.available, token_counter=_Counter(self.tokens)
        )

    def send(self, end: int) -> object:
        """Return the messages of the state."""
        messages = self.course.messages
        self._state.data["messages"] += [_message(n, messages[n]) for n in range(self._done, end)]
        self._done = end
        self._hook.run(self._state)
        return list(self._state.data["messages"])

    def original(self, message: ChatMessage) -> Message:
        """Return the message of the session by its number."""
        number = message.meta.get(_NUMBER)
        if number is None:
            return user_message(message.text or "")
        result = message.tool_call_result
        return edited(self.course.messages[number], str(result.result) if result else message.text or "")


class _State(SimpleNamespace):
    """The part of an agent's state that the hook uses."""

    def __init__(self) -> None:
        super().__init__(data={"messages": [], "context_tokens": 0, "tools": None})

    def set(self, key: str, value: object, **settings: object) -> None:
        del settings
        self.data[key] = value


class _Counter:
    def __init__(self, tokens: Callable[[Sequence[Any]], int]) -> None:
        self._tokens = tokens

    def count(self, messages: Sequence[ChatMessage], tools: object = None) -> int:
        del tools  # their tokens are not part of what is available
        return self._tokens(messages)


def _message(number: int, message: Message) -> Any:
    role, text, meta = message["role"], str(message["content"]), {_NUMBER: number}
    if role == "tool":
        origin = ToolCall(tool_name="tool", arguments={}, id=str(message["tool_call_id"]))
        return ChatMessage.from_tool(text, origin=origin, meta=meta)
    if role == "assistant":
        calls = [ToolCall(tool_name=c.name, arguments=c.arguments, id=c.id) for c in calls_of(message)]
        return ChatMessage.from_assistant(text or None, meta=meta, tool_calls=calls or None)
    make = ChatMessage.from_user if role == "user" else ChatMessage.from_system
    return make(text, meta=meta)
