"""What drivers of libraries with messages of their own share."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ctxguard.harness.contestants import Course, Message


class TranslatedContestant:
    """A contestant whose messages are of another class; each represents one of the session's messages, or was added."""

    def __init__(self, course: Course) -> None:
        self.course = course

    @abstractmethod
    def original(self, message: Any) -> Message:
        """Return the Chat Completions message that a message of the library represents."""

    def chat(self, sent: object) -> Sequence[Message]:
        """Return what was sent as Chat Completions messages."""
        return list(map(self.original, cast("Iterable[Any]", sent)))

    def tokens(self, messages: Sequence[Any]) -> int:
        """Count with the counter that everyone is judged by."""
        return self.course.count(self.chat(messages))


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a message, with parsed arguments: an empty dict unless they are a JSON object."""

    id: str
    name: str
    arguments: dict[str, object]


def calls_of(message: Message) -> Iterator[Call]:
    """Walk the tool calls of a message."""
    listed = message.get("tool_calls")
    for call in listed if isinstance(listed, list) else ():
        function = call["function"]
        try:
            arguments = json.loads(function["arguments"])
        except ValueError:
            arguments = None
        yield Call(str(call["id"]), str(function["name"]), arguments if isinstance(arguments, dict) else {})


def edited(message: Message, text: str) -> Message:
    """Return a message with another text: the same object where the text is the same."""
    return message if message["content"] == text else {**message, "content": text}


def user_message(text: str) -> Message:
    """Return a message that a library added, such as a summary."""
    return {"role": "user", "content": text}


class Spelling:
    """Spell what a library sends as Chat Completions messages; what it did not edit is the recorded message itself."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = {_key(message): message for message in messages}
        self._calls = {(call.id, _key(call.arguments)): own for m in messages for call, own in _with_own(m)}

    def message(self, role: str, text: str, calls: Sequence[Call] = ()) -> Message:
        """Return a message of a role, with its tool calls in the spelling in which they were recorded."""
        made: dict[str, object] = {"role": role, "content": text}
        if calls:
            made["tool_calls"] = [self._call(call) for call in calls]
        return self._messages.get(_key(made), made)

    def result(self, call_id: str, text: str) -> Message:
        """Return a tool's result."""
        made = {"role": "tool", "content": text, "tool_call_id": call_id}
        return self._messages.get(_key(made), made)

    def _call(self, call: Call) -> object:
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        own = self._calls.get((call.id, _key(call.arguments)))
        return own or {"id": call.id, "type": "function", "function": function}


def _with_own(message: Message) -> Iterator[tuple[Call, object]]:
    listed = message.get("tool_calls")
    return zip(calls_of(message), listed if isinstance(listed, list) else (), strict=True)


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True)
