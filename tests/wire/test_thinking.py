"""Signed thinking on the wire: kept or left out by what a request asks for, and once more where the provider differs."""

from __future__ import annotations

import json

import pytest

from ctxguard import Stabilizer
from ctxguard.wire import Guard, Transport

httpx = pytest.importorskip("httpx")

MISSING = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
STALE = "messages.1.content.0: Invalid `signature` in `thinking` block"


def loop(steps):
    """Return the messages of one long tool loop, each step with its thinking."""
    messages = [{"role": "user", "content": "Read all files."}]
    for step in range(steps):
        thinking = {"type": "thinking", "thinking": f"Now file {step}.", "signature": f"c2lnbmVk{step:04}"}
        call = {"type": "tool_use", "id": f"toolu_{step}", "name": "read", "input": {"path": f"f{step}.py"}}
        text = " ".join(f"word{step}x{n}" for n in range(150))
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": text}
        messages += [{"role": "assistant", "content": [thinking, call]}, {"role": "user", "content": [result]}]
    return messages


def body(thinking, steps=24):
    settings = {"thinking": thinking} if thinking else {}
    return {"model": "claude-sonnet-4-5", "max_tokens": 2_000, "messages": loop(steps), **settings}


def refusing(*refusals):
    """Return a client whose provider answers with these refusals first, and the bodies that it gets."""
    bodies, left = [], list(refusals)

    def answer(request):
        bodies.append(json.loads(request.content))
        if left:
            error = {"type": "invalid_request_error", "message": left.pop(0)}
            return httpx.Response(400, json={"type": "error", "error": error})
        return httpx.Response(200, json={"type": "message", "content": []})

    guard = Guard(Stabilizer(8_000))
    return httpx.Client(transport=Transport(guard, transport=httpx.MockTransport(answer))), bodies


def oldest(sent):
    """Return what the oldest assistant message that is sent begins with; the thinking from after a cut stays anyway."""
    return next(message["content"][0]["type"] for message in sent["messages"] if message["role"] == "assistant")


ENABLED, ADAPTIVE = {"type": "enabled", "budget_tokens": 1_024}, {"type": "adaptive"}


@pytest.mark.parametrize(("thinking", "first"), [(ENABLED, "thinking"), (ADAPTIVE, "tool_use"), (None, "tool_use")])
def test_thinking_from_before_a_cut_is_kept_where_a_request_enables_it(thinking, first):
    client, bodies = refusing()
    answer = client.post("http://p/v1/messages", json=body(thinking))
    assert answer.headers["x-ctxguard-dropped"] != "0"
    assert oldest(bodies[0]) == first


@pytest.mark.parametrize(
    ("thinking", "refusal", "first", "second"),
    [(ADAPTIVE, MISSING, "tool_use", "thinking"), (ENABLED, STALE, "thinking", "tool_use")],
)
def test_a_refusal_of_either_kind_is_tried_once_more_the_other_way(thinking, refusal, first, second):
    client, bodies = refusing(refusal)
    assert client.post("http://p/v1/messages", json=body(thinking)).status_code == 200
    assert [oldest(sent) for sent in bodies] == [first, second]


def test_each_kind_of_refusal_is_tried_again_once():
    client, bodies = refusing(MISSING, STALE, MISSING)
    answer = client.post("http://p/v1/messages", json=body(ADAPTIVE))
    assert (answer.status_code, len(bodies)) == (400, 3)
    assert "Expected `thinking`" in answer.json()["error"]["message"]
