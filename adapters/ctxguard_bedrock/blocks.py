"""One content block of a Converse message: its texts, media, tool use or tool result.

Blocks are the dicts that boto3 takes. They have no type: the one key of a block says what it is. Blobs are bytes, or
base64 text as in the body of an HTTP request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from ctxguard.adapting.content_format import ContentFormat, as_base64, audio, file, image, opaque, video
from ctxguard.adapting.editing import REMOVED, copy_with
from ctxguard.adapting.extra_fields import PlacedField, extra_fields, fixed_field
from ctxguard.adapting.fields import (
    Path,
    arguments_as_object,
    arguments_as_text,
    get,
    is_record,
    parse_json,
    place_name,
    require_field,
    require_text,
    text_of,
    unreadable,
)
from ctxguard.adapting.fragments import LEFT_OUT
from ctxguard.adapting.message_view import PlacedCall, PlacedPart
from ctxguard.adapting.provider_formats import BEDROCK, refuse_foreign_part
from ctxguard.artifacts import Part, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.tokens.media import encrypted_tokens

_Reader: TypeAlias = Callable[[object, Path], list[PlacedPart]]
_DATA: Final = frozenset({"bytes"})
_READ: Final = {
    "toolUse": frozenset({"toolUseId", "name", "input"}),
    "reasoningContent": frozenset({"reasoningText", "redactedContent"}),
}
"""What is read of a block, beside its texts."""
_SERVER: Final = "server_tool_use"


def tool_use(block: object) -> object:
    """Return the tool use of a block that the client has to answer, or None."""
    found = get(block, "toolUse")
    return None if get(found, "type") == _SERVER else found


def tool_result(block: object) -> object:
    """Return the tool result of a block, or None."""
    return get(block, "toolResult")


def is_reasoning(block: object) -> bool:
    """Tell a block of reasoning, which is sent unchanged or not at all."""
    return get(block, "reasoningContent") is not None


def _text(holder: object, path: Path) -> list[PlacedPart]:
    return [((*path, "text"), Part("text", require_text(holder, "text", path)))]


def _texts(key: str) -> _Reader:
    """Return what reads the texts under a key."""

    def read(holder: object, path: Path) -> list[PlacedPart]:
        listed = require_field(holder, key, path)
        if not isinstance(listed, (list, tuple)):
            raise unreadable((*path, key), "a list of texts", listed)
        return [placed for n, one in enumerate(listed) for placed in _text(one, (*path, key, n))]

    return read


def _search_result(holder: object, path: Path) -> list[PlacedPart]:
    names = [((*path, key), text_of(holder, key)) for key in ("title", "source")]
    return [*_texts("content")(holder, path), *((at, Part("text", text)) for at, text in names if text)]


def _guarded(holder: object, path: Path) -> list[PlacedPart]:
    if get(holder, "image") is not None:
        return _medium(image_of)(get(holder, "image"), path)
    return _text(require_field(holder, "text", path), (*path, "text"))


def _reasoning(holder: object, path: Path) -> list[PlacedPart]:
    said = get(holder, "reasoningText")
    if said is not None:
        text = require_text(said, "text", (*path, "reasoningText"))
        return [((*path, "reasoningText", "text"), Part("reasoning", text, signed=bool(get(said, "signature"))))]
    sealed = as_base64(require_field(holder, "redactedContent", path))
    return [(path, Part("reasoning", tokens=encrypted_tokens(sealed), signed=True))]


def image_of(data: str | None, kind: str) -> Part:
    """Return the part of an image."""
    return image(None if data is None else f"data:image/{kind};base64,{data}")


def _medium(make: Callable[[str | None, str], Part]) -> _Reader:
    """Return what reads a medium, given by its bytes or a place in S3."""

    def read(holder: object, path: Path) -> list[PlacedPart]:  # noqa: ARG001 - the signature of every reader
        data = as_base64(get(get(holder, "source"), "bytes"))
        return [((), make(data, str(get(holder, "format") or "")))]

    return read


def _document(holder: object, path: Path) -> list[PlacedPart]:
    source, place = require_field(holder, "source", path), (*path, "source")
    if get(source, "text") is not None:
        read = _text(source, place)
    elif get(source, "content") is not None:
        read = _texts("content")(source, place)
    else:
        read = _medium(lambda data, _: file(data))(holder, path)
    context = text_of(holder, "context")
    return [*read, *([((*path, "context"), Part("text", context))] if context else [])]


def _result(holder: object, path: Path) -> list[PlacedPart]:
    if not is_record(holder):
        raise unreadable(path, "a dict with 'toolUseId' and 'content'", holder)
    content = require_field(holder, "content", path)
    if not isinstance(content, (list, tuple)):
        raise unreadable((*path, "content"), "a list of blocks", content, remedy="; write [{'text': …}]")
    return BLOCKS.read(content, (*path, "content"))


_READERS: Final[Mapping[str, _Reader]] = {
    "toolUse": lambda _holder, _path: [],
    "toolResult": _result,
    "reasoningContent": _reasoning,
    "cachePoint": lambda _holder, _path: [],
    "image": _medium(image_of),
    "audio": _medium(lambda data, _: audio(data)),
    "video": _medium(lambda data, _: video(data)),
    "document": _document,
    "guardContent": _guarded,
    "citationsContent": _texts("content"),
    "searchResult": _search_result,
    "json": lambda holder, path: [(path, Part("text", arguments_as_text(holder)))],
}


def _read_block(block: object, path: Path) -> list[PlacedPart]:
    if isinstance(get(block, "text"), str):
        return _text(block, path)
    key = next((key for key in _READERS if get(block, key) is not None), None)
    if key is None or (key == "toolUse" and tool_use(block) is None):
        return _unknown(block, path)
    return _READERS[key](get(block, key), (*path, key))


def _unknown(block: object, path: Path) -> list[PlacedPart]:
    if get(block, "type") is not None:
        raise HistoryError(
            f"{place_name(path)} has a 'type', which no block of Converse has; convert the message first"
        )
    if isinstance(block, Mapping) and "text" in block:
        raise unreadable((*path, "text"), "a text", get(block, "text"))
    refuse_foreign_part(block, path, own=BEDROCK)
    return [((), opaque(block))]


BLOCKS: Final = ContentFormat({None: _read_block}, noun="block", unknown=_unknown)


def block_fields(block: object, path: Path) -> Iterator[PlacedField]:
    """Walk what a block holds beside what is read of it: names of documents, places in S3, citations, unknown keys."""
    if isinstance(block, str):
        return
    read = BLOCKS.read_part(block, path)
    if any(part.kind == "opaque" for _, part in read):
        # its tokens are counted as a whole already; its texts still have to be searched
        yield from ((at, replace(field, tokens=0)) for at, field in fixed_field("", block, path))
        return
    taken = {at for at, _ in read if at}
    for key in block if isinstance(block, Mapping) else ():
        inner = get(block, str(key))
        if key in _READERS and is_record(inner) and key not in ("json", "cachePoint"):
            yield from _inner_fields(str(key), inner, (*path, str(key)), taken)
        elif key not in ("text", "json", "cachePoint"):
            yield from fixed_field(str(key), inner, (*path, str(key)))


def _inner_fields(key: str, inner: object, path: Path, taken: set[Path]) -> Iterator[PlacedField]:
    if key == "toolResult":
        yield from extra_fields(inner, path, own=frozenset({"toolUseId", "content"}))
        for number, block in enumerate(get(inner, "content")):  # type: ignore[var-annotated, arg-type]
            yield from block_fields(block, (*path, "content", number))
        return
    yield from extra_fields(inner, path, own=_READ.get(key, frozenset()) | _DATA, taken=taken)


def place_call(block: object, path: Path) -> PlacedCall:
    """Return the call of a `toolUse` block; its arguments are the JSON of its input."""
    inner, place = tool_use(block), (*path, "toolUse")
    if not is_record(inner):
        raise unreadable(place, "a dict with 'toolUseId', 'name' and 'input'", inner)
    arguments = arguments_as_text(require_field(inner, "input", place) or {})
    call = ToolCall(str(get(inner, "name") or ""), arguments, text_of(inner, "toolUseId"))
    return PlacedCall(call, (*place, "input"), (*place, "toolUseId"), arguments_as_object)


def block_changes(block: object, changes: Mapping[Path, object]) -> Iterator[tuple[Path, object]]:
    """Walk the changes of a block: reasoning goes as a whole, `json` becomes `text` where its text is no JSON now."""
    for path, new in changes.items():
        if is_reasoning(block):
            yield (), REMOVED
        elif path[-1:] == ("json",) and isinstance(new, str):
            value = parse_json(new)
            yield (path[:-1], {"text": new}) if value is None else (path, value)
        else:
            yield path, new


def left_of(block: object) -> object:
    """Return a changed block without texts of which nothing is left; `REMOVED` where that is all."""
    if block is REMOVED:
        return block
    if isinstance(get(block, "text"), str):
        return block if str(get(block, "text")).strip() else REMOVED
    result = tool_result(block)
    if result is None:
        return block
    content = [left_of(inner) for inner in get(result, "content")]  # type: ignore[attr-defined]
    left = [inner for inner in content if inner is not REMOVED] or [{"text": LEFT_OUT}]
    return copy_with(block, {("toolResult", "content"): left})
