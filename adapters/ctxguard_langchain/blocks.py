"""Content blocks of LangChain messages: the standard ones (v0, v1) and those that providers' packages store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from ctxguard.artifacts import Part, PartKind
from ctxguard.lens import GONE, Path, Slot, audio, file, get, image, misread, opaque, sealed

__all__ = ["CALL_FIELDS", "Block", "block_changes", "block_slot", "is_reasoning", "is_sealed", "unstored"]

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
_BARE: Final = ("text", "input_text", "output_text", "refusal")
"""Those that are nothing without it; a plain-text file may be a link, and reasoning sealed."""
CALL_FIELDS: Final[Mapping[object, tuple[str, str]]] = {
    "tool_use": ("id", "input"),
    "tool_call": ("id", "args"),
    "tool_call_chunk": ("id", "args"),
    "invalid_tool_call": ("id", "args"),
    "function_call": ("call_id", "arguments"),
    "custom_tool_call": ("call_id", "input"),
}
"""Blocks that repeat a tool call: the fields of its id and of its arguments."""
_SEALS: Final = ("signature", "encrypted_content", "thought_signature")
_STORED: Final = ("msg_", "fc_", "rs_")
"""How the ids of items begin that OpenAI keeps, and would answer from in place of what is sent."""


def is_reasoning(block: object) -> bool:
    """Tell a block of reasoning, sealed or not."""
    return get(block, "type") in ("reasoning", "thinking", "redacted_thinking")


def block_slot(block: Block, path: Path) -> Slot:
    """Return the piece that a block is; a tool call counts nothing, it stands in `tool_calls` too.

    Raises:
        HistoryError: a block that is nothing but its text has none.
    """
    if isinstance(block, str):
        return path, Part("text", block)
    kind = block.get("type")
    signed = bool(_seal(block, "signature")) or kind == "redacted_thinking"
    if kind in _TEXTS and isinstance(block.get(_TEXTS[kind][1]), str):
        part, field = _TEXTS[kind]
        return (*path, field), Part(part, block[field], signed=signed and part == "reasoning")
    if kind in _BARE and "index" not in block:  # one that was streamed may hold a citation alone
        field = _TEXTS[kind][1]
        raise misread((*path, field), "a text", block.get(field))
    if kind in CALL_FIELDS:
        return (), Part("opaque", tokens=0)
    if is_reasoning(block) and isinstance(summary := block.get("summary"), list):
        return path, Part("reasoning", "\n".join(str(get(piece, "text") or "") for piece in summary))
    if is_reasoning(block) and signed:
        return path, Part("reasoning", tokens=sealed(block.get("data") or _seal(block, "signature")), signed=True)
    return (), _MEDIA.get(kind, opaque)(block)


def _seal(block: Mapping[str, Any], key: str) -> object:
    return block.get(key) or (block.get("extras") or {}).get(key)


def _payload(block: Mapping[str, Any]) -> str | None:
    """Return the base64 data of a media block, wherever its dialect keeps it."""
    places: list[Any] = [block, *(block.get(key) for key in ("source", "input_audio", "file"))]
    values = (p.get(key) for p in places if isinstance(p, Mapping) for key in ("base64", "data", "file_data"))
    return next((value for value in values if isinstance(value, str)), None)


def _image(block: Mapping[str, Any]) -> Part:
    found, payload = block.get("image_url"), _payload(block)
    inner: Mapping[str, Any] = found if isinstance(found, Mapping) else {"url": found or block.get("url")}
    return image(inner.get("url") if payload is None else f"data:;base64,{payload}", detail=inner.get("detail"))


def _audio(block: Mapping[str, Any]) -> Part:
    return audio(_payload(block))


def _file(block: Mapping[str, Any]) -> Part:
    return file(_payload(block))


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


def block_changes(block: Block, path: Path, place: Path, text: object) -> Iterator[tuple[Path, object]]:
    """Walk what a new text changes: a block of which nothing is left goes, as does the id of a stored item.

    Args:
        block: as it was.
        path: where it stands.
        place: where its text stands.
        text: the new one.
    """
    if not text or (is_reasoning(block) and is_sealed(block)):
        yield path, GONE
        return
    yield place, text
    yield from unstored(block, path)


def is_sealed(block: Block) -> bool:
    """Tell a block that its provider takes back as it was or not at all."""
    if isinstance(block, str):
        return False
    return "summary" in block or any(_seal(block, key) for key in _SEALS) or _is_stored(block)


def _is_stored(block: Mapping[str, Any]) -> bool:
    return str(block.get("id", "")).startswith(_STORED)


def unstored(block: Block, path: Path) -> Iterator[tuple[Path, object]]:
    """Walk what frees a block from the item that OpenAI has stored."""
    if not isinstance(block, str) and _is_stored(block):
        yield (*path, "id"), GONE
