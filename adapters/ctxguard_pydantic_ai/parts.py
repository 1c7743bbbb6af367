"""One part of a PydanticAI message: the texts in it, and copies of it with other texts.

Parts are told apart by `part_kind` and content items by `kind`, never by class, so that names that came and went
between 1.71 and 2.68 make no difference.
"""

from __future__ import annotations

import base64
import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from pydantic_ai import messages

from ctxguard.artifacts import Part, ToolCall
from ctxguard.media import audio_tokens, file_tokens, image_size, image_tokens
from ctxguard.tokens import EstimateCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["call_of", "copied", "edited_call", "edited_part", "is_fixed", "pieces", "rendered"]

# Parts are duck-typed on purpose: their classes differ between the supported versions.
NativePart = Any

_MEDIA: Final = ("image-url", "audio-url", "video-url", "document-url", "binary", "uploaded-file")
_UNSENT: Final = ("timestamp", "metadata", "provider_details", "part_kind", "id", "signature")
_OWN_TOOLS: Final = ("tool-search", "capability-load")
_IMAGE_HEAD: Final = 49_152
"""Bytes of an image that are looked at for its size."""


def is_fixed(part: NativePart) -> bool:
    """Tell a part of the framework's own tools (tool search, capability loading): history is read for them."""
    return getattr(part, "tool_kind", None) in _OWN_TOOLS


def pieces(part: NativePart) -> list[Part]:
    """Return the pieces of a part's content in order; a call's arguments are none of them."""
    if is_fixed(part):
        return [_opaque(part)]
    return _PIECES.get(part.part_kind, _unknown)(part)


def _text(part: NativePart) -> list[Part]:
    return [Part("text", part.content)] if part.content else []


def _thinking(part: NativePart) -> list[Part]:
    sealed = len(part.signature or "") * 3 // 16 if not part.content else 0  # base64, then about 4 bytes a token
    return [Part("reasoning", part.content or None, tokens=sealed or None)]


def _prompt(part: NativePart) -> list[Part]:
    if isinstance(part.content, str):
        return _text(part)
    return [_item(item) for item in part.content]


def _item(item: NativePart) -> Part:
    if isinstance(item, str):
        return Part("text", item)
    kind = getattr(item, "kind", None)
    if kind == "text-content":
        return Part("text", item.content)
    if kind == "structured-content":
        return Part("text", item.content or item.render())
    if kind == "cache-point":
        return Part("opaque", tokens=0)
    return _media(item) if kind in _MEDIA else _opaque(item)


def _media(item: NativePart) -> Part:
    media_type = _media_type(item)
    data = getattr(item, "data", None)
    if media_type.startswith("image/"):
        return Part("image", tokens=image_tokens(_image_size(item, data), detail=_detail(item)))
    encoded = base64.b64encode(data).decode() if isinstance(data, bytes) else None
    if media_type.startswith("audio/"):
        return Part("audio", tokens=audio_tokens(encoded))
    return Part("file", tokens=file_tokens(encoded))


def _media_type(item: NativePart) -> str:
    """Return the media type of an item; a link without a telling ending has that of its kind."""
    try:
        return str(item.media_type)
    except ValueError:
        return f"{item.kind.partition('-')[0]}/*"


def _image_size(item: NativePart, data: object) -> tuple[int, int] | None:
    if isinstance(data, bytes):
        return image_size("data:;base64," + base64.b64encode(data[:_IMAGE_HEAD]).decode())
    url = getattr(item, "url", None)
    return image_size(url) if isinstance(url, str) else None


def _detail(item: NativePart) -> str:
    return str((getattr(item, "vendor_metadata", None) or {}).get("detail", "auto"))


def _tool_return(part: NativePart) -> list[Part]:
    if isinstance(part.content, (list, tuple)) and any(getattr(i, "kind", None) in _MEDIA for i in part.content):
        return [_return_item(part, item) for item in part.content]
    if getattr(part.content, "kind", None) in _MEDIA:
        return [_media(part.content)]
    text = rendered(part, part.content)
    return [Part("text", text)] if text else []


def _return_item(part: NativePart, item: object) -> Part:
    return _media(item) if getattr(item, "kind", None) in _MEDIA else Part("text", rendered(part, item))


