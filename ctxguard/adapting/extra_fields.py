"""Read the fields of a message or tool schema other than its content: citations, metadata, links, unknown keys.

Everything that is sent is counted and searched, whether or not an adapter knows the field. Citations, metadata,
descriptions, and fields whose key suggests free text, such as an error, may be masked. Ids, links, signatures, and
the values of unknown keys are never changed, because the effects of a change are unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, TypeAlias

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
EDITABLE_IN_SCHEMAS: Final = frozenset({"description", "title", "examples", "instructions"})
_MEDIA: Final = frozenset(
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
        elif key in _MEDIA or is_payload(value):
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
