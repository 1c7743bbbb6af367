"""The messages of Bedrock's Converse API, as artifacts.

Blocks are the dicts that boto3 accepts. They have no type; the only key of a block identifies it. Blobs are bytes, or
base64 strings as in the body of an HTTP request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeAlias

from ctxguard.adapting.content_format import (
    ContentFormat,
    as_base64,
    audio,
    file,
    image,
    opaque,
    places_of_texts,
    sealed,
    video,
    with_half,
)
from ctxguard.adapting.fields import (
    NULL_TEXT,
    REMOVED,
    Path,
    are_same_objects,
    arguments_as_object,
    arguments_as_text,
    copy_with,
    get,
    is_list,
    is_record,
    member_at,
    parse_json,
    place_name,
    require_field,
    require_text,
    text_of,
    unreadable,
    walk_content,
)
from ctxguard.adapting.json_walk import PlacedField, extra_fields, fixed_field, without_tokens
from ctxguard.adapting.message_view import (
    BEDROCK,
    LEFT_OUT,
    Fragment,
    PlacedCall,
    PlacedPart,
    is_converse,
    refuse_foreign_part,
    require_role,
)
from ctxguard.artifacts import Artifact, Half, Kind, Part, ToolCall
from ctxguard.errors import HistoryError
from ctxguard.formats.blocks import BlockFormat, PlacedBlock, open_halves
from ctxguard.formats.format import Body, Delta, Ends, Event, Sent, records_of
from ctxguard.history.pairing import STRICT_IDS
from ctxguard.history.records import is_record as is_written_by_stage
from ctxguard.tokens.schemas import fields_of

Message: TypeAlias = Mapping[str, object]
"""A message: a dict with `role` and `content`, as boto3 accepts and returns it."""
Native: TypeAlias = "Mapping[str, object] | Sequence[Message]"
"""A request with `messages`, optionally `system`, and any other fields; or a list of messages."""

_REQUEST_KEYS: Final = ("toolConfig", "inferenceConfig", "modelId", "guardrailConfig", "additionalModelRequestFields")
_Reader: TypeAlias = Callable[[object, Path], list[PlacedPart]]
_DATA: Final = frozenset({"bytes"})
_SEALED: Final = frozenset({"signature"})
_READ: Final = {
    "toolUse": frozenset({"toolUseId", "name", "input"}),
    "reasoningContent": frozenset({"redactedContent"}),
}
"""Fields of a block that the adapter reads besides texts, by the type of the block."""
_MARK: Final = re.compile(r"default|[1-9]\d?[mh]")
"""Matches the values in a prompt cache breakpoint: its type, and how long the prefix is cached."""
_SERVER: Final = "server_tool_use"
_TEXTS: Final = ("txt", "csv", "md", "html")
"""Formats of documents that the provider passes to the model as text."""
_SPOKEN: Final[tuple[Path, ...]] = (("text",), ("guardContent", "text", "text"))
"""Paths of the texts in a block that must not be blank."""
_TEXT: Final[Path] = ("contentBlockDelta", "delta", "text")
_INPUT: Final[Path] = ("contentBlockDelta", "delta", "toolUse", "input")
"""Path of a piece of a tool's input in an event; `_TEXT` is that of a piece of text.

