"""Tools are fixed parts wherever a request defines them: counted as tools, warned of, refused with a code of their own.

The same holds for a program that calls `stabilize_request` and for a request on the wire.
"""

from __future__ import annotations

import json
import logging

import httpx
import pytest
from tiers import crossed

from ctxguard import Stabilizer
from ctxguard.errors import BudgetExceededError
from ctxguard.tokens import count_request
from ctxguard.wire import Guard, Transport
from ctxguard.wire.guard import WireRequest
from ctxguard_openai import stabilize_input, stabilize_request

ABOUT = {"type": "string", "description": "What it is about. " * 9}
TOOLS = [
    {
        "type": "function",
        "name": f"tool_{n}",
        "description": "Do it well. " * 30,
        "parameters": {"type": "object", "properties": {"about": ABOUT}},
    }
    for n in range(30)
]
SAID = [
    {"role": "user", "content": "Begin. " * 9},
    {"role": "assistant", "content": "The mill of the heron. " * 90},
    {"role": "user", "content": "What of ann@example.com?"},
    {"role": "assistant", "content": "The mill of the heron. " * 90},
    {"role": "user", "content": "Go on."},
]


def item(tools):
    return {"type": "additional_tools", "role": "developer", "tools": tools}


PLACES = {
    "tools": {"tools": TOOLS, "input": SAID},
    "the first item": {"input": [item(TOOLS), *SAID]},
    "an item in between": {"input": [*SAID[:2], item(TOOLS), *SAID[2:]]},
    "two items": {"input": [item(TOOLS[:9]), *SAID[:2], item(TOOLS[9:]), *SAID[2:]]},
    "both": {"tools": TOOLS[:9], "input": [item(TOOLS[9:]), *SAID]},
}


def asked(place):
    return WireRequest("POST", "/v1/responses", {}, json.dumps({"model": "gpt-5", **PLACES[place]}).encode())


def counted(raw):
    return count_request(json.loads(raw), api="responses").tokens


def on_the_wire(place, stabilizer):
    prepared = Guard(stabilizer).prepare(asked(place))
    return counted(prepared.body), prepared.report


def in_a_program(place, stabilizer):
    body, report = stabilize_request(json.loads(asked(place).body), stabilizer)
    return counted(json.dumps(body)), report


def as_input(place, stabilizer):
    body = json.loads(asked(place).body)
    items, report = stabilize_input(body["input"], stabilizer, tools=body.get("tools"))
    return counted(json.dumps({**body, "input": items})), report


@pytest.mark.parametrize(("place", "sent_by"), crossed(2, PLACES, [on_the_wire, in_a_program, as_input]))
def test_no_budget_is_exceeded_and_the_report_counts_the_body(place, sent_by):
    whole, sent, refused = counted(asked(place).body), 0, 0
    for percent in range(50, 130, 4):
        budget = whole * percent // 100
        try:
            tokens, report = sent_by(place, Stabilizer(budget, model="gpt-5", headroom=0, shorten_tools=False))
        except BudgetExceededError as error:
            refused += 1
            assert error.needed > budget
            continue
        sent += 1
        assert tokens <= budget
        assert abs(report.tokens_after - tokens) <= 8
        assert abs(report.tokens_before - whole) <= 8
    assert sent > 10
    assert refused > 3


@pytest.mark.parametrize("place", PLACES)
def test_a_budget_that_cannot_hold_them_has_a_code_of_its_own(place):
    guard = Guard(Stabilizer(counted(asked(place).body) // 3, shorten_tools=False))
    with httpx.Client(transport=Transport(guard)) as http:
        answer = http.post("http://provider/v1/responses", content=asked(place).body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "ctxguard_budget_too_small")
    assert "tool schemas" in error["message"]
    fixed = int(error["message"].partition("every request has, take")[2].split(";")[0])
    assert abs(fixed - count_request({"model": "gpt-5", "input": [], "tools": TOOLS}, api="responses").tokens) < 200


@pytest.mark.parametrize("place", PLACES)
def test_they_are_warned_of_once(place, caplog):
    guard = Guard(Stabilizer(2 * counted(asked(place).body), shorten_tools=False))
    with caplog.at_level(logging.WARNING, logger="ctxguard.wire"):
        for _ in range(2):
            guard.prepare(asked(place))
    (told,) = [r.getMessage() for r in caplog.records if "the smallest sensible budget" in r.getMessage()]
    assert "the system prompt and the tools take" in told
