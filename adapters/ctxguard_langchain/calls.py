"""Tool calls of LangChain messages, in all places where a message repeats them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk

from ctxguard.adapting.editing import REMOVED
from ctxguard.adapting.fields import Path, arguments_as_text, parse_json
from ctxguard.artifacts import BY_POSITION, ToolCall
from ctxguard.errors import AdapterError
from ctxguard_langchain.blocks import CALL_FIELDS


def _blocks(message: AIMessage) -> Iterator[tuple[str, int, Mapping[str, Any], str, str]]:
    """Yield each copy of a call: its list, its index, the copy, and the names of its fields for id and arguments."""
    for name, default in (("tool_calls", "tool_call"), ("invalid_tool_calls", "tool_call"), ("content", None)):
        listed = getattr(message, name)
        for number, block in enumerate(listed if isinstance(listed, list) else ()):
            fields = CALL_FIELDS.get(block.get("type", default)) if isinstance(block, Mapping) else None
            if fields is not None:
                yield name, number, block, *fields


def calls_of(message: AIMessage) -> tuple[ToolCall, ...]:
    """Return the calls of a message, each once: parsed, invalid, only in content blocks, or the legacy one."""
    found = [(name, _call(block, id_at, at)) for name, _, block, id_at, at in _blocks(message)]
    known = {call.id for name, call in found if name != "content"}
    calls = tuple(call for name, call in found if name != "content" or call.id not in known)
    legacy = message.additional_kwargs.get("function_call")
    return calls or ((_call({**legacy, "id": BY_POSITION}, "id", "arguments"),) if legacy else ())


def _call(call: Mapping[str, Any], id_field: str, field: str) -> ToolCall:
    return ToolCall(str(call.get("name") or ""), arguments_as_text(call.get(field)), call.get(id_field) or None)


def call_changes(message: AIMessage, was: Sequence[ToolCall], now: Sequence[ToolCall]) -> Iterator[tuple[Path, object]]:
    """Yield the changes of a message for changed calls; raw copies that LangChain can recreate are removed."""
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
    """Return a tool call as LangChain writes it; its arguments must be a JSON object."""
    return {"name": call.name, "args": _like({}, call), "id": call.id, "type": "tool_call"}


def _like(value: object, call: ToolCall) -> object:
    """Return the arguments in their original form: as text or as an object."""
    if isinstance(value, str) or value is None:
        return call.arguments
    read = parse_json(call.arguments or "{}")
    if not isinstance(read, dict):
        raise AdapterError(f"the arguments of {call.name!r} were made no JSON object; LangChain holds nothing else")
    return read
