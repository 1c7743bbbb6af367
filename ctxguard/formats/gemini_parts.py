"""One part of a Gemini content: its text, media, function call, or function response.

A part is a `google.genai.types.Part`, or a dict in either spelling (`function_call` in the SDK, `functionCall` in the
REST API). Parts have no type; the field that is set identifies them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ctxguard.adapting.content_format import (
    ContentFormat,
    as_base64,
    audio,
    file,
    image,
    opaque,
    sealed,
    video,
    with_half,
)
from ctxguard.adapting.fields import (
    NULL_TEXT,
    Path,
    arguments_as_object,
    arguments_as_text,
    get,
    is_record,
    parse_json,
    place_name,
    require_text,
    text_of,
    unreadable,
)
from ctxguard.adapting.json_walk import PlacedField, extra_fields
from ctxguard.adapting.message_view import GEMINI, PlacedCall, PlacedPart, refuse_foreign_part
from ctxguard.artifacts import Half, Part, PartKind, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.tokens.schemas import fields_of

NO_ID: Final = "no id: "
"""Prefix of the ids that stand in for missing ids. They are never sent, because Vertex AI rejects ids."""
_CAMEL: Final = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "thought_signature": "thoughtSignature",
    "mime_type": "mimeType",
    "tool_call": "toolCall",
    "tool_response": "toolResponse",
}
_CODE: Final = {"executable_code": "code", "code_execution_result": "output"}
_READ: Final = frozenset({"text", "thought", "function_call", "functionCall", "function_response", "functionResponse"})
_SIGNATURES: Final = frozenset({"thought_signature", "thoughtSignature"})
_SAYS_NOTHING: Final = _READ | _SIGNATURES
_READ_INSIDE: Final = frozenset({"id", "name", "args", "response", "parts", "role"})
_BILLED: Final = "E"
"""First base64 character of the Gemini API's signatures; signatures of Vertex AI are not billed."""


def set_field(record: object, name: str) -> tuple[str, object]:
    """Return the name of a field as the record spells it, and the field's value; None if the field is not set."""
    value = get(record, name)
    if value is not None or name not in _CAMEL:
        return name, value
    return _CAMEL[name], get(record, _CAMEL[name])


def function_call(part: object) -> object:
    """Return the function call in a part; None if the part contains none."""
    return set_field(part, "function_call")[1]


def function_response(part: object) -> object:
    """Return the function response in a part; None if the part contains none."""
    return set_field(part, "function_response")[1]


def is_part(value: object) -> bool:
    """Return whether a value is a part rather than a content."""
    if isinstance(value, str) or any(set_field(value, name)[1] is not None for name in ("text", *_CAMEL)):
        return True
    return text_of(value, "uri") is not None  # an uploaded file, as `client.files.upload` returns it


def _said(part: object, path: Path) -> list[PlacedPart]:
    if function_call(part) is not None or function_response(part) is not None:
        return [] if function_response(part) is None else _response_parts(part, path)
    if isinstance(part, Mapping) and part.get("text", "") is None and not any(part.values()):
        return [((*path, "text"), NULL_TEXT)]  # most fields of an SDK part are None
    if get(part, "text") is not None:
        kind: PartKind = "reasoning" if get(part, "thought") else "text"
        return [((*path, "text"), Part(kind, require_text(part, "text", path)))]
    for name, inner in _CODE.items():
        spelled, record = set_field(part, name)
        if record is not None:
            text = text_of(record, inner)
            return [] if text is None else [((*path, spelled, inner), Part("text", text))]
    media = _media(part)
    if media is not None:
        return [((), media)]
    return _unknown(part, path)


def _unknown(part: object, path: Path) -> list[PlacedPart]:
    """Read a part without a known field; a part with only a signature has no content."""
    if get(part, "type") is not None:
        raise HistoryError(f"{place_name(path)} has a 'type', which no part of Gemini's has; convert the message first")
    refuse_foreign_part(part, path, own=GEMINI)
    if all(value is None or name in _SAYS_NOTHING for name, value in fields_of(part).items()) and is_record(part):
        return []
    unsigned = {name: value for name, value in fields_of(part).items() if name not in _SIGNATURES}
    return [((), one) for one in opaque(unsigned)]


