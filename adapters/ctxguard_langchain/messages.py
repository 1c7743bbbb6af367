"""Convert LangChain messages to artifacts and back, with tool calls in all places where a message repeats them.

Message classes and fields are those of `langchain_core.messages` 1.x. Content blocks are the standard ones (v0, v1),
and those of the providers as their packages store them (OpenAI, Anthropic, Google).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from ctxguard.adapting.content_format import REASONING_FIELDS, reasoning_changes, reasoning_parts
from ctxguard.adapting.fields import REMOVED, Path, arguments_as_text, copy_with, is_list, parse_json, require_list
from ctxguard.adapting.json_walk import PlacedField, extra_fields, fixed_field, without_tokens
from ctxguard.adapting.message_view import LEFT_OUT, MessageView, PlacedCall, PlacedPart, fill_nulls, write_each
from ctxguard.adapting.read_cache import ReadCache
from ctxguard.artifacts import BY_POSITION, Artifact, Kind, Part, ToolCall
from ctxguard.errors import AdapterError, HistoryError
from ctxguard_langchain.blocks import BLOCKS, CALL_FIELDS, block_changes


def _blocks(message: AIMessage) -> Iterator[tuple[str, int, Mapping[str, Any], str, str]]:
    """Yield each copy of a tool call in a message.

    Each result consists of the name of the list with the copy, its index, the copy, and the names of its fields for the
    id and the arguments.
    """
    for name, default in (("tool_calls", "tool_call"), ("invalid_tool_calls", "tool_call"), ("content", None)):
        listed = getattr(message, name)
        for number, block in enumerate(listed if isinstance(listed, list) else ()):
            fields = CALL_FIELDS.get(block.get("type", default)) if isinstance(block, Mapping) else None
            if fields is not None:
                yield name, number, block, *fields


def calls_of(message: AIMessage) -> tuple[ToolCall, ...]:
    """Return the tool calls in a message without repetitions: parsed, invalid, in content blocks, and legacy calls."""
    found = [(name, _call(block, id_at, at)) for name, _, block, id_at, at in _blocks(message)]
    known = {call.id for name, call in found if name != "content"}
    calls = tuple(call for name, call in found if name != "content" or call.id not in known)
    legacy = message.additional_kwargs.get("function_call")
    return calls or ((_call({**legacy, "id": BY_POSITION}, "id", "arguments"),) if legacy else ())


def _call(call: Mapping[str, Any], id_field: str, field: str) -> ToolCall:
    arguments, takes_object = arguments_as_text(call.get(field)), call.get("type") != "custom_tool_call"
    return ToolCall(str(call.get("name") or ""), arguments, call.get(id_field) or None, takes_object=takes_object)


def call_changes(message: AIMessage, was: Sequence[ToolCall], now: Sequence[ToolCall]) -> Iterator[tuple[Path, object]]:
    """Yield the changes of a message for changed calls. Raw copies that LangChain can recreate are removed."""
    yield from ((("additional_kwargs", key), REMOVED) for key in ("tool_calls", "function_call"))
    if message.additional_kwargs.get("function_call") and was[-1].id == BY_POSITION:
        legacy = {**message.additional_kwargs["function_call"], "arguments": now[-1].arguments}
        yield ("additional_kwargs", "function_call"), legacy
    if isinstance(message, AIMessageChunk):
        yield ("tool_call_chunks",), []
    waiting = {name: list(zip(was, now, strict=True)) for name in ("tool_calls", "invalid_tool_calls", "content")}
    for name, number, block, id_at, at in _blocks(message):
        found = next((pair for pair in waiting[name] if pair[0].id == (block.get(id_at) or None)), None)
        if found is not None:  # repeated ids are matched in order
            waiting[name].remove(found)
            changes = _block_changes(block, found[1], id_at, at) if found[0] != found[1] else ()
            yield from (((name, number, key), new) for key, new in changes)


def _block_changes(call: Mapping[str, Any], now: ToolCall, id_field: str, field: str) -> Iterator[tuple[str, object]]:
    yield id_field, now.id
    yield field, _free_text(now.arguments) if call.get("type") == "custom_tool_call" else _like(call.get(field), now)
    if id_field != "id":
        yield "id", REMOVED
    if call.get("partial_json"):
        yield "partial_json", now.arguments


def _free_text(arguments: str) -> str:
    """Return the input of a custom tool, which LangChain wraps in an object for `tool_calls`."""
    wrapped = parse_json(arguments)
    return str(wrapped["__arg1"]) if isinstance(wrapped, dict) and "__arg1" in wrapped else arguments


def native_call(call: ToolCall) -> dict[str, Any]:
    """Return a tool call as LangChain's dict. The arguments must be a JSON object."""
    return {"name": call.name, "args": _like({}, call), "id": call.id, "type": "tool_call"}


