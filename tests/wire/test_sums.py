"""The sums count what clients ask, once: not what the guard asks by itself, to read back or to try again."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx
import pytest
from scripted_model import PATHS, Client, Model, question, request
from test_budget_sweep import APIS as SESSIONS
from test_budget_sweep import asked, made_up
from test_readback import AGAIN, LOOK, at, filled, read_log, tool
from tiers import crossed

from ctxguard import Stabilizer
from ctxguard.report.telemetry import Metrics
from ctxguard.tokens import count_request
from ctxguard.wire import Guard, Transport
from ctxguard.wire.run import summary

APIS = ("chat", "responses", "anthropic", "gemini")
ASKING = {
    "alone": [[read_log], ["Done."]],
    "twice in a row": [[read_log], [read_log], ["Done."]],
    "beside another call": [["One moment. ", AGAIN, read_log], ["Done."]],
    "then another call": [[read_log], [LOOK], ["Done."]],
}


class Wire(httpx.BaseTransport):
    """Note what a client sends, and the headers of what it gets."""

    def __init__(self, inner):
        self.inner, self.bodies, self.headers = inner, [], []

    def handle_request(self, request):
        self.bodies.append(json.loads(request.read()))
        answer = self.inner.handle_request(request)
        self.headers.append(dict(answer.headers))
        return answer


def talk(api, replies, guard, *, streams=False):
    model = Model(api, [*filled(), *map(at, replies)], streams=streams)
    wire = Wire(Transport(guard, transport=model.transport()))
    with httpx.Client(transport=wire) as http:
        Client(api, http, tool, streams=streams).ask("What does the log say?")
    return model, wire


def counted(api, body):
    model = None if "model" in body else PATHS[api].rpartition("/")[2].partition(":")[0]
    return count_request(body, api=api, model=model).tokens


@pytest.mark.parametrize(("api", "asking", "streams"), crossed(3, APIS, ASKING, [False, True]))
def test_what_the_guard_asks_by_itself_is_no_request_of_the_client(api, asking, streams):
    guard = Guard(Stabilizer(6_000), recall=True)
    model, wire = talk(api, ASKING[asking], guard, streams=streams)
    rounds = sum(reply == [read_log] for reply in ASKING[asking])
    sums = guard.metrics
    assert len(model.bodies) == len(wire.bodies) + rounds
    assert sums.get("requests") == len(wire.bodies)
    assert sums.get("billed.answers") == len(wire.bodies)
    came = [counted(api, body) for body in wire.bodies]
    assert abs(sums.get("input.tokens", side="received") - sum(came)) <= 2 * len(came)
    sent = sum(counted(api, body) for body in model.bodies)
    assert abs(sums.get("input.tokens", side="sent") - sent) <= 0.02 * sent
    assert f"{len(wire.bodies)} requests" in list(summary(sums))
    for tokens, headers in zip(came, wire.headers, strict=True):
        assert abs(int(headers["x-ctxguard-tokens-before"]) - tokens) <= 2
    masked = sum("@example.com" in json.dumps(body) for body in wire.bodies)
    assert sums.get("masked_requests") == sums.get("masked_kinds", kind="EMAIL") == masked


@pytest.mark.parametrize("api", APIS)
def test_a_request_that_is_sent_once_more_came_in_once(api):
    model, refusals = Model(api, [["Done."]]), [True]

    def answered(sent):
        if refusals and refusals.pop():
            return httpx.Response(400, json={"error": {"message": "prompt is too long: 1200 tokens > 900 maximum"}})
        return model.handle(sent)

    guard = Guard(Stabilizer(20_000))
    body = request(api, [question(api, "Write to ann@example.com. " + "the mill of the heron " * 9)] * 3)
    with httpx.Client(transport=Transport(guard, transport=httpx.MockTransport(answered))) as http:
        http.post(f"http://provider{PATHS[api]}", json=body)
    assert guard.metrics.get("retries") == 1
    assert guard.metrics.get("requests") == guard.metrics.get("masked_requests") == 1
    assert abs(guard.metrics.get("input.tokens", side="received") - counted(api, body)) <= 2


def test_a_loss_is_called_one():
    metrics = Metrics()
    metrics.add("requests", 2)
    metrics.add("input.tokens", 5_000, side="received")
    metrics.add("input.tokens", 4_000, side="sent")
    metrics.add("rebilled.tokens", 400)
    assert "saved: 600 input tokens, net of 400 billed again after changes" in list(summary(metrics))
    metrics.add("rebilled.tokens", 900)
    told = "sending the whole histories would have cost less: 300 input tokens, net of 1,300 billed again after changes"
    assert told in list(summary(metrics))


@pytest.mark.parametrize("api", SESSIONS)
def test_a_header_that_changes_with_each_request_makes_no_cuts(api):
    messages, tools = made_up(20, 30)
    ends = [n for n in range(1, len(messages) + 1) if messages[n - 1]["role"] != "assistant"]
    sums = []
    for header in (None, "x-our-attempt"):
        guard = Guard(Stabilizer(4_000))
        for end in ends:
            headers = {} if header is None else {header: str(end)}
            guard.prepare(replace(asked(api, messages[:end], tools), headers=headers))
        sums.append([guard.metrics.get(name) for name in ("cuts", "rebilled.tokens")])
    assert sums[0] == sums[1]
    assert 1 < sums[0][0] < len(ends) / 2


@pytest.mark.parametrize("budget", [4_000, 8_000])
@pytest.mark.parametrize("api", SESSIONS)
def test_the_first_request_of_a_long_conversation_is_cut_and_nothing_is_billed_again(api, budget):
    messages, tools = made_up(20, 30)
    guard = Guard(Stabilizer(budget))
    long = asked(api, messages[:-2], tools)
    prepared = guard.prepare(long)
    assert prepared.report.tokens_after < 0.8 * prepared.report.tokens_before
    assert guard.metrics.get("cuts") == 1
    assert guard.metrics.get("rebilled.tokens") == 0
    assert not any("billed again" in line for line in summary(guard.metrics))
    later = guard.prepare(asked(api, messages, tools))
    rebilled = later.report.cut.rebilled
    assert guard.metrics.get("rebilled.tokens") == rebilled
    assert guard.metrics.get("cuts") == 1 + later.report.cut.fresh


def test_a_client_that_asked_nothing_here_is_told_so():
    told = list(summary(Guard(Stabilizer(4_000)).metrics))
    assert len(told) == 1
    assert told[0].startswith("0 requests: ")
    assert "not guarded" in told[0]
