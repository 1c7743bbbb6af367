"""The content of a model's response as items: texts, reasoning, and tool calls. One class for each API with read-back.

In read-back, the guard gives the model a tool that reads stored results, and answers its calls itself, invisible to the
client. To do so, it must find these calls in a response, hide them, and join the model's next response to it.

An item is what the API lists: an output item, a content block, or a part; in Chat Completions, a message without its
calls, or one of the calls. A `Weave` joins the streamed responses to one request of the client: it hides the calls of
one tool, and lets the next response continue where the previous one stopped.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from ctxguard.adapting.editing import copy_with
from ctxguard.adapting.fields import Path, arguments_as_text, get, member_at
from ctxguard.artifacts import ToolCall
from ctxguard.formats.format import Api, Body, Event, Format, records_of

Item = dict[str, Any]
AnyItem = TypeVar("AnyItem", bound=Body)


class Weave(ABC):
    """Joins the streamed responses to one request of the client into one stream. Call `feed` for each event.

    Args:
        answers: Description of the API's responses.
        name: Name of the tool whose calls are hidden.

    Attributes:
        items: Items of the current response so far, including hidden calls.
        is_over: Whether the current response has ended.
        goes_on: Whether the current response has ended, and all of its calls (at least one) were hidden. Its end was
            then hidden as well.
        renamed: Two ids of the joined response: the one that the client sees, and the one under which the provider
            stores the last response. None for APIs that do not store responses, and if nothing was hidden.
        round: Index of the current response; 0 for the first.
        shown: Items of earlier responses that the client has received.
    """

    def __init__(self, answers: Answers, name: str) -> None:
        self.answers, self.name = answers, name
        self.round = -1
        self.renamed: tuple[str, str] | None = None
        self.shown: list[Item] = []
        self.items: list[Item] = []
        self.again()

    def again(self) -> None:
        """Prepare for the events of the next response."""
        self.shown += self.answers.others(self.items, self.name)
        self.items, self.hidden, self.goes_on, self.is_over = [], set[int](), False, False
        self.round += 1

    @abstractmethod
    def feed(self, event: Event) -> Event | None:
        """Return the event for the client, or None to hide it. Until something is hidden, this is `event` itself."""

    def _is_hidden(self, item: Body) -> bool:
        return not self.answers.others([item], self.name)

    def _ends(self) -> bool:
        """Record that the response has ended, and return whether the client gets its end.

        The end is hidden if the response has calls and all of them are hidden.
        """
        calls = [self._is_hidden(item) for item in self.items if self.answers.call(item) is not None]
        self.is_over, self.goes_on = True, bool(calls) and all(calls)
        return not self.goes_on

    def _place(self, number: int) -> int:
        """Return the index at which the client sees the item with the index `number` in the current response."""
        return len(self.shown) + number - sum(other < number for other in self.hidden)


class Answers(ABC):
    """Describes the responses of one API.

    Attributes:
        api: Name of the API.
        weave: Class that joins the streamed responses of the API.
        place: Path of the items in a response.
        member: History message that contains items under the last key of `place`; None if each item is a message.
        calls: Paths of the name, the arguments, and the id of a call in an item.
        types: Types of items that call the client's tools; empty if such items have no type of their own.
    """

    api: ClassVar[Api]
    weave: ClassVar[type[Weave]]
    place: ClassVar[Path]
    member: ClassVar[Mapping[str, object] | None] = None
    calls: ClassVar[tuple[Path, Path, Path]] = (("name",), ("input",), ("id",))
    types: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def tool(self, schema: Body) -> Body:
        """Return a function, given by its `schema`, in the format of the API's tools."""

    def with_tool(self, kind: Format, body: Body, schema: Body) -> Body:
        """Return a copy of a request with one more function at the end of its tools."""
        place = kind.tools_at(body)[:1]
        return {**body, str(place[0]): [*records_of(member_at(body, place)), self.tool(schema)]}

    def is_one(self, body: Body) -> bool:
        """Return whether a request asks for a single response rather than several alternatives."""
        return body.get("n") in (None, 1) and get(body.get("generationConfig"), "candidateCount") in (None, 1)

    def items(self, answer: Body) -> list[Item]:
        """Return the items in a response."""
        return [dict(item) for item in records_of(member_at(answer, self.place))]

    def call(self, item: Body) -> ToolCall | None:
        """Return the tool call in an item, with its arguments as JSON; None if the item calls no tool of the client."""
        name, arguments, identity = (member_at(item, path) for path in self.calls)
        if not isinstance(name, str) or (self.types and item.get("type") not in self.types):
            return None
        return ToolCall(name, arguments_as_text(arguments), identity if isinstance(identity, str) else None)

    def others(self, items: Iterable[AnyItem], name: str) -> list[AnyItem]:
        """Return the items that are not calls of the tool `name`."""
        return [item for item in items if (call := self.call(item)) is None or call.name != name]

    def members(self, items: Iterable[Item]) -> list[Item]:
        """Return the history messages for these items."""
        return list(items) if self.member is None else [{**self.member, str(self.place[-1]): list(items)}]

    def answer(self, answer: Body, items: Sequence[Item]) -> Body:
        """Return a copy of a response with other items."""
        return copy_with(answer, {self.place: list(items)})