def _like(value: object, call: ToolCall) -> object:
    """Return the new arguments of a call as text or as an object, like the original value."""
    if isinstance(value, str) or value is None:
        return call.arguments
    read = parse_json(call.arguments or "{}")
    if not isinstance(read, dict):
        raise AdapterError(f"the new arguments of {call.name!r} are not a JSON object, which LangChain requires")
    return read


_ROLES: Final = {role: Kind(role) for role in ("system", "developer", "user", "human", "assistant", "ai", "model")}
"""The known roles of a `ChatMessage`."""
_TYPES: Final = {**_ROLES, "tool": Kind.TOOL, "function": Kind.TOOL}
_EXTRAS: Final = ("additional_kwargs",)
_REPEATED: Final = frozenset({"function_call", "parsed", "tool_calls", *REASONING_FIELDS})
"""Keys of `additional_kwargs` that are read elsewhere, or that no package sends to a provider."""
_PRIVATE: Final = ("_", "lc_")
"""Prefixes of keys for LangChain's internal use."""
_READ: Final = frozenset(
    ("args", "arguments", "input", "name", "partial_json", "reasoning", "summary", "thinking", "type")
)
"""Fields of a block that are read in addition to its texts, or that belong to a call repeated in `tool_calls`."""
_CALL: Final = frozenset(("args", "id", "name", "type"))


class LangChainAdapter:
    """Reads and writes LangChain messages. Each message, or chunk of a stream, is one artifact.

    The arguments of tool calls are counted as compact JSON, as in every other format. Calls that a message repeats (in
    `tool_calls`, content blocks, `additional_kwargs`, and chunks) are counted once and edited together.

    Unchanged messages stay the same objects. A changed message is a `model_copy` with new texts and arguments. Not
    preserved in it: the provider's item id of a changed block (`msg_…`, `fc_…`), because OpenAI would use its stored
    copy; reasoning items in `additional_kwargs` that would change; and, if arguments change, the raw copies of the
    calls in `additional_kwargs` and `tool_call_chunks`. A result or call without an id may get one. Messages that a
    stage adds have no id. Messages of unknown class or role are kept and pinned, and the report names the role.
    `RemoveMessage` is kept, too. Unknown blocks are opaque: their texts are not masked.
    """

    name = "langchain"
    reads_one_by_one = True
    last_stage = staticmethod(partial(fill_nulls, text=LEFT_OUT))  # LangChain removes blocks without text

    @staticmethod
    def chat_model(name: str) -> object:
        """Return the chat model with this name, such as `openai:gpt-5-mini`."""
        from langchain.chat_models import init_chat_model

        return init_chat_model(name)

    def read(self, native: Sequence[BaseMessage]) -> list[Artifact]:
        """Return the artifacts of a list of messages.

        Raises:
            HistoryError: If `native` is not a list, or an item is not a LangChain message.
        """
        return _CACHE.read(require_list(native, "LangChain messages"))

    def write(self, native: Sequence[BaseMessage], artifacts: Iterable[Artifact]) -> list[BaseMessage]:
        """Return the messages for these artifacts. Unchanged messages are the same objects.

        Raises:
            AdapterError: If a stage changed the arguments of a tool call to something other than a JSON object.
        """
        del native  # every artifact contains its message
        return write_each(artifacts, _write)

    def detects(self, native: object) -> bool:
        """Return whether a value is a list of LangChain messages."""
        return is_list(native) and all(isinstance(message, BaseMessage) for message in native)


