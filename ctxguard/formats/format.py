"""The base class of request formats: one subclass for each API, used by adapters, counter, transports, and proxy."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar

from ctxguard.adapting.content_format import opaque
from ctxguard.adapting.fields import REMOVED, Path, arguments_as_text, copy_with, get, is_list, member_at
from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.history.pairing import CallIds

Item = dict[str, Any]
"""What an API lists in a response: an output item, a content block, or a part; in Chat Completions, a message without
its calls, or one of the calls."""


class Weave(ABC):
    """Joins the streamed responses to one request of the client into one stream. Call `feed` for each event.

    Args:
        kind: The format of the responses.
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

    def __init__(self, kind: Format, name: str) -> None:
        self.format, self.name = kind, name
        self.round = -1
        self.renamed: tuple[str, str] | None = None
        self.shown: list[Item] = []
        self.items: list[Item] = []
        self.again()

    def again(self) -> None:
        """Prepare for the events of the next response."""
        self.shown += self.format.without_calls(self.items, self.name)
        self.items, self.hidden, self.goes_on, self.is_over = [], set[int](), False, False
        self.round += 1

    @abstractmethod
    def feed(self, event: Event) -> Event | None:
        """Return the event for the client, or None to hide it. Until something is hidden, this is `event` itself."""

    def _is_hidden(self, item: Body) -> bool:
        return not self.format.without_calls([item], self.name)

    def _ends(self) -> bool:
        """Record that the response has ended, and return whether the client gets its end.

        The end is hidden if the response has calls and all of them are hidden.
        """
        calls = [self._is_hidden(item) for item in self.items if self.format.call_in(item) is not None]
        self.is_over, self.goes_on = True, bool(calls) and all(calls)
        return not self.goes_on

    def _place(self, number: int) -> int:
        """Return the index at which the client sees the item with the index `number` in the current response."""
        return len(self.shown) + number - sum(other < number for other in self.hidden)


def add_to(record: Item, more: Body) -> None:
    """Append pieces of text to the texts of a record; replace any other values."""
    for key, value in more.items():
        if isinstance(value, str) and isinstance(record.get(key), str) and key != "role":
            record[key] += value
        elif value is not None:
            record[key] = value


_MODEL: Final = re.compile(r"/(?:models?|deployments)/[^/]*\Z")
Api: TypeAlias = Literal["chat", "responses", "anthropic", "gemini", "converse", "cohere", "ollama"]
Body: TypeAlias = Mapping[str, object]
"""The body of a request, or the arguments of a client's method."""
Event: TypeAlias = Mapping[str, object]
"""The data of one event of a streamed response."""
Channel: TypeAlias = tuple[Hashable, ...]
"""The identifier of one text, such as a content block, in a streamed response."""
Ends: TypeAlias = Callable[[Channel], bool]
AnyItem = TypeVar("AnyItem", bound=Body)
SHOWN: Final = frozenset({"content", "refusal", "text", "tool_plan"})
"""Keys of the texts of an answer, which a client may show as one text."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One piece of text in an event of a streamed response.

    Attributes:
        channel: Identifier of the text that the piece belongs to.
        path: Path of the piece in the event.
        text: Text of the piece.
        is_arguments: Whether the text is JSON, such as the arguments of a tool call.
        alone: Function that takes a text, and returns an event that contains only this text in place of the piece.
        calls: Keys of the tool call that the text belongs to, see `Format.called`; empty for text of the answer.
        answer: Identifies the answer that the text belongs to, if a response contains several.
        is_first: Whether the text begins here, because something else precedes it in the same event.
        is_last: Whether the text ends here, because something else follows it in the same event.
    """

    channel: Channel
    path: Path
    text: str
    is_arguments: bool
    alone: Callable[[str], Event]
    calls: tuple[Hashable, ...] = ()
    answer: Hashable = 0
    is_first: bool = False
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """The parts of a request that the provider bills.

    Attributes:
        artifacts: System prompt, messages, tool calls, and results, in order.
        tools: Tools as they are sent.
        choice: `tool_choice` as one word: `auto`, `none`, `required`, or `named` for a specific tool.
        schema: Schema that the reply must follow; None if the request contains none.
        found: Names of deferred functions that an earlier tool search has loaded.
        brought: Tools defined inside messages, one tuple for each message.
        thinks: Whether the request asks for thinking.
        documents: Number of documents that are sent as text.
        empty_system: Whether the system prompt is an empty string.
        namespaces: Namespaces of called functions, except the default namespace.
        searches: Number of tool searches that loaded functions.
    """

    artifacts: tuple[Artifact, ...]
    tools: tuple[Body, ...] = ()
    choice: str = "auto"
    schema: Body | None = None
    found: frozenset[str] = frozenset()
    brought: tuple[tuple[Body, ...], ...] = ()
    thinks: bool = False
    documents: int = 0
    empty_system: bool = False
    namespaces: tuple[str, ...] = ()
    searches: int = 0