class _ChatWeave(Weave):
    def again(self) -> None:
        super().again()
        self._calls: dict[int, Item] = {}

    def feed(self, event: Event) -> Event | None:
        choice = next(iter(records_of(event.get("choices"))), None)
        said = get(choice, "delta")
        if choice is None or not isinstance(said, Mapping):
            return None if self.goes_on else event
        if not self.items:
            self.items = [{"role": "assistant", "content": None}]
        told = {key: value for key, value in said.items() if key != "tool_calls" and not (self.round and key == "role")}
        _add_to(self.items[0], told)
        listed = records_of(said.get("tool_calls"))
        calls = [new for call in listed if (new := self._call_piece(call)) is not None]
        is_over = choice.get("finish_reason") is not None
        if (is_over and not self._ends()) or (listed and not (calls or is_over or any(told.values()))):
            return None
        if not self.round and not self.hidden:
            return event
        return copy_with(event, {("choices", 0, "delta"): {**told, **({"tool_calls": calls} if calls else {})}})

    def _call_piece(self, call: Body) -> Item | None:
        """Return a piece of a call with the index that the client sees; None if the call is hidden."""
        index = int(str(call.get("index") or 0))
        if index not in self._calls:
            self._calls[index] = {"id": None, "type": "function"}
            self.items.append(self._calls[index])
        known = self._calls[index]
        for key, value in call.items():
            if isinstance(value, Mapping):
                _add_to(known.setdefault(key, {}), value)
            elif value is not None and key != "index":
                known[key] = value
        if self._is_hidden(known):
            self.hidden.add(index)
            return None
        return {**call, "index": index - sum(other < index for other in self.hidden)}


def _add_to(record: Item, more: Body) -> None:
    """Append pieces of text to the texts of a record; replace any other values."""
    for key, value in more.items():
        if isinstance(value, str) and isinstance(record.get(key), str) and key != "role":
            record[key] += value
        elif value is not None:
            record[key] = value


class ChatAnswers(Answers):
    """Describes the responses of Chat Completions."""

    api = "chat"
    weave = _ChatWeave
    place = ("choices", 0, "message")
    calls = (("function", "name"), ("function", "arguments"), ("id",))

    def tool(self, schema: Body) -> Body:
        """Return a function, given by its `schema`, in the format of the API's tools."""
        return {"type": "function", "function": schema}

    def items(self, answer: Body) -> list[Item]:
        """Return the message without its calls, followed by each call."""
        message = member_at(answer, self.place)
        said = [{k: v for k, v in one.items() if k != "tool_calls"} for one in records_of(message)]
        return [*said, *map(dict, records_of(get(message, "tool_calls") or ()))]

    def members(self, items: Iterable[Item]) -> list[Item]:
        """Return one message with the texts and all calls of the items."""
        message: Item = {"role": "assistant", "content": None}
        for item in items:
            more = item if "role" in item else {"tool_calls": [*message.get("tool_calls", ()), item]}
            _add_to(message, more)
        return [message]

    def answer(self, answer: Body, items: Sequence[Item]) -> Body:
        """Return a copy of a response with other items."""
        return copy_with(answer, {self.place: self.members(items)[0]})


class _ResponsesWeave(Weave):
    _last = -1
    _id: object = None

    def feed(self, event: Event) -> Event | None:
        number = event.get("sequence_number")
        shown = self._shown(event, str(event.get("type")))
        if shown is None or not isinstance(number, int):
            return shown
        self._last = self._last + 1 if self.hidden or self.round else number
        return shown if shown.get("sequence_number") == self._last else {**shown, "sequence_number": self._last}

    def _shown(self, event: Event, kind: str) -> Event | None:
        item, index, answer = event.get("item"), event.get("output_index"), event.get("response")
        if isinstance(index, int):
            if isinstance(item, dict) and self._is_hidden(item):
                self.hidden.add(index)
            if isinstance(item, dict) and kind.endswith(".done"):
                self.items.append(item)
            place = self._place(index)
            return None if index in self.hidden else event if place == index else {**event, "output_index": place}
        if not isinstance(answer, dict):
            return event
        self._id = self._id or answer.get("id")
        if kind not in ("response.completed", "response.incomplete", "response.failed"):
            return None if self.round else event
        is_hidden = kind != "response.failed" and not self._ends()
        if is_hidden or not (self.round or self.hidden):
            return None if is_hidden else event
        self.renamed = (str(self._id), str(answer.get("id")))  # clients reject a changed id
        visible = [*self.shown, *self.answers.others(self.items, self.name)]
        return {**event, "response": {**answer, "id": self._id, "output": visible}}