def _artifact(message: BaseMessage) -> Artifact:
    if not isinstance(message, BaseMessage):
        raise HistoryError(
            f"expected a LangChain message, got {type(message).__name__}; "
            "convert tuples and dicts with langchain_core.messages.convert_to_messages"
        )
    if isinstance(message, RemoveMessage):
        return Artifact(Kind.ASSISTANT, "", 0, pinned=True, source=message)
    return _view(message).artifact(message)


def _view(message: BaseMessage) -> MessageView:
    kind = _kind(message)
    return MessageView(
        kind or Kind.ASSISTANT,
        _parts(message),
        [PlacedCall(call) for call in calls_of(message)] if isinstance(message, AIMessage) else (),
        tool_call_id=_tool_call_id(message),
        tool_call_id_at=("tool_call_id",) if isinstance(message, ToolMessage) else (),
        name=message.name,
        role=getattr(message, "role", message.type) if kind is None else None,
        reported=_reported(message),
        fields=[*_fields(message)],
    )


def _fields(message: BaseMessage) -> Iterator[PlacedField]:
    """Yield the fields of a message besides its content and calls. Packages may send any of `additional_kwargs`."""
    yield from BLOCKS.extra_fields(message.content, ("content",), own=_READ)
    yield from fixed_field("id", message.id or "", ("id",))
    for key in ("tool_calls", "invalid_tool_calls"):
        for number, call in enumerate(getattr(message, key, ())):
            yield from without_tokens(extra_fields(call, (key, number), own=_CALL))
    sent = {key: value for key, value in message.additional_kwargs.items() if not key.startswith(_PRIVATE)}
    yield from extra_fields(sent, _EXTRAS, own=_REPEATED)


_CACHE: Final = ReadCache(_artifact, exact=frozenset({"args", "arguments", "input"}))


def _reported(message: BaseMessage) -> int | None:
    """Return the number of input tokens that the provider reported for the call that this message is a reply to."""
    usage = getattr(message, "usage_metadata", None)
    return usage.get("input_tokens") or None if usage else None


def _kind(message: BaseMessage) -> Kind | None:
    if isinstance(message, ChatMessage):
        return _ROLES.get(message.role.lower())
    return _TYPES.get(message.type.removesuffix("MessageChunk").lower())


def _tool_call_id(message: BaseMessage) -> str | None:
    if isinstance(message, ToolMessage):
        return message.tool_call_id or None
    return BY_POSITION if isinstance(message, FunctionMessage) else None


def _parts(message: BaseMessage) -> list[PlacedPart]:
    """Return the parts of a message's content, followed by its reasoning in `additional_kwargs`."""
    reasoning = reasoning_parts(message.additional_kwargs, _EXTRAS) if message.additional_kwargs else []
    return [*BLOCKS.read(message.content, ("content",)), *reasoning] or [(("content",), Part("text", ""))]


def _write(artifact: Artifact) -> BaseMessage:
    if artifact.source is None:
        return _create(artifact)
    message = cast("BaseMessage", artifact.source)
    changes = dict(reasoning_changes(message.additional_kwargs, _view(message).changes(artifact), _EXTRAS))
    changes = dict(block_changes(message.content, changes))
    if artifact.calls != artifact.root.calls and isinstance(message, AIMessage):
        changes.update(call_changes(message, artifact.root.calls, artifact.calls))
    return copy_with(message, changes)


def _create(artifact: Artifact) -> BaseMessage:
    """Return a message for an artifact that a stage added, such as a placeholder result or a summary."""
    if artifact.kind is Kind.TOOL and artifact.answers == BY_POSITION:
        return FunctionMessage(content=artifact.text, name=artifact.name or "")
    if artifact.kind is Kind.TOOL:
        return ToolMessage(artifact.text, tool_call_id=artifact.answers or "", name=artifact.name)
    if artifact.kind is Kind.SYSTEM:
        return SystemMessage(artifact.text)
    if artifact.kind is Kind.ASSISTANT:
        return AIMessage(artifact.text, tool_calls=list(map(native_call, artifact.calls)))
    return HumanMessage(artifact.text)
