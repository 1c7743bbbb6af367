"""Tool calls of LangChain messages, in all the places where one message repeats them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from ctxguard.artifacts import ToolCall
from ctxguard.errors import AdapterError
from ctxguard_langchain.blocks import CALL_FIELDS, Block

__all__ = ["LEGACY_ID", "call_fields", "calls_of", "native_call"]

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
    return ToolCall(str(call.get("name") or ""), _arguments(call.get(field)), call.get(id_field) or None)


def _arguments(args: object) -> str:
    if isinstance(args, str):
        return args
    return "" if args is None else json.dumps(args, ensure_ascii=False, default=str)


def call_fields(
    message: BaseMessage, was: Sequence[ToolCall], now: Sequence[ToolCall], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of a message with its calls changed; raw copies that LangChain makes anew from them go."""
    pairs = list(zip(was, now, strict=True))
    changes: dict[str, Any] = {}
    extras = {**fields.get("additional_kwargs", message.additional_kwargs)}
    extras.pop("tool_calls", None)
    legacy = extras.pop("function_call", None)
    if legacy and was[-1].id == LEGACY_ID:
        extras["function_call"] = {**legacy, "arguments": now[-1].arguments}
    if extras != message.additional_kwargs:
        changes["additional_kwargs"] = extras
    for name, default in (("tool_calls", "tool_call"), ("invalid_tool_calls", "tool_call"), ("content", None)):
        value = fields.get(name, getattr(message, name))
        if value and isinstance(value, list):
            changes[name] = list(_with_calls(value, pairs, default))
    if isinstance(message, AIMessageChunk):
        changes["tool_call_chunks"] = []
    return changes


def _with_calls(
    blocks: Iterable[Block], pairs: Sequence[tuple[ToolCall, ToolCall]], default: str | None
) -> Iterator[Block]:
    """Walk blocks with the calls in them changed; where ids repeat in a message, in order."""
    waiting = list(pairs)
    for block in blocks:
        names = CALL_FIELDS.get(block.get("type", default)) if isinstance(block, Mapping) else None
        found = next((p for p in waiting if names and p[0].id == (block.get(names[0]) or None)), None)  # type: ignore[union-attr]
        if found is None or names is None:
            yield block
        else:
            waiting.remove(found)
            yield block if found[0] == found[1] else _edited_call(cast("Mapping[str, Any]", block), found[1], *names)


def _edited_call(call: Mapping[str, Any], now: ToolCall, id_field: str, field: str) -> Mapping[str, Any]:
    edited = {**call, id_field: now.id, field: _like(call.get(field), now)}
    if id_field != "id":
        edited.pop("id", None)
    if call.get("type") == "custom_tool_call":
        edited[field] = _free_text(now.arguments)
    if edited.get("partial_json"):
        edited["partial_json"] = now.arguments
    return edited


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
