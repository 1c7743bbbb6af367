"""Findings say in words which message, tool, parameter, or field they are about, and never repeat a value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard import Artifact, Stabilizer
from ctxguard.artifacts import ToolCall
from ctxguard.checks import CallsArePaired
from ctxguard.errors import CheckFailedError
from ctxguard.harness.checking import judge_session
from ctxguard.harness.recordings import read_rows
from ctxguard.pii import STANDARD
from ctxguard.pii.mask.json_text import json_paths
from ctxguard.pii.scanning import scan_file_text
from ctxguard.report.places import keys_of, place_in
from ctxguard.wire.guard import Guard, WireRequest

MAIL = "ada@example.com"
SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string", "default": MAIL, "enum": [MAIL]}, "of": {"properties": {"deep": MAIL}}},
}
TOOL = {"name": "send", "description": f"Ask {MAIL}.", "parameters": SCHEMA}
CALL = {"id": "c1", "type": "function", "function": {"name": "send", "arguments": json.dumps({"to": MAIL})}}
REQUEST = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": f"I am {MAIL}."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": f"sent to {MAIL}"},
    ],
    "tools": [{"type": "function", "function": TOOL}],
    "user": MAIL,
    "metadata": {"mail": MAIL},
}
WORDS = [
    "the text of message 1 (user)",
    "the arguments of tool `send` in message 2 (assistant)",
    "the output of tool `send` in message 3 (tool result)",
    "the description of tool `send`",
    "the default of parameter `to` of tool `send`",
    "the allowed values of parameter `to` of tool `send`",
    "parameter `of.deep` of tool `send`",
    "the field `user` of the record",
    "the field `metadata.mail` of the record",
]


def test_check_names_the_message_the_tool_and_the_field(tmp_path):
    file = tmp_path / "request.json"
    file.write_text(json.dumps(REQUEST))
    (session,) = read_rows(str(file))
    findings = [finding for result in judge_session(session, pii=True) for finding in result.findings]
    assert [finding.place for finding in findings] == WORDS
    assert not any(MAIL in str(finding) for finding in findings)


@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda tool: tool, "tools[0]"),
        (lambda tool: {"type": "function", "function": tool}, "tools[0].function"),
        (lambda tool: {"toolSpec": {**tool, "inputSchema": {"json": tool["parameters"]}}}, "tools[0].toolSpec"),
        (lambda tool: {"functionDeclarations": [tool]}, "tools[0].functionDeclarations[0]"),
    ],
)
def test_a_tool_of_any_api_is_named(wrap, path):
    root = {"tools": [wrap(TOOL)]}
    assert place_in(root, keys_of(f"{path}.description[4:9]")) == "the description of tool `send`"
    inside = "parameters" if "toolSpec" not in path else "inputSchema.json"
    told = "the default of parameter `to` of tool `send`"
    assert place_in(root, keys_of(f"{path}.{inside}.properties.to.default")) == told


def test_what_a_hook_cannot_change_is_named():
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
    from ctxguard_pydantic_ai import ContextGuard

    agent = pydantic_ai.Agent("test", capabilities=[ContextGuard(Stabilizer(8_000))])

    @agent.tool_plain
    def send(to: str = MAIL) -> str:
        return to

    with pytest.raises(CheckFailedError, match="the default of parameter `to` of tool `send` @ "):
        agent.run_sync("hello")


def test_the_guard_of_requests_names_the_field():
    body = {**REQUEST, "tools": [], "messages": REQUEST["messages"][:2], "own": {MAIL: 1}, "service_tier": MAIL}
    sent = WireRequest("POST", "/v1/chat/completions", {}, json.dumps(body).encode())
    with pytest.raises(CheckFailedError) as caught:
        Guard(Stabilizer(8_000)).prepare(sent)
    assert MAIL not in str(caught.value.findings)
    assert any(": " in finding for finding in caught.value.findings)


def test_every_check_names_the_message():
    history = [Artifact("user", "Hello."), Artifact("assistant", "", calls=(ToolCall("find", "{}", "c1"),))]
    history += [Artifact("user", "And?")]
    report = Stabilizer(500, stages=[lambda draft: draft], checks=[CallsArePaired()]).stabilize(history).report
    (finding,) = report.checks[0].findings
    told = "a tool call has no result: the call of tool `find` in message 1 (assistant) @ artifacts[1].calls[0]"
    assert str(finding) == told


def test_scan_names_the_places_of_json_alone():
    places = scan_file_text(json.dumps(REQUEST), STANDARD)
    assert [place.place for place in places] == [
        WORDS[0],
        "the call of tool `send` in message 2 (assistant)",
        "the text of message 3 (tool result)",
        *WORDS[3:],
    ]
    (plain,) = scan_file_text(f"I am {MAIL}.", STANDARD)
    assert (plain.place, str(plain)) == ("", "1:6: EMAIL")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just(MAIL),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just(MAIL), inner),
)


@given(VALUES)
def test_a_path_leads_to_its_value_and_words_never_repeat_a_finding(value):
    text = json.dumps(value, ensure_ascii=False)
    for start, end, path in json_paths(text):
        at, outer = value, value
        for key in path:
            at, outer = at[key], at
        if text[start] not in "[{" and not text[end:].startswith(":"):
            assert json.loads(text[start:end]) == at
        elif text[end:].startswith(":"):
            assert json.loads(text[start:end]) in outer
    assert not any(MAIL in place.place for place in scan_file_text(text, STANDARD))
