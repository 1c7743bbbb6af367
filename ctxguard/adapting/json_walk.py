"""The one walk over JSON, and the tables that say which of its strings are texts, may be changed, or are ids.

Three readers share it: `extra_fields` for what an adapter does not read of a message, `schema_fields` for tools and
schemas, and `texts_of` for the body of a request. Each names the members of an object or a list that are walked, and
the scope of each, by which it reads the strings below.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias, cast

from ctxguard.adapting.fields import Path, is_field_name, is_record, place_name
from ctxguard.artifacts import Field
from ctxguard.errors import HistoryError
from ctxguard.tokens.media import encrypted_tokens, is_payload
from ctxguard.tokens.schemas import fields_of

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
_EDITABLE_IN_SCHEMAS: Final = frozenset({"description", "title", "examples", "instructions"})
"""Keys in tools and schemas whose texts may be masked."""
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
"""Keys of signatures and encrypted values, which are counted as such and never changed."""
_IDENTIFIERS: Final = _REFERENCES | (
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
_FRAMING_LENGTH: Final = 128
"""Maximum number of characters in an identifier that counts as framing. The ids of all providers are shorter."""
_HARMLESS: Final = re.compile(r"[a-z_]{0,40}")
"""Matches texts in which no rule can match, such as `completed`."""
_CACHE_MARK: Final = re.compile(r"ephemeral|[1-9]\d?[mh]")
"""Matches the values in a prompt cache breakpoint: its type, and how long the prefix is cached."""


class Use(Enum):
    """Whether a text may be masked (`TEXT`), or may only be searched: by all rules (`NAME`), or as an id (`FIXED`)."""

    TEXT = auto()
    NAME = auto()
    FIXED = auto()


class TextPlace(NamedTuple):
    """The place of a JSON value, as a link to the place of the list or object that contains it.

    Attributes:
        key: The key or index in the container. For the outermost value, its path in the body.
        around: The place of the container. None for the outermost value.
    """

    key: str | int | Path
    around: TextPlace | None = None

    @property
    def path(self) -> Path:
        """The path of the value: its keys and indexes from the outermost on."""
        keys: list[str | int] = []
        place = self
        while place.around is not None:
            keys.append(cast("str | int", place.key))
            place = place.around
        return (*cast("Path", place.key), *reversed(keys))

    @property
    def name(self) -> str | int:
        """The key or index of the value; empty if it is in no container."""
        if self.around is not None:
            return cast("str | int", self.key)
        return self.path[-1] if self.key else ""

    @property
    def field(self) -> str:
        """The key of the innermost object that contains the value; empty if there is none."""
        return next((key for key in reversed(self.path) if isinstance(key, str)), "")


PlacedText: TypeAlias = tuple[TextPlace, str, Use]
"""The place of a text in a body, the text, and what may be done with it."""

_NAMED_FIELDS: Final = frozenset({"properties", "$defs", "definitions", "patternProperties"})
"""Keys of a JSON schema. The keys directly below them are names that the user chose, without a special meaning."""
_ARGUMENTS: Final = frozenset({"action", "actions", "args", "arguments", "operation", "response", "structuredContent"})
"""Keys of what a model wrote for a tool, or a tool returned, as an object. Its keys have no special meaning."""
_RESULT: Final = re.compile(r"(?:_result|_call|_tool_use|_output|_location|_citation)\Z")
"""Matches the types of what the tools of a provider return and of what answers cite."""
_MEDIA_TYPES: Final = ("file", "image", "image_url", "input_image", "url")
"""Types of parts from whose links the provider loads media."""
_SEALED: Final = frozenset({"encrypted_content", "signature", "thoughtSignature", "thought_signature"})
"""Keys of encrypted values, which are no text in what a model or a tool wrote either."""
_LEAST_CARD: Final = 10**12
"""Smallest JSON number that is searched. No card number is shorter, and other kinds of data need more than digits."""
_LEAST_PAYLOAD: Final = 256
"""Minimum length in characters at which a `Use.FIXED` text that looks like base64 data is not searched."""


Node: TypeAlias = tuple[TextPlace, object, Any, bool]
"""A string, number, or other value that contains no more values, or a key of an object: its place, the value or key,
its scope, and whether it is a key. The place and the scope of a key are those of the value under it."""
Member: TypeAlias = tuple[str | int, object, Any]
"""A key or index, the member there, and its scope: None if only the key is read, `WHOLE` for a single value."""
Members: TypeAlias = Callable[[Any, TextPlace, Any], Iterable[Member]]
"""Yields the members of an object or a list that are read, given the container, its place, and its scope."""
WHOLE: Final = object()
"""The scope of a member that is read as one value, whatever it contains."""
_DEEPEST: Final = 1_000
"""Maximum number of values within each other; a value that contains itself is always refused."""


def walk(value: object, scope: object, members: Members, path: Path = ()) -> Iterator[Node]:
    """Yield the strings, numbers, and keys in a value in order, see `Node`. The keys of an object precede its values.

    The iteration uses a stack of its own, and links each place to its container, so that a body nested 300 levels deep
    takes no longer than a flat one of the same size.

    Args:
        value: A JSON value, or an object with fields.
        scope: The scope of the value.
        members: See `Members`.
        path: The place of the value.

    Raises:
        RecursionError: If values are nested more than 1,000 levels deep, for example because a value contains itself.
    """
    stack: list[tuple[TextPlace, object, object, int]] = [(TextPlace(path), value, scope, 0)]
    while stack:
        place, value, scope, depth = stack.pop()
        if isinstance(value, str) or scope is WHOLE or not _is_walked(value):
            yield place, value, scope, False
            continue
        if depth > _DEEPEST:
            raise RecursionError("values are nested too deeply, or contain themselves")
        inner: list[tuple[TextPlace, object, object, int]] = []
        for key, member, entered in members(value, place, scope):
            within = TextPlace(key, place)
            if isinstance(key, str):
                yield within, key, entered, True
            if entered is not None:
                inner.append((within, member, entered, depth + 1))
        stack += reversed(inner)


def _is_walked(value: object) -> bool:
    """Return whether a value has members. An object of which no field is known is a single value."""
    return isinstance(value, (dict, list, tuple)) or (is_record(value) and bool(fields_of(value)))


class _Holder(Enum):
    """What a JSON object belongs to: the arguments of a call, something a tool of the provider returned, or neither."""

    ARGUMENTS = auto()
    RESULT = auto()
    OTHER = auto()

    @classmethod
    def of(cls, record: Mapping[str, object], key: object, around: _Holder) -> _Holder:
        """Return what an object belongs to that is the value of `key`, which is None if the user chose its name."""
        if key in _ARGUMENTS or key == "input" or around is cls.ARGUMENTS:
            return cls.ARGUMENTS
        return cls.RESULT if _RESULT.search(str(record.get("type"))) else around

    def has_text(self, record: Mapping[str, object], key: str, value: object) -> bool:
        """Return whether the value of a key is text, although values of this key are not elsewhere.

        What a model or a tool wrote is text, whatever its key: nothing looks it up. Links from which the provider loads
        media, and the data of media, are not.
        """
        if key == "data":
            return record.get("type") == "text" or (self is _Holder.ARGUMENTS and not is_payload(value))
        if self is _Holder.ARGUMENTS:
            return key not in _SEALED and not is_payload(value)
        return self is _Holder.RESULT and key in ("uri", "url") and record.get("type") not in _MEDIA_TYPES


def texts_of(value: object, path: Path = ()) -> Iterator[PlacedText]:
    """Yield the texts in a JSON value of a request's body with their places. Keys of objects are yielded, too.

    A key that is not spelled like a field of an API may come from a person, so all rules search it. A long number is
    yielded as a text with its key in front. It is only searched, because a masked number would have another type.
    """
    for place, found, scope, is_key in walk(value, (Use.TEXT, _Holder.OTHER), _body_members, path):
        use = scope[0]
        if is_key:
            yield place, str(found), Use.FIXED if is_field_name(str(found)) else Use.NAME
        elif isinstance(found, str):
            if use is Use.TEXT or not is_payload(found, least=_LEAST_PAYLOAD):
                yield place, found, use
        elif isinstance(found, (int, float)) and use is Use.TEXT and _LEAST_CARD <= abs(found) < math.inf:
            yield place, f"{place.field}: {abs(found):.0f}", Use.FIXED


def _body_members(value: Any, place: TextPlace, scope: tuple[Use, _Holder]) -> Iterator[Member]:  # noqa: ANN401 - JSON
    use, holder = scope
    name = place.name
    if isinstance(value, list):
        holder = _Holder.ARGUMENTS if name in _ARGUMENTS else holder
        yield from ((number, member, (use, holder)) for number, member in enumerate(value))
        return
    is_named = place.around is not None and place.around.name in _NAMED_FIELDS
    names_fields = name in _NAMED_FIELDS
    holder = _Holder.of(value, None if is_named else name, holder)
    text, fixed = (Use.TEXT, holder), (Use.FIXED, holder)
    for key, member in value.items():
        is_fixed = key in FIXED and not names_fields and not holder.has_text(value, key, member)
        yield key, member, fixed if is_fixed else text


def schema_fields(value: object) -> Iterator[PlacedField]:
    """Yield the texts in a tool or a schema: descriptions may be masked; names, keys, and other values may not.

    Raises:
        RecursionError: If the schema contains itself.
        TypeError: If a key is not a string.
    """
    for place, found, _, is_key in walk(value, Use.TEXT, _all_members):
        path = place.path
        if is_key:
            yield (), Field(place_name(path), str(found))
        elif isinstance(found, str):
            is_text = place.field in _EDITABLE_IN_SCHEMAS
            text = found if is_text or place.field in _IDENTIFIERS else f"{place.field}: {found}"
            yield path, Field(place_name(path), text, editable=is_text, is_identifier=not is_text)
        elif isinstance(found, (int, float)):
            yield path, Field(place_name(path), f"{place.name}: {found}")


def _all_members(value: object, _: TextPlace, scope: object) -> Iterator[Member]:
    for key, member in _entries(value):
        if not _is_place(value, key):
            raise TypeError(f"keys must be strings, not {type(key).__name__}")
        yield key, member, scope


def _entries(value: object) -> Iterable[tuple[str | int, object]]:
    return enumerate(value) if isinstance(value, (list, tuple)) else fields_of(value).items()


def _is_place(value: object, key: object) -> bool:
    """Return whether a key is an index of a list, or a string, so that the member there can be changed."""
    return isinstance(key, str) or isinstance(value, (list, tuple))


class _Scope(Enum):
    """How `extra_fields` reads a value: by its keys, as texts that may be masked, or as links, only searched."""

    BY_KEYS = auto()
    TEXT = auto()
    LINKS = auto()
    BILLED_LINKS = auto()


class _ExtraMembers(NamedTuple):
    """The members that `extra_fields` reads, see there for the attributes; `around` has the places around `taken`."""

    own: AbstractSet[str]
    billed: AbstractSet[str]
    taken: AbstractSet[Path]
    around: AbstractSet[Path]

    def members(self, value: object, place: TextPlace, scope: _Scope) -> Iterator[Member]:
        path = place.path
        if path in self.taken:
            return
        for key, member in _entries(value):
            if not _is_place(value, key):  # clients write such a key as a string, or not at all
                yield str(key), {key: member}, WHOLE
            elif scope is _Scope.TEXT:
                yield key, member, self._of_text(key, member, (*path, key))
            elif isinstance(key, int):
                yield key, member, scope
            elif scope is _Scope.BY_KEYS:
                if key not in self.own and not (key == "cache_control" and _is_breakpoint(member)):
                    yield key, member, self._by_key(key, member, (*path, key))
            elif key not in self.own or not is_payload(member, least=0):
                yield key, member, _Scope.BILLED_LINKS if key in self.billed else scope

    def _by_key(self, key: str, value: object, place: Path) -> object:
        if place in self.taken or value is None or value in ("", [], {}):
            return None
        if key in self.billed:
            return _Scope.BILLED_LINKS
        if _is_editable(key, value):
            return _Scope.TEXT
        if (key in _CONTAINERS and not isinstance(value, str)) or place in self.around:
            return _Scope.BY_KEYS
        return _Scope.LINKS if key in _MEDIA_KEYS or is_payload(value) else WHOLE

    def _of_text(self, key: str | int, value: object, place: Path) -> object:
        if place in self.taken or value is None:
            return None
        # An id or a signature inside free text may be looked up or verified, so it is never changed.
        if isinstance(key, str) and (key in _SIGNATURES or (key in _IDENTIFIERS and key not in _CITED)):
            return WHOLE
        is_walked = isinstance(value, str) or (value and (is_record(value) or isinstance(value, (list, tuple))))
        return _Scope.TEXT if is_walked else WHOLE


def extra_fields(
    record: object,
    path: Path = (),
    *,
    own: AbstractSet[str] = frozenset(),
    billed: AbstractSet[str] = frozenset(),
    taken: AbstractSet[Path] = frozenset(),
) -> Iterator[PlacedField]:
    """Yield the fields of a record that its adapter does not read.

    A key that is not spelled like a field of an API is yielded, too, because it may come from the user.

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
    around = {place[:length] for place in taken for length in range(len(path) + 1, len(place))}
    members = _ExtraMembers(own, billed, taken, around).members
    for place, value, scope, is_key in walk(record, _Scope.BY_KEYS, members, path):
        if is_key:
            if scope is not WHOLE and not is_field_name(str(value)):  # a field with one value includes its key
                yield (), Field(place_name(place.path), str(value), tokens=0)
        elif scope is WHOLE:
            yield from fixed_field(place.field, value, place.path)
        elif isinstance(value, str):
            at = place.path
            if scope is _Scope.TEXT:
                yield at, Field(place_name(at), value, editable=True, is_identifier=False)
            elif scope is _Scope.BY_KEYS or not is_payload(value):  # data is counted with its part
                found = fixed_field(place.field, value, at)
                yield from without_tokens(found) if scope is _Scope.BILLED_LINKS else found
        elif value is not None:
            yield from without_tokens(fixed_field(place.field, value, place.path))


