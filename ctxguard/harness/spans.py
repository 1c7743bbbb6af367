"""Read sessions from OpenTelemetry GenAI spans: OTLP JSON (one export request per line) or the output of SDK exporters.

The span of a model call contains the whole history that was sent, so a session consists of its longest call and the
response. Calls with the same `gen_ai.conversation.id` belong to one session; without an id, calls of the same trace do.
Supported are the attributes of the conventions (`gen_ai.input.messages` and related ones, as JSON strings or as values)
and the older events (`gen_ai.user.message` and related ones), on spans or as log records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ctxguard.harness.dumps import Record, as_text, plain_content, records_in, tool_call

_GROUPS: Final = (("resourceSpans", "scopeSpans", "spans"), ("resourceLogs", "scopeLogs", "logRecords"))
_INPUT: Final = ("gen_ai.input.messages", "gen_ai.prompt", "pydantic_ai.all_messages")
_OUTPUT: Final = ("gen_ai.output.messages", "gen_ai.completion")
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
        """Yield each session with the line number of its first span."""
        for name, found in self._conversations.items():
            messages = found.messages or found.events
            if messages:
                tools = {"tools": found.tools} if isinstance(found.tools, list) else {}
                yield found.line, {"id": name, "messages": messages, **tools}

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
        return
    system = _parse(attributes.get("gen_ai.system_instructions"))
    if isinstance(system, list) and not any(isinstance(m, Mapping) and m.get("role") == "system" for m in sent):
        yield {"role": "system", "parts": system}
    yield from sent
    came = next((found for key in _OUTPUT if isinstance(found := _parse(attributes.get(key)), list)), [])
    yield from came[:1]  # further choices are alternatives, not part of the history


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
