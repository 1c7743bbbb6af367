"""Breakpoints of prompt caches: those of clients stay where they are and cost nothing; ours stand where prefixes last."""

from __future__ import annotations

import copy
import json

import pytest

from ctxguard import Stabilizer, session
from ctxguard.adapting.registry import find_adapter
from ctxguard.wire.guard import Guard, WireRequest

MARK = {"type": "ephemeral"}
MAIL = "ann@example.com"


def loop(steps):
    messages = [{"role": "user", "content": [{"type": "text", "text": f"Read all files for {MAIL}."}]}]
    for step in range(steps):
        call = {"type": "tool_use", "id": f"toolu_{step}", "name": "read", "input": {"path": f"f{step}.py"}}
        text = " ".join(f"word{step}x{n}" for n in range(60))
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": text}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return messages


def sent(guard, messages, **body):
    content = json.dumps({"model": "claude-opus-4-6", "max_tokens": 9, "messages": messages, **body}).encode()
    return json.loads(guard.prepare(WireRequest("POST", "/v1/messages", {}, content)).body)


def marked(body):
    """Return where the breakpoints of a request are."""
    places = [("tools", at) for at, tool in enumerate(body.get("tools") or ()) if "cache_control" in tool]
    if isinstance(body.get("system"), list):
        places += [("system", at) for at, block in enumerate(body["system"]) if "cache_control" in block]
    for at, message in enumerate(body["messages"]):
        if isinstance(message["content"], list):
            places += [(at, number) for number, block in enumerate(message["content"]) if "cache_control" in block]
    return places


def test_a_moving_breakpoint_does_not_make_the_guard_start_over(monkeypatch):
    begun, init = [], session.Run.__init__
    monkeypatch.setattr(
        session.Run, "__init__", lambda self, *given, **named: begun.append(1) or init(self, *given, **named)
    )
    guard = Guard(Stabilizer(100_000))
    for steps in range(1, 9):
        messages = loop(steps)
        messages[-1]["content"][-1]["cache_control"] = {**MARK, "ttl": "1h"}
        body = sent(guard, messages, system=[{"type": "text", "text": "Help.", "cache_control": MARK}])
        assert marked(body) == [("system", 0), (2 * steps, 0)]
    assert len(begun) == 1


def test_a_breakpoint_is_no_part_of_a_message_and_anything_else_is():
    adapter = find_adapter("anthropic")
    plain, with_mark, with_more = loop(2), loop(2), loop(2)
    with_mark[-1]["content"][-1]["cache_control"] = MARK
    with_more[-1]["content"][-1]["cache_control"] = {"type": "ephemeral", "note": MAIL}
    read = [adapter.read({"messages": messages}) for messages in (plain, with_mark, with_more)]
    assert read[0] == read[1] != read[2]


def test_a_breakpoint_in_a_message_that_is_changed_stays():
    messages = loop(1)
    messages[0]["content"][0]["cache_control"] = MARK
    body = sent(Guard(Stabilizer(100_000)), messages)
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "Read all files for <EMAIL_1>.", "cache_control": MARK}
    ]


@pytest.mark.parametrize("system", ["Help.", [{"type": "text", "text": "Help."}], None])
def test_prefixes_that_last_are_marked_where_the_client_marks_none(system):
    guard, tools = Guard(Stabilizer(100_000), cache_control=True), [{"name": "read", "input_schema": {}}]
    beside = {"tools": tools} if system is None else {"tools": tools, "system": system}
    messages = loop(5)
    given = copy.deepcopy(messages)
    body = sent(guard, messages, **beside)
    assert marked(body) == [("tools", 0) if system is None else ("system", 0), (0, 0), (8, 0), (10, 0)]
    assert messages == given
    assert marked(sent(guard, [{"role": "user", "content": "Hello."}], **beside))[1:] == [(0, 0)]
    assert marked(sent(Guard(Stabilizer(100_000)), loop(5), **beside)) == []


def test_what_the_client_marked_is_all_that_is_marked():
    messages = loop(3)
    messages[2]["content"][0]["cache_control"] = MARK
    assert marked(sent(Guard(Stabilizer(100_000), cache_control=True), messages, system="Help.")) == [(2, 0)]
