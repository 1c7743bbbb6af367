"""The adapter's view of a native message: its texts, calls, and ids, each with its place in the message.

An adapter builds a `MessageView` of each message. The view creates the artifact for the message, and later converts a
changed artifact back into new values by place, so that no adapter has to compare artifacts.

A message consists of *members*: content parts or, in PydanticAI, request and response parts. An adapter may split a
message into fragments that can be kept or dropped separately. For example, Anthropic puts all tool results of a turn
into one message, and a PydanticAI request contains several prompts. Each fragment becomes an artifact, which records
its message and which members of the message it represents, so that the fragments can be joined again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from ctxguard.adapting.fields import (
    NULL_TEXT,
    Path,
    are_same_objects,
    get,
    is_list,
    place_name,
)
from ctxguard.adapting.json_walk import PlacedField
from ctxguard.artifacts import Artifact, Kind, Part, ToolCall
from ctxguard.errors import HistoryError

if TYPE_CHECKING:
    from ctxguard.draft import Draft

LEFT_OUT: Final = "…"
"""The text written into a message that became empty, because APIs refuse empty messages."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The members of a message that one artifact was read from. The adapter stores it as the `source` of the artifact.

    Attributes:
        message: The native message.
        occurrence: Identifies one reading of the message. A message that occurs twice in a history is read twice, and
            fragments of different occurrences must not be joined.
        indexes: The indexes of the members in the message.
        is_whole: Whether the fragment contains all members of the message.
        holds_all_results: Tells `RepairExchanges` that one message contains all results for the calls before it, so
            that no further results can follow.
    """

    holds_all_results: ClassVar[bool] = True
    message: object
    occurrence: object
    indexes: tuple[int, ...]
    is_whole: bool


def split_message(message: object, groups: Sequence[tuple[int, ...]]) -> list[Fragment]:
    """Return one fragment for each group of member indexes. Together, the groups cover all members of the message."""
    occurrence = object()
    return [Fragment(message, occurrence, indexes, len(groups) == 1) for indexes in groups]


def join_fragments(
    artifacts: Sequence[Artifact], members: Sequence[object], write: Callable[[Artifact], Iterable[object]]
) -> list[object] | None:
    """Return the new members of a message, or None if the members are unchanged.

    Args:
        artifacts: The artifacts that now make up the message. The first is a fragment of the message.
        members: The current members of the message.
        write: Function that returns the members for an artifact; for an unchanged artifact, these are the original
            objects.
    """
    first = artifacts[0]
    # the common case, detected without writing anything: a single unchanged fragment that is the whole message
    if len(artifacts) == 1 and first.origin is None and first.source.is_whole:  # type: ignore[attr-defined]
        return None
    written = [member for artifact in artifacts for member in write(artifact)]
    return None if are_same_objects(written, members) else written


def fill_nulls(draft: Draft, text: str = "") -> Draft:
    """Replace null texts with `text`. This is the `last_stage` of adapters whose API refuses null."""
    artifacts = [
        a.revised(content=tuple(Part("text", text) if part is NULL_TEXT else part for part in a.content))
        if not isinstance(a.content, str) and any(part is NULL_TEXT for part in a.content)
        else a
        for a in draft.artifacts
    ]
    return draft.revise(artifacts, action="repaired", reason="the API refuses a text that is null")


PlacedPart: TypeAlias = tuple[Path, Part]
"""A part of a message's content and the place of its text. The place is `()` for a part without a text that can be
changed."""
Message = TypeVar("Message")
Placed = TypeVar("Placed")

TITLE_FIELDS: Final = ("title", "source", "context", "filename")
"""Fields whose text names a document, a search result, or a file."""
_EMPTY_TITLE: Final = "…"


# Named tuples, because one is created for every message, and creating a frozen dataclass takes three times as long.
class PlacedCall(NamedTuple):
    """A tool call and the places of its fields. If the places are empty, the adapter itself writes changes to the call.

    Attributes:
        call: The tool call as it was read.
        arguments: The place of its arguments.
        id: The place of its id.
        as_native: Function that converts new arguments from text to the type that the message uses.
    """

    call: ToolCall
    arguments: Path = ()
    id: Path = ()
    as_native: Callable[[str], object] = str


class MessageView(NamedTuple):
    """The contents of a native message, or of a fragment of it, that one artifact represents.

    Attributes:
        kind: The kind of the artifact.
        parts: The content parts, in order.
        calls: The tool calls in the message.
        tool_call_id: The id of the tool call that this message is the result of.
        tool_call_id_at: The place of `tool_call_id` in the message.
        name: The name of the participant or the tool.
        role: The native role if no `kind` corresponds to it. Such an artifact is pinned.
        pinned: Whether the message must never be dropped.
        reported: Number of input tokens that the provider reported for the request that this message is a reply to.
        fields: The fields other than the content, see `extra_fields`.
    """

    kind: Kind
    parts: Sequence[PlacedPart] = ()
    calls: Sequence[PlacedCall] = ()
    tool_call_id: str | None = None
    tool_call_id_at: Path = ()
    name: str | None = None
    role: str | None = None
    pinned: bool = False
    reported: int | None = None
    fields: Sequence[PlacedField] = ()

    def artifact(self, source: object) -> Artifact:
        """Return the artifact for the message.

        Args:
            source: Object that the adapter's `write` method needs to find the message again; stored in the artifact.
        """
        return Artifact(
            self.kind,
            _content([part for _, part in self.parts]),
            calls=tuple([placed.call for placed in self.calls]),
            answers=self.tool_call_id,
            name=self.name,
            role=self.role,
            pinned=self.pinned or self.role is not None,
            reported=self.reported,
            fields=tuple([field for _, field in self.fields]),
            source=source,
        )

    def changes(self, artifact: Artifact) -> dict[Path, object]:
        """Compare a changed artifact with its original, and return the new values by their places in the message."""
        origin = artifact.root
        changes: dict[Path, object] = {}
        if artifact.content != origin.content:
            changes.update((path, new) for path, new in _changed_parts(artifact, self.parts) if path)
        # stages may change the arguments and ids of calls, but not the number of calls
        if artifact.calls != origin.calls:
            for placed, was, now in zip(self.calls, origin.calls, artifact.calls, strict=True):
                if was.arguments != now.arguments and placed.arguments:
                    changes[placed.arguments] = placed.as_native(now.arguments)
                if was.id != now.id and placed.id:
                    changes[placed.id] = now.id
        if artifact.fields != origin.fields:
            for (path, _), old, new in zip(self.fields, origin.fields, artifact.fields, strict=True):
                if path and old.text != new.text:
                    changes[path] = new.text
        if artifact.answers != origin.answers and self.tool_call_id_at:
            changes[self.tool_call_id_at] = artifact.answers
        return changes


def _content(parts: Sequence[Part]) -> str | tuple[Part, ...]:
    if not parts:
        return ""
    first = parts[0]
    is_plain = len(parts) == 1 and first.kind == "text" and not first.signed
    return first.text if is_plain and first.text is not None else tuple(parts)


def _text(path: Path, part: Part) -> str | None:
    # APIs refuse an empty title; empty texts are handled by the adapter's `last_stage`
    return _EMPTY_TITLE if part.text == "" and path[-1] in TITLE_FIELDS else part.text


def _changed_parts(artifact: Artifact, parts: Sequence[PlacedPart]) -> Iterator[tuple[Path, object]]:
    """Yield the place and the new value of each part that was changed."""
    content = artifact.content
    now = list(content) if not isinstance(content, str) and len(content) == len(parts) else _spread(artifact, parts)
    for (path, was), part in zip(parts, now, strict=True):
        if was != part:
            text = _text(path, part)
            yield path, text if was.as_text is None or text is None else was.as_text(text)


def _spread(artifact: Artifact, parts: Iterable[PlacedPart]) -> Iterator[Part]:
    """Yield the original parts with the texts of an artifact whose content now has fewer parts.

    A stage may replace several texts with one, for example a long content with a digest. The first parts get the new
    texts, and the remaining parts become empty.
    """
    content = artifact.content
    texts = [content] if isinstance(content, str) else [part.text for part in content if part.text is not None]
    coming = iter(texts)
    for _, part in parts:
        yield part if part.text is None else replace(part, text=next(coming, ""))


def nested(index: int, members: Iterable[tuple[Path, Placed]]) -> Iterator[tuple[Path, Placed]]:
    """Yield the parts or fields of the list item at `index`, with their places extended by the index."""
    for path, member in members:
        yield ((index, *path) if path else path), member


def write_each(artifacts: Iterable[Artifact], write: Callable[[Artifact], Message]) -> list[Message]:
    """Return one message for each artifact, for formats in which each message corresponds to one artifact.

    Args:
        artifacts: The artifacts. The `source` of each is the message that it was read from.
        write: Function that creates the message for an artifact that was changed or added.
    """
    return [
        artifact.source if artifact.origin is None and artifact.source is not None else write(artifact)  # type: ignore[misc]
        for artifact in artifacts
    ]


ProviderFormat: TypeAlias = str
"""The name of a format and the function that reads the format, as quoted in error messages."""
CHAT: Final[ProviderFormat] = "Chat Completions; use ctxguard_openai.stabilize_messages (adapter 'openai')"
RESPONSES: Final[ProviderFormat] = "the Responses API; use ctxguard_openai.stabilize_input (adapter 'openai-responses')"
ANTHROPIC: Final[ProviderFormat] = (
    "Anthropic's Messages; use ctxguard_anthropic.stabilize_request (adapter 'anthropic')"
)
_LANGCHAIN: Final[ProviderFormat] = "LangChain; use ctxguard_langchain.ContextGuard (adapter 'langchain')"
GEMINI: Final[ProviderFormat] = "Gemini; use ctxguard_google.stabilize_request (adapter 'google')"
BEDROCK: Final[ProviderFormat] = "Bedrock Converse; use ctxguard_bedrock.stabilize_request (adapter 'bedrock')"
_INTERFACE: Final[ProviderFormat] = "a user interface, which no adapter reads; convert it first"

_ROLES: Final[Mapping[object, ProviderFormat]] = {"tool": CHAT, "function": CHAT}
_FIELDS: Final[Mapping[str, ProviderFormat]] = {"tool_calls": CHAT, "function_call": CHAT, "parts": GEMINI}
_RESPONSES_ITEMS: Final = ("reasoning", "item_reference")
_RESPONSES_ENDINGS: Final = ("_call", "_call_output")
_LANGCHAIN_TYPES: Final = ("human", "ai", "system", "tool", "chat")
_LANGCHAIN_CHUNKS: Final = "MessageChunk"
"""Suffix of the types of LangChain's message chunks."""
_PARTS: Final[Mapping[object, ProviderFormat]] = {
    "tool_use": ANTHROPIC,
    "tool_result": ANTHROPIC,
    "input_text": RESPONSES,
    "output_text": RESPONSES,
}
_CONVERSE_KEYS: Final = (
    "toolUse",
    "toolResult",
    "reasoningContent",
    "guardContent",
    "cachePoint",
    "image",
    "document",
    "video",
)
"""The keys of Converse blocks, which have no type. A block with only `text` could also be part of Chat Completions."""