class Format(ABC):
    """The request and response format of one API. Subclasses also read and write histories, as an `Adapter` does.

    Attributes:
        name: Name of the adapter for `--adapter` and in reports.
        api: Name of the API.
        paths: Suffixes of the URL paths of its requests.
        history: Key of the history in the body of a request.
        system: Keys of the system prompt, if the adapter reads the whole body rather than the history alone.
        json_settings: Keys of settings that may request a JSON response.
        tools: Path of the tools in the body.
        taken: Keys of the body that are neither history nor settings.
        billed: Keys of settings that the model sees, and that cannot be edited without changing the response.
        servers: Key of the list that defines MCP servers, the `type` of these definitions, and the names of their
            fields with credentials. No model sees the credentials. None if the API has no such list.
        error: How the provider writes an error: as an `object` (OpenAI, Anthropic, Amazon), as `google` does, or as a
            `text`.
        streams_lines: Whether the provider streams JSON lines rather than server-sent events.
        starts_with_user: Whether the provider rejects histories that begin with an assistant message.
        call_ids: The ids of calls that the provider accepts.
        weave: Class that joins streamed responses. None for an API without read-back: its responses are
            not read as items, and the attributes below are not used.
        response_path: Path of the items in a response.
        response_message: History message that contains items under the last key of `response_path`. None if each item
            is a message.
        call_paths: Paths of the name, the arguments, and the id of a call in an item.
        call_types: Types of items that call the client's tools; empty if such items have no type of their own.
    """

    name: str
    api: ClassVar[Api]
    paths: ClassVar[tuple[str, ...]]
    history: ClassVar[str] = "messages"
    system: ClassVar[tuple[str, ...]] = ()
    json_settings: ClassVar[tuple[str, ...]]
    tools: ClassVar[Path] = ("tools",)
    taken: ClassVar[tuple[str, ...]] = ("tools",)
    billed: ClassVar[tuple[str, ...]] = ()
    servers: ClassVar[tuple[str, str, frozenset[str]] | None] = None
    error: ClassVar[Literal["object", "google", "text"]] = "object"
    streams_lines: ClassVar[bool] = False
    starts_with_user: ClassVar[bool] = False
    call_ids: ClassVar[CallIds] = CallIds()
    weave: ClassVar[type[Weave] | None] = None
    response_path: ClassVar[Path] = ()
    response_message: ClassVar[Mapping[str, object] | None] = None
    call_paths: ClassVar[tuple[Path, Path, Path]] = (("name",), ("input",), ("id",))
    call_types: ClassVar[tuple[str, ...]] = ()

    @property
    def read_by_adapter(self) -> frozenset[str]:
        """Keys of the body that the adapter reads."""
        return frozenset({self.history, *self.system})

    def base(self, path: str) -> str:
        """Return the part of a URL path that precedes the model and the operation."""
        path = path.rstrip("/")
        ending = max((one for one in self.paths if path.endswith(one)), key=len)
        return _MODEL.sub("", path.removesuffix(ending))

    @abstractmethod
    def read(self, native: Any) -> list[Artifact]:  # noqa: ANN401 - each format has its own
        """Return the artifacts of a history (see `ctxguard.adapting.Adapter`)."""

    @abstractmethod
    def write(self, native: Any, artifacts: Iterable[Artifact]) -> Any:  # noqa: ANN401 - each format has its own
        """Return the history that consists of these artifacts (see `ctxguard.adapting.Adapter`)."""

    def sent(self, body: Body) -> Sent:
        """Return the parts of a request that the provider bills."""
        raise NotImplementedError

    def counted(self, body: Body) -> list[Artifact]:
        """Return the artifacts of a body, for counting; a message that cannot be read is counted as JSON.

        Raises:
            HistoryError: If the body has no history, or a message cannot be written as JSON.
        """
        native = self.native(body)
        try:
            return self.read(native)
        except HistoryError:
            history = body[self.history]
            members = history if isinstance(history, list) else [history]
            if not members or (len(members) == len(body) == 1):
                return [Artifact(Kind.USER, tuple(opaque(member))) for member in members]
            singles: list[Body] = [{**body, self.history: []}, *({self.history: [member]} for member in members)]
            return [artifact for one in singles for artifact in self.counted(one)]

    def tools_at(self, body: Body) -> Path:  # noqa: ARG002 - the signature of all formats
        """Return the path of the tools in a body."""
        return self.tools

    def bringing(self, body: Body) -> list[Body]:  # noqa: ARG002 - the signature of all formats
        """Return the messages of a body that define tools for the whole conversation."""
        return []

    def settings(self, body: Body) -> tuple[dict[str, object], list[Body]]:
        """Return the settings in a body, separated into plain settings and those that the model sees as schemas."""
        rest = {
            key: value
            for key, value in body.items()
            if value is not None and key not in self.taken and key not in self.read_by_adapter
        }
        schemas: list[Body] = [{key: rest.pop(key)} for key in self.billed if key in rest]
        return rest, schemas

    def native(self, body: Body) -> Any:  # noqa: ANN401 - each format has its own
        """Return the part of a body that `read` accepts."""
        if not is_list(body.get(self.history)):
            raise HistoryError(f"the request has no list {self.history!r}, so it cannot be read as {self.api}")
        return body if self.system else body[self.history]

    def written(self, body: Body, native: object) -> dict[str, object]:
        """Return a copy of the body with another history; the other fields remain unchanged."""
        return dict(native) if isinstance(native, Mapping) else {**body, self.history: native}

    def searched(self, body: Body) -> Body:
        """Return what is searched for personal data: the body without the credentials of MCP servers."""
        listed, kind, credentials = self.servers or ("", "", frozenset())
        servers = body.get(listed)
        if not isinstance(servers, list):
            return body
        ours = [number for number, one in enumerate(servers) if isinstance(one, dict) and one.get("type") == kind]
        return copy_with(body, {(listed, number, key): REMOVED for number in ours for key in credentials})

    def wants_json(self, body: Body) -> bool:
        """Return whether a request asks for a response in JSON."""
        return any("json" in str(body.get(key, "")) for key in self.json_settings)

    def deltas(self, event: Event) -> Iterator[Delta]:
        """Yield the pieces of text in an event of a streamed response."""
        raise NotImplementedError

    def ends(self, event: Event) -> Ends | None:
        """Return a predicate that is true for the channels (see `Channel`) that an event ends; None if it ends none."""
        raise NotImplementedError

    def wholes(self, event: Event) -> Iterable[tuple[Path, object]]:  # noqa: ARG002 - the signature of all formats
        """Yield the path and the value of each value that an event contains as a whole rather than in pieces."""
        return ()

    def called(self, event: Event) -> Iterable[tuple[Hashable, object]]:  # noqa: ARG002 - the signature of all formats
        """Yield a key and the record of each tool call that an event begins or continues.

        The record has the name of the tool, or a piece of it, under `name`. The call's other events have the same key.
        """
        return ()

    def calls_of(self, event: Event) -> tuple[Hashable, ...]:  # noqa: ARG002 - the signature of all formats
        """Return the keys of the tool call that an event belongs to, see `called`."""
        return ()

    def places(self, channel: Channel) -> Iterable[Hashable]:  # noqa: ARG002 - the signature of all formats
        """Return the places of a text in the response that later events may repeat whole, see `place_of`."""
        return ()

    def place_of(self, event: Event) -> Hashable:  # noqa: ARG002 - the signature of all formats
        """Return the place of what an event repeats whole; None if it repeats nothing, or the response."""
        return None

    def stored(self, event: Event) -> object:  # noqa: ARG002 - the signature of all formats
        """Return the response in an event, if the provider stores responses under their ids; otherwise None."""
        return None

    def declared(self, schema: Body) -> Body:
        """Return a function, given by its `schema`, in the format of the API's tools."""
        raise NotImplementedError

    def with_tool(self, body: Body, schema: Body) -> Body:
        """Return a copy of a request with one more function at the end of its tools."""
        place = self.tools_at(body)[:1]
        return {**body, str(place[0]): [*records_of(member_at(body, place)), self.declared(schema)]}

    def takes_tool(self, body: Body) -> bool:
        """Return whether the guard can add a tool to a request and answer its calls.

        It cannot if the request asks for several alternatives, or if its tools are stored by the provider.
        """
        return body.get("n") in (None, 1) and get(body.get("generationConfig"), "candidateCount") in (None, 1)

    def response_items(self, response: Body) -> list[Item]:
        """Return the items in a response."""
        return [dict(item) for item in records_of(member_at(response, self.response_path))]

    def call_in(self, item: Body) -> ToolCall | None:
        """Return the tool call in an item, with its arguments as JSON; None if the item calls no tool of the client."""
        name, arguments, identity = (member_at(item, path) for path in self.call_paths)
        if not isinstance(name, str) or (self.call_types and item.get("type") not in self.call_types):
            return None
        return ToolCall(name, arguments_as_text(arguments), identity if isinstance(identity, str) else None)

    def without_calls(self, items: Iterable[AnyItem], name: str) -> list[AnyItem]:
        """Return the items that are not calls of the tool `name`."""
        return [item for item in items if (call := self.call_in(item)) is None or call.name != name]

    def as_history(self, items: Iterable[Item]) -> list[Item]:
        """Return the history messages for the items of a response."""
        around = self.response_message
        return list(items) if around is None else [{**around, str(self.response_path[-1]): list(items)}]

    def with_items(self, response: Body, items: Sequence[Item]) -> Body:
        """Return a copy of a response with other items."""
        return copy_with(response, {self.response_path: list(items)})


