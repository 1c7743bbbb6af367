"""The adapter's view of a native message: its texts, calls, and ids, each with its place in the message.

An adapter builds a `MessageView` of each message. The view creates the artifact for the message, and later converts a
changed artifact back into new values by place, so that no adapter has to compare artifacts.

A message consists of *members*: content parts or, in PydanticAI, request and response parts. An adapter may split a
message into fragments that can be kept or dropped separately. For example, Anthropic puts all tool results of a turn
into one message, and a PydanticAI request contains several prompts. Each fragment becomes an artifact, which records
its message and which members of the message it represents, so that the fragments can be joined again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from ctxguard.adapting.fields import (
    NULL_TEXT,
    Path,
    are_same_objects,
    get,
    is_field_name,
    is_list,
    is_record,
    place_name,
)
from ctxguard.artifacts import Artifact, Field, Kind, Part, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.tokens.media import encrypted_tokens, is_payload
from ctxguard.tokens.schemas import fields_of

if TYPE_CHECKING:
    from ctxguard.draft import Draft


PlacedField: TypeAlias = tuple[Path, Field]
"""A field and the place of its text in the message. The place is `()` if the text is never changed."""

_EDITABLE: Final = frozenset({"annotations", "citations", "metadata", "transcript"})
"""Keys of messages whose texts may be masked, in addition to the keys that `_FREE_TEXT` matches."""
_FREE_TEXT: Final = re.compile(
    r"(?:^|_|(?<=[a-z0-9])(?=[A-Z]))"
    r"(?i:errors?|exceptions?|tracebacks?|stack_?trace|std_?(?:err|out)|warnings?|messages?|details|reason|rationale"
    r"|explanation|comments?|notes?|description|summary|feedback)$"
)
"""Matches a key that ends in a word for free text, such as `tool_error` or `failureReason`."""
EDITABLE_IN_SCHEMAS: Final = frozenset({"description", "title", "examples", "instructions"})
_MEDIA_KEYS: Final = frozenset(
    {"image_url", "input_audio", "file", "source", "url", "image"}
    | {"inline_data", "inlineData", "file_data", "fileData"}
)
"""Keys of media. Links in their values are searched; base64 data is not."""
_CONTAINERS: Final = frozenset({"audio", "content", "extras"})
"""Keys of records that contain further fields."""
_REFERENCES: Final = frozenset(
    {"cache_control", "call_id", "file_id", "file_url", "format", "id", "image_url", "media_type", "mime_type", "name"}
    | {"namespace", "role", "tool_call_id", "tool_use_id", "type", "url"}
    | {"mimeType", "fileUri", "file_uri", "toolUseId"}  # as Google and Amazon spell them
)
"""Keys of ids, names, and links: their values are used to look something up, so they are never changed."""
_SIGNATURES: Final = frozenset(
    {"signature", "thought_signature", "thoughtSignature", "encrypted_content", "encrypted_index", "fingerprint"}
)
IDENTIFIERS: Final = _REFERENCES | (
    {"caller", "context", "detail", "end_index", "expires_at", "filename", "index", "is_error", "kind", "language"}
    | {"logprobs", "outcome", "phase", "start_index", "status", "strict", "title", "tool_name"}
)
"""Keys whose values are part of the framing of a message and cost no extra tokens unless they are long."""
FIXED: Final = (
    _REFERENCES
    | _SIGNATURES
    | {"$ref", "$schema", "bytes", "container", "conversation", "data", "file_data", "model", "pattern", "uri"}
    | {"previous_response_id", "required", "server_label", "server_url"}
    | {"allowedFunctionNames", "cachedContent", "guardrailIdentifier", "modelId", "redactedContent", "responseMimeType"}
)
"""Keys of a request body whose values are searched but never changed."""
_CITED: Final = frozenset({"title", "url", "context", "filename"})
"""Keys that name the source of a citation. Unlike other identifiers, their values are not used for lookups."""
_FRAMING: Final = 128
"""Maximum number of characters in an identifier that counts as framing. The ids of all providers are shorter."""
_HARMLESS: Final = re.compile(r"[a-z_]{0,40}")
"""Matches texts in which no rule can match, such as `completed`."""
_MARK: Final = re.compile(r"ephemeral|[1-9]\d?[mh]")
"""Matches the values in a prompt cache breakpoint: its type, and how long the prefix is cached."""


def extra_fields(
    record: object,
    path: Path = (),
    *,
    own: AbstractSet[str] = frozenset(),
    billed: AbstractSet[str] = frozenset(),
    taken: AbstractSet[Path] = frozenset(),
) -> Iterator[PlacedField]:
    """Yield the fields of a record that its adapter does not read.

    Args:
        record: A message, a content part, or a schema.
        path: The place of the record in the message.
        own: Keys that the adapter reads.
        billed: Keys whose values are counted elsewhere, as media or encrypted reasoning, and are only searched here.
        taken: Places that the adapter reads, possibly deeper inside the record.

    Raises:
        HistoryError: If a field cannot be written as JSON; no client could send it.
    """
    if path in taken or (type(record) is dict and own >= record.keys()):  # the common case
        return
    for key, value in fields_of(record).items():
        place = (*path, key)
        if key in own or (key == "cache_control" and _is_breakpoint(value)):
            continue
        if place in taken or value is None or value in ("", [], {}):
            yield from _odd_key(place)
        elif key in billed:
            yield from without_tokens(_links(value, place, own))
        elif _is_editable(key, value):
            yield from _editable(value, place, taken)
        elif (key in _CONTAINERS and not isinstance(value, str)) or any(
            other[: len(place)] == place for other in taken
        ):
            for inner, member in _members(value, place):
                yield from extra_fields(member, inner, own=own, billed=billed, taken=taken)
        elif key in _MEDIA_KEYS or is_payload(value):
            yield from _links(value, place, own, billed)
        else:
            yield from fixed_field(key, value, place)


def _is_breakpoint(value: object) -> bool:
    """Return whether a value is a prompt cache breakpoint. Clients move breakpoints without changing the message."""
    return isinstance(value, dict) and all(isinstance(v, str) and _MARK.fullmatch(v) for v in value.values())


def _is_editable(key: str, value: object) -> bool:
    """Return whether the texts in a value may be masked, judged by its key. Numbers and flags contain no text."""
    if key in _EDITABLE:
        return True
    is_free = _FREE_TEXT.search(key) is not None and key not in IDENTIFIERS
    return is_free and (isinstance(value, (str, list, tuple)) or is_record(value))


def _odd_key(path: Path) -> Iterator[PlacedField]:
    """Yield a field for a key that is not spelled like a field of an API, because such a key may come from the user."""
    key = path[-1]
    if isinstance(key, str) and not is_field_name(key):
        yield (), Field(place_name(path), key, tokens=0)


def without_tokens(fields: Iterable[PlacedField]) -> Iterator[PlacedField]:
    """Yield the fields with a token count of 0, because they are counted elsewhere and only have to be searched."""
    return ((at, replace(field, tokens=0)) for at, field in fields)


def _members(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    if isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _members(member, (*path, index))
    elif is_record(value):
        yield path, value


def _editable(value: object, path: Path, taken: AbstractSet[Path]) -> Iterator[PlacedField]:
    """Yield the texts in a value that may be masked, and its remaining members, which are only counted and searched."""
    if isinstance(value, str):
        yield path, Field(place_name(path), value, editable=True, is_identifier=False)
        return
    if isinstance(value, (list, tuple)):
        members: Mapping[str | int, object] = dict(enumerate(value))
    else:
        members = dict(fields_of(value).items())
    for key, member in members.items():
        place = (*path, key)
        yield from _odd_key(place)
        if place in taken:
            continue
        # An id or a signature inside free text may be looked up or verified, so it is never changed.
        if isinstance(key, str) and (key in _SIGNATURES or (key in IDENTIFIERS and key not in _CITED)):
            yield from fixed_field(key, member, place)
        elif isinstance(member, str) or (member and (is_record(member) or isinstance(member, (list, tuple)))):
            yield from _editable(member, place, taken)
        elif member is not None:
            yield from fixed_field(str(key), member, place)


def _links(
    value: object, path: Path, own: AbstractSet[str], billed: AbstractSet[str] = frozenset()
) -> Iterator[PlacedField]:
    """Yield the texts in the value of a media field, except for the media data. Fields in `billed` are not counted."""
    if isinstance(value, str):
        # Media data is counted with its part and is not searched; a link can contain a person's name.
        if not is_payload(value):
            yield from fixed_field(str(path[-1]), value, path)
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _links(member, (*path, index), own, billed)
    else:
        for key, member in fields_of(value).items():
            if key not in own:
                found = _links(member, (*path, key), own, billed)
                yield from without_tokens(found) if key in billed else found


def fixed_field(key: str, value: object, path: Path) -> Iterator[PlacedField]:
    """Yield a field for a value that is never changed, or nothing if there is nothing to count or search."""
    text = value if isinstance(value, str) else _as_json(value, path)
    is_framing = key in IDENTIFIERS and len(text) <= _FRAMING
    if is_framing and _HARMLESS.fullmatch(text):
        return
    tokens = encrypted_tokens(text) if key in _SIGNATURES else 0 if is_framing else None
    if key and key not in IDENTIFIERS and key not in _SIGNATURES:
        # Unknown keys are sent, too, and may contain an address; a colon after one could hide the value from rules.
        text = f"{key}: {text}" if is_field_name(key) else f"{key} {text}"
    yield (), Field(place_name(path), text, tokens=tokens)


def _as_json(value: object, path: Path) -> str:
    try:
        return json.dumps(fields_of(value) or value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise HistoryError(f"{place_name(path)} cannot be written as JSON: {error}") from None


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