def _signature(part: object) -> list[PlacedPart]:
    """Return a list with the part for a thought signature; an empty list if there is no signature that is billed."""
    seal = as_base64(set_field(part, "thought_signature")[1])
    return [((), sealed(seal))] if seal is not None and seal.startswith(_BILLED) else []


def _media(part: object) -> Part | None:
    for name in ("inline_data", "file_data"):
        blob = set_field(part, name)[1]
        if blob is not None:
            return _medium(blob)
    return _medium(part) if text_of(part, "uri") is not None else None


def _medium(blob: object) -> Part:
    mime, data = str(set_field(blob, "mime_type")[1] or ""), as_base64(get(blob, "data"))
    url = None if data is None else f"data:{mime};base64,{data}"
    if mime.startswith("image/"):
        return image(url)
    if mime.startswith("audio/"):
        return audio(data)
    return video(data) if mime.startswith("video/") else file(url)


_HALVES: Final = {
    "executable_code": False,
    "code_execution_result": True,
    "tool_call": False,
    "tool_response": True,
}
"""Fields of a part that is one half of a call that the provider executes, and whether it is the result."""


def half_of(part: object) -> Half | None:
    """Return the half of a call that the provider executes and that a part is; None for any other part."""
    if isinstance(part, str):
        return None
    for name, is_result in _HALVES.items():
        inner = set_field(part, name)[1]
        if inner is not None:
            return Half(text_of(inner, "id") or None, is_result)
    return None


def _read(part: object, path: Path) -> list[PlacedPart]:
    return with_half([*_said(part, path), *_signature(part)], half_of(part), path)


PARTS: Final[ContentFormat] = ContentFormat({None: _read}, unknown=_unknown)


def part_fields(part: object, path: Path, read: Sequence[PlacedPart]) -> Iterator[PlacedField]:
    """Yield the fields of a part that are not content: names of files, links, unknown keys."""
    yield from PARTS.part_fields(part, path, read, own=_READ)
    if isinstance(part, str):
        return
    for name in ("function_call", "function_response"):
        spelled, inner = set_field(part, name)
        if inner is not None:
            yield from extra_fields(inner, (*path, spelled), own=_READ_INSIDE)
            for number, member in enumerate(_members(inner)):
                yield from PARTS.part_fields(member, (*path, spelled, "parts", number), own=_READ)


def _members(response: object) -> list[object]:
    found = get(response, "parts")
    return list(found) if isinstance(found, (list, tuple)) else []


def place_call(part: object, path: Path, number: int) -> PlacedCall:
    """Return the function call in a part, and the paths of its fields.

    A call without an id gets one from its `number` among the calls of the same function.
    """
    spelled, inner = set_field(part, "function_call")
    if not is_record(inner):
        raise unreadable((*path, spelled), "a dict with 'name' and 'args'", inner)
    name, identity = str(get(inner, "name") or ""), text_of(inner, "id")
    # missing arguments are equivalent to an empty object
    given = get(inner, "args")
    arguments = arguments_as_text({} if given is None else given)
    call = ToolCall(name, arguments, identity or f"{NO_ID}{name} {number}", takes_object=True)
    place = (*path, spelled)
    return PlacedCall(call, (*place, "args"), (*place, "id") if identity else (), arguments_as_object)


def _response_parts(part: object, path: Path) -> list[PlacedPart]:
    """Return the parts of a function response: one for its only text, or for its fields as JSON, and one per medium."""
    spelled, inner = set_field(part, "function_response")
    if not is_record(inner):
        raise unreadable((*path, spelled), "a dict with 'name' and 'response'", inner)
    response, place = get(inner, "response"), (*path, spelled, "response")
    if response is not None and not isinstance(response, Mapping):
        raise unreadable(place, "a dict", response)
    key = _text_key(response or {})
    text = "" if not response else str(response[key]) if key is not None else arguments_as_text(response)
    at = place if key is None else (*place, key)
    return [(at, Part("text", text)), *PARTS.read(_members(inner), (*path, spelled, "parts"))]


def _text_key(response: Mapping[str, object]) -> str | None:
    """Return the key of a response that consists of a single text, such as `output`; None for any other response."""
    is_text = len(response) == 1 and all(isinstance(value, str) for value in response.values())
    return next(iter(response)) if is_text else None


def tool_response(text: str) -> dict[str, object]:
    """Return a text as a function response: a JSON object as it is, any other text under the key `output`."""
    value = parse_json(text)
    return value if isinstance(value, dict) else {"output": text}