def ended_choices(event: Event, *, listed: str, reason: str) -> Ends | None:
    """Return a predicate that is true for the channels of the choices that an event ends; None if it ends none.

    Args:
        event: Event of a streamed response.
        listed: Key of the choices in the event.
        reason: Key of a choice that is set once the choice has ended.
    """
    over = [choice.get("index", 0) for choice in records_of(event.get(listed)) if choice.get(reason) is not None]
    return (lambda channel: channel[0] in over) if over else None


def with_text(event: Event, path: Path, text: str) -> Event:
    """Return a copy of an event with another text at a path."""
    return copy_with(event, {path: text})


def records_of(value: object) -> list[Body]:
    """Return the objects in a list, or a list with the value if it is itself an object; otherwise an empty list."""
    if isinstance(value, Mapping):
        return [value]
    return [member for member in value if isinstance(member, Mapping)] if isinstance(value, (list, tuple)) else []


def choice_of(given: object) -> str:
    """Return the tool choice of any API as one word: `auto`, `none`, `required`, or `named`."""
    word = get(given, "mode") or get(given, "type") if isinstance(given, Mapping) else given
    known = {"any": "required", "function": "named", "custom": "named", "tool": "named", "validated": "auto"}
    return known.get(word, word) if isinstance(word, str) else "auto"


