"""Convert messages dumped by frameworks into Chat Completions messages, without importing the framework.

Supported are dumps of LangChain messages (`messages_to_dict`, `dumpd`, `model_dump`), dumps of PydanticAI messages
(`all_messages_json`), and messages with `role` and `parts` as in OpenTelemetry's GenAI conventions. Only what a model
is sent is converted: reasoning, message ids, usage, and metadata are not preserved, and media are replaced by a note.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

Record = Mapping[str, object]
_LANGCHAIN: Final = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "chat": "user",
}
_CHUNK: Final = "MessageChunk"
_THINKING: Final = frozenset({"thinking", "reasoning", "reasoning_content", "redacted_thinking"})
_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call", "tool_call_chunk", "server_tool_call"})


def is_dumped(value: object) -> bool:
    """Return whether a value is a message in a framework's own dump format, which no provider's API accepts."""
    return isinstance(value, Mapping) and (
        _langchain(value) is not None or _is_pydantic_ai(value) or _is_telemetry(value)
    )


def translate_dumps(record: object) -> object:
    """Convert the dumped messages in a parsed recording; return any other value unchanged."""
    if isinstance(record, Mapping):
        for key in ("messages", "input", "history", "message_history"):
            listed = record.get(key)
            if isinstance(listed, list) and listed and all(map(is_dumped, listed)):
                return {**record, "messages": list(_messages(listed))}
        return record
    if isinstance(record, list) and record and all(map(is_dumped, record)):
        return list(_messages(record))
    return record


def _messages(listed: Sequence[Record]) -> Iterator[Record]:
    instructions = next((m["instructions"] for m in reversed(listed) if m.get("instructions")), None)
    if isinstance(instructions, str):
        yield {"role": "system", "content": instructions}
    for message in listed:
        if _is_pydantic_ai(message):
            yield from _of_pydantic_ai(message)
        elif (fields := _langchain(message)) is not None:
            yield _of_langchain(fields)
        else:
            yield from _of_telemetry(message)


# -- LangChain


def _langchain(value: Record) -> Record | None:
    """Return the fields of a dumped LangChain message, including its `type`; None for any other value."""
    kwargs, name = value.get("kwargs"), value.get("id")
    if "lc" in value and isinstance(kwargs, Mapping) and isinstance(name, list) and name:
        named = str(kwargs.get("type") or str(name[-1]).removesuffix("Chunk").removesuffix("Message").lower())
        return {**kwargs, "type": named} if _role(named) else None
    if "role" in value:
        return None
    kind, data = value.get("type"), value.get("data")
    if not isinstance(kind, str) or not _role(kind):
        return None
    if isinstance(data, Mapping) and "content" in data:
        return {**data, "type": kind}
    return value if "content" in value and "additional_kwargs" in value else None


def _role(kind: str) -> str | None:
    return _LANGCHAIN.get(kind.removesuffix(_CHUNK).lower())


def _of_langchain(fields: Record) -> Record:
    role = str(fields.get("role") or _role(str(fields["type"])))
    message: dict[str, object] = {"role": role, "content": plain_content(fields.get("content"))}
    calls = fields.get("tool_calls")
    if isinstance(calls, list) and calls:
        message["tool_calls"] = [tool_call(c.get("id"), c.get("name"), c.get("args")) for c in calls]
    if role in ("tool", "function"):
        known = {"tool_call_id": fields.get("tool_call_id"), "name": fields.get("name")}
        message.update({key: value for key, value in known.items() if value is not None})
    return message


def plain_content(content: object) -> object:
    """Join the text blocks of a message's content into one string; return content that is not a list unchanged."""
    if not isinstance(content, list):
        return content
    return "\n".join(_text(block) for block in content if not _is_left_out(block))


def _is_left_out(block: object) -> bool:
    """Return whether a block is reasoning, or a tool call that the message's `tool_calls` repeat."""
    return isinstance(block, Mapping) and block.get("type") in _THINKING | _CALLS


def _text(block: object) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping):
        for key in ("text", "content"):
            if isinstance(block.get(key), str) and block.get("type", "text") in ("text", "output_text"):
                return str(block[key])
        return f"[{block.get('type') or block.get('kind') or 'media'}]"
    return str(block)


def tool_call(identity: object, name: object, arguments: object) -> Record:
    """Return a tool call in the format of Chat Completions."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": identity, "type": "function", "function": {"name": str(name), "arguments": text}}


# -- PydanticAI


def _is_pydantic_ai(value: Record) -> bool:
    return value.get("kind") in ("request", "response") and isinstance(value.get("parts"), list)


def _of_pydantic_ai(message: Record) -> Iterator[Record]:
    parts = [part for part in records_in(message["parts"]) if part.get("part_kind") != "thinking"]
    if message["kind"] == "request":
        yield from (_request_message(part) for part in parts)
        return
    calls = [
        tool_call(p.get("tool_call_id"), p.get("tool_name"), p.get("args"))
        for p in parts
        if p.get("part_kind") == "tool-call"
    ]
    said = "\n".join(str(part["content"]) for part in parts if part.get("part_kind") == "text")
    yield {"role": "assistant", "content": said, **({"tool_calls": calls} if calls else {})}


def _request_message(part: Record) -> Record:
    kind, content = part.get("part_kind"), part.get("content")
    if kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name")):
        return {"role": "tool", "tool_call_id": part.get("tool_call_id"), "content": as_text(content)}
    texts = content if isinstance(content, list) else [content]
    text = "\n".join(_text(each) for each in texts if each is not None)
    return {"role": "system" if kind == "system-prompt" else "user", "content": text}


def as_text(value: object) -> str:
    """Return a string unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def records_in(value: object) -> Iterator[Record]:
    """Yield the objects in a JSON list; yield nothing if `value` is not a list."""
    listed: Iterable[object] = value if isinstance(value, list) else ()
    return (each for each in listed if isinstance(each, Mapping))


# -- OpenTelemetry


def _is_telemetry(value: Record) -> bool:
    return "role" in value and "content" not in value and isinstance(value.get("parts"), list)


def _of_telemetry(message: Record) -> Iterator[Record]:
    parts = list(records_in(message["parts"]))
    results = [part for part in parts if part.get("type") == "tool_call_response"]
    for part in results:
        found = part.get("response", part.get("result"))
        yield {"role": "tool", "tool_call_id": part.get("id"), "content": as_text(found)}
    calls = [tool_call(p.get("id"), p.get("name"), p.get("arguments")) for p in parts if p.get("type") == "tool_call"]
    texts = [_text(p) for p in parts if p.get("type") not in _THINKING | {"tool_call", "tool_call_response"}]
    if texts or calls or not results:
        said: dict[str, object] = {"role": message["role"], "content": "\n".join(texts)}
        yield {**said, "tool_calls": calls} if calls else said