def is_converse(messages: object) -> bool:
    """Return whether messages are in the format of Bedrock Converse: each content is a list of untyped blocks."""
    if not is_list(messages) or not all(isinstance(get(message, "content"), (list, tuple)) for message in messages):
        return False
    blocks = [block for message in messages for block in get(message, "content")]  # type: ignore[attr-defined]
    return bool(blocks) and all(isinstance(block, Mapping) and block.get("type") is None for block in blocks)


def refuse_foreign(message: object, own: ProviderFormat) -> None:
    """Reject a message or item that is in another format than the expected one (`own`), and name its format."""
    kind, role = get(message, "type"), get(message, "role")
    if type(message) is dict and message.keys() == {"role", "content"} and isinstance(role, str) and role not in _ROLES:
        return  # nearly every message
    if isinstance(kind, str) and (kind in _RESPONSES_ITEMS or kind.endswith(_RESPONSES_ENDINGS)):
        _refuse(f"type {kind!r}", RESPONSES, own)
    # a Chat Completions message has a role, and may also have a type of any value
    if isinstance(kind, str) and role is None and (kind in _LANGCHAIN_TYPES or kind.endswith(_LANGCHAIN_CHUNKS)):
        _refuse(f"type {kind!r}", _LANGCHAIN, own)
    # some of Google's examples use a role of their own for function results
    is_content = own == GEMINI and get(message, "parts") is not None
    if isinstance(role, str) and role in _ROLES and not is_content:
        _refuse(f"role {role!r}", _ROLES[role], own)
    # SDK objects have all fields of their class: only a field with a value reveals the format
    for field, owner in _FIELDS.items():
        if found := get(message, field):
            _refuse(repr(field), _INTERFACE if field == "parts" and _has_types(found) else owner, own)