Reasoning is not among them, so placeholders in reasoning are not restored.
"""


def _tool_use(block: object) -> object:
    """Return the tool use in a block if the client has to answer it, or else None."""
    found = get(block, "toolUse")
    return None if get(found, "type") == _SERVER else found


def half_of(block: object) -> Half | None:
    """Return the half of a server tool's call that a block is; None for any other block.

    Both halves are in the assistant's message, and have a type, such as `nova_grounding_result`.
    """
    use, result = get(block, "toolUse"), get(block, "toolResult")
    if get(use, "type") == _SERVER:
        return Half(text_of(use, "toolUseId") or "")
    return None if get(result, "type") is None else Half(text_of(result, "toolUseId") or "", is_result=True)


def _text(holder: object, path: Path) -> list[PlacedPart]:
    return [((*path, "text"), Part("text", require_text(holder, "text", path)))]


def _texts(key: str) -> _Reader:
    """Return a reader for the list of texts under a key."""

    def read(holder: object, path: Path) -> list[PlacedPart]:
        listed = require_field(holder, key, path)
        if not isinstance(listed, (list, tuple)):
            raise unreadable((*path, key), "a list of texts", listed)
        return [placed for n, one in enumerate(listed) for placed in _text(one, (*path, key, n))]

    return read


def _search_result(holder: object, path: Path) -> list[PlacedPart]:
    names = [((*path, key), text_of(holder, key)) for key in ("title", "source")]
    return [*_texts("content")(holder, path), *((at, Part("text", text)) for at, text in names if text)]


def _read_guarded(holder: object, path: Path) -> list[PlacedPart]:
    if get(holder, "image") is not None:
        return _medium(_image_of)(get(holder, "image"), path)
    return _text(require_field(holder, "text", path), (*path, "text"))


def _reasoning(holder: object, path: Path) -> list[PlacedPart]:
    said = get(holder, "reasoningText")
    if said is not None:
        text = require_text(said, "text", (*path, "reasoningText"))
        return [((*path, "reasoningText", "text"), Part("reasoning", text, signed=bool(get(said, "signature"))))]
    return [(path, sealed(as_base64(require_field(holder, "redactedContent", path)), signed=True))]


def _image_of(data: str | None, kind: str) -> Part:
    """Return the content part for an image."""
    return image(None if data is None else f"data:image/{kind};base64,{data}")


def _medium(make: Callable[[str | None, str], Part]) -> _Reader:
    """Return a reader for a medium that is given as bytes or as an S3 location."""

    def read(holder: object, path: Path) -> list[PlacedPart]:  # noqa: ARG001 - the signature of every reader
        data = as_base64(get(get(holder, "source"), "bytes"))
        return [((), make(data, str(get(holder, "format") or "")))]

    return read


def _file_of(data: str | None, kind: str) -> Part:
    return file(data and f"data:{'text' if kind in _TEXTS else 'application'}/{kind};base64,{data}")


def _document(holder: object, path: Path) -> list[PlacedPart]:
    source, place = require_field(holder, "source", path), (*path, "source")
    if get(source, "text") is not None:
        read = _text(source, place)
    elif get(source, "content") is not None:
        read = _texts("content")(source, place)
    else:
        read = _medium(_file_of)(holder, path)
    context = text_of(holder, "context")
    return [*read, *([((*path, "context"), Part("text", context))] if context else [])]


def _result(holder: object, path: Path) -> list[PlacedPart]:
    if not is_record(holder):
        raise unreadable(path, "a dict with 'toolUseId' and 'content'", holder)
    place = (*path, "content")
    return _BLOCKS.read(_require_blocks(require_field(holder, "content", path), place), place)


_READERS: Final[Mapping[str, _Reader]] = {
    "toolUse": lambda _holder, _path: [],
    "toolResult": _result,
    "reasoningContent": _reasoning,
    "cachePoint": lambda _holder, _path: [],
    "image": _medium(_image_of),
    "audio": _medium(lambda data, _: audio(data)),
    "video": _medium(lambda data, _: video(data)),
    "document": _document,
    "guardContent": _read_guarded,
    "citationsContent": _texts("content"),
    "searchResult": _search_result,
    "json": lambda holder, path: [(path, Part("text", arguments_as_text(holder)))],
}


def _read_block(block: object, path: Path) -> list[PlacedPart]:
    if isinstance(get(block, "text"), str):
        return _text(block, path)
    key = next((key for key in _READERS if get(block, key) is not None), None)
    if key is None or (key == "toolUse" and _tool_use(block) is None):
        return with_half(_unknown(block, path), half_of(block), path)
    return with_half(_READERS[key](get(block, key), (*path, key)), half_of(block), path)


def _unknown(block: object, path: Path) -> list[PlacedPart]:
    if get(block, "type") is not None:
        raise HistoryError(
            f"{place_name(path)} has a 'type', which no block of Converse has; convert the message first"
        )
    if isinstance(block, Mapping) and "text" in block:
        if block["text"] is None:
            return [((*path, "text"), NULL_TEXT)]
        raise unreadable((*path, "text"), "a text", get(block, "text"))
    refuse_foreign_part(block, path, own=BEDROCK)
    return [((), one) for one in opaque(block)]


_BLOCKS: Final = ContentFormat({None: _read_block}, noun="block", unknown=_unknown)


def _block_fields(block: object, path: Path, read: Sequence[PlacedPart]) -> Iterator[PlacedField]:
    """Yield the fields of a block that are not content: names of documents, S3 locations, citations, unknown keys."""
    if isinstance(block, str):
        return
    if any(part.kind == "opaque" and part.tokens != 0 for _, part in read):
        # the block is already counted as a whole, but its texts still have to be searched
        yield from without_tokens(fixed_field("", block, path))
        return
    taken = places_of_texts(read)
    for key in block if isinstance(block, Mapping) else ():
        inner = get(block, str(key))
        if key in _READERS and is_record(inner) and key not in ("json", "cachePoint"):
            yield from _inner_fields(str(key), inner, (*path, str(key)), taken)
        elif (*path, key) not in taken and not (key == "cachePoint" and _is_breakpoint(inner)):
            yield from fixed_field(str(key), inner, (*path, str(key)))


def _is_breakpoint(value: object) -> bool:
    """Return whether a value is a prompt cache breakpoint, which costs no tokens."""
    return is_record(value) and all(_MARK.fullmatch(str(one)) for one in fields_of(value).values())


def _inner_fields(key: str, inner: object, path: Path, taken: set[Path]) -> Iterator[PlacedField]:
    if key == "toolResult":
        yield from extra_fields(inner, path, own=frozenset({"toolUseId", "content"}))
        for number, block in enumerate(get(inner, "content")):  # type: ignore[var-annotated, arg-type]
            place = (*path, "content", number)
            yield from _block_fields(block, place, _BLOCKS.read_part(block, place))
        return
    yield from extra_fields(inner, path, own=_READ.get(key, frozenset()) | _DATA, billed=_SEALED, taken=taken)


def _place_call(block: object, path: Path) -> PlacedCall:
    """Return the call in a `toolUse` block, and the paths of its fields. The arguments are the input as JSON."""
    inner, place = _tool_use(block), (*path, "toolUse")
    if not is_record(inner):
        raise unreadable(place, "a dict with 'toolUseId', 'name' and 'input'", inner)
    arguments = arguments_as_text(require_field(inner, "input", place))
    call = ToolCall(str(get(inner, "name") or ""), arguments, text_of(inner, "toolUseId"), takes_object=True)
    return PlacedCall(call, (*place, "input"), (*place, "toolUseId"), arguments_as_object)


class BedrockAdapter(BlockFormat):
    """Reads Converse messages as artifacts: one for each `toolResult` block, and one for the rest of a message.

    A block that a stage wrote also becomes an artifact of its own. This happens if an application stores stabilized
    messages, which may contain a trail (the record of evicted messages).

    Written messages alternate between user and assistant, as the API requires: consecutive messages of the same role
    become one message, with tool results before texts. Not preserved: reasoning whose text would have to change,
    reasoning that was signed before a cut, and texts that are blank. Blocks of unknown type and blocks of server
    tools are opaque: counted and searched, but never changed. Messages of unknown role are kept and pinned, and the
    report names the role.
    """

    name = "bedrock"
    api = "converse"
    paths = ("/converse", "/converse-stream")
    system = ("system",)
    json_settings = ("outputConfig",)
    tools = ("toolConfig", "tools")
    taken = ("toolConfig", "modelId")
    billed = ("outputConfig",)
    blocks = _BLOCKS
    exact = frozenset({"input", "json"})
    call_ids = STRICT_IDS
    fills_results = True

    def detects(self, native: object) -> bool:
        """Return whether `native` is a request or list that only Converse accepts: its blocks have no type."""
        messages = native.get("messages") if isinstance(native, Mapping) else native
        if not is_list(messages):
            return False
        if isinstance(native, Mapping) and any(key in native for key in _REQUEST_KEYS):
            return True
        return is_converse(messages) and all(text_of(message, "role") in self.kinds for message in messages)

    def prompt(self, native: Mapping[str, Any]) -> object:
        """Return the system prompt of a request; None if there is none."""
        content = native.get("system")
        return content if content is None else _require_blocks(content, ("system",))

    def continues(self, message: object, run: Sequence[object]) -> bool:
        """Return whether both are the assistant's and a server tool's call in the `run` still waits for its result."""
        are_replies = get(message, "role") == "assistant" == get(run[-1], "role")
        return are_replies and bool(open_halves(half_of(b) for m in run for b in records_of(get(m, "content"))))

    def placed(self, message: object) -> list[PlacedBlock]:
        """Return the blocks of a message with their paths."""
        require_role(message, BEDROCK)
        content = _require_blocks(require_field(message, "content"), ("content",))
        return list(walk_content(content, ("content",), noun="block"))

    def runs(self, rest: list[int], placed: Sequence[PlacedBlock], role: str) -> list[tuple[int, ...]]:
        """Group the indexes of the blocks that are not results (`rest`). The blocks of a group become one artifact.

        A text that a stage wrote is a group of its own, although it shares a message with the user's texts because
        roles must alternate.
        """
        records = {n for n in rest if role == "user" and is_written_by_stage(text_of(placed[n][1], "text") or "")}
        said = [tuple(group) for _, group in groupby(rest, key=lambda number: number if number in records else -1)]
        return said or [()]

    def result(self, block: object) -> object:
        """Return the tool result in a block; None if the block contains none."""
        return get(block, "toolResult")

    def answered(self, block: object, path: Path) -> tuple[object, Path, str | None]:
        """Return the id of the call that a result block answers, the path of this id, and None for the tool's name."""
        return get(get(block, "toolResult"), "toolUseId"), (*path, "toolResult", "toolUseId"), None

    def calls(self, placed: Sequence[PlacedBlock]) -> list[PlacedCall]:
        """Return the tool calls in the given blocks."""
        return [_place_call(block, path) for path, block in placed if _tool_use(block) is not None]

    def block_fields(self, block: object, path: Path, role: str, read: Sequence[PlacedPart]) -> Iterator[PlacedField]:  # noqa: ARG002
        """Yield the fields of a block that are neither content nor a call."""
        return _block_fields(block, path, read)

    def belongs(self, artifact: Artifact, last: Artifact) -> bool:
        """Return whether an artifact is written into the same message as the previous artifact (see `_turn`)."""
        return _turn(artifact) == _turn(last)

    def left_of(self, block: object) -> object:
        """Return a block without its empty texts; `REMOVED` if nothing is left."""
        if block is REMOVED or block == "":
            return REMOVED
        said = next((text for path in _SPOKEN if (text := member_at(block, path)) is not None), None)
        if isinstance(said, str):
            return block if said.strip() else REMOVED
        held = get(self.result(block), "content")
        if not isinstance(held, (list, tuple)):
            return block
        left = [inner for inner in map(self.left_of, held) if inner is not REMOVED]
        if are_same_objects(left, held):
            return block
        return copy_with(block, {("toolResult", "content"): left or [{"text": LEFT_OUT}]})

    def valid(self, blocks: list[object]) -> list[object]:
        """Return the blocks, after the text "…" if all are cache points, because the API rejects such a message."""
        is_empty = all(isinstance(block, Mapping) and block.keys() == {"cachePoint"} for block in blocks)
        return [{"text": LEFT_OUT}, *blocks] if is_empty else blocks

    def changes(
        self, artifact: Artifact, fragment: Fragment, placed: Sequence[PlacedBlock]
    ) -> Iterator[tuple[Path, object]]:
        """Yield the changes of an artifact (see `BlockFormat.changes`).

        Changed reasoning is removed as a whole. A `json` block becomes a `text` block if its new text is not JSON.
        """
        for path, new in super().changes(artifact, fragment, placed):
            if get(placed[int(path[0])][1], "reasoningContent") is not None:
                yield path[:1], REMOVED
            elif path[-1] == "json" and isinstance(new, str):
                value = parse_json(new)
                yield (path[:-1], {"text": new}) if value is None else (path, value)
            else:
                yield path, new

    def created(self, artifact: Artifact) -> list[object]:
        """Return the blocks for an artifact that a stage added."""
        if artifact.kind is Kind.TOOL:
            content = [{"text": artifact.text or LEFT_OUT}]
            return [{"toolResult": {"toolUseId": artifact.answers, "content": content}}]
        said: list[object] = [{"text": artifact.text or LEFT_OUT}] if artifact.text or not artifact.calls else []
        return said + [
            {"toolUse": {"toolUseId": call.id, "name": call.name, "input": arguments_as_object(call.arguments)}}
            for call in artifact.calls
        ]

    def settings(self, body: Body) -> tuple[dict[str, object], list[Body]]:
        """Return the settings in a body, separated into plain settings and those that the model sees as schemas."""
        rest, schemas = super().settings(body)
        config = body.get("toolConfig")
        others = {key: value for key, value in config.items() if key != "tools"} if isinstance(config, Mapping) else {}
        return {**rest, **others}, schemas

    def sent(self, body: Body) -> Sent:
        """Return the parts of a request that the provider bills."""
        config = body.get("toolConfig")
        choice = get(config, "toolChoice")
        chosen = next(iter(choice), "") if isinstance(choice, Mapping) else ""
        schema = member_at(body, ("outputConfig", "textFormat", "structure", "jsonSchema", "schema"))
        return Sent(
            tuple(self.counted(body)),
            tuple(tool for tool in records_of(get(config, "tools")) if "cachePoint" not in tool),
            {"any": "required", "tool": "named"}.get(chosen, "auto"),
            {"schema": schema} if isinstance(schema, str) and schema else None,
        )

    def deltas(self, event: Event) -> Iterator[Delta]:
        """Yield the pieces of text in an event of a streamed response."""
        index = member_at(event, ("contentBlockDelta", "contentBlockIndex"))
        for path in (_TEXT, _INPUT):
            text = member_at(event, path)
            if isinstance(text, str) and text:
                calls = ((index,),) if path == _INPUT else ()
                yield Delta((index,), path, text, path == _INPUT, partial(_alone, index, path), calls)

    def called(self, event: Event) -> Iterator[tuple[Hashable, object]]:
        """Yield a key and the record of each tool call that an event begins or continues."""
        start = event.get("contentBlockStart")
        if isinstance(start, dict):
            yield (start.get("contentBlockIndex"),), member_at(start, ("start", "toolUse"))

    def ends(self, event: Event) -> Ends | None:
        """Return a predicate that is true for the channels (see `Channel`) that an event ends; None if it ends none."""
        if "contentBlockStop" in event:
            index = get(event["contentBlockStop"], "contentBlockIndex")  # None in all events of some frameworks
            return lambda channel: channel[0] == index
        return (lambda _: True) if "messageStop" in event else None


def _alone(index: object, path: Path, text: str) -> Event:
    said: Any = text
    for key in reversed(path[2:]):
        said = {key: said}
    return {"contentBlockDelta": {"delta": said, "contentBlockIndex": index}}


def _require_blocks(content: object, path: Path) -> object:
    if not isinstance(content, (list, tuple)):
        raise unreadable(path, "a list of blocks", content, remedy="; write [{'text': …}]")
    return content


def _turn(artifact: Artifact) -> object:
    """Return a value that is equal for artifacts that may be joined: those of the user, or those of the assistant.

    Tool results belong to the user. System messages and messages of unknown role are never joined.
    """
    if artifact.role is not None or artifact.kind is Kind.SYSTEM:
        return id(artifact.source.message if isinstance(artifact.source, Fragment) else artifact)
    return "assistant" if artifact.kind is Kind.ASSISTANT else "user"
