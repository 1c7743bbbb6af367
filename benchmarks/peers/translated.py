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
