"""Read the texts of one part of a PydanticAI message, and copy it with other texts.

Parts are distinguished by `part_kind` and content items by `kind`, never by class, because class names changed between
1.71 and 2.68.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final

from pydantic_ai import BinaryContent as NativeContent
from pydantic_ai import messages
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ctxguard.adapting.content_format import audio, file, image, opaque
from ctxguard.adapting.editing import REMOVED, copy_with
from ctxguard.adapting.extra_fields import PlacedField, fixed_field, is_payload, without_tokens
from ctxguard.adapting.fields import Path, parse_json
from ctxguard.adapting.message_view import PlacedCall, PlacedPart
from ctxguard.artifacts import Part, ToolCall
from ctxguard.files import BinaryContent
from ctxguard.tokens.media import encrypted_tokens


class Attachment(NativeContent, BinaryContent):
    """A `BinaryContent` of both ctxguard and PydanticAI, for a prompt or as the result of a tool."""

    media_type: str = ""  # a field, not a property as in the core: PydanticAI sets it

    def __init__(self, data: bytes, mime_type: str, width: int | None = None, height: int | None = None) -> None:
        NativeContent.__init__(self, data=data, media_type=mime_type)
        for name, value in (("mime_type", mime_type), ("width", width), ("height", height)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Attachment({self.mime_type!r}, {self.width}x{self.height} pixels, {len(self.data)} bytes)"


# Parts are duck-typed on purpose: their classes differ between the supported versions.
NativePart = Any

_MEDIA: Final = ("image-url", "audio-url", "video-url", "document-url", "binary", "uploaded-file")
_UNSENT: Final = frozenset(
    {"timestamp", "timestamps", "metadata", "part_kind", "kind", "dynamic_ref", "context_id", "provider_name"}
)
"""Fields that the framework does not send."""
_APART: Final = _UNSENT | {"id", "signature", "provider_details"}
"""Fields that are not counted in an opaque part."""
_READ: Final = _UNSENT | {"content", "args", "transcript", "audio", "data", "tool_call_id", "outcome"}
"""Fields that are read as a text, a medium, or a call, or that are not sent."""
_OWN_TOOLS: Final = ("tool-search", "capability-load")
_BINDING: Final = ("anthropic", "bedrock")
"""Providers whose signatures also cover everything before the thinking."""
_UNWRITABLE: Final = (PydanticSerializationError, UnicodeEncodeError, TypeError)
"""Errors of the framework for values that cannot be written as JSON."""
_IMAGE_HEAD: Final = 49_152
"""Bytes of an image that are read to find its size in pixels."""


def is_fixed(part: NativePart) -> bool:
    """Return whether a part belongs to a tool of the framework (tool search, capability loading)."""
    return getattr(part, "tool_kind", None) in _OWN_TOOLS


def read_part(part: NativePart) -> list[PlacedPart]:
    """Return the parts of a part's content in order, without the arguments of a call."""
    return _opaque(part) if is_fixed(part) else _READERS.get(part.part_kind, _opaque)(part)


def _opaque(part: NativePart) -> list[PlacedPart]:
    fields = {key: v for key, v in vars(part).items() if key not in _APART and v is not None}
    return [((), one) for one in opaque(fields)]


def part_fields(part: NativePart, number: int) -> Iterator[PlacedField]:
    """Yield the other fields of a part that are sent: its id, the name of its tool, links of media, unknown fields.

    An opaque part is searched as a whole.
    """
    place: Path = ("parts", number)
    read = _UNSENT if read_part(part)[:1] and read_part(part)[0][1].kind == "opaque" else _READ
    if part.part_kind == "tool-call":
        read |= {"tool_name"}
    yield from _unread_fields(part, place, read)
    content = getattr(part, "content", None)
    for index, item in enumerate(content if isinstance(content, (list, tuple)) else [content]):
        if hasattr(item, "kind"):
            yield from _unread_fields(item, (*place, "content", index), _READ)


def _unread_fields(record: NativePart, place: Path, read: AbstractSet[str]) -> Iterator[PlacedField]:
    for key, value in vars(record).items():
        if key not in read and value and not is_payload(value):
            # its tokens are counted with the part already
            plain = value if isinstance(value, str) else to_jsonable_python(value, fallback=str, bytes_mode="base64")
            yield from without_tokens(fixed_field(key.removeprefix("_"), plain, (*place, key)))


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
    """Return the media type of an item; for a link without a known file ending, the type of its kind."""
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
    """Return a tool's result as the model reads it: a text unchanged, anything else as the framework's JSON."""
    if isinstance(content, str):
        return content
    succeeded = copy_with(part, {("content",): content, ("outcome",): "success"})
    try:
        return str(succeeded.model_response_str())
    except _UNWRITABLE:
        return _as_json(content)


def _as_json(value: object) -> str:
    """Return JSON of a value that the framework rejects: lone surrogates as `?`, other objects as texts."""
    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), default=partial(to_jsonable_python, fallback=str)
    )
    return text.encode("utf-8", "replace").decode()


def _retry(part: NativePart) -> list[PlacedPart]:
    return [(("content",), Part("text", part.content if isinstance(part.content, str) else part.model_response()))]


def _compaction(part: NativePart) -> list[PlacedPart]:
    is_sealed = getattr(part, "provider_name", None) is not None
    return _opaque(part) if is_sealed or not part.content else _text(part)


_READERS: Final[Mapping[str, Callable[[NativePart], list[PlacedPart]]]] = {
    **dict.fromkeys(("system-prompt", "user-prompt", "text"), _text),
    "tool-return": _tool_return,
    **dict.fromkeys(("retry-prompt", "retry-feedback"), _retry),
    "speech": lambda part: [(("transcript",), Part("text", part.transcript))] if part.transcript else _opaque(part),
    "compaction": _compaction,
    "thinking": _thinking,
    "file": lambda part: [((), _media(part.content))],
    "tool-call": lambda _: [],
}


def place_call(part: NativePart, number: int) -> PlacedCall:
    """Return a call with its place in its message; its arguments are the compact JSON that the framework sends.

    Changed arguments are written as a dict if the original ones were, and the new ones are a JSON object.
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
        return _as_json(part.args)


def edited_part(part: NativePart, changes: Mapping[Path, object]) -> NativePart:
    """Return a copy with these values; `REMOVED` for signed thinking, which cannot be changed.

    The copy loses everything that belongs to the old text: ids, citations, and the audio of speech.
    """
    if not changes:
        return part
    if part.part_kind == "thinking" and (part.signature or part.id):
        return REMOVED
    values = {path: _value(part, path, new) for path, new in changes.items()}
    return copy_with(part, {**values, **dict.fromkeys((("id",), ("citations",), ("audio",), ("timestamps",)), REMOVED)})


def _value(part: NativePart, path: Path, new: object) -> object:
    """Return the new value in the form of the original, if it still has that form."""
    if part.part_kind == "tool-return" and path == ("content",):
        value = None if isinstance(part.content, str) else parse_json(new)
        return value if isinstance(value, (dict, list)) and rendered(part, value) == new else new
    item: NativePart = part.content[path[1]] if len(path) == 2 else None
    if getattr(item, "kind", None) == "structured-content":
        # for a model with native structure, the framework would send the original value
        return messages.TextContent(str(new), metadata=item.metadata)
    return new
