"""The messages of Anthropic's Messages API, as artifacts.

The block types are those of `anthropic.types.ContentBlockParam`. Fields that the adapter does not read remain
unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial, reduce
from typing import Any, ClassVar, Final, TypeAlias

from ctxguard.adapting.content_format import (
    ContentFormat,
    read_file,
    read_image,
    read_unknown,
    sealed,
    text_reader,
    with_half,
    with_titles,
)
from ctxguard.adapting.fields import (
    REMOVED,
    Path,
    are_same_objects,
    arguments_as_object,
    arguments_as_text,
    copy_with,
    get,
    is_list,
    member_at,
    optional_field,
    require_field,
    require_text,
    text_of,
    walk_content,
)
from ctxguard.adapting.json_walk import PlacedField
from ctxguard.adapting.message_view import (
    ANTHROPIC,
    LEFT_OUT,
    Fragment,
    PlacedCall,
    PlacedPart,
    is_converse,
    require_role,
)
from ctxguard.artifacts import Artifact, Half, Kind, Part, ToolCall
from ctxguard.formats.blocks import BlockFormat, PlacedBlock, open_halves
from ctxguard.formats.format import (
    Body,
    Delta,
    Ends,
    Event,
    Sent,
    Weave,
    add_to,
    choice_of,
    records_of,
    with_text,
    without_old_reasoning,
)
from ctxguard.history.pairing import STRICT_IDS
from ctxguard.tokens.schemas import is_any_deferred

Message: TypeAlias = Mapping[str, object]
"""A message: a dict, or an SDK object with the same fields."""
Native: TypeAlias = "Mapping[str, object] | Sequence[Message]"
"""A request with `messages`, optionally `system`, and any other fields; or a list of messages."""

_OWN_BLOCKS: Final = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use")
_READ: Final = {
    "tool_use": frozenset({"type", "input", "id", "name"}),
    "tool_result": frozenset({"type", "tool_use_id"}),
    "thinking": frozenset({"type", "thinking"}),
}
"""Fields of a block that the adapter reads besides texts, by the type of the block."""
_NOTHING: Final[AbstractSet[str]] = frozenset()
_DELTAS: Final = {"text_delta": "text", "input_json_delta": "partial_json"}
_THINKING: Final = ("thinking", "redacted_thinking")
_HOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "tool_result": ("content",),
    "search_result": ("content",),
    "document": ("source", "content"),
}
"""Types of blocks that contain a text or other blocks, and the path of this content in the block."""
_RESULT: Final = ("type", "tool_use_id", "is_error", "cache_control", "toolset_name")
"""Fields that a tool result without content may have."""


def _kind_of(block: object) -> str:
    """Return the type of a block; a block that is a string has the type `text`."""
    return "text" if isinstance(block, str) else str(get(block, "type"))


def _inner_path(block: object) -> tuple[str, ...]:
    """Return the path of the text or blocks inside a block; `()` for a string and for blocks without either."""
    is_text = _kind_of(block) == "document" and get(get(block, "source"), "type") == "text"
    return ("source", "data") if is_text else () if isinstance(block, str) else _HOLDERS.get(_kind_of(block), ())


def _thinking(block: object, path: Path) -> list[PlacedPart]:
    text = text_of(block, "thinking")
    if text:
        return [(path, Part("reasoning", text, signed=True))]
    seal = get(block, "data") or get(block, "signature") or require_text(block, "thinking", path)
    return [(path, sealed(seal, signed=True))]


def _result(block: object, path: Path) -> list[PlacedPart]:
    return _BLOCKS.read(optional_field(block, "content", path, known=_RESULT), (*path, "content"))


def _holder(block: object, path: Path) -> list[PlacedPart]:
    return _BLOCKS.read(require_field(block, "content", path), (*path, "content"))


def _document(block: object, path: Path) -> list[PlacedPart]:
    source, path = require_field(block, "source", path), (*path, "source")
    if get(source, "type") == "text":
        return text_reader("data")(source, path)
    return _holder(source, path) if get(source, "type") == "content" else read_file(block, path)


def half_of(block: object) -> Half | None:
    """Return the half of a server tool's call that a block is; None for any other block.

    A call is a `server_tool_use` or `mcp_tool_use`, and a result is of a type such as `web_search_tool_result`.
    """
    kind = _kind_of(block)
    if kind.endswith("_tool_use"):
        return Half(text_of(block, "id") or "")
    if kind.endswith("_tool_result"):
        return Half(text_of(block, "tool_use_id") or "", is_result=True)
    return None


def _unknown(block: object, path: Path) -> list[PlacedPart]:
    return with_half(read_unknown(block, path), half_of(block), path)


_BLOCKS: Final = ContentFormat(
    {
        "text": text_reader("text"),
        **dict.fromkeys(_THINKING, _thinking),
        "tool_use": lambda _block, _path: [],
        "tool_result": _result,
        "search_result": with_titles(_holder),
        "image": read_image,
        "document": with_titles(_document),
    },
    noun="block",
    unknown=_unknown,
)


def _place_call(block: object, path: Path) -> PlacedCall:
    """Return the call in a `tool_use` block, and the paths of its fields. The arguments are the input as JSON."""
    call = ToolCall(
        str(get(block, "name") or ""),
        arguments_as_text(require_field(block, "input", path)),
        text_of(block, "id"),
        takes_object=True,
    )
    return PlacedCall(call, (*path, "input"), (*path, "id"), arguments_as_object)


class _AnthropicWeave(Weave):
    def again(self) -> None:
        super().again()
        self._pieces: list[str] = []

    def feed(self, event: Event) -> Event | None:
        kind, index = event.get("type"), event.get("index")
        if kind == "message_start":
            return None if self.round else event
        if isinstance(index, int):
            self._take(event, index)
            if index in self.hidden:
                return None
            return event if self._place(index) == index else {**event, "index": self._place(index)}
        if kind == "message_delta" and member_at(event, ("delta", "stop_reason")) is not None:
            self._ends()
        return None if self.goes_on else event

    def _take(self, event: Event, index: int) -> None:
        """Add the content of an event to the item with the index `index`."""
        block, said = event.get("content_block"), event.get("delta")
        if isinstance(block, dict):
            self.items.append(dict(block))
            self._pieces = []
            if self._is_hidden(block):
                self.hidden.add(index)
        elif isinstance(said, dict):
            fields = {key: value for key, value in said.items() if key not in ("type", "partial_json", "citation")}
            add_to(self.items[-1], fields)
            self._pieces.append(str(said.get("partial_json", "")))
            if "citation" in said:
                self.items[-1]["citations"] = [*(self.items[-1].get("citations") or ()), said["citation"]]
        elif event.get("type") == "content_block_stop" and any(self._pieces):
            self.items[-1]["input"] = json.loads("".join(self._pieces))


class AnthropicAdapter(BlockFormat):
    """Reads messages of Anthropic's API as artifacts: one for each `tool_result` block, one for the rest of a message.

    Not preserved: the `citations` of an edited text; all thinking in a message if a stage changed any of it; and
    texts, documents, and search results that are empty. If a message ends with a call of a server tool, the following
    message of the assistant becomes part of it. As the API requires, `tool_result` blocks move before
    the text of their message, and into one message directly after their calls. Blocks of unknown type and blocks of
    server tools are opaque: counted and searched, but never changed. Messages of unknown role are kept and pinned, and
    the report names the role.
    """

    name = "anthropic"
    api = "anthropic"
    paths = (
        *("/messages", "/messages/count_tokens"),
        *(":rawPredict", ":streamRawPredict"),  # Vertex AI
        *("/invoke", "/invoke-with-response-stream"),  # Bedrock
    )
    system = ("system",)
    json_settings = ("output_config", "output_format")
    weave = _AnthropicWeave
    response_path = ("content",)
    response_message: ClassVar[Mapping[str, object]] = {"role": "assistant"}
    call_types = ("tool_use",)
    billed = ("output_config", "output_format", "mcp_servers")
    servers = ("mcp_servers", "url", frozenset({"authorization_token"}))
    blocks = _BLOCKS
    exact = frozenset({"input"})
    call_ids = STRICT_IDS

    def detects(self, native: object) -> bool:
        """Return whether `native` is a request or list with fields that only Anthropic's messages have."""
        messages = native.get("messages") if isinstance(native, Mapping) else native
        if not is_list(messages) or is_converse(messages):
            return False
        if isinstance(native, Mapping) and "system" in native:
            return True
        contents = [get(message, "content") for message in messages]
        blocks = [block for content in contents if isinstance(content, (list, tuple)) for block in content]
        known = all(text_of(message, "role") in self.kinds for message in messages)
        return known and any(_kind_of(block) in _OWN_BLOCKS for block in blocks)

    def prompt(self, native: Mapping[str, Any]) -> object:
        """Return the system prompt of a request; None if there is none."""
        content = native.get("system")
        _BLOCKS.read(content, ("system",))  # read without the cache, whose errors would name a message
        return content

    def continues(self, message: object, run: Sequence[object]) -> bool:
        """Return whether both are the assistant's and a server tool's call in the `run` still waits for its result.

        Programs append what comes after `pause_turn` as a message of its own.
        """
        are_replies = get(message, "role") == "assistant" == get(run[-1], "role")
        return are_replies and bool(open_halves(half_of(b) for m in run for b in records_of(get(m, "content"))))

    def join(self, run: Sequence[object]) -> object:
        """Return one message with the blocks of several messages."""
        blocks = [block for message in run for _, block in self.placed(message)]
        return self.with_blocks(run[0], [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks])

    def placed(self, message: object) -> list[PlacedBlock]:
        """Return the blocks of a message with their paths."""
        require_role(message, ANTHROPIC)
        return list(walk_content(require_field(message, "content"), ("content",), noun="block"))

    def result(self, block: object) -> object:
        """Return the block if it is a tool result, or else None."""
        return block if _kind_of(block) == "tool_result" else None

    def answered(self, block: object, path: Path) -> tuple[object, Path, str | None]:
        """Return the id of the call that a result block answers, the path of this id, and None for the tool's name."""
        return get(block, "tool_use_id"), (*path, "tool_use_id"), None

    def calls(self, placed: Sequence[PlacedBlock]) -> list[PlacedCall]:
        """Return the tool calls in the given blocks."""
        return [_place_call(block, path) for path, block in placed if _kind_of(block) == "tool_use"]

    def block_fields(self, block: object, path: Path, role: str, read: Sequence[PlacedPart]) -> Iterator[PlacedField]:
        """Yield the fields of a block that are neither content nor a call.

        For a tool result in a message of a role other than `user`, these include the fields that are read otherwise,
        such as the id of the call.
        """
        kind = _kind_of(block)
        own = _NOTHING if role != "user" and kind == "tool_result" else _READ.get(kind, _NOTHING)
        return _BLOCKS.part_fields(block, path, read, own=own)

    def is_pinned(self, block: object) -> bool:
        """Return whether a block is a compaction, which replaces all messages before it."""
        return _kind_of(block) == "compaction"

    def with_blocks(self, message: object, blocks: list[object]) -> object:
        """Return a copy of a message with other blocks; content that is a single string stays a string."""
        is_text = len(blocks) == 1 and isinstance(blocks[0], str)
        plain = message if isinstance(message, Mapping) else {"role": get(message, "role")}
        return copy_with(plain, {("content",): blocks[0] if is_text else blocks})

    def valid(self, blocks: list[object]) -> list[object]:
        """Return the blocks, or the text "…" if there are none, because the API rejects an empty message."""
        return blocks or [LEFT_OUT]

    def made(self, role: str, blocks: list[object]) -> object:
        """Return a new message. If its only block is a text, its content is a string."""
        text = get(blocks[0], "text") if len(blocks) == 1 and _kind_of(blocks[0]) == "text" else None
        return {"role": role, "content": text or blocks}

    def left_of(self, block: object) -> object:
        """Return a block without its empty parts, which the API rejects; `REMOVED` if nothing is left."""
        if block is REMOVED:
            return block
        path, is_result = _inner_path(block), _kind_of(block) == "tool_result"
        held = reduce(get, path, block)
        if not isinstance(held, (list, tuple)):
            if not isinstance(held, str) or held.strip() or (is_result and not held):
                return block
            return copy_with(block, {path: REMOVED}) if is_result else REMOVED
        left = [inner for inner in map(self.left_of, held) if inner is not REMOVED]
        if are_same_objects(left, held) and (left or is_result):
            return block
        return copy_with(block, {path: left or REMOVED}) if left or is_result else REMOVED

    def changes(
        self, artifact: Artifact, fragment: Fragment, placed: Sequence[PlacedBlock]
    ) -> Iterator[tuple[Path, object]]:
        """Yield the changes of an artifact (see `BlockFormat.changes`).

        If any thinking changes, all thinking of the artifact is removed, since the API accepts thinking only
        unmodified. The `citations` of a changed text are removed because they refer to the old text.
        """
        thinking = [(number,) for number in fragment.indexes if _kind_of(placed[number][1]) in _THINKING]
        for path, new in super().changes(artifact, fragment, placed):
            yield from ((each, REMOVED) for each in thinking) if path in thinking else [(path, new)]
            if path[-1] == "text":
                yield (*path[:-1], "citations"), REMOVED

    def created(self, artifact: Artifact) -> list[object]:
        """Return the blocks for an artifact that a stage added."""
        if artifact.kind is Kind.TOOL:
            return [{"type": "tool_result", "tool_use_id": artifact.answers, "content": artifact.text}]
        calls: list[object] = [
            {"type": "tool_use", "id": c.id, "name": c.name, "input": arguments_as_object(c.arguments)}
            for c in artifact.calls
        ]
        text = artifact.text or ("" if calls else LEFT_OUT)
        return [{"type": "text", "text": text}, *calls] if text else calls

    def sent(self, body: Body) -> Sent:
        """Return the billed parts of a request. Thinking before the last user message is left out: it is not billed."""
        artifacts = without_old_reasoning(self.counted(body))
        form = get(body.get("output_config"), "format") or body.get("output_format")
        schema = get(form, "schema")
        tools = tuple(records_of(body.get("tools")))
        return Sent(
            tuple(artifacts),
            tools,
            choice_of(body.get("tool_choice")),
            schema if isinstance(schema, Mapping) and schema else None,
            found=frozenset(_referenced(body.get("messages")) if is_any_deferred(tools) else ()),
            thinks=get(body.get("thinking"), "type") == "enabled",
            documents=sum(map(_text_documents, records_of(body.get("messages")))),
        )

    def deltas(self, event: Event) -> Iterator[Delta]:
        """Yield the pieces of text in an event of a streamed response."""
        field = _DELTAS.get(str(member_at(event, ("delta", "type"))))
        if event.get("type") == "content_block_delta" and field is not None:
            path = ("delta", field)
            text = member_at(event, path)
            if isinstance(text, str):
                is_json, alone = field == "partial_json", partial(with_text, event, path)
                channel = (event.get("index"),)
                yield Delta(channel, path, text, is_json, alone, (channel,) if is_json else ())

    def called(self, event: Event) -> Iterator[tuple[Hashable, object]]:
        """Yield a key and the record of each tool call that an event begins or continues."""
        if event.get("type") == "content_block_start":
            yield (event.get("index"),), event.get("content_block")

    def ends(self, event: Event) -> Ends | None:
        """Return a predicate that is true for the channels (see `Channel`) that an event ends; None if it ends none."""
        if event.get("type") == "content_block_stop":
            index = event.get("index")
            return lambda channel: channel[0] == index
        return (lambda _: True) if event.get("type") in ("message_delta", "message_stop") else None

    def declared(self, schema: Body) -> Body:
        """Return a function, given by its `schema`, in the format of the API's tools."""
        return {"name": schema["name"], "description": schema["description"], "input_schema": schema["parameters"]}


def _text_documents(message: Body) -> int:
    """Return how many documents in a message are sent as text."""
    blocks = records_of(message.get("content"))
    inner = [one for block in blocks for one in (block, *records_of(block.get("content")))]
    return sum(one.get("type") == "document" and get(one.get("source"), "type") == "text" for one in inner)


def _referenced(value: object) -> Iterator[str]:
    """Yield the names of the deferred tools that a tool search has found."""
    if isinstance(value, Mapping):
        if value.get("type") == "tool_reference":
            yield text_of(value, "tool_name") or text_of(value, "name") or ""
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from _referenced(inner)
