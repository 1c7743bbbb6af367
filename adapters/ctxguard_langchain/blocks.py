"""Content blocks of LangChain messages: the standard ones (v0, v1) and those that providers' packages store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ctxguard.artifacts import Part, PartKind
from ctxguard.media import audio_tokens, file_tokens, image_size, image_tokens
from ctxguard.tokens import EstimateCounter

__all__ = ["CALL_FIELDS", "Block", "edited_block", "part_of"]

Block: TypeAlias = "str | Mapping[str, Any]"

_TEXTS: Final[Mapping[object, tuple[PartKind, str]]] = {
    "text": ("text", "text"),
    "text-plain": ("text", "text"),
    "input_text": ("text", "text"),
    "output_text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning": ("reasoning", "reasoning"),
    "thinking": ("reasoning", "thinking"),
}
"""Blocks that carry a text: what part they are, and the field it stands in."""
CALL_FIELDS: Final[Mapping[object, tuple[str, str]]] = {
    "tool_use": ("id", "input"),
    "tool_call": ("id", "args"),
    "tool_call_chunk": ("id", "args"),
    "invalid_tool_call": ("id", "args"),
    "function_call": ("call_id", "arguments"),
    "custom_tool_call": ("call_id", "input"),
}
"""Blocks that repeat a tool call: the fields of its id and of its arguments."""
_SIGNATURES: Final = ("signature", "encrypted_content", "thought_signature")


def part_of(block: Block) -> Part:
    """Return the part that a block is; a tool call counts nothing, it stands in `tool_calls` too."""
    if isinstance(block, str):
        return Part("text", block)
    kind = block.get("type")
    if kind in _TEXTS and isinstance(block.get(_TEXTS[kind][1]), str):
        part, field = _TEXTS[kind]
        return Part(part, block[field], editable=part != "reasoning" or not _signed(block))
    if kind in CALL_FIELDS:
        return Part("opaque", tokens=0)
    return _MEDIA.get(kind, _opaque)(block)


def _signed(block: Mapping[str, Any]) -> bool:
    return any(block.get(key) or (block.get("extras") or {}).get(key) for key in _SIGNATURES)


def _payload(block: Mapping[str, Any]) -> str | None:
    """Return the base64 data of a media block, wherever its dialect keeps it."""
    places: list[Any] = [block, *(block.get(key) for key in ("source", "input_audio", "file"))]
    values = (p.get(key) for p in places if isinstance(p, Mapping) for key in ("base64", "data", "file_data"))
    return next((value for value in values if isinstance(value, str)), None)


def _image(block: Mapping[str, Any]) -> Part:
    image = block.get("image_url")
    inner: Mapping[str, Any] = image if isinstance(image, Mapping) else {"url": image or block.get("url")}
    payload = _payload(block)
    url = inner.get("url") if payload is None else f"data:;base64,{payload}"
    size = image_size(url) if isinstance(url, str) else None
    return Part("image", tokens=image_tokens(size, detail=str(inner.get("detail") or "auto")))


def _audio(block: Mapping[str, Any]) -> Part:
    return Part("audio", tokens=audio_tokens(_payload(block)))


def _file(block: Mapping[str, Any]) -> Part:
    return Part("file", tokens=file_tokens(_payload(block)))


def _opaque(block: Mapping[str, Any]) -> Part:
    return Part("opaque", tokens=EstimateCounter().count(json.dumps(block, default=str)[:20_000]))


_MEDIA: Final[Mapping[object, Callable[[Mapping[str, Any]], Part]]] = {
    "image": _image,
    "image_url": _image,
    "audio": _audio,
    "input_audio": _audio,
    "file": _file,
    "document": _file,
    "video": _file,
    "media": _file,
}


def edited_block(was: Block, now: Part) -> Block:
    """Return a block with the text of a part, or the block itself if that is its text."""
    if now.text is None or part_of(was).text == now.text:
        return was
    if isinstance(was, str):
        return now.text
    stored = str(was.get("id", "")).startswith("msg_")
    kept = {key: value for key, value in was.items() if key != "id" or not stored}
    return {**kept, _TEXTS[was["type"]][1]: now.text}