def described_schema(form: object) -> Body | None:
    """Return the schema of the reply, with the description from the field next to it; None if both are missing."""
    schema, about = get(form, "schema"), get(form, "description")
    schema = schema if isinstance(schema, Mapping) else {}
    return ({**schema, "description": about} if about else schema) or None


def text_files(messages: object) -> int:
    """Return how many files in messages are sent as text."""
    blocks = (block for message in records_of(messages) for block in records_of(message.get("content")))
    files = (block.get("file_data", get(block.get("file"), "file_data")) for block in blocks)
    return sum(isinstance(data, str) and data.startswith(("data:text/", "data:application/json")) for data in files)


def without_old_reasoning(
    artifacts: Sequence[Artifact],
    kinds: Sequence[str] = ("reasoning", "sealed"),
    *,
    of: Callable[[Artifact], bool] = lambda _: True,
) -> list[Artifact]:
    """Return the artifacts without the reasoning before the last user message, because providers drop this reasoning.

    Args:
        artifacts: Artifacts of the request.
        kinds: Kinds of reasoning to drop: readable `reasoning`, encrypted (`sealed`) reasoning, or both.
        of: Function that returns whether the reasoning of an artifact is dropped.
    """
    last = max((number for number, artifact in enumerate(artifacts) if artifact.kind is Kind.USER), default=0)
    return [*filter(None, (_without_reasoning(one, kinds, of) for one in artifacts[:last])), *artifacts[last:]]


def _without_reasoning(artifact: Artifact, kinds: Sequence[str], of: Callable[[Artifact], bool]) -> Artifact | None:
    if isinstance(artifact.content, str) or not of(artifact):
        return artifact
    kept = tuple(
        part
        for part in artifact.content
        if part.kind != "reasoning" or ("reasoning" if part.media is None else "sealed") not in kinds
    )
    if len(kept) == len(artifact.content):
        return artifact
    return replace(artifact, content=kept) if kept or artifact.calls else None
