"""Tool calls of LangChain messages, in all the places where one message repeats them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk

from ctxguard.artifacts import ToolCall
from ctxguard.errors import AdapterError
from ctxguard.lens import GONE, Path, argument_text
from ctxguard_langchain.blocks import CALL_FIELDS, Block

__all__ = ["LEGACY_ID", "call_changes", "calls_of", "native_call"]

LEGACY_ID: Final = "function_call"
"""Stands for the id that `function_call` and its `FunctionMessage` do not have: they pair by position."""


def calls_of(message: AIMessage) -> tuple[ToolCall, ...]:
    """Return the calls of a message, each once: parsed, invalid, those in content blocks alone, the legacy one."""
    extras, content = message.additional_kwargs, message.content
    calls = [_call(call, "id", "args") for call in (*message.tool_calls, *message.invalid_tool_calls)]
    if isinstance(content, list):
        known = {call.id for call in calls}
        blocks = [b for b in content if isinstance(b, Mapping) and b.get("type") in CALL_FIELDS]
        native = [_call(block, *CALL_FIELDS[block["type"]]) for block in blocks]
        calls += [call for call in native if call.id not in known]
    if not calls and extras.get("function_call"):
        calls = [_call({**extras["function_call"], "id": LEGACY_ID}, "id", "arguments")]
    return tuple(calls)


def _call(call: Mapping[str, Any], id_field: str, field: str) -> ToolCall:
    return ToolCall(str(call.get("name") or ""), argument_text(call.get(field)), call.get(id_field) or None)


def call_changes(message: AIMessage, was: Sequence[ToolCall], now: Sequence[ToolCall]) -> Iterator[tuple[Path, object]]:
    """Walk what changed calls change in a message; raw copies that LangChain makes anew from them go."""
    extras = message.additional_kwargs
    if "tool_calls" in extras:
        yield ("additional_kwargs", "tool_calls"), GONE
    if extras.get("function_call") and was[-1].id == LEGACY_ID:
        yield ("additional_kwargs", "function_call", "arguments"), now[-1].arguments
    elif "function_call" in extras:
        yield ("additional_kwargs", "function_call"), GONE
    if isinstance(message, AIMessageChunk):
        yield ("tool_call_chunks",), []
    for name, default in (("tool_calls", "tool_call"), ("invalid_tool_calls", "tool_call"), ("content", None)):
        value = getattr(message, name)
        if isinstance(value, list):
            yield from _list_changes(name, value, list(zip(was, now, strict=True)), default)


def _list_changes(
    name: str, blocks: Sequence[Block], waiting: list[tuple[ToolCall, ToolCall]], default: str | None
) -> Iterator[tuple[Path, object]]:
    """Walk the changes of the calls in one list; where ids repeat in a message, in order."""
    for number, block in enumerate(blocks):
        names = CALL_FIELDS.get(block.get("type", default)) if isinstance(block, Mapping) else None
        if names is None or isinstance(block, str):
            continue
        found = next((pair for pair in waiting if pair[0].id == (block.get(names[0]) or None)), None)
        if found is not None:
            waiting.remove(found)
            if found[0] != found[1]:
                yield from (((name, number, key), new) for key, new in _block_changes(block, found[1], *names))


def _block_changes(call: Mapping[str, Any], now: ToolCall, id_field: str, field: str) -> Iterator[tuple[str, object]]:
    yield id_field, now.id
    yield field, _free_text(now.arguments) if call.get("type") == "custom_tool_call" else _like(call.get(field), now)
    if id_field != "id":
        yield "id", GONE
    if call.get("partial_json"):
        yield "partial_json", now.arguments


def _free_text(arguments: str) -> str:
    """Return the input of a custom tool, which LangChain wraps into an object for `tool_calls`."""
    try:
        return str(json.loads(arguments)["__arg1"])
    except (ValueError, KeyError, TypeError):
        return arguments


def native_call(call: ToolCall) -> dict[str, Any]:
    """Return a tool call as LangChain writes it.

    Raises:
        AdapterError: its arguments are no JSON object.
    """
    return {"name": call.name, "args": _like({}, call), "id": call.id, "type": "tool_call"}


def _like(value: object, call: ToolCall) -> object:
    """Return the arguments in the shape in which they stood: as text or as an object."""
    if isinstance(value, str) or value is None:
        return call.arguments
    try:
        parsed = json.loads(call.arguments or "{}")
    except ValueError:
        parsed = None
    if not isinstance(parsed, Mapping):
        raise AdapterError(f"the arguments of {call.name!r} were made no JSON object; LangChain holds nothing else")
    return parsed
