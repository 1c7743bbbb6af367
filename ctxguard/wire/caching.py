"""Mark the prefixes of a request for Anthropic's prompt cache, if the client marks none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_MARK: Final = {"cache_control": {"type": "ephemeral"}}


def with_breakpoints(body: Mapping[str, object]) -> Mapping[str, object]:
    """Return a request with up to four cache breakpoints, which is Anthropic's maximum.

    One breakpoint is at the end of the system prompt, or of the tools if there is no system prompt. The others are at
    the ends of the first message with the role `user`, which cuts do not change, and of the last two such messages,
    with which the previous request and this one usually end. A request that already has a breakpoint is returned
    unchanged.
    """
    messages, system, tools = body.get("messages"), body.get("system"), body.get("tools")
    if not isinstance(messages, list) or _is_marked([system, tools, messages]):
        return body
    people = [at for at, message in enumerate(messages) if isinstance(message, dict) and message.get("role") == "user"]
    places = {*people[:1], *people[-2:]}
    changed = {"messages": [_marked(each, "content") if at in places else each for at, each in enumerate(messages)]}
    return {**(_marked(body, "system") if system else _marked(body, "tools")), **changed}


def _is_marked(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_is_marked, value))
    return isinstance(value, dict) and ("cache_control" in value or _is_marked(value.get("content")))


def _marked(record: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return a record with a breakpoint on the text, or on the last content block, that it has under `key`.

    If there is none, or the text is empty, the record is returned unchanged.
    """
    value = record.get(key)
    blocks = [{"type": "text", "text": value}] if isinstance(value, str) else value
    if not value or not isinstance(blocks, list) or not isinstance(blocks[-1], dict):
        return record
    return {**record, key: [*blocks[:-1], {**blocks[-1], **_MARK}]}
