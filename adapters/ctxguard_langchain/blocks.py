"""Content blocks of LangChain messages: the standard blocks (v0, v1), and those that provider packages store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ctxguard.adapting.content_format import (
    ContentFormat,
    opaque,
    read_audio,
    read_file,
    read_image,
    text_reader,
    with_titles,
)
from ctxguard.adapting.fields import REMOVED, Path, get
from ctxguard.adapting.message_view import TITLE_FIELDS, PlacedPart
from ctxguard.artifacts import Part
from ctxguard.tokens.media import encrypted_tokens

Block: TypeAlias = "str | Mapping[str, Any]"

CALL_FIELDS: Final[Mapping[object, tuple[str, str]]] = {
    "tool_use": ("id", "input"),
    "tool_call": ("id", "args"),
    "tool_call_chunk": ("id", "args"),
    "invalid_tool_call": ("id", "args"),
    "function_call": ("call_id", "arguments"),
    "custom_tool_call": ("call_id", "input"),
}
"""Types of blocks that repeat a tool call, with the names of the fields for its id and its arguments."""
_REASONING: Final = ("reasoning", "thinking", "redacted_thinking")
_SEALS: Final = ("signature", "encrypted_content", "thought_signature")
_STORED: Final = ("msg_", "fc_", "rs_")
"""Prefixes of the ids of items that OpenAI stores. OpenAI uses its stored copy of an item instead of what is sent."""


def _opaque(block: object, path: Path) -> list[PlacedPart]:  # noqa: ARG001 - as every rule
    return [((), one) for one in opaque(block)]


def _text(block: object, path: Path) -> list[PlacedPart]:
    """Return the parts of a text block.

    Instead of a text, a streamed block may contain only a citation, and a text file may contain base64 or a link.
    """
    may_lack = get(block, "index") is not None or get(block, "type") == "text-plain"
    if not may_lack or get(block, "text") is not None:
        return text_reader("text")(block, path)
    return (_opaque if get(block, "base64") is None else read_file)(block, path)


def _reasoning(block: object, path: Path) -> list[PlacedPart]:
    signed = bool(_seal(block, "signature")) or get(block, "type") == "redacted_thinking"
    field = next((field for field in _REASONING if isinstance(get(block, field), str)), None)
    if field is not None:
        return [((*path, field), Part("reasoning", str(get(block, field)), signed=signed))]
    summary = get(block, "summary")
    if isinstance(summary, list):
        return [(path, Part("reasoning", "\n".join(str(get(piece, "text") or "") for piece in summary)))]
    seal = get(block, "data") or _seal(block, "signature")
    return [(path, Part("reasoning", tokens=encrypted_tokens(seal), signed=True))] if signed else _opaque(block, path)


def _content_parts(block: object, path: Path) -> list[PlacedPart]:
    return BLOCKS.read(get(block, "content"), (*path, "content"))


def _document(block: object, path: Path) -> list[PlacedPart]:
    source, place = get(block, "source"), (*path, "source")
    if get(source, "type") == "text":
        return text_reader("data")(source, place)
    return _content_parts(source, place) if get(source, "type") == "content" else read_file(block, path)


BLOCKS: Final = ContentFormat(
    {
        **dict.fromkeys(("text", "input_text", "output_text"), _text),
        "text-plain": with_titles(_text),
        "refusal": text_reader("refusal", "refusal"),
        **dict.fromkeys(_REASONING, _reasoning),
        **dict.fromkeys(map(str, CALL_FIELDS), lambda _block, _path: [((), Part("opaque", tokens=0))]),
        **dict.fromkeys(("image", "image_url"), with_titles(read_image)),
        **dict.fromkeys(("audio", "input_audio"), read_audio),
        **dict.fromkeys(("file", "video", "media"), with_titles(read_file)),
        "search_result": with_titles(_content_parts),
        "document": with_titles(_document),
    },
    noun="block",
    unknown=_opaque,
)
"""The format of LangChain's content. Blocks for tool calls count no tokens, because `tool_calls` repeats the calls."""


def _seal(block: object, key: str) -> object:
    return get(block, key) or get(get(block, "extras"), key)


def _is_reasoning(block: object) -> bool:
    return str(get(block, "type")) in _REASONING


def _is_sealed(block: object) -> bool:
    """Return whether a block is reasoning that its provider accepts only unchanged."""
    if not _is_reasoning(block):
        return False
    return get(block, "summary") is not None or any(_seal(block, key) for key in _SEALS) or _is_stored(block)


def _is_stored(block: object) -> bool:
    return str(get(block, "id")).startswith(_STORED)


def _is_emptied(block: Block, path: Path, changes: Mapping[Path, object]) -> bool:
    """Return whether a block has no text left after the changes."""
    texts = [place for place, _ in BLOCKS.read_part(block, path) if place and place[-1] not in TITLE_FIELDS]
    return bool(texts) and all(changes.get(place) == "" for place in texts)


def block_changes(content: Sequence[Block] | str, changes: Mapping[Path, object]) -> Iterator[tuple[Path, object]]:
    """Yield the changes of a message, and the removal of empty blocks and of ids under which OpenAI stores items.

    A change in sealed reasoning removes all reasoning in the message, and the ids that refer to it.
    """
    places: dict[Path, Path] = {place: place[:2] for place in changes if place[0] == "content" and len(place) > 1}
    blocks: dict[Path, Block] = {("content", number): block for number, block in enumerate(content if places else ())}
    drops = any(_is_sealed(blocks[path]) for path in places.values())
    for place, new in changes.items():
        yield place, new
        if new == "" and len(place) > 4:  # one of several texts in a search result
            yield place[:-1], REMOVED
    for path in blocks if drops else set(places.values()):
        if (drops and _is_reasoning(blocks[path])) or _is_emptied(blocks[path], path, changes):
            yield path, REMOVED
        elif _is_stored(blocks[path]):
            yield (*path, "id"), REMOVED