def _is_breakpoint(value: object) -> bool:
    """Return whether a value is a prompt cache breakpoint. Clients move breakpoints without changing the message."""
    return isinstance(value, dict) and all(
        isinstance(k, str) and is_field_name(k) and isinstance(v, str) and _CACHE_MARK.fullmatch(v)
        for k, v in value.items()
    )


def _is_editable(key: str, value: object) -> bool:
    """Return whether the texts in a value may be masked, judged by its key. Numbers and flags contain no text."""
    if key in _EDITABLE:
        return True
    is_free = _FREE_TEXT.search(key) is not None and key not in _IDENTIFIERS
    return is_free and (isinstance(value, (str, list, tuple)) or is_record(value))


def without_tokens(fields: Iterable[PlacedField]) -> Iterator[PlacedField]:
    """Yield the fields with a token count of 0, because they are counted elsewhere and only have to be searched."""
    return ((at, replace(field, tokens=0)) for at, field in fields)


def fixed_field(key: str, value: object, path: Path) -> Iterator[PlacedField]:
    """Yield a field for a value that is never changed, or nothing if there is nothing to count or search."""
    text = value if isinstance(value, str) else _as_json(value, path)
    is_number = isinstance(value, (int, float)) and _LEAST_CARD <= abs(value) < math.inf
    if is_number:
        text = f"{value:.0f}"
    is_framing = key in _IDENTIFIERS and len(text) <= _FRAMING_LENGTH
    if is_framing and _HARMLESS.fullmatch(text):
        return
    tokens = encrypted_tokens(text) if key in _SIGNATURES else 0 if is_framing else None
    if key and (is_number or (key not in _IDENTIFIERS and key not in _SIGNATURES)):
        # Unknown keys are sent, too, and may contain an address; a colon after one could hide the value from rules.
        text = f"{key}: {text}" if is_field_name(key) else f"{key} {text}"
    yield (), Field(place_name(path), text, tokens=tokens)


def _as_json(value: object, path: Path) -> str:
    try:
        return json.dumps(fields_of(value) or value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise HistoryError(f"{place_name(path)} cannot be written as JSON: {error}") from None
