"""A stabilizer or a guard in another place than its own: one line of ours says what to write, where we are called."""

from __future__ import annotations

import asyncio
import warnings

import pytest

pytest.importorskip("langchain", reason="langchain is not installed (extra langchain)")
pytest.importorskip("agents", reason="the Agents SDK is not installed (extra openai-agents)")
pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")

from agents import Agent as OpenAIAgent
from agents import RunConfig, Runner
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from pydantic_ai import Agent, capabilities

import ctxguard_langchain
import ctxguard_pydantic_ai
from ctxguard import Stabilizer
from ctxguard.errors import CtxguardError

MODEL = FakeListChatModel(responses=["hi"])
STABILIZER = Stabilizer(8_000)
MIDDLEWARE = ctxguard_langchain.ContextGuardMiddleware(STABILIZER)
CAPABILITY = ctxguard_pydantic_ai.ContextGuard(STABILIZER)
PROCESSOR = ctxguard_pydantic_ai.history_processor(STABILIZER)
TAKES_FUNCTIONS = hasattr(capabilities, "CapabilityFunc")


def before_a_model(given):
    (given | MODEL).invoke("hello")


def behind_a_model(given):
    (MODEL | given).invoke("hello")


def before_a_prompt(given):
    (given | ChatPromptTemplate.from_template("{question}") | MODEL).invoke({"question": "hello"})


def as_a_graphs_hook(given):
    from langgraph.prebuilt import create_react_agent

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LangGraph deprecates its prebuilt agents
        create_react_agent(MODEL, [], pre_model_hook=given).invoke({"messages": [HumanMessage("hello")]})


def as_a_capability(given):
    if not TAKES_FUNCTIONS:
        pytest.skip("this PydanticAI takes no functions as capabilities, and never calls what it is given")
    asyncio.run(Agent("test", capabilities=[given]).run("hello"))


def as_a_history_processor(given):
    capability = getattr(capabilities, "ProcessHistory", None) or capabilities.HistoryProcessor
    asyncio.run(Agent("test", capabilities=[capability(given)]).run("hello"))


def as_a_filter_of_the_agents_sdk(given):
    asyncio.run(Runner.run(OpenAIAgent("a"), "hello", run_config=RunConfig(call_model_input_filter=given)))


@pytest.mark.parametrize(
    ("place", "given", "says"),
    [
        *(
            (place, STABILIZER, "a Stabilizer is not a hook")
            for place in (before_a_model, behind_a_model, as_a_graphs_hook, as_a_capability, as_a_history_processor)
        ),
        (as_a_filter_of_the_agents_sdk, STABILIZER, "or call_model_input_filter, such as"),
        *(
            (place, MIDDLEWARE, r"in a chain, write ContextGuard\(stabilizer\)")
            for place in (before_a_model, behind_a_model, as_a_graphs_hook)
        ),
        (behind_a_model, ctxguard_langchain.ContextGuard(STABILIZER), "the guard goes before the model"),
        (before_a_prompt, ctxguard_langchain.ContextGuard(STABILIZER), "the guard goes between prompt and model"),
        (as_a_graphs_hook, ctxguard_langchain.ContextGuard(STABILIZER), r"pre_model_hook\(stabilizer\)"),
        (before_a_model, CAPABILITY, r"Agent\(capabilities="),
        (as_a_history_processor, CAPABILITY, r"write history_processor\(stabilizer\)"),
        (as_a_capability, PROCESSOR, r"ProcessHistory\(history_processor"),
        (as_a_capability, ctxguard_pydantic_ai.history_processor, "hand over the guard made with it"),
        (as_a_history_processor, ctxguard_pydantic_ai.history_processor, "hand over the guard made with it"),
        (as_a_capability, ctxguard_pydantic_ai.ContextGuard, "hand over the guard made with it"),
        (as_a_graphs_hook, ctxguard_langchain.pre_model_hook, "hand over the guard made with it"),
        (before_a_model, ctxguard_langchain.ContextGuard, "hand over the guard made with it"),
    ],
)
def test_what_is_called_in_another_place_says_what_to_write(place, given, says):
    with pytest.raises(CtxguardError, match=says) as caught:
        place(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [STABILIZER, ctxguard_langchain.ContextGuardMiddleware])
def test_create_agent_calls_nothing_and_its_error_names_what_the_page_explains(given):
    from langchain.agents import create_agent

    with pytest.raises(AttributeError, match="has no attribute 'wrap_tool_call'"):
        create_agent(MODEL, [], middleware=[given])