def rendered(part: NativePart, content: object) -> str:
    """Return what the model reads of a tool's result: a text as it is, anything else as the framework's JSON."""
    if isinstance(content, str):
        return content
    return str(copied(part, content=content, outcome="success").model_response_str())


def _retry(part: NativePart) -> list[Part]:
    return [Part("text", part.content if isinstance(part.content, str) else part.model_response())]


def _speech(part: NativePart) -> list[Part]:
    return [Part("text", part.transcript)] if part.transcript else [_opaque(part)]


def _file(part: NativePart) -> list[Part]:
    return [_media(part.content)]


def _compaction(part: NativePart) -> list[Part]:
    sealed = getattr(part, "provider_name", None) is not None
    return [_opaque(part)] if sealed or not part.content else _text(part)


def _unknown(part: NativePart) -> list[Part]:
    return [_opaque(part)]


_PIECES: Final[dict[str, Callable[[NativePart], list[Part]]]] = {
    "system-prompt": _text,
    "user-prompt": _prompt,
    "tool-return": _tool_return,
    "retry-prompt": _retry,
    "retry-feedback": _retry,
    "speech": _speech,
    "compaction": _compaction,
    "text": _text,
    "thinking": _thinking,
    "file": _file,
    "tool-call": lambda _: [],
}


def _opaque(part: NativePart) -> Part:
    sent = {key: value for key, value in vars(part).items() if key not in _UNSENT and value is not None}
    return Part("opaque", tokens=EstimateCounter().count(json.dumps(sent, default=str, ensure_ascii=False)[:20_000]))


def call_of(part: NativePart) -> ToolCall:
    """Return a call; its arguments are the compact JSON that the framework sends."""
    return ToolCall(part.tool_name, "" if is_fixed(part) else part.args_as_json_str(), part.tool_call_id)


def edited_call(part: NativePart, call: ToolCall) -> NativePart:
    """Return a copy with these arguments and this id, in the form, text or dict, that they had."""
    if is_fixed(part):
        return part
    changes: dict[str, object] = {}
    if call.id is not None and call.id != part.tool_call_id:
        changes["tool_call_id"] = call.id
    if call.arguments != call_of(part).arguments:
        value = _json(call.arguments) if isinstance(part.args, dict) else None
        changes["args"] = value if isinstance(value, dict) else call.arguments
    return copied(part, **changes, id=None) if changes else part


def edited_part(part: NativePart, now: Sequence[Part]) -> NativePart | None:
    """Return a copy with these pieces; None where a part may not be changed and has to go instead (signed thinking)."""
    was = pieces(part)
    if list(now) == was:
        return part
    if part.part_kind == "thinking" and (part.signature or part.id):
        return None
    if part.part_kind == "speech":
        return copied(part, transcript=now[0].text, audio=None, timestamps=None, id=None)
    content = _edited_content(part, was, now)
    return copied(part, content=content, id=None, citations=None)


def _edited_content(part: NativePart, was: Sequence[Part], now: Sequence[Part]) -> object:
    if isinstance(part.content, (list, tuple)) and len(was) == len(part.content) and part.part_kind != "tool-return":
        return [_edited_item(i, w, n) for i, w, n in zip(part.content, was, now, strict=True)]
    if any(piece.text is None for piece in was):
        return [i if w == n else n.text for i, w, n in zip(part.content, was, now, strict=True)]
    text = now[0].text or ""
    return text if isinstance(part.content, str) or part.part_kind != "tool-return" else _in_its_form(part, text)


def _edited_item(item: NativePart, was: Part, now: Part) -> NativePart:
    if was == now:
        return item
    if isinstance(item, str):
        return now.text
    if item.kind == "structured-content":  # a model with native structure would be sent the value as it was
        return messages.TextContent(now.text or "", metadata=item.metadata)
    return copied(item, content=now.text)


def _in_its_form(part: NativePart, text: str) -> object:
    """Return a structured result for a text that is still the JSON of one, else the text."""
    value = _json(text)
    return value if isinstance(value, (dict, list)) and rendered(part, value) == text else text


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def copied(part: NativePart, **changes: object) -> NativePart:
    """Return a copy with other values in those of these fields that the part's version has."""
    known = {field.name for field in fields(part)}
    return replace(part, **{name: value for name, value in changes.items() if name in known})
