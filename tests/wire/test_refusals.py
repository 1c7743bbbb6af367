"""What cannot be sent is refused in the form of the API that was called, and with a name that says what helps."""

from __future__ import annotations

import json
import logging

import pytest

from ctxguard import Stabilizer
from ctxguard.errors import BudgetExceededError, WireError
from ctxguard.wire import Guard, Transport
from ctxguard.wire.guard import WireRequest

httpx = pytest.importorskip("httpx")

LONG = "word " * 3_000
PARAMETERS = {"type": "object", "properties": {f"p{n}": {"type": "string", "description": "a b c"} for n in range(80)}}
TOOLS = {
    "/v1/chat/completions": [{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}],
    "/v1/responses": [{"type": "function", "name": "f", "parameters": PARAMETERS}],
    "/v1/messages": [{"name": "f", "input_schema": PARAMETERS}],
    "/v1beta/models/gemini-2.5-pro:generateContent": [
        {"functionDeclarations": [{"name": "f", "parametersJsonSchema": PARAMETERS}]}
    ],
}


def body(path, text, *, with_tools):
    tools = {"tools": TOOLS[path]} if with_tools else {}
    if "gemini" in path:
        return {"contents": [{"role": "user", "parts": [{"text": text}]}], **tools}
    return {"model": "m", "input" if "responses" in path else "messages": [{"role": "user", "content": text}], **tools}


def refused(path, text, *, with_tools):
    transport = Transport(Guard(Stabilizer(700)), transport=httpx.MockTransport(lambda _: httpx.Response(200)))
    with httpx.Client(transport=transport) as client:
        answer = client.post(f"http://p{path}", json=body(path, text, with_tools=with_tools))
    assert (answer.status_code, answer.headers["x-ctxguard-error"]) == (400, "BudgetExceededError")
    return answer.json()


@pytest.mark.parametrize("path", TOOLS)
@pytest.mark.parametrize(
    ("text", "with_tools", "code"),
    [("hello", True, "ctxguard_budget_too_small"), (LONG, False, "context_length_exceeded")],
)
def test_a_budget_that_cannot_hold_the_fixed_parts_has_a_name_of_its_own(path, text, with_tools, code):
    error = refused(path, text, with_tools=with_tools)["error"]
    if "gemini" in path:
        assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
        assert error["details"] == [{"reason": code, "domain": "ctxguard"}]
    else:
        assert error["code"] == code
    assert ("raise the budget to" in error["message"]) is with_tools
    assert ("context_length_exceeded" in json.dumps(error)) is not with_tools


@pytest.mark.parametrize("path", TOOLS)
def test_fixed_parts_above_a_share_of_the_budget_are_warned_of_once(path, caplog):
    guard = Guard(Stabilizer(2_500))
    for text in ("hello", "again"):
        with caplog.at_level(logging.WARNING):
            guard.prepare(WireRequest("POST", path, {}, json.dumps(body(path, text, with_tools=True)).encode()))
    (warned,) = [record.getMessage() for record in caplog.records if "smallest sensible budget" in record.getMessage()]
    sensible = int(warned.rpartition(" ")[2])
    caplog.clear()
    larger = Guard(Stabilizer(sensible))
    larger.prepare(WireRequest("POST", path, {}, json.dumps(body(path, "hello", with_tools=True)).encode()))
    assert "smallest sensible" not in caplog.text


def test_the_error_names_a_budget_that_is_enough():
    path = "/v1/chat/completions"
    with pytest.raises(BudgetExceededError) as caught:
        Guard(Stabilizer(700)).prepare(
            WireRequest("POST", path, {}, json.dumps(body(path, "hi", with_tools=True)).encode())
        )
    assert caught.value.is_too_small
    assert caught.value.fixed > 700


def test_the_path_of_a_request_is_not_quoted_where_a_rule_finds_something_in_it():
    with pytest.raises(WireError) as refused:
        Guard(Stabilizer(2_000)).prepare(WireRequest("POST", "/v1/other/zora.quill@mailhost.org", {}, b"{}"))
    assert "zora" not in str(refused.value)
