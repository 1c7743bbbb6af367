"""The frameworks' own loops of 40 model calls through the wire, by transport and by proxy, against a strict provider."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from importlib import import_module
from itertools import pairwise

import pytest
from patience import PATIENCE
from wire_server import WireProvider, provider_at, proxy_at

from ctxguard import Stabilizer
from ctxguard.wire import AsyncTransport, Guard, proxy_app

openai = pytest.importorskip("openai", reason="openai is not installed")
anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")
httpx = pytest.importorskip(openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0])


@pytest.fixture(scope="module", autouse=True)
def known_items():
    """Let the clients remember what they make of an item of the history, which they send again with each call.

    OpenAI's client tries some thirty types for every item, LangChain reads the hints of five types for every block, both
    anew in each of the calls: together they take half of the time of a loop. What comes of it depends on the item alone.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module, name, remembering in (
            ("openai._utils._transform", "_async_transform_recursive", remembering_items),
            ("langchain_core.messages.content", "_get_data_content_block_types", cache),
        ):
            with suppress(ImportError, AttributeError):  # another version is as slow as it is
                home = import_module(module)
                patch.setattr(home, name, remembering(getattr(home, name)))
        yield


def remembering_items(transform):
    known = {}

    async def remembered(data, *, annotation, inner_type=None):
        if type(data) is not dict or inner_type is None:
            return await transform(data, annotation=annotation, inner_type=inner_type)
        try:
            item = (json.dumps(data), annotation, inner_type)
        except (TypeError, ValueError):
            return await transform(data, annotation=annotation, inner_type=inner_type)
        if item not in known:
            known[item] = json.dumps(await transform(data, annotation=annotation, inner_type=inner_type))
        return json.loads(known[item])

    return remembered


MAIL = "ann@example.com"
PLANTED = "@example.com"
ROWS = "\n".join(f"row {number}: the order left the warehouse, mail bob{number}@example.com" for number in range(12))
QUESTION = f"Find {MAIL}."
RULES = f"You are the clerk of boss{PLANTED}."
STEPS = 16
DESCRIPTION = f"Look an order up; ask help{PLANTED} where it fails."
APIS = ("chat", "responses", "messages")


class Loop:
    """One framework's agent: `await run(client)` gives its answer, `looked_up` what its tool was given.

    What is `inside` goes to the agent as further settings, such as the framework's own guard.
    """

    def __init__(self, api, *, stream, **inside):
        self.api, self.stream, self.inside, self.looked_up = api, stream, inside, []

    def look_up(self, query, note):
        self.looked_up.append((query, note))
        return ROWS


class LangChain(Loop):
    """`create_agent`, and with it the loop of LangGraph that it is made of."""

    framework = ("langchain", "langchain_openai", "langchain_anthropic")

    def model(self, client):
        from langchain_anthropic import ChatAnthropic
        from langchain_openai import ChatOpenAI

        if self.api == "messages":
            model = ChatAnthropic(model="claude-m", api_key="none", max_tokens=9, streaming=self.stream)
            vars(model)["_async_client"] = client
            return model
        settings = {"model": "m", "api_key": "none", "streaming": self.stream, "base_url": str(client.base_url)}
        http = {"http_async_client": client._client, "http_client": httpx.Client(timeout=PATIENCE)}
        return ChatOpenAI(**settings, **http, max_retries=0, use_responses_api=self.api == "responses")

    def tools(self):
        from langchain_core.tools import StructuredTool

        async def look_up(query: str, note: str) -> str:
            return self.look_up(query, note)

        return [StructuredTool.from_function(coroutine=look_up, name="look_up", description=DESCRIPTION)]

    async def run(self, client):
        from langchain.agents import create_agent

        return await self.answer(create_agent(self.model(client), self.tools(), system_prompt=RULES, **self.inside))

    async def answer(self, graph):
        given = {"messages": [("user", QUESTION)]}
        state = await graph.ainvoke(given, {"recursion_limit": 500})
        return state["messages"][-1].text


class LangGraph(LangChain):
    """A graph of one's own."""

    framework = ("langgraph", "langchain_openai", "langchain_anthropic")

    async def run(self, client):
        from langchain_core.messages import SystemMessage
        from langgraph.graph import START, MessagesState, StateGraph
        from langgraph.prebuilt import ToolNode, tools_condition

        model = self.model(client).bind_tools(self.tools())

        async def call(state):
            return {"messages": [await model.ainvoke([SystemMessage(RULES), *state["messages"]])]}

        graph = StateGraph(MessagesState).add_node("model", call).add_node("tools", ToolNode(self.tools()))
        graph.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
        return await self.answer(graph.compile())


class PydanticAI(Loop):
    framework = ("pydantic_ai",)

    def model(self, client):
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.providers.anthropic import AnthropicProvider
        from pydantic_ai.providers.openai import OpenAIProvider

        if self.api == "messages":
            return AnthropicModel("m", provider=AnthropicProvider(anthropic_client=client))
        kind = OpenAIResponsesModel if self.api == "responses" else OpenAIChatModel
        return kind("m", provider=OpenAIProvider(openai_client=client))

    async def run(self, client):
        from pydantic_ai import Agent, Tool, UsageLimits

        def look_up(query: str, note: str) -> str:
            return self.look_up(query, note)

        async def handler(ctx, events):
            async for _ in events:
                pass

        tools = [Tool(look_up, description=DESCRIPTION)]
        agent = Agent(self.model(client), instructions=RULES, tools=tools, **self.inside)
        streams = {"event_stream_handler": handler} if self.stream else {}
        return (await agent.run(QUESTION, usage_limits=UsageLimits(request_limit=None), **streams)).output