def _has_types(parts: object) -> bool:
    """Return whether a message's parts have a type: those of user interfaces do, those of Gemini do not."""
    return isinstance(parts, (list, tuple)) and any(get(part, "type") is not None for part in parts)


def refuse_foreign_part(part: object, path: Path = (), *, own: ProviderFormat | None = None) -> None:
    """Reject a part of unknown type that another format defines.

    If parts of the expected format have no type, `own` is this format.
    """
    # Rejected rather than counted as unknown, because a part that is not read is neither masked nor shortened.
    kind = get(part, "type")
    if isinstance(kind, str) and kind in _PARTS:
        _refuse(f"{place_name(path)} type {kind!r}".lstrip(), _PARTS[kind], None)
    converse = next((key for key in _CONVERSE_KEYS if kind is None and get(part, key) is not None), None)
    if converse is not None:
        _refuse(f"{place_name(path)} key {converse!r}".lstrip(), BEDROCK, own)


def require_role(message: object, own: ProviderFormat) -> str:
    """Return the role of a message; raise `HistoryError` if the message has no role or is in another format."""
    refuse_foreign(message, own)
    role = get(message, "role")
    if isinstance(role, str):
        return role
    if isinstance(message, Mapping) or hasattr(message, "role"):
        raise HistoryError("it has no 'role'; every message needs one")
    raise HistoryError(f"expected a dict with 'role' and 'content', got {type(message).__name__}")


def _refuse(what: str, owner: ProviderFormat, own: ProviderFormat | None) -> None:
    if owner != own:
        raise HistoryError(f"{what} is of {owner}")
