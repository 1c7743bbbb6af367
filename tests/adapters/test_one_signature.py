"""`on_report` has one signature in every door: it is called with the report, and the report names the conversation."""

from __future__ import annotations

import inspect
import json

import pytest

from ctxguard import Stabilizer

pytest.importorskip("langchain", reason="langchain is not installed (extra langchain)")
pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")

from agents import Agent as SdkAgent
from agents import RunConfig, Runner, set_tracing_disabled
from agents.models.interface import Model
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import ctxguard_langchain
import ctxguard_openai_agents
import ctxguard_pydantic_ai
from ctxguard.wire import Guard
from ctxguard.wire.guard import GuardSettings, WireRequest
from ctxguard_langchain import ContextGuard, ContextGuardMiddleware, pre_model_hook

set_tracing_disabled(True)


def of_a_chain(told):
    ContextGuard(Stabilizer(1_000), on_report=told).invoke("hello", {"configurable": {"session_id": "s1"}})


def of_a_node(told):
    hook = pre_model_hook(Stabilizer(1_000), on_report=told)
    hook.invoke({"messages": [("user", "hello")]}, {"configurable": {"thread_id": "s1"}})


def of_middleware(told):
    model = GenericFakeChatModel(messages=iter([AIMessage("hi")]))
    guard = ContextGuardMiddleware(Stabilizer(1_000), on_report=told)
    agent = create_agent(model, middleware=[guard], checkpointer=InMemorySaver())
    agent.invoke({"messages": [("user", "hello")]}, {"configurable": {"thread_id": "s1"}})


def of_persisting_middleware(told):
    model = GenericFakeChatModel(messages=iter([AIMessage("hi")]))
    guard = ContextGuardMiddleware(Stabilizer(1_000), on_report=told, persist=True)
    agent = create_agent(model, middleware=[guard], checkpointer=InMemorySaver())
    agent.invoke({"messages": [("user", "hello")]}, {"configurable": {"thread_id": "s1"}})


def of_a_capability(told):
    guard = ctxguard_pydantic_ai.ContextGuard(Stabilizer(1_000), on_report=told)
    Agent(TestModel(), capabilities=[guard]).run_sync("hello")


def of_a_history_processor(told):
    from pydantic_ai import capabilities

    process = getattr(capabilities, "ProcessHistory", None) or capabilities.HistoryProcessor  # its name in 1.x
    processor = ctxguard_pydantic_ai.history_processor(Stabilizer(1_000), on_report=told)
    Agent(TestModel(), capabilities=[process(processor)]).run_sync("hello")


def of_the_agents_sdk(told):
    class Silent(Model):
        async def get_response(self, *args, **settings):
            raise RuntimeError("no answer")

        def stream_response(self, *args, **settings):
            raise RuntimeError("no answer")

    guard = ctxguard_openai_agents.call_model_input_filter(Stabilizer(1_000), on_report=told)
    with pytest.raises(RuntimeError):
        Runner.run_sync(SdkAgent("a", model=Silent()), "hello", run_config=RunConfig(call_model_input_filter=guard))


def of_strands(told):
    strands = pytest.importorskip("strands", reason="Strands is not installed (extra strands)")
    from strands_agents.scripted_strands import ScriptedModel

    from ctxguard_strands import ContextGuard

    guard = ContextGuard(Stabilizer(1_000), on_report=told)
    strands.Agent(ScriptedModel("hi"), plugins=[guard], callback_handler=None)("hello")


def of_the_wire(told):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
    headers = {"x-ctxguard-session": "s1"}
    Guard(Stabilizer(1_000), on_report=told).prepare(WireRequest("POST", "/v1/chat/completions", headers, body))


NAMED = [of_a_chain, of_a_node, of_middleware, of_persisting_middleware, of_the_wire]
DOORS = [*NAMED, of_a_capability, of_a_history_processor, of_the_agents_sdk, of_strands]


@pytest.mark.parametrize("door", DOORS)
def test_every_door_tells_the_report_alone(door):
    reports = []
    door(reports.append)
    assert reports
    assert all(report.ok and report.tokens_after <= 1_000 for report in reports)
    assert reports[-1].session == "s1" if door in NAMED else isinstance(reports[-1].session, str | None)


def test_no_door_says_otherwise_in_its_types():
    doors = [
        *(ContextGuard, ContextGuardMiddleware, pre_model_hook, ctxguard_langchain.with_message_history),
        *(ctxguard_pydantic_ai.ContextGuard, ctxguard_pydantic_ai.history_processor),
        ctxguard_openai_agents.call_model_input_filter,
    ]
    made_by = [door.__init__ if isinstance(door, type) else door for door in doors]
    told = [inspect.signature(one).parameters["on_report"].annotation for one in made_by]
    assert {*told, GuardSettings.__annotations__["on_report"].__forward_arg__} == {"OnReport | None"}