class AgentsSdk(Loop):
    framework = ("agents",)
    description = DESCRIPTION

    def wrapped(self, model):
        return model

    async def run(self, client):
        import agents

        agents.set_tracing_disabled(True)
        kind = agents.OpenAIResponsesModel if self.api == "responses" else agents.OpenAIChatCompletionsModel

        @agents.function_tool(description_override=self.description)
        def look_up(query: str, note: str) -> str:
            return self.look_up(query, note)

        model = self.wrapped(kind("m", openai_client=client))
        agent = agents.Agent("clerk", instructions=RULES, model=model, tools=[look_up])
        if not self.stream:
            return (await agents.Runner.run(agent, QUESTION, max_turns=100, **self.inside)).final_output
        result = agents.Runner.run_streamed(agent, QUESTION, max_turns=100, **self.inside)
        async for _ in result.stream_events():
            pass
        return result.final_output


LOOPS = [(kind, api) for kind in (LangChain, LangGraph, PydanticAI, AgentsSdk) for api in APIS]
LOOPS.remove((AgentsSdk, "messages"))
LIKE_OTHERS = [(LangGraph, "chat"), (LangGraph, "responses")]
"""What `create_agent` sends, too, of which LangChain's loop is made; one graph of one's own is tried in `make test`."""


@contextmanager
def served(door, upstream, guard):
    """Give the address to call, and the transport to call it by."""
    if door == "transport":
        yield upstream, AsyncTransport(guard)
        return
    with proxy_at(proxy_app(guard, upstream)) as proxy:
        yield proxy, httpx.AsyncHTTPTransport()


@asynccontextmanager
async def client_of(api, address, transport):
    http = httpx.AsyncClient(transport=transport, timeout=PATIENCE)
    if api == "messages":
        client = anthropic.AsyncAnthropic(base_url=address, api_key="none", max_retries=0, http_client=http)
    else:
        client = openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, http_client=http)
    async with client:
        yield client


async def looped(loop, provider, guard, door):
    with provider_at(provider) as upstream, served(door, upstream, guard) as (address, transport):
        async with client_of(loop.api, address, transport) as client:
            return await loop.run(client)


def guarded(budget):
    return Guard(Stabilizer(budget, counter="o200k_base"))


def steps_of(parallel):
    """Return how many steps a loop has: 16 calls of tools at least; the work of the clients grows with its square."""
    return STEPS if parallel == 1 else STEPS // 2


def history_of(body):
    return body["messages"] if "messages" in body else body["input"]


def before_newest_outputs(history):
    """Return a history up to the outputs at its end: sent whole once, they may be shortened with the next call."""
    end = len(history)
    while end and is_output(history[end - 1]):
        end -= 1
    return history[:end]


def is_output(message):
    blocks = message.get("content")
    is_answer = isinstance(blocks, list) and any(block.get("type") == "tool_result" for block in blocks)
    return message.get("role") == "tool" or message.get("type") == "function_call_output" or is_answer


ALL = [(door, *way) for door in ("transport", "proxy") for way in ((False, 1), (True, 3), (True, 1), (False, 3))]
WAYS = (
    ALL
    if os.environ.get("CTXGUARD_REPLAY_ALL")
    else [("transport", False, 1), pytest.param("proxy", True, 3, marks=pytest.mark.slow)]
)
"""Doors, streamed or not, with one call or several in a step: two of the eight stand for the rest in `make test`."""


@pytest.mark.parametrize(("door", "stream", "parallel"), WAYS)
@pytest.mark.parametrize(
    ("kind", "api"),
    [
        pytest.param(
            kind, api, id=f"{kind.__name__}-{api}", marks=pytest.mark.slow if (kind, api) in LIKE_OTHERS else ()
        )
        for kind, api in LOOPS
    ],
)
async def test_a_loop_stays_within_the_budget_extends_its_prompt_and_gets_its_values_back(
    kind, api, door, stream, parallel
):
    for module in kind.framework:
        pytest.importorskip(module, reason=f"{module} is not installed")
    budget, steps = 2_500, steps_of(parallel)
    provider, loop = WireProvider(steps=steps, parallel=parallel), kind(api, stream=stream)
    guard = guarded(budget)
    said = await looped(loop, provider, guard, door)
    assert provider.refusals == []
    assert said == f"All done, {MAIL}."
    assert len(provider.bodies) == steps + 1
    assert all(bool(body.get("stream")) is stream for body in provider.bodies)
    assert loop.looked_up == steps * parallel * [(MAIL, 'quote " and back\\slash')]
    assert PLANTED not in json.dumps(provider.bodies)
    assert max(map(provider.tokens, provider.bodies)) <= budget
    pairs = [(history_of(one), history_of(other)) for one, other in pairwise(provider.bodies)]
    rewritten = sum(other[: len(kept)] != kept for one, other in pairs for kept in [before_newest_outputs(one)])
    assert rewritten <= guard.metrics.get("cuts"), "where nothing is cut, a prompt extends the one before"
    # three outputs at once fill this budget, so that each step cuts
    assert parallel > 1 or guard.metrics.get("cuts") <= len(pairs) / 3
