"""One content block: the texts in it, and copies of it with other texts.

The block kinds are those of `anthropic.types.ContentBlockParam`; fields beyond them are kept as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from ctxguard.artifacts import Part, ToolCall
from ctxguard.media import file_tokens, image_size, image_tokens
from ctxguard.tokens import EstimateCounter

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Block", "as_blocks", "block_call", "content_slots", "edited_block", "edited_content", "get", "kind_of"]

Block: TypeAlias = Mapping[str, object]
"""A block: a dict, or an object of the SDK with the same fields."""
Path: TypeAlias = tuple[str | int, ...]
Slot: TypeAlias = tuple[Path | None, Part]
"""A piece of content and the place it stands in; None for what may not be changed."""

THINKING: Final = ("thinking", "redacted_thinking")
LEFT_OUT: Final = "…"
"""Stands where nothing is left of a message: the API refuses empty ones."""


def get(value: object, key: str) -> object:
    """Return a field of a dict or of an SDK object; None where it has none."""
    if type(value) is dict or isinstance(value, Mapping):
        return value.get(key)
    return getattr(value, key, None)


def kind_of(block: object) -> str:
    """Return the type of a block; a bare text is one of type `text`."""
    return "text" if isinstance(block, str) else str(get(block, "type"))


def as_blocks(content: object) -> list[object]:
    """Return a content as a list of blocks; a text is a list of itself."""
    if isinstance(content, str):
        return [content] if content else []
    return list(content) if isinstance(content, (list, tuple)) else []


def content_slots(content: object, path: Path = ()) -> list[Slot]:
    """Return every piece of a content, a text or a list of blocks, in order."""
    if isinstance(content, str):
        return [(path, Part("text", content))] if content else []
    return [slot for number, block in enumerate(as_blocks(content)) for slot in _block_slots(block, (*path, number))]


def _block_slots(block: object, path: Path) -> list[Slot]:
    kind = kind_of(block)
    if isinstance(block, str):
        return [(path, Part("text", block))]
    if kind == "text":
        return [((*path, "text"), Part("text", str(get(block, "text") or "")))]
    if kind in THINKING:
        return [((*path, "thinking"), _thinking(block))]
    if kind in ("tool_use", "tool_result"):
        return content_slots(get(block, "content"), (*path, "content")) if kind == "tool_result" else []
    if kind == "search_result":
        return content_slots(get(block, "content"), (*path, "content"))
    return _media_slots(kind, block, path)


def _thinking(block: object) -> Part:
    text = get(block, "thinking")
    if isinstance(text, str) and text:
        return Part("reasoning", text)
    sealed = str(get(block, "data") or get(block, "signature") or "")
    return Part("reasoning", tokens=len(sealed) * 3 // 16)  # base64, then about 4 bytes a token


def _media_slots(kind: str, block: object, path: Path) -> list[Slot]:
    source = get(block, "source")
    data = get(source, "data")
    if kind == "image":
        size = image_size(f"data:;base64,{data}") if isinstance(data, str) else None
        return [(None, Part("image", tokens=image_tokens(size)))]
    if kind == "document" and get(source, "type") == "text":
        return [((*path, "source", "data"), Part("text", str(data or "")))]
    if kind == "document" and get(source, "type") == "content":
        return content_slots(get(source, "content"), (*path, "source", "content"))
    if kind == "document":
        return [(None, Part("file", tokens=file_tokens(data if isinstance(data, str) else None)))]
    sent = json.dumps(fields_of(block), default=str, ensure_ascii=False)
    return [(None, Part("opaque", tokens=EstimateCounter().count(sent[:20_000])))]


def block_call(block: object) -> ToolCall:
    """Return the call of a `tool_use` block; its arguments are the JSON of its input."""
    identity = get(block, "id")
    arguments = json.dumps(get(block, "input") or {}, ensure_ascii=False, default=str)
    return ToolCall(str(get(block, "name") or ""), arguments, identity if isinstance(identity, str) else None)


def edited_block(block: object, call: ToolCall) -> object:
    """Return a `tool_use` block with these arguments and this id."""
    was = block_call(block)
    changes: dict[str, object] = {}
    if call.id != was.id:
        changes["id"] = call.id
    if call.arguments != was.arguments:
        changes["input"] = tool_input(call.arguments)
    return {**fields_of(block), **changes} if changes else block


def tool_input(arguments: str) -> dict[str, object]:
    """Return arguments as the object that a `tool_use` block needs; what is no JSON object is wrapped in one."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": value}


def edited_content(content: object, now: Sequence[Part]) -> object:
    """Return a content with these pieces; the same object where none of them is another.

    Thinking goes with a change of any of it, as the API takes it back unmodified or not at all; a text of which nothing
    is left goes too.
    """
    was = content_slots(content)
    edited = content
    dropped: set[Path] = set()
    drops_thinking = False
    for (path, before), after in zip(was, now, strict=True):
        if before == after or path is None:
            continue
        if before.kind == "reasoning":
            drops_thinking = True
        elif not after.text and path[1:] == ("text",):
            dropped.add(path[:1])
        else:
            edited = _replaced(edited, path, after.text or (LEFT_OUT if path[-1:] == ("text",) else ""))
    if not drops_thinking and not dropped:
        return edited
    return [
        block
        for number, block in enumerate(as_blocks(edited))
        if (number,) not in dropped and not (drops_thinking and kind_of(block) in THINKING)
    ]


def _replaced(value: object, path: Path, text: str) -> object:
    """Return a copy of nested dicts and lists with a text in its place; nothing but the way to it is copied."""
    if not path:
        return text
    head, rest = path[0], path[1:]
    if isinstance(value, (list, tuple)):
        return [_replaced(member, rest, text) if number == head else member for number, member in enumerate(value)]
    fields = {key: member for key, member in fields_of(value).items() if head != "text" or key != "citations"}
    return {**fields, str(head): _replaced(fields.get(str(head)), rest, text)}


def fields_of(value: object) -> dict[str, object]:
    """Return the fields of a dict or of an SDK object as a dict of their own."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.model_dump(exclude_unset=True) if hasattr(value, "model_dump") else {}