class ResponsesAnswers(Answers):
    """Describes the responses of the Responses API."""

    api = "responses"
    weave = _ResponsesWeave
    place = ("output",)
    calls = (("name",), ("arguments",), ("call_id",))
    types = ("function_call", "custom_tool_call")

    def tool(self, schema: Body) -> Body:
        """Return a function in the format of the API's tools. It is not strict, so parameters may be optional."""
        return {"type": "function", **schema, "strict": False}


class _AnthropicWeave(Weave):
    def again(self) -> None:
        super().again()
        self._pieces: list[str] = []

    def feed(self, event: Event) -> Event | None:
        kind, index = event.get("type"), event.get("index")
        if kind == "message_start":
            return None if self.round else event
        if isinstance(index, int):
            self._take(event, index)
            if index in self.hidden:
                return None
            return event if self._place(index) == index else {**event, "index": self._place(index)}
        if kind == "message_delta" and member_at(event, ("delta", "stop_reason")) is not None:
            self._ends()
        return None if self.goes_on else event

    def _take(self, event: Event, index: int) -> None:
        """Add the content of an event to the item with the index `index`."""
        block, said = event.get("content_block"), event.get("delta")
        if isinstance(block, dict):
            self.items.append(dict(block))
            self._pieces = []
            if self._is_hidden(block):
                self.hidden.add(index)
        elif isinstance(said, dict):
            told = {key: value for key, value in said.items() if key not in ("type", "partial_json", "citation")}
            _add_to(self.items[-1], told)
            self._pieces.append(str(said.get("partial_json", "")))
            if "citation" in said:
                self.items[-1]["citations"] = [*(self.items[-1].get("citations") or ()), said["citation"]]
        elif event.get("type") == "content_block_stop" and any(self._pieces):
            self.items[-1]["input"] = json.loads("".join(self._pieces))


class AnthropicAnswers(Answers):
    """Describes the responses of Anthropic's Messages API."""

    api = "anthropic"
    weave = _AnthropicWeave
    place = ("content",)
    member: ClassVar[Mapping[str, object]] = {"role": "assistant"}
    types = ("tool_use",)

    def tool(self, schema: Body) -> Body:
        """Return a function, given by its `schema`, in the format of the API's tools."""
        return {"name": schema["name"], "description": schema["description"], "input_schema": schema["parameters"]}


class _GeminiWeave(Weave):
    def feed(self, event: Event) -> Event | None:
        candidate = next(iter(records_of(event.get("candidates"))), None)
        if candidate is None:
            return None if self.goes_on else event
        parts = records_of(member_at(candidate, ("content", "parts")))
        self.items += map(dict, parts)
        visible = [part for part in parts if not self._is_hidden(part)]
        is_over = candidate.get("finishReason") is not None
        is_hidden_end = is_over and not self._ends()
        if not is_hidden_end and len(visible) == len(parts):
            return event
        if not visible and (is_hidden_end or not is_over):
            return None
        kept = {key: value for key, value in candidate.items() if key != "finishReason" or not is_hidden_end}
        return {**event, "candidates": [{**kept, "content": {"role": "model", "parts": visible}}]}


class GeminiAnswers(Answers):
    """Describes the responses of Gemini."""

    api = "gemini"
    weave = _GeminiWeave
    place = ("candidates", 0, "content", "parts")
    member: ClassVar[Mapping[str, object]] = {"role": "model"}
    calls = (("functionCall", "name"), ("functionCall", "args"), ("functionCall", "id"))

    def with_tool(self, kind: Format, body: Body, schema: Body) -> Body:
        """Return a copy of a request with one more function, in the existing list of functions if there is one.

        The API accepts only one list of functions.
        """
        tools = records_of(body.get("tools"))
        for number, tool in enumerate(tools):
            for key in ("functionDeclarations", "function_declarations"):
                if isinstance(listed := tool.get(key), list):
                    return copy_with(body, {("tools", number, key): [*listed, schema]})
        return super().with_tool(kind, {**body, "tools": tools}, schema)

    def tool(self, schema: Body) -> Body:
        """Return a function, given by its `schema`, in the format of the API's tools."""
        return {"functionDeclarations": [schema]}


SHOWN: Final = frozenset({"content", "refusal", "text", "tool_plan"})
"""Keys of the texts of an answer, which a client may show as one text."""
_ANSWERS: Final[Mapping[str, Answers]] = {
    one.api: one for one in (ChatAnswers(), ResponsesAnswers(), AnthropicAnswers(), GeminiAnswers())
}


def answers_of(kind: Format) -> Answers | None:
    """Return the description of a format's responses; None for an API without read-back."""
    return _ANSWERS.get(kind.api)
