"""One content block: the texts in it and its tool call.

The block kinds are those of `anthropic.types.ContentBlockParam`; fields beyond them are kept as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from ctxguard.artifacts import Part, ToolCall
from ctxguard.lens import Path, Slot, argument_text, file, get, image, opaque, sealed

__all__ = ["THINKING", "as_blocks", "block_call", "block_slots", "kind_of", "tool_input"]

THINKING: Final = ("thinking", "redacted_thinking")


def kind_of(block: object) -> str:
    """Return the type of a block; a bare text is one of type `text`."""
    return "text" if isinstance(block, str) else str(get(block, "type"))


def as_blocks(content: object) -> list[object]:
    """Return a content as a list of blocks; a text is a list of itself."""
    if isinstance(content, str):
        return [content] if content else []
    return list(content) if isinstance(content, (list, tuple)) else []


def block_slots(block: object, path: Path) -> list[Slot]:
    """Return the pieces of a block in order; the input of a `tool_use` is none of them."""
    if isinstance(block, str):
        return [(path, Part("text", block))] if block else []
    return _SLOTS.get(kind_of(block), _unknown)(block, path)


def _text(block: object, path: Path) -> list[Slot]:
    return [((*path, "text"), Part("text", str(get(block, "text") or "")))]


def _thinking(block: object, path: Path) -> list[Slot]:
    text = get(block, "thinking")
    if isinstance(text, str) and text:
        return [(path, Part("reasoning", text, signed=True))]
    return [(path, Part("reasoning", tokens=sealed(get(block, "data") or get(block, "signature")), signed=True))]


def _inner(content: object, path: Path) -> list[Slot]:
    if isinstance(content, str):
        return block_slots(content, path)
    return [slot for number, block in enumerate(as_blocks(content)) for slot in block_slots(block, (*path, number))]


def _holder(block: object, path: Path) -> list[Slot]:
    return _inner(get(block, "content"), (*path, "content"))


def _image(block: object, path: Path) -> list[Slot]:  # noqa: ARG001 - as all of the table
    data = get(get(block, "source"), "data")
    return [((), image(f"data:;base64,{data}" if isinstance(data, str) else None))]


def _document(block: object, path: Path) -> list[Slot]:
    source = get(block, "source")
    if get(source, "type") == "text":
        return [((*path, "source", "data"), Part("text", str(get(source, "data") or "")))]
    if get(source, "type") == "content":
        return _inner(get(source, "content"), (*path, "source", "content"))
    return [((), file(get(source, "data")))]


def _unknown(block: object, path: Path) -> list[Slot]:  # noqa: ARG001 - as all of the table
    return [((), opaque(block))]


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


def block_call(block: object) -> ToolCall:
    """Return the call of a `tool_use` block; its arguments are the JSON of its input."""
    identity = get(block, "id")
    name, arguments = str(get(block, "name") or ""), argument_text(get(block, "input") or {})
    return ToolCall(name, arguments, identity if isinstance(identity, str) else None)


def tool_input(arguments: str) -> dict[str, object]:
    """Return arguments as the object that a `tool_use` block needs; what is no JSON object is wrapped in one."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": value}
