"""The official clients against a provider on loopback that refuses what the real ones refuse."""

from __future__ import annotations

import json

import pytest
from provider_server import ROWS, Provider, serving

from ctxguard import Stabilizer
from ctxguard_anthropic import stabilize_request
from ctxguard_openai import stabilize_input, stabilize_messages

openai = pytest.importorskip("openai", reason="openai is not installed")
anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")

WINDOW = 24_000  # characters; framing takes most of it where a cut leaves many short digests
TURNS = 14
SYSTEM = "You are a clerk."


@pytest.fixture
def provider():
    return Provider(WINDOW)


@pytest.fixture
def address(provider):
    with serving(provider) as address:
        yield address


class ChatSession:
    """Keep a history of Chat Completions as the client hands it out, and send what `fit` makes of it."""

    refusal = openai.BadRequestError

    def __init__(self, address):
        http = openai.DefaultHttpxClient(trust_env=False)
        self.client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, http_client=http)
        self.history = [{"role": "system", "content": SYSTEM}]

    def ask(self, question, fit):
        self.history.append({"role": "user", "content": question})
        while calls := self.step(fit):
            self.history += [{"role": "tool", "tool_call_id": call.id, "content": ROWS} for call in calls]

    def step(self, fit):
        reply = self.client.chat.completions.create(model="m", messages=fit(self.history)).choices[0].message
        self.history.append(reply)
        return reply.tool_calls

    @staticmethod
    def stabilized(stabilizer):
        return lambda history: stabilize_messages(history, stabilizer)[0]


class ResponsesSession(ChatSession):
    def step(self, fit):
        output = self.client.responses.create(model="m", input=fit(self.history)).output
        self.history += output
        return [item for item in output if item.type == "function_call"]

    def ask(self, question, fit):
        self.history.append({"role": "user", "content": question})
        while calls := self.step(fit):
            self.history += [{"type": "function_call_output", "call_id": c.call_id, "output": ROWS} for c in calls]

    @staticmethod
    def stabilized(stabilizer):
        return lambda history: stabilize_input(history, stabilizer)[0]


class MessagesSession:
    refusal = anthropic.BadRequestError

    def __init__(self, address):
        http = anthropic.DefaultHttpxClient(trust_env=False)
        self.client = anthropic.Anthropic(base_url=address, api_key="none", max_retries=0, http_client=http)
        self.history = []

    def ask(self, question, fit):
        self.history.append({"role": "user", "content": question})
        while calls := self.step(fit):
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": ROWS} for call in calls]
            self.history.append({"role": "user", "content": results})

    def step(self, fit):
        reply = self.client.messages.create(model="m", max_tokens=9, system=SYSTEM, messages=fit(self.history))
        self.history.append({"role": "assistant", "content": reply.content})
        return [block for block in reply.content if block.type == "tool_use"]

    @staticmethod
    def stabilized(stabilizer):
        return lambda history: stabilize_request({"system": SYSTEM, "messages": history}, stabilizer)[0]["messages"]


SESSIONS = [ChatSession, ResponsesSession, MessagesSession]


def converse(session, fit):
    for turn in range(TURNS):
        session.ask(f"Question {turn} of ann@example.com", fit)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SESSIONS)
def test_no_request_is_refused_and_no_personal_data_leaves(kind, provider, address):
    session = kind(address)
    converse(session, kind.stabilized(Stabilizer(3_000)))
    assert provider.refusals == []
    assert len(provider.bodies) == 3 * TURNS
    assert "@example.com" not in json.dumps(provider.bodies)
    assert max(len(json.dumps(body)) for body in provider.bodies) > WINDOW // 3, "the window is made use of"


@pytest.mark.parametrize("kind", SESSIONS)
def test_the_whole_history_is_refused(kind, provider, address):
    with pytest.raises(kind.refusal):
        converse(kind(address), list)
    assert "context_length_exceeded" in provider.refusals[0]


def latest_messages(history):
    """Keep the system prompt and the latest four messages, as is usually done."""
    head = [m for m in history[:1] if isinstance(m, dict) and m["role"] == "system"]
    return head + history[len(head) :][-4:]


@pytest.mark.parametrize("kind", SESSIONS)
def test_trimming_to_the_latest_messages_is_refused(kind, provider, address):
    with pytest.raises(kind.refusal):
        converse(kind(address), latest_messages)
    assert any(word in provider.refusals[0] for word in ("tool", "reasoning", "user", "thinking"))
