"""One part of a PydanticAI message: the texts in it, and copies of it with other texts.

Parts are told apart by `part_kind` and content items by `kind`, never by class, so that names that came and went
between 1.71 and 2.68 make no difference.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pydantic_ai import messages
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ctxguard.adapting.content_format import audio, file, image, opaque
from ctxguard.adapting.editing import REMOVED, copy_with
from ctxguard.adapting.extra_fields import PlacedField, fixed_field, is_payload
from ctxguard.adapting.fields import Path, parse_json
from ctxguard.adapting.message_view import PlacedCall, PlacedPart
from ctxguard.artifacts import Part, ToolCall
from ctxguard.tokens.media import encrypted_tokens

# Parts are duck-typed on purpose: their classes differ between the supported versions.
NativePart = Any

_MEDIA: Final = ("image-url", "audio-url", "video-url", "document-url", "binary", "uploaded-file")
_UNSENT: Final = ("timestamp", "metadata", "provider_details", "part_kind", "id", "signature")
_OWN_TOOLS: Final = ("tool-search", "capability-load")
_BINDING: Final = ("anthropic", "bedrock")
"""Providers whose signatures vouch for all that stands before the thinking."""
_UNWRITABLE: Final = (PydanticSerializationError, UnicodeEncodeError, TypeError)
"""What the framework raises where it cannot write a value as JSON."""
_IMAGE_HEAD: Final = 49_152
"""Bytes of an image that are looked at for its size."""


def is_fixed(part: NativePart) -> bool:
    """Tell a part of the framework's own tools (tool search, capability loading): history is read for them."""
    return getattr(part, "tool_kind", None) in _OWN_TOOLS


def read_part(part: NativePart) -> list[PlacedPart]:
    """Return the parts of a part's content in order; a call's arguments are none of them."""
    return _opaque(part) if is_fixed(part) else _READERS.get(part.part_kind, _opaque)(part)


def _opaque(part: NativePart) -> list[PlacedPart]:
    return [((), opaque({key: v for key, v in vars(part).items() if key not in _UNSENT and v is not None}))]


def part_fields(part: NativePart, number: int) -> Iterator[PlacedField]:
    """Walk what is sent of a part beside its content: its id, the name of its tool, links of media."""
    for key in ("id", "tool_name", "signature", "provider_details"):
        value = getattr(part, key, None)
        if value and not (key == "tool_name" and part.part_kind == "tool-call"):
            # its tokens are counted with the part already
            yield from ((at, replace(field, tokens=0)) for at, field in fixed_field(key, value, ("parts", number, key)))
    content = getattr(part, "content", None)
    for index, item in enumerate(content if isinstance(content, (list, tuple)) else [content]):
        url = getattr(item, "url", None)
        if isinstance(url, str) and not is_payload(url):
            yield from fixed_field("url", url, ("parts", number, "content", index, "url"))


def _text(part: NativePart) -> list[PlacedPart]:
    content = part.content
    if isinstance(content, (list, tuple)):
        return [_item_part(item, ("content", number)) for number, item in enumerate(content)]
    return [(("content",), Part("text", content))] if content else []


def _thinking(part: NativePart) -> list[PlacedPart]:
    signed = bool(part.signature) and part.provider_name in _BINDING
    tokens = None if part.content else encrypted_tokens(part.signature) or None
    return [(("content",), Part("reasoning", part.content or None, tokens, signed=signed))]


def _item_part(item: NativePart, path: Path) -> PlacedPart:
    kind = getattr(item, "kind", None)
    if isinstance(item, str):
        return path, Part("text", item)
    if kind == "text-content":
        return (*path, "content"), Part("text", item.content)
    if kind == "structured-content":
        return path, Part("text", item.content or item.render())
    if kind == "cache-point":
        return (), Part("opaque", tokens=0)
    return ((), _media(item)) if kind in _MEDIA else _opaque(item)[0]


def _media(item: NativePart) -> Part:
    media_type, data = _media_type(item), getattr(item, "data", None)
    if media_type.startswith("image/"):
        detail = (getattr(item, "vendor_metadata", None) or {}).get("detail")
        head = f"data:;base64,{_base64(data[:_IMAGE_HEAD])}" if isinstance(data, bytes) else getattr(item, "url", None)
        return image(head, detail=detail)
    count = audio if media_type.startswith("audio/") else file
    return count(_base64(data) if isinstance(data, bytes) else None)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _media_type(item: NativePart) -> str:
    """Return the media type of an item; a link without a telling ending has that of its kind."""
    try:
        return str(item.media_type)
    except ValueError:
        return f"{item.kind.partition('-')[0]}/*"


