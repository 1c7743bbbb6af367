"""One content block: the texts in it and its tool call.

The block kinds are those of `anthropic.types.ContentBlockParam`; fields beyond them are kept as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Final

from ctxguard.artifacts import Part, ToolCall
from ctxguard.formats import unknown_part
from ctxguard.lens import (
    GONE,
    CallPlace,
    Path,
    Slot,
    argument_text,
    edited,
    file,
    get,
    image,
    members,
    misread,
    sealed,
    text_of,
    wanted_field,
)

__all__ = [
    "THINKING",
    "as_blocks",
    "block_slots",
    "call_place",
    "content_slots",
    "kind_of",
    "tool_input",
    "without_emptied",
]

THINKING: Final = ("thinking", "redacted_thinking")


def kind_of(block: object) -> str:
    """Return the type of a block; a bare text is one of type `text`."""
    return "text" if isinstance(block, str) else str(get(block, "type"))


def as_blocks(content: object) -> list[object]:
    """Return a content as a list of blocks; a text is a list of itself."""
    if isinstance(content, str):
        return [content] if content else []
    return list(content) if isinstance(content, (list, tuple)) else []


def without_emptied(blocks: Sequence[object], was: Sequence[object]) -> list[object]:
    """Return changed blocks without those that hold nothing any more: the API refuses them empty, but for results.

    Args:
        blocks: as they are now.
        was: as they were; the same objects among `blocks` stay.
    """
    same = {id(block) for block in was}
    filled = (block if id(block) in same else _filled(block) for block in blocks)
    return [block for block in filled if block is not GONE]


def _filled(block: object) -> object:
    """Return a changed block without what is empty in it; `GONE` where nothing is left of a document."""
    path = _HOLDERS.get(kind_of(block))
    if path is None or not _holds(block):
        return block
    content = reduce(get, path, block)
    left = content
    if isinstance(content, (list, tuple)):
        left = [inner for inner in map(_filled, content) if inner is not GONE]
    if left or left is None:
        return block if left == content else edited(block, {path: left})
    if kind_of(block) != "tool_result":
        return GONE
    return block if isinstance(left, str) else edited(block, {path: GONE})


def _holds(block: object) -> bool:
    """Tell whether a block holds others: a document may also be a text or a file."""
    return kind_of(block) != "document" or get(get(block, "source"), "type") == "content"


def content_slots(content: object, path: Path) -> list[Slot]:
    """Return the pieces of a content in order; the input of a `tool_use` is none of them.

    Raises:
        HistoryError: it is no text and no list of blocks, or holds a block of which that is so.
    """
    return [slot for place, block in members(content, path, of="block") for slot in block_slots(block, place)]


def block_slots(block: object, path: Path) -> list[Slot]:
    """Return the pieces of one block, see `content_slots`."""
    if isinstance(block, str):
        return [(path, Part("text", block))] if block else []
    return _SLOTS.get(kind_of(block), _unknown)(block, path)


def _text(block: object, path: Path) -> list[Slot]:
    return [((*path, "text"), Part("text", _wanted(block, "text", path)))]


def _wanted(block: object, key: str, path: Path) -> str:
    """Return the text that a block of its kind has to have; passed on unread, a misspelt one would not be masked."""
    text = get(block, key)
    if not isinstance(text, str):
        raise misread((*path, key), "a text", text)
    return text


def _thinking(block: object, path: Path) -> list[Slot]:
    text = get(block, "thinking")
    if isinstance(text, str) and text:
        return [(path, Part("reasoning", text, signed=True))]
    seal = get(block, "data") or get(block, "signature")
    if not seal:
        _wanted(block, "thinking", path)
    return [(path, Part("reasoning", tokens=sealed(seal), signed=True))]


def _holder(block: object, path: Path) -> list[Slot]:
    return content_slots(get(block, "content"), (*path, "content"))


def _image(block: object, path: Path) -> list[Slot]:  # noqa: ARG001 - as all of the table
    data = get(get(block, "source"), "data")
    return [((), image(f"data:;base64,{data}" if isinstance(data, str) else None))]


def _document(block: object, path: Path) -> list[Slot]:
    source = get(block, "source")
    if get(source, "type") == "text":
        return [((*path, "source", "data"), Part("text", _wanted(source, "data", (*path, "source"))))]
    if get(source, "type") == "content":
        return content_slots(get(source, "content"), (*path, "source", "content"))
    return [((), file(get(source, "data")))]


def _unknown(block: object, path: Path) -> list[Slot]:
    return [((), unknown_part(block, path))]


_HOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "tool_result": ("content",),
    "search_result": ("content",),
    "document": ("source", "content"),
}
"""Blocks that hold others: where those stand."""
_SLOTS: Final[Mapping[str, Callable[[object, Path], list[Slot]]]] = {
    "text": _text,
    "thinking": _thinking,
    "redacted_thinking": _thinking,
    "tool_use": lambda _block, _path: [],
    "tool_result": _holder,
    "search_result": _holder,
    "image": _image,
    "document": _document,
}


def call_place(block: object, path: Path) -> CallPlace:
    """Return the call of a `tool_use` block; its arguments are the JSON of its input."""
    call = ToolCall(
        str(get(block, "name") or ""), argument_text(wanted_field(block, "input", path) or {}), text_of(block, "id")
    )
    return CallPlace(call, (*path, "input"), (*path, "id"), tool_input)


def tool_input(arguments: str) -> dict[str, object]:
    """Return arguments as the object that a `tool_use` block needs; what is no JSON object is wrapped in one."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": value}
