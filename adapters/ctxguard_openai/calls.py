"""Tool calls of Chat Completions messages: `tool_calls`, and the older `function_call`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ctxguard.artifacts import ToolCall
from ctxguard.errors import HistoryError
from ctxguard.lens import Path, argument_text, get

__all__ = ["LEGACY_ID", "Message", "calls_of", "is_record"]

Message: TypeAlias = Mapping[str, object]
"""A message: a dict, or an object of the SDK with the same fields."""
LEGACY_ID: Final = "function_call"
"""Stands for the id that `function_call` and its result do not have: they pair by position."""
_NO_RECORDS: Final = (str, bytes, int, float, list, tuple, set, type(None))
_OTHERS: Final = ("system", "developer", "user", "tool", "function")
"""Roles that call no tools."""


def is_record(value: object) -> bool:
    """Tell a dict or an object with fields from texts, numbers, lists and None."""
    return not isinstance(value, _NO_RECORDS)


def calls_of(message: Message, position: int | None = None) -> Iterator[tuple[ToolCall, Path, Path]]:
    """Walk the calls of a message, each with the place of its arguments and that of its id.

    Args:
        message: of any role.
        position: its place in the history, for errors.

    Raises:
        HistoryError: there are calls in a message that is not the assistant's, or what should be one is none.
    """
    listed, legacy = get(message, "tool_calls"), get(message, "function_call")
    if (listed or legacy) and (role := get(message, "role")) in _OTHERS:
        field = "tool_calls" if listed else "function_call"
        raise HistoryError(f"{field} in a message of role {role!r}; the assistant alone calls tools", position=position)
    for number, call in enumerate(_listed(listed, position)):
        yield _listed_call(call, number, position)
    if legacy:
        read = _read(legacy, "arguments", LEGACY_ID, "function_call", position)
        yield read, ("function_call", "arguments"), ("function_call", "id")


def _listed(listed: object, position: int | None) -> Sequence[object]:
    if not listed:
        return ()
    if not isinstance(listed, (list, tuple)):
        remedy = "; write [call]" if isinstance(listed, Mapping) else ""
        kind = type(listed).__name__
        raise HistoryError(f"tool_calls is a list of calls, not {kind}{remedy}", position=position)
    return listed


def _listed_call(call: object, number: int, position: int | None) -> tuple[ToolCall, Path, Path]:
    if not is_record(call):
        fault = f"tool_calls[{number}] is a dict with 'function', not {type(call).__name__}"
        raise HistoryError(fault, position=position)
    form, field = ("custom", "input") if get(call, "custom") is not None else ("function", "arguments")
    identity = get(call, "id")
    named = identity if isinstance(identity, str) else None
    read = _read(get(call, form), field, named, f"tool_calls[{number}].{form}", position)
    return read, ("tool_calls", number, form, field), ("tool_calls", number, "id")


def _read(inner: object, field: str, identity: str | None, place: str, position: int | None) -> ToolCall:
    if not is_record(inner):
        fault = f"{place} is a dict with 'name' and {field!r}, not {type(inner).__name__}"
        raise HistoryError(fault, position=position)
    return ToolCall(str(get(inner, "name") or ""), argument_text(get(inner, field)), identity)
