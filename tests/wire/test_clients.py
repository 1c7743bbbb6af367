"""The official clients in long tool loops, through each door, streaming and not, against a strict provider."""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import pairwise
from typing import ClassVar

import pytest
from patience import PATIENCE
from wire_server import WireProvider, provider_at, proxy_at

from ctxguard import Stabilizer
from ctxguard.wire import Guard, Transport, proxy_app

openai = pytest.importorskip("openai", reason="openai is not installed")
anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")
httpx = pytest.importorskip(openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0])

MAIL = "ann@example.com"
ROWS = "\n".join(f"row {number}: the order left the warehouse, mail bob{number}@example.com" for number in range(12))
PLANTED = "@example.com"
SCHEMA = {"type": "object", "properties": {"query": {"type": "string", "examples": [f"owner{PLANTED}"]}}}
STEPS = 16


def guarded(budget, **settings):
    return Guard(Stabilizer(budget, counter="o200k_base"), **settings)


@contextmanager
def through(door, address, guard):
    """Give the address to call and the transport to call it by."""
    if door == "transport":
        yield address, Transport(guard)
        return
    with proxy_at(proxy_app(guard, address)) as proxy:
        yield proxy, httpx.HTTPTransport()


class Chat:
    tools: ClassVar = [
        {"type": "function", "function": {"name": "look_up", "description": f"Ask help{PLANTED}", "parameters": SCHEMA}}
    ]

    def __init__(self, address, transport, *, stream):
        http = httpx.Client(transport=transport, timeout=PATIENCE)
        self.client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, http_client=http)
        self.stream = stream
        self.history = [{"role": "system", "content": f"You are the clerk of boss{PLANTED}."}]

    def ask(self, question):
        self.history.append({"role": "user", "content": question})
        while calls := self.step():
            assert all(call.startswith(f'{{"query": "{MAIL}"') for _, call in calls), calls
            assert all(json.loads(call)["note"] == 'quote " and back\\slash' for _, call in calls)
            self.answer(calls)
        return self.said

    def answer(self, calls):
        self.history += [{"role": "tool", "tool_call_id": name, "content": ROWS} for name, _ in calls]

    def step(self):
        create = self.client.chat.completions.create
        settings = {"model": "m", "messages": self.history, "tools": self.tools}
        if self.stream:
            with self.client.chat.completions.stream(**settings) as stream:
                for _ in stream:
                    pass
            message = stream.get_final_completion().choices[0].message
        else:
            message = create(**settings).choices[0].message
        self.history.append(message.to_dict())
        self.said = message.content
        return [(call.id, call.function.arguments) for call in message.tool_calls or ()]


class Responses(Chat):
    tools: ClassVar = [
        {
            "type": "function",
            "name": "look_up",
            "description": f"Ask help{PLANTED}",
            "parameters": SCHEMA,
            "strict": False,
        }
    ]

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.history = []

    def answer(self, calls):
        self.history += [{"type": "function_call_output", "call_id": name, "output": ROWS} for name, _ in calls]

    def step(self):
        settings = {"model": "m", "input": self.history, "tools": self.tools, "instructions": f"Serve boss{PLANTED}."}
        if self.stream:
            with self.client.responses.stream(**settings) as stream:
                numbers = [event.sequence_number for event in stream]
                assert numbers == sorted(numbers)
                response = stream.get_final_response()
        else:
            response = self.client.responses.create(**settings)
        self.history += [item.to_dict() for item in response.output]
        self.said = response.output_text
        return [(item.call_id, item.arguments) for item in response.output if item.type == "function_call"]


class Messages(Chat):
    tools: ClassVar = [{"name": "look_up", "description": f"Ask help{PLANTED}", "input_schema": SCHEMA}]

    def __init__(self, address, transport, *, stream):
        http = httpx.Client(transport=transport, timeout=PATIENCE)
        self.client = anthropic.Anthropic(base_url=address, api_key="none", max_retries=0, http_client=http)
        self.stream, self.history = stream, []

    def answer(self, calls):
        results = [{"type": "tool_result", "tool_use_id": name, "content": ROWS} for name, _ in calls]
        self.history.append({"role": "user", "content": results})

    def step(self):
        settings = {"model": "m", "max_tokens": 9, "system": f"Serve boss{PLANTED}.", "messages": self.history}
        if self.stream:
            with self.client.messages.stream(**settings, tools=self.tools) as stream:
                message = stream.get_final_message()
        else:
            message = self.client.messages.create(**settings, tools=self.tools)
        self.history.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
        self.said = "".join(block.text for block in message.content if block.type == "text")
        return [(block.id, json.dumps(block.input)) for block in message.content if block.type == "tool_use"]


CLIENTS = [Chat, Responses, Messages]


def history_of(body):
    return body["messages"] if "messages" in body else body["input"]


def extending(bodies):
    """Return the share of bodies whose history begins with the one before."""
    pairs = [(history_of(one), history_of(other)) for one, other in pairwise(bodies)]
    return sum(other[: len(one)] == one for one, other in pairs) / len(pairs)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize(
    ("door", "stream", "parallel"),
    [
        ("transport", False, 1),
        pytest.param("transport", True, 3, marks=SLOW),
        pytest.param("proxy", False, 1, marks=SLOW),
        ("proxy", True, 3),
    ],
    ids=["transport-whole", "transport-streamed", "proxy-whole", "proxy-streamed"],
)
def test_long_tool_loops_stay_within_the_budget_and_get_their_values_back(door, kind, stream, parallel):
    budget = 2_500
    steps = STEPS if parallel == 1 else STEPS // 2  # the work of the clients grows with its square
    provider = WireProvider(steps=steps, parallel=parallel)
    with provider_at(provider) as upstream, through(door, upstream, guarded(budget)) as (address, transport):
        client = kind(address, transport, stream=stream)
        said = client.ask(f"Find {MAIL}.")
        client.client.close()
    assert provider.refusals == []
    assert said == f"All done, {MAIL}."
    assert len(provider.bodies) == steps + 1
    assert PLANTED not in json.dumps(provider.bodies)
    assert max(map(provider.tokens, provider.bodies)) <= budget


@pytest.mark.parametrize("kind", CLIENTS)
def test_prompts_extend_the_one_before(kind):
    provider = WireProvider(steps=STEPS)
    with provider_at(provider) as upstream, through("transport", upstream, guarded(32_000)) as (address, transport):
        client = kind(address, transport, stream=False)
        client.ask(f"Find {MAIL}.")
        client.client.close()
    assert provider.refusals == []
    assert extending(provider.bodies) >= 0.9
