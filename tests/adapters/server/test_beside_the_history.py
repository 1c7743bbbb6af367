"""What frameworks send beside the history reaches the provider clean and within the budget, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from patience import PATIENCE
from provider_server import Provider, serving

from ctxguard import BudgetExceededError, Stabilizer
from ctxguard.errors import CheckFailedError
from ctxguard.tokens import find_counter

openai = pytest.importorskip("openai", reason="openai is not installed")

MAIL = "jane.roe@mailhost.org"
KEY = "AKIAIOSFODNN7EXAMPLQ"
BUDGET = 4_000
FILLER = "Answer briefly, and say which order you mean. " * 75
"""About an eighth of the budget."""
SECRETS = (MAIL, KEY)


@pytest.fixture
def provider():
    return Provider(10_000_000)


@pytest.fixture
def address(provider):
    with serving(provider) as address:
        yield address


def client(address):
    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    return openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, http_client=http)


def texts(value):
    """Walk all that a model reads of a body: texts and names, of messages and schemas."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield key
            yield from texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts(member)


def judge(provider):
    """Look at what was received, by nothing but its bytes."""
    count = find_counter("o200k_base").count
    assert provider.bodies
    for body in provider.bodies:
        sent = json.dumps(body)
        assert not [secret for secret in SECRETS if secret in sent], sent
        read = [body.get(key) for key in ("messages", "input", "instructions", "tools", "response_format", "text")]
        assert sum(count(text) for text in texts(read)) <= BUDGET * 1.2, "names of keys cost less than a token each"
    return provider.bodies[-1]


def described(text, default=None):
    """Return a tool `look_up` and an output type `Answer` that say a text in their schemas."""
    from pydantic import BaseModel, Field, create_model

    def look_up(query: str) -> str:
        return f"the order of {query} left the warehouse, mail {MAIL}\n" * 40

    look_up.__doc__ = text
    extra: dict[str, Any] = {} if default is None else {"contact": (str, Field(default=default))}
    answer = create_model("Answer", __base__=BaseModel, said=(str, Field(description=text)), **extra)
    answer.__doc__ = "An answer."
    return look_up, answer


# PydanticAI


def pydantic_agent(address, stabilizer, *, instructions, tool, output=None):
    pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed")
    reason = "this PydanticAI needs a newer openai"
    pytest.importorskip("pydantic_ai.models.openai", reason=reason, exc_type=ImportError)
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from ctxguard_pydantic_ai import ContextGuard

    model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client(address)))
    kind = {} if output is None else {"output_type": NativeOutput(output)}
    return Agent(model, instructions=instructions, tools=[tool], capabilities=[ContextGuard(stabilizer)], **kind)


async def test_pydantic_ai_masks_instructions_tools_and_output_types(provider, address):
    look_up, answer = described(f"Look an order up; on trouble write to {MAIL}. {FILLER}")
    agent = pydantic_agent(
        address, Stabilizer(BUDGET), instructions=f"Write to {MAIL}. {FILLER}", tool=look_up, output=answer
    )
    from pydantic_ai.exceptions import UnexpectedModelBehavior

    with pytest.raises(UnexpectedModelBehavior):  # the scripted model answers in prose
        await agent.run("Where is it?")
    body = judge(provider)
    assert "[REDACTED_EMAIL]" in json.dumps(body["response_format"])
    assert "[REDACTED_EMAIL]" in json.dumps(body["tools"])
    assert "[REDACTED_EMAIL]" in body["messages"][0]["content"]


async def test_pydantic_ai_sends_no_schema_that_cannot_be_cleaned(provider, address):
    look_up, answer = described("Look an order up.", default=KEY)
    agent = pydantic_agent(address, Stabilizer(BUDGET), instructions="Be brief.", tool=look_up, output=answer)
    with pytest.raises(CheckFailedError, match="SECRET was found"):
        await agent.run("Where is it?")
    assert provider.bodies == []


async def test_pydantic_ai_counts_what_stands_beside_the_history(provider, address):
    look_up, answer = described(FILLER * 4)
    agent = pydantic_agent(
        address, Stabilizer(BUDGET, shorten_tools=False), instructions=FILLER * 2, tool=look_up, output=answer
    )
    with pytest.raises(BudgetExceededError):
        await agent.run("Where is it?")
    assert provider.bodies == []


# the Agents SDK


def agents_run(address, stabilizer, *, instructions, tool, output=None, other=None):
    pytest.importorskip("agents", reason="the Agents SDK is not installed")
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool, set_tracing_disabled

    from ctxguard_openai_agents import call_model_input_filter

    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel("gpt-4o", client(address))
    handoffs = [] if other is None else [Agent(name="other", handoff_description=other, model=model)]
    agent = Agent(
        name="clerk",
        instructions=instructions,
        model=model,
        tools=[function_tool(tool)],
        handoffs=handoffs,
        output_type=output,
    )
    guard = call_model_input_filter(stabilizer)
    return Runner.run(agent, "Where is it?", run_config=RunConfig(call_model_input_filter=guard), max_turns=4)


