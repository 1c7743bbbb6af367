"""Tool calls of Chat Completions messages: `tool_calls`, and the older `function_call`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ctxguard.adapting.fields import Path, arguments_as_text, get, is_record, require_field, text_of, unreadable
from ctxguard.adapting.message_view import PlacedCall
from ctxguard.artifacts import BY_POSITION, ToolCall
from ctxguard.errors import HistoryError

Message: TypeAlias = Mapping[str, object]
"""A message: a dict, or an object of the SDK with the same fields."""
_OTHERS: Final = ("system", "developer", "user", "tool", "function")
"""Roles that call no tools."""


def calls_of(message: Message) -> Iterator[PlacedCall]:
    """Walk the calls of a message with their places; only an assistant's may have any."""
    listed, legacy = get(message, "tool_calls"), get(message, "function_call")
    if (listed or legacy) and (role := get(message, "role")) in _OTHERS:
        field = "tool_calls" if listed else "function_call"
        raise HistoryError(f"{field} in a message of role {role!r}; the assistant alone calls tools")
    for number, call in enumerate(_list(listed)):
        yield _listed(call, ("tool_calls", number))
    if legacy:
        yield _call(legacy, "arguments", BY_POSITION, ("function_call",), ("function_call", "id"))


def _list(listed: object) -> Sequence[object]:
    if not listed:
        return ()
    if isinstance(listed, (list, tuple)):
        return listed
    remedy = "; write [call]" if isinstance(listed, Mapping) else ""
    raise unreadable(("tool_calls",), "a list of calls", listed, remedy=remedy)


def _listed(call: object, path: Path) -> PlacedCall:
    if not is_record(call):
        raise unreadable(path, "a dict with 'function'", call)
    form, field = ("custom", "input") if get(call, "custom") is not None else ("function", "arguments")
    return _call(get(call, form), field, text_of(call, "id"), (*path, form), (*path, "id"))


def _call(inner: object, field: str, identity: str | None, path: Path, id_at: Path) -> PlacedCall:
    if not is_record(inner):
        raise unreadable(path, f"a dict with 'name' and {field!r}", inner)
    call = ToolCall(str(get(inner, "name") or ""), arguments_as_text(require_field(inner, field, path)), identity)
    return PlacedCall(call, (*path, field), id_at)
