"""Read sessions from OpenTelemetry spans: OTLP JSON (one export request per line) or the output of SDK exporters.

The attributes are those of the GenAI conventions, of OpenInference, or of Langfuse.

The span of a model call contains the whole history that was sent, so a session consists of its longest call and the
response. Calls with the same `gen_ai.conversation.id` belong to one session; without an id, calls of the same trace do.
Supported are the attributes of the conventions (`gen_ai.input.messages` and related ones, as JSON strings or as values)
and the older events (`gen_ai.user.message` and related ones), on spans or as log records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

_GROUPS: Final = (("resourceSpans", "scopeSpans", "spans"), ("resourceLogs", "scopeLogs", "logRecords"))
_INPUT: Final = ("gen_ai.input.messages", "gen_ai.prompt", "pydantic_ai.all_messages", "langfuse.observation.input")
_OUTPUT: Final = ("gen_ai.output.messages", "gen_ai.completion", "langfuse.observation.output")
_EVENT_ROLES: Final = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_CHOICE: Final = "gen_ai.choice"
_INSIDE: Final = ("stringValue", "intValue", "doubleValue", "boolValue", "bytesValue")


def holds_spans(value: object) -> bool:
    """Return whether a parsed value is spans or log records: an export request, a single span, or a list of these."""
    if isinstance(value, list):
        return bool(value) and all(map(holds_spans, value))
    if not isinstance(value, Mapping):
        return False
    if any(outer in value for outer, _, _ in _GROUPS):
        return True
    is_span = "attributes" in value and not {"role", "messages", "content"} & value.keys()
    return is_span and any(key in value for key in ("traceId", "trace_id", "context", "body"))


@dataclass(slots=True)
class _Conversation:
    line: int
    messages: list[object] = field(default_factory=list)
    events: list[object] = field(default_factory=list)
    tools: object = None


class Spans:
    """Collects the sessions in the spans of one file. Of each session, only the longest call is kept."""

    def __init__(self) -> None:
        self._conversations: dict[str, _Conversation] = {}

    def add(self, value: object, line: int) -> None:
        """Add the spans in one parsed value, found at line number `line`."""
        for span in _spans(value):
            self._take(span, line)

    def sessions(self) -> Iterator[tuple[int, Record]]:
        """Yield each session, possibly without messages, with the line number of its first span."""
        for name, found in self._conversations.items():
            tools = {"tools": found.tools} if isinstance(found.tools, list) else {}
            yield found.line, {"id": name, "messages": found.messages or found.events, **tools}

    def _take(self, span: Record, line: int) -> None:
        attributes = _attributes(span.get("attributes"))
        found = self._conversations.setdefault(_name(span, attributes), _Conversation(line))
        messages = list(_history(attributes))
        if len(messages) > len(found.messages):
            found.messages = messages
            found.tools = _parse(attributes.get("gen_ai.tool.definitions"))
        events: list[object] = list(_events(span, attributes))
        if "body" in span:
            found.events += events
        elif len(events) > len(found.events):
            found.events = events


def _spans(value: object) -> Iterator[Record]:
    if isinstance(value, list):
        for each in value:
            yield from _spans(each)
    elif isinstance(value, Mapping):
        groups = [group for group in _GROUPS if group[0] in value]
        if not groups:
            yield value
        for outer, scope, inner in groups:
            for resource in records_in(value.get(outer)):
                for scoped in records_in(resource.get(scope)):
                    yield from records_in(scoped.get(inner))


def _attributes(value: object) -> dict[str, object]:
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    return {str(p["key"]): _plain(p.get("value")) for p in records_in(value) if "key" in p}


def _plain(value: object) -> object:
    """Convert an OTLP value into plain Python data."""
    if not isinstance(value, Mapping):
        return value
    for key in _INSIDE:
        if key in value:
            return value[key]
    if isinstance(array := value.get("arrayValue"), Mapping):
        return [_plain(each) for each in array.get("values", ())]
    if isinstance(pairs := value.get("kvlistValue"), Mapping):
        return _attributes(pairs.get("values"))
    return dict(value)


def _parse(value: object) -> object:
    with suppress(ValueError):
        return json.loads(value) if isinstance(value, str) else value
    return value


def _name(span: Record, attributes: Record) -> str:
    context = span.get("context")
    inner = context.get("trace_id") if isinstance(context, Mapping) else None
    return str(attributes.get("gen_ai.conversation.id") or span.get("traceId") or span.get("trace_id") or inner)


def _history(attributes: Record) -> Iterator[object]:
    """Yield the input messages of a call, followed by its output message."""
    sent = next((found for key in _INPUT if isinstance(found := _parse(attributes.get(key)), list)), None)
    if sent is None:
        yield from _open_inference(attributes, "llm.input_messages")
        yield from list(_open_inference(attributes, "llm.output_messages"))[:1]
        return
    system = _parse(attributes.get("gen_ai.system_instructions"))
    if isinstance(system, list) and not any(isinstance(m, Mapping) and m.get("role") == "system" for m in sent):
        yield {"role": "system", "parts": system}
    yield from sent
    came = next((found for key in _OUTPUT if isinstance(found := _parse(attributes.get(key)), list)), [])
    yield from came[:1]  # further choices are alternatives, not part of the history


def _open_inference(attributes: Record, prefix: str) -> Iterator[Record]:
    """Yield the messages that OpenInference spreads over attributes such as `llm.input_messages.0.message.role`."""
    for message in _numbered(_below(attributes, prefix), "message"):
        made: dict[str, object] = {"role": message.get("role", "user"), "content": message.get("content", "")}
        if blocks := list(_numbered(_below(message, "contents"), "message_content")):
            made["content"] = "\n".join(map(_text, blocks))
        names = ("id", "function.name", "function.arguments")
        if calls := list(_numbered(_below(message, "tool_calls"), "tool_call")):
            made["tool_calls"] = [tool_call(*(call.get(name) for name in names)) for call in calls]
        if "tool_call_id" in message:
            made["tool_call_id"] = message["tool_call_id"]
        yield made


def _below(fields: Record, prefix: str) -> dict[str, object]:
    return {key.removeprefix(f"{prefix}."): each for key, each in fields.items() if key.startswith(f"{prefix}.")}


def _numbered(fields: Record, name: str) -> Iterator[Record]:
    """Yield the fields below `0.name`, `1.name`, and so on, in the order of the numbers."""
    found: dict[int, dict[str, object]] = {}
    for key, each in fields.items():
        number, dot, rest = key.partition(".")
        if dot and number.isdecimal() and len(number) < 7:
            found.setdefault(int(number), {})[rest] = each
    return (_below(found[number], name) for number in sorted(found))


def _events(span: Record, attributes: Record) -> Iterator[Record]:
    """Yield the messages recorded in the older event format of a span, or in one log record."""
    name = attributes.get("event.name") or span.get("eventName") or span.get("event_name")
    if name is not None:
        yield from _event(str(name), {**attributes, **_body(span.get("body"))})
    for event in records_in(span.get("events")):
        yield from _event(str(event.get("name")), _attributes(event.get("attributes")))


def _body(value: object) -> dict[str, object]:
    plain = _parse(_plain(value))
    return {str(key): each for key, each in plain.items()} if isinstance(plain, Mapping) else {"content": plain}


def _event(name: str, fields: Record) -> Iterator[Record]:
    if name == _CHOICE:
        inner = _parse(fields.get("message"))
        fields, role = (inner if isinstance(inner, Mapping) else fields), "assistant"
    elif name in _EVENT_ROLES:
        role = _EVENT_ROLES[name]
    else:
        return
    content = fields.get("content")
    message: dict[str, object] = {"role": role, "content": as_text(plain_content(content or ""))}
    if calls := list(map(_call, records_in(_parse(fields.get("tool_calls"))))):
        message["tool_calls"] = calls
    if role == "tool":
        message["tool_call_id"] = fields.get("id")
    yield message


def _call(call: Record) -> Record:
    function = call.get("function")
    inner = function if isinstance(function, Mapping) else call
    return {**call, **tool_call(call.get("id"), inner.get("name"), inner.get("arguments"))}


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