def _is_media(item: object) -> bool:
    return getattr(item, "kind", None) in _MEDIA


def _tool_return(part: NativePart) -> list[PlacedPart]:
    items = part.content if isinstance(part.content, (list, tuple)) else [part.content]
    if not any(map(_is_media, items)):
        text = rendered(part, part.content)
        return [(("content",), Part("text", text))] if text else []
    return [
        ((), _media(item)) if _is_media(item) else (("content", number), Part("text", rendered(part, item)))
        for number, item in enumerate(items)
    ]


def rendered(part: NativePart, content: object) -> str:
    """Return what the model reads of a tool's result: a text as it is, anything else as the framework's JSON."""
    if isinstance(content, str):
        return content
    succeeded = copy_with(part, {("content",): content, ("outcome",): "success"})
    try:
        return str(succeeded.model_response_str())
    except _UNWRITABLE:
        return _encodable(content)


def _encodable(value: object) -> str:
    """Return as JSON what the framework refuses: lone surrogates as `?`, which UTF-8 cannot write, others as texts."""
    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), default=partial(to_jsonable_python, fallback=str)
    )
    return text.encode("utf-8", "replace").decode()


def _retry(part: NativePart) -> list[PlacedPart]:
    return [(("content",), Part("text", part.content if isinstance(part.content, str) else part.model_response()))]


def _speech(part: NativePart) -> list[PlacedPart]:
    return [(("transcript",), Part("text", part.transcript))] if part.transcript else _opaque(part)


def _compaction(part: NativePart) -> list[PlacedPart]:
    is_sealed = getattr(part, "provider_name", None) is not None
    return _opaque(part) if is_sealed or not part.content else _text(part)


_READERS: Final[Mapping[str, Callable[[NativePart], list[PlacedPart]]]] = {
    **dict.fromkeys(("system-prompt", "user-prompt", "text"), _text),
    "tool-return": _tool_return,
    **dict.fromkeys(("retry-prompt", "retry-feedback"), _retry),
    "speech": _speech,
    "compaction": _compaction,
    "thinking": _thinking,
    "file": lambda part: [((), _media(part.content))],
    "tool-call": lambda _: [],
}


def place_call(part: NativePart, number: int) -> PlacedCall:
    """Return a call with its place in its message; its arguments are the compact JSON that the framework sends.

    Where they stood as a dict, changed ones are written as a dict as long as they are one.
    """
    call = ToolCall(part.tool_name, "" if is_fixed(part) else _arguments(part), part.tool_call_id)
    form = _as_dict if isinstance(part.args, dict) else str
    return PlacedCall(call, (number, "args"), (number, "tool_call_id"), form)


def _as_dict(arguments: str) -> object:
    value = parse_json(arguments)
    return value if isinstance(value, dict) else arguments


def _arguments(part: NativePart) -> str:
    try:
        return str(part.args_as_json_str())
    except _UNWRITABLE:
        return _encodable(part.args)


def edited_part(part: NativePart, changes: Mapping[Path, object]) -> NativePart:
    """Return a copy with these values; `REMOVED` where it may not be changed and has to go instead (signed thinking).

    What was bound to the old text goes: ids and citations, the sound of a speech.
    """
    if not changes:
        return part
    if part.part_kind == "thinking" and (part.signature or part.id):
        return REMOVED
    values = {path: _value(part, path, new) for path, new in changes.items()}
    return copy_with(part, {**values, **dict.fromkeys((("id",), ("citations",), ("audio",), ("timestamps",)), REMOVED)})


def _value(part: NativePart, path: Path, new: object) -> object:
    """Return what takes the place of a value: in the form in which it stood, as far as it still is of that form."""
    if part.part_kind == "tool-return" and path == ("content",):
        value = None if isinstance(part.content, str) else parse_json(new)
        return value if isinstance(value, (dict, list)) and rendered(part, value) == new else new
    item: NativePart = part.content[path[1]] if len(path) == 2 else None
    if getattr(item, "kind", None) == "structured-content":
        # a model with native structure would be sent the value as it was
        return messages.TextContent(str(new), metadata=item.metadata)
    return new