async def test_the_agents_sdk_masks_instructions(provider, address):
    look_up, _ = described(f"Look an order up. {FILLER}")
    await agents_run(
        address, Stabilizer(BUDGET), instructions=f"Write to {MAIL}. {FILLER}", tool=look_up, other=f"Knows. {FILLER}"
    )
    assert "[REDACTED_EMAIL]" in judge(provider)["messages"][0]["content"]


@pytest.mark.parametrize("place", ["tool", "handoff", "output"])
async def test_the_agents_sdk_sends_no_schema_with_personal_data(provider, address, place):
    said = f"Write to {MAIL}."
    look_up, _ = described(said if place == "tool" else "Look an order up.")
    output = described(said)[1] if place == "output" else None
    other = said if place == "handoff" else "Knows more."
    with pytest.raises(CheckFailedError, match="EMAIL was found"):
        await agents_run(
            address, Stabilizer(BUDGET), instructions="Be brief.", tool=look_up, output=output, other=other
        )
    assert provider.bodies == []


async def test_the_agents_sdk_counts_handoffs_and_the_output_type(provider, address):
    look_up, answer = described(FILLER * 2)
    with pytest.raises(BudgetExceededError):
        await agents_run(
            address, Stabilizer(BUDGET), instructions=FILLER * 2, tool=look_up, output=answer, other=FILLER * 4
        )
    assert provider.bodies == []


# LangChain


def langchain_agent(address, stabilizer, *, prompt, tool, output=None):
    pytest.importorskip("langchain", reason="LangChain is not installed")
    import httpx
    from langchain.agents import create_agent
    from langchain.agents.structured_output import ToolStrategy
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, convert_to_openai_messages
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool as as_tool
    from langchain_core.utils.function_calling import convert_to_openai_tool

    from ctxguard_langchain import ContextGuardMiddleware

    class OnTheWire(BaseChatModel):
        """Send Chat Completions to the provider, as the packages of providers do."""

        @property
        def _llm_type(self):
            return "wire"

        def bind_tools(self, tools, **kwargs):
            return self.bind(tools=[convert_to_openai_tool(one) for one in tools])

        def _generate(self, messages, stop=None, run_manager=None, **kwargs):
            body = {"model": "m", "messages": convert_to_openai_messages(messages), "tools": kwargs.get("tools")}
            with httpx.Client(trust_env=False, timeout=PATIENCE) as http:
                reply = http.post(f"{address}/v1/chat/completions", json=body).raise_for_status().json()
            said = reply["choices"][0]["message"]
            calls = [
                {"name": c["function"]["name"], "args": json.loads(c["function"]["arguments"]), "id": c["id"]}
                for c in said.get("tool_calls") or ()
            ]
            message = AIMessage(said["content"] or "", tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=message)])

    form = None if output is None else ToolStrategy(output)
    middleware = [ContextGuardMiddleware(stabilizer)]
    return create_agent(OnTheWire(), [as_tool(tool)], system_prompt=prompt, middleware=middleware, response_format=form)


def test_langchain_masks_the_prompt_and_the_tools(provider, address):
    look_up, _ = described(f"Look an order up; on trouble write to {MAIL}. {FILLER}")
    agent = langchain_agent(address, Stabilizer(BUDGET), prompt=f"Write to {MAIL}. {FILLER * 2}", tool=look_up)
    agent.invoke({"messages": [("user", f"Where is it? I am {MAIL}.")]})
    body = judge(provider)
    assert len(provider.bodies) > 1, "the masked tool is found by its name"
    assert "[REDACTED_EMAIL]" in json.dumps(body["tools"])


def test_langchain_sends_no_output_type_with_personal_data(provider, address):
    look_up, _ = described("Look an order up.")
    _, answer = described(f"Write to {MAIL}.")
    agent = langchain_agent(address, Stabilizer(BUDGET), prompt="Be brief.", tool=look_up, output=answer)
    with pytest.raises(CheckFailedError, match="EMAIL was found"):
        agent.invoke({"messages": [("user", "Where is it?")]})
    assert provider.bodies == []


def test_langchain_counts_the_output_type(provider, address):
    look_up, answer = described(FILLER * 4)
    agent = langchain_agent(address, Stabilizer(BUDGET), prompt=FILLER * 3, tool=look_up, output=answer)
    with pytest.raises(BudgetExceededError):
        agent.invoke({"messages": [("user", "Where is it?")]})
    assert provider.bodies == []
