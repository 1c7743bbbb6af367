"""What every contestant is given: one recorded session as plain Chat Completions messages, a budget and a counter."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ctxguard.artifacts import Artifact, Kind

Message = Mapping[str, object]


class GaveUpError(Exception):
    """Raised by a contestant that refuses a call: nothing that it could send would fit."""


@dataclass(frozen=True, slots=True)
class Course:
    """One session as every contestant gets it.

    Attributes:
        messages: the whole session. Contents are texts, and every tool call has an id.
        budget: tokens that a request may take.
        overhead: tokens of tool schemas and of the reply's framing.
        tools: the tool schemas.
        counter: name of the counter, for contestants that look it up.
        count: counts messages.
        count_text: counts a text.
        summarize: replaces the model that writes summaries; the same for everyone.
    """

    messages: Sequence[Message]
    budget: int
    overhead: int
    tools: Sequence[Mapping[str, object]] | None
    counter: str
    count: Callable[[Sequence[Message]], int]
    count_text: Callable[[str], int]
    summarize: Callable[[str], str]

    @property
    def available(self) -> int:
        """Tokens that the messages may take, at least one."""
        return max(1, self.budget - self.overhead)

    @property
    def available_beside_system(self) -> int:
        """Tokens that the messages other than system prompts may take, at least one."""
        return max(1, self.available - self.count([m for m in self.messages if m["role"] == "system"]))


class Contestant(Protocol):
    """Play one session: asked for the request of each model call, in order. Only `send` is timed."""

    def send(self, end: int) -> object:
        """Return the request for the history up to a position, in the library's own form.

        Raises:
            GaveUpError: the library refuses the call.
        """
        ...

    def chat(self, sent: object) -> Sequence[Message]:
        """Return what was sent as Chat Completions messages; those that were not edited are the same objects."""
        ...


class ChatContestant:
    """A contestant that takes and returns Chat Completions messages."""

    def __init__(self, course: Course) -> None:
        self.course = course

    def chat(self, sent: object) -> Sequence[Message]:
        """Return the messages unchanged."""
        return cast("Sequence[Message]", sent)


class TranslatedContestant:
    """A contestant whose messages are of another class; each represents one of the session's messages, or was added."""

    def __init__(self, course: Course) -> None:
        self.course = course

    @abstractmethod
    def original(self, message: Any) -> Message:  # noqa: ANN401 - of any library
        """Return the Chat Completions message that a message of the library represents."""

    def chat(self, sent: object) -> Sequence[Message]:
        """Return what was sent as Chat Completions messages."""
        return list(map(self.original, cast("Iterable[Any]", sent)))

    def tokens(self, messages: Sequence[Any]) -> int:
        """Count with the counter that everyone is judged by."""
        return self.course.count(self.chat(messages))


def plain_messages(artifacts: Sequence[Artifact]) -> list[Message]:
    """Return a session as Chat Completions messages with texts as contents, whatever shape it was recorded in.

    Calls without an id get one, and so do their results, in the order of the calls.
    """
    waiting: list[str] = []
    return [_plain(artifact, position, waiting) for position, artifact in enumerate(artifacts)]


def _plain(artifact: Artifact, position: int, waiting: list[str]) -> Message:
    if artifact.kind is Kind.TOOL:
        known = artifact.answers if artifact.answers in waiting else None
        answered = known or (waiting[0] if waiting and not artifact.answers else artifact.answers or "none")
        if answered in waiting:
            waiting.remove(answered)
        return {"role": "tool", "content": artifact.text, "tool_call_id": answered}
    if artifact.kind is not Kind.ASSISTANT:
        return {"role": "user" if artifact.kind is Kind.USER else "system", "content": artifact.text}
    message: dict[str, object] = {"role": "assistant", "content": artifact.text}
    calls = list(_calls(artifact, position))
    if calls:
        message["tool_calls"] = calls
        waiting += [str(call["id"]) for call in calls]
    return message


def _calls(artifact: Artifact, position: int) -> Iterator[Message]:
    for number, call in enumerate(artifact.calls):
        function = {"name": call.name, "arguments": call.arguments or "{}"}
        yield {"id": call.id or f"call_{position}_{number}", "type": "function", "function": function}


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
