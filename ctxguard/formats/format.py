"""The description of a request format: one class for each API, used by adapters, counter, transports and proxy."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias

from ctxguard.adapting.content_format import opaque
from ctxguard.adapting.editing import REMOVED, copy_with
from ctxguard.adapting.fields import Path, get, is_list
from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import HistoryError

_MODEL: Final = re.compile(r"/(?:models?|deployments)/[^/]*\Z")
Api: TypeAlias = Literal["chat", "responses", "anthropic", "gemini", "converse", "cohere"]
Body: TypeAlias = Mapping[str, object]
"""The body of a request, or the arguments of a client's method."""
Event: TypeAlias = Mapping[str, object]
"""The data of one event of a streamed answer."""
Channel: TypeAlias = tuple[Hashable, ...]
"""The identifier of one text of a streamed response."""
Ends: TypeAlias = Callable[[Channel], bool]


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of text in an event, and its place.

    Attributes:
        channel: The text that the piece belongs to.
        path: The place of the piece in the event.
        text: The piece.
        is_arguments: Whether the text is JSON.
        alone: Creates an event that contains another text instead of the piece, and nothing else.
    """

    channel: Channel
    path: Path
    text: str
    is_arguments: bool
    alone: Callable[[str], Event]


@dataclass(frozen=True, slots=True)
class Sent:
    """The billed parts of a request.

    Attributes:
        artifacts: The system prompt, messages, tool calls and results, in their order.
        tools: The tools as they are sent.
        choice: The `tool_choice`, as one word: `auto`, `none`, `required`, or `named` for a specific tool.
        schema: The schema that the reply must follow; None if there is none.
        found: Names of deferred functions that a search of an earlier step has found.
        brought: Tools that are defined among the messages, one list for each occurrence.
        thinks: Whether the request asks for thinking.
        documents: How many documents are sent as text.
        empty_system: Whether the system prompt is an empty text.
        namespaces: Namespaces of the called functions that are not in the usual one.
        searches: The number of searches that added functions.
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
    """The requests of one API and their responses. Subclasses also read and write histories, as an `Adapter`.

    Attributes:
        name: The adapter's name for `--adapter` and in reports.
        api: The name of the API.
        paths: The endings of the URL paths of its requests.
        history: The key of the history in the body.
        system: Keys of the system prompt, if the adapter takes the whole body and not the history alone.
        json_settings: Keys that request a response in JSON, if they name a schema or a format.
        tools: The place of the tools in the body.
        taken: Keys of the body that are neither history nor settings.
        billed: Keys of settings that the model sees, and that cannot be changed without changing the response.
        servers: Key of the list that defines MCP servers, the type of its definitions, and their fields with
            credentials for the provider, which no model sees.
        starts_with_user: Whether the provider refuses histories that begin with the assistant.
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
    starts_with_user: ClassVar[bool] = False

    @property
    def read_by_adapter(self) -> frozenset[str]:
        """Keys of the body that the adapter reads."""
        return frozenset({self.history, *self.system})

    def base(self, path: str) -> str:
        """Return the part of a path before the operation and the model."""
        path = path.rstrip("/")
        ending = max((one for one in self.paths if path.endswith(one)), key=len)
        return _MODEL.sub("", path.removesuffix(ending))

    @abstractmethod
    def read(self, native: Any) -> list[Artifact]:  # noqa: ANN401 - each format has its own
        """Return the artifacts of a history, see `ctxguard.adapting.Adapter`."""

    @abstractmethod
    def write(self, native: Any, artifacts: Iterable[Artifact]) -> Any:  # noqa: ANN401 - each format has its own
        """Return the history of artifacts, see `ctxguard.adapting.Adapter`."""

    def sent(self, body: Body) -> Sent:
        """Return the billed parts of a request."""
        raise NotImplementedError

    def counted(self, body: Body) -> list[Artifact]:
        """Return the artifacts of a body; a message that cannot be read counts by its JSON.

        Raises:
            HistoryError: The body has no history, or a message cannot be written as JSON.
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
        """Return the place of the tools in a body."""
        return self.tools

    def bringing(self, body: Body) -> list[Body]:  # noqa: ARG002 - the signature of all formats
        """Return the messages that define tools for the whole conversation."""
        return []

    def settings(self, body: Body) -> tuple[dict[str, object], list[Body]]:
        """Return the settings of a body, and those of them that the model sees as schemas."""
        rest = {
            key: value
            for key, value in body.items()
            if value is not None and key not in self.taken and key not in self.read_by_adapter
        }
        schemas: list[Body] = [{key: rest.pop(key)} for key in self.billed if key in rest]
        return rest, schemas

    def native(self, body: Body) -> Any:  # noqa: ANN401 - each format has its own
        """Return the part of a body that `read` takes."""
        if not is_list(body.get(self.history)):
            raise HistoryError(f"the request has no list {self.history!r}, so it cannot be read as {self.api}")
        return body if self.system else body[self.history]

    def written(self, body: Body, native: object) -> dict[str, object]:
        """Return the body with another history, in its original form."""
        return dict(native) if isinstance(native, Mapping) else {**body, self.history: native}

    def searched(self, body: Body) -> Body:
        """Return the parts of a body to search: all but the credentials of MCP servers, if the API defines them."""
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
        """Return a function that recognizes the channels that an event ends; None if it ends none."""
        raise NotImplementedError

    def wholes(self, event: Event) -> Iterable[tuple[Path, object]]:  # noqa: ARG002 - the signature of all formats
        """Yield the values that are complete within an event that also has pieces of text."""
        return ()

    def stored(self, event: Event) -> object:  # noqa: ARG002 - the signature of all formats
        """Return the response that an event describes, if the provider stores responses under their ids."""
        return None


