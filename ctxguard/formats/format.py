"""What describes a request format: one class for each API, by which adapters, counter, transports and proxy read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias

from ctxguard.adapting.content_format import opaque
from ctxguard.adapting.editing import copy_with
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
"""Which text of a streamed answer a piece belongs to."""
Ends: TypeAlias = Callable[[Channel], bool]


@dataclass(frozen=True, slots=True)
class Delta:
    """Hold the place of a piece of a text in an event.

    Attributes:
        channel: Which text it is a piece of.
        path: The place of the piece in the event.
        text: The piece.
        is_arguments: Whether it is a piece of JSON.
        alone: Makes an event with another text in place of the piece, and nothing else.
    """

    channel: Channel
    path: Path
    text: str
    is_arguments: bool
    alone: Callable[[str], Event]


@dataclass(frozen=True, slots=True)
class Sent:
    """Hold what a provider bills of a request.

    Attributes:
        artifacts: The system prompt, messages, tool calls and results, in their order.
        tools: The tools as they are sent.
        choice: The `tool_choice`, as one word: `auto`, `none`, `required`, or `named` for a certain tool.
        schema: The schema that the reply must follow; None where there is none.
        found: Names of deferred functions that a search of an earlier step has found.
        brought: Tools that stand among the messages, a list for each place.
        thinks: Whether the request asks for thinking.
        documents: How many documents are sent as text.
        empty_system: Whether the system prompt is an empty text.
        namespaces: Namespaces of the called functions that are not in the usual one.
        searches: How often a search has brought in functions.
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


class Format:
    """Describe the requests of one API and their answers. Subclasses also read and write histories, as `Adapter`.

    Attributes:
        name: The name of the adapter, which `--adapter` and reports use.
        api: The name of the API.
        paths: How the paths of its requests end.
        history: The key of the history in the body.
        system: Keys of the system prompt, where the adapter takes the whole body and not the history alone.
        json_settings: Keys that ask for an answer in JSON, where they name a schema or a format.
        tools: Where the tools are in the body.
        taken: Keys of the body that are neither history nor settings.
        billed: Keys of settings that the model is shown, and that cannot be changed without changing the answer.
        servers: Key of the list that defines MCP servers, the type that its definitions have there, and the fields in
            which they hold credentials for the provider, which no model is shown.
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

    def read(self, native: Any) -> list[Artifact]:  # noqa: ANN401 - each format has its own
        """Return the artifacts of a history, see `ctxguard.adapting.Adapter`."""
        raise NotImplementedError

    def write(self, native: Any, artifacts: Iterable[Artifact]) -> Any:  # noqa: ANN401 - each format has its own
        """Return the history of artifacts, see `ctxguard.adapting.Adapter`."""
        raise NotImplementedError

    def sent(self, body: Body) -> Sent:
        """Return what the provider bills of a request."""
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
        """Return where the tools are in a body."""
        return self.tools

    def settings(self, body: Body) -> tuple[dict[str, object], list[Body]]:
        """Return the settings of a body, and those of them that the model is shown as schemas."""
        rest = {
            key: value
            for key, value in body.items()
            if value is not None and key not in self.taken and key not in self.read_by_adapter
        }
        schemas: list[Body] = [{key: rest.pop(key)} for key in self.billed if key in rest]
        return rest, schemas

    def native(self, body: Body) -> Any:  # noqa: ANN401 - each format has its own
        """Return what `read` takes of a body."""
        if not is_list(body.get(self.history)):
            raise HistoryError(f"the request has no list {self.history!r}, so it cannot be read as {self.api}")
        return body if self.system else body[self.history]

    def written(self, body: Body, native: object) -> dict[str, object]:
        """Return the body with another history, in the form that it came in."""
        return dict(native) if isinstance(native, Mapping) else {**body, self.history: native}

    def searched(self, body: Body) -> Body:
        """Return what is searched of a body: all but the credentials of MCP servers, where the API defines them."""
        listed, kind, credentials = self.servers or ("", "", frozenset())
        servers = body.get(listed)
        if not isinstance(servers, list):
            return body
        return {
            **body,
            listed: [
                {key: value for key, value in one.items() if key not in credentials}
                if isinstance(one, dict) and one.get("type") == kind
                else one
                for one in servers
            ],
        }

    def wants_json(self, body: Body) -> bool:
        """Tell whether a request asks for an answer in JSON."""
        return any("json" in str(body.get(key, "")) for key in self.json_settings)

    def deltas(self, event: Event) -> Iterator[Delta]:
        """Walk the pieces of texts in an event of a streamed answer."""
        raise NotImplementedError

    def ends(self, event: Event) -> Ends | None:
        """Return what tells the texts that an event ends; None where it ends none."""
        raise NotImplementedError

    def wholes(self, event: Event) -> Iterable[tuple[Path, object]]:  # noqa: ARG002 - the signature of all formats
        """Walk what comes whole in an event with pieces of texts."""
        return ()

    def stored(self, event: Event) -> object:  # noqa: ARG002 - the signature of all formats
        """Return the answer that an event describes, where the provider stores answers under their ids."""
        return None


def ended_choices(event: Event, *, listed: str, reason: str) -> Ends | None:
    """Tell the texts of those choices of an event that name the reason why they end."""
    choices = event.get(listed)
    over = [
        choice.get("index", 0)
        for choice in (choices if isinstance(choices, list) else ())
        if isinstance(choice, dict) and choice.get(reason) is not None
    ]
    return (lambda channel: channel[0] in over) if over else None


def with_text(event: Event, path: Path, text: str) -> Event:
    """Return an event with another text at a place."""
    return copy_with(event, {path: text})


def records_of(value: object) -> list[Body]:
    """Return the objects of a list; anything else in it costs nothing. A single object stands for a list of it."""
    if isinstance(value, Mapping):
        return [value]
    return [member for member in value if isinstance(member, Mapping)] if isinstance(value, (list, tuple)) else []


def choice_of(given: object) -> str:
    """Return the tool choice of any API as one word."""
    word = get(given, "mode") or get(given, "type") if isinstance(given, Mapping) else given
    known = {"any": "required", "function": "named", "custom": "named", "tool": "named", "validated": "auto"}
    return known.get(word, word) if isinstance(word, str) else "auto"


def described_schema(form: object) -> Body | None:
    """Return the schema of the reply with the description that is sent beside it."""
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
        kinds: What is dropped: `reasoning` that can be read, `sealed` reasoning, or both.
        of: Tells the artifacts whose reasoning is dropped.
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
