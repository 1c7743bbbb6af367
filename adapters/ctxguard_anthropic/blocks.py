"""One content block: the texts in it and its tool call.

The block kinds are those of `anthropic.types.ContentBlockParam`; fields beyond them are kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final

from ctxguard.adapting.content_format import ContentFormat, read_file, read_image, text_reader, with_titles
from ctxguard.adapting.editing import REMOVED, copy_with
from ctxguard.adapting.fields import (
    Path,
    arguments_as_object,
    arguments_as_text,
    get,
    optional_field,
    require_field,
    require_text,
    text_of,
)
from ctxguard.adapting.message_view import PlacedCall, PlacedPart
from ctxguard.artifacts import Part, ToolCall
from ctxguard.tokens.media import encrypted_tokens

THINKING: Final = ("thinking", "redacted_thinking")
_HOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "tool_result": ("content",),
    "search_result": ("content",),
    "document": ("source", "content"),
}
"""Blocks that hold a text or other blocks: where these stand."""
_RESULT: Final = ("type", "tool_use_id", "is_error", "cache_control", "toolset_name")
"""What a result that says nothing may hold."""


def kind_of(block: object) -> str:
    """Return the type of a block; a bare text is one of type `text`."""
    return "text" if isinstance(block, str) else str(get(block, "type"))


def as_blocks(content: object) -> list[object]:
    """Return a content as a list of blocks; a text is a list of itself."""
    if isinstance(content, str):
        return [content] if content else []
    return list(content) if isinstance(content, (list, tuple)) else []


def left_of(block: object) -> object:
    """Return a changed block without what is empty in it, which the API refuses; `REMOVED` where nothing is left."""
    path = _held_at(block)
    held = reduce(get, path, block)
    if not isinstance(held, (list, tuple)):
        return block if held != "" or kind_of(block) == "tool_result" else REMOVED
    left = [inner for inner in map(left_of, held) if inner is not REMOVED]
    if left or kind_of(block) == "tool_result":
        return copy_with(block, {path: left or REMOVED})
    return REMOVED


def _held_at(block: object) -> tuple[str, ...]:
    """Return where a block holds a text or others; `()` for a bare text, which is all there is, and other blocks."""
    is_text = kind_of(block) == "document" and get(get(block, "source"), "type") == "text"
    return ("source", "data") if is_text else () if isinstance(block, str) else _HOLDERS.get(kind_of(block), ())


def _thinking(block: object, path: Path) -> list[PlacedPart]:
    text = text_of(block, "thinking")
    if text:
        return [(path, Part("reasoning", text, signed=True))]
    seal = get(block, "data") or get(block, "signature") or require_text(block, "thinking", path)
    return [(path, Part("reasoning", tokens=encrypted_tokens(seal), signed=True))]


def _result(block: object, path: Path) -> list[PlacedPart]:
    return BLOCKS.read(optional_field(block, "content", path, known=_RESULT), (*path, "content"))


def _holder(block: object, path: Path) -> list[PlacedPart]:
    return BLOCKS.read(require_field(block, "content", path), (*path, "content"))


def _document(block: object, path: Path) -> list[PlacedPart]:
    source, path = require_field(block, "source", path), (*path, "source")
    if get(source, "type") == "text":
        return text_reader("data")(source, path)
    return _holder(source, path) if get(source, "type") == "content" else read_file(block, path)


BLOCKS: Final = ContentFormat(
    {
        "text": text_reader("text"),
        **dict.fromkeys(THINKING, _thinking),
        "tool_use": lambda _block, _path: [],
        "tool_result": _result,
        "search_result": with_titles(_holder),
        "image": read_image,
        "document": with_titles(_document),
    },
    noun="block",
)


def place_call(block: object, path: Path) -> PlacedCall:
    """Return the call of a `tool_use` block; its arguments are the JSON of its input."""
    call = ToolCall(
        str(get(block, "name") or ""),
        arguments_as_text(require_field(block, "input", path) or {}),
        text_of(block, "id"),
    )
    return PlacedCall(call, (*path, "input"), (*path, "id"), arguments_as_object)