def ended_choices(event: Event, *, listed: str, reason: str) -> Ends | None:
    """Return a function that recognizes the texts of the choices that this event ends."""
    over = [choice.get("index", 0) for choice in records_of(event.get(listed)) if choice.get(reason) is not None]
    return (lambda channel: channel[0] in over) if over else None


def with_text(event: Event, path: Path, text: str) -> Event:
    """Return an event with another text at a place."""
    return copy_with(event, {path: text})


def records_of(value: object) -> list[Body]:
    """Return the objects of a list; any other items cost nothing. A single object counts as a list of one."""
    if isinstance(value, Mapping):
        return [value]
    return [member for member in value if isinstance(member, Mapping)] if isinstance(value, (list, tuple)) else []


def choice_of(given: object) -> str:
    """Return the tool choice of any API as one word."""
    word = get(given, "mode") or get(given, "type") if isinstance(given, Mapping) else given
    known = {"any": "required", "function": "named", "custom": "named", "tool": "named", "validated": "auto"}
    return known.get(word, word) if isinstance(word, str) else "auto"


def described_schema(form: object) -> Body | None:
    """Return the schema of the reply with its description, which is sent in a separate field."""
    schema, about = get(form, "schema"), get(form, "description")
    schema = schema if isinstance(schema, Mapping) else {}
    return ({**schema, "description": about} if about else schema) or None


def text_files(messages: object) -> int:
    """Return how many files are sent as text."""
    blocks = (block for message in records_of(messages) for block in records_of(message.get("content")))
    files = (block.get("file_data", get(block.get("file"), "file_data")) for block in blocks)
    return sum(isinstance(data, str) and data.startswith(("data:text/", "data:application/json")) for data in files)


def without_old_reasoning(
    artifacts: Sequence[Artifact],
    kinds: Sequence[str] = ("reasoning", "sealed"),
    *,
    of: Callable[[Artifact], bool] = lambda _: True,
) -> list[Artifact]:
    """Return artifacts without the reasoning from before the last user message, which providers drop.

    Args:
        artifacts: As they were read.
        kinds: The kinds to drop: readable `reasoning`, `sealed` reasoning, or both.
        of: Returns whether the reasoning of an artifact is dropped.
    """
    last = max((number for number, artifact in enumerate(artifacts) if artifact.kind is Kind.USER), default=0)
    return [*filter(None, (_forgetful(one, kinds, of) for one in artifacts[:last])), *artifacts[last:]]


def _forgetful(artifact: Artifact, kinds: Sequence[str], of: Callable[[Artifact], bool]) -> Artifact | None:
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
