"""A result that was bounded is read again by the model: `recall` registered as a tool in each framework."""

from __future__ import annotations

import pytest

from ctxguard import Stabilizer
from ctxguard.content import recall_tool
from ctxguard.policies import agent_stages
from ctxguard.stages.bound_tool_output import handle_of
from ctxguard.stores import MemoryStore

LOG = "\n".join(
    f"line {chr(97 + number // 26)}{chr(97 + number % 26)} of the log: all is well" for number in range(600)
)
WANTED = {"handle": handle_of(LOG), "first_line": 300, "last_line": 301}


async def langchain(stabilizer, recall):
    pytest.importorskip("langchain", reason="LangChain is not installed (extra langchain)")
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from ctxguard_langchain import ContextGuardMiddleware

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools, **kwargs):
            return self

    calls = [("archive", {}), ("recall", WANTED)]
    script = [AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}]) for name, args in calls]

    def archive() -> str:
        """Read the log."""
        return LOG

    model = Scripted(messages=iter([*script, AIMessage("done")]))
    guard = ContextGuardMiddleware(stabilizer, max_result_tokens=200)
    agent = create_agent(model, [tool(archive), tool(recall)], middleware=[guard])
    messages = (await agent.ainvoke({"messages": [("user", "What does the log say?")]}))["messages"]
    return [message.content for message in messages if message.type == "tool"]


async def pydantic_ai(stabilizer, recall):
    pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from ctxguard_pydantic_ai import ContextGuard

    script = iter([ToolCallPart("archive", {}), ToolCallPart("recall", WANTED), TextPart("done")])
    model = FunctionModel(lambda messages, info: ModelResponse(parts=[next(script)]))
    guard = ContextGuard(stabilizer, max_result_tokens=200)
    agent = Agent(model, capabilities=[guard])
    agent.tool_plain(recall)
    agent.tool_plain(name="archive")(lambda: LOG)
    messages = (await agent.run("What does the log say?")).all_messages()
    return [part.content for message in messages for part in message.parts if part.part_kind == "tool-return"]


async def agents_sdk(stabilizer, recall):
    pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")
    from agents import Agent, RunConfig, Runner, function_tool, set_tracing_disabled
    from openai_agents.scripted_agents import ScriptedModel, assistant_message, function_call

    from ctxguard_openai_agents import call_model_input_filter

    set_tracing_disabled(True)

    def archive() -> str:
        """Read the log."""
        return LOG

    calls = [("archive", {}), ("recall", WANTED)]
    script = [[function_call(name, args, call_id=name)] for name, args in calls]
    model = ScriptedModel([*script, [assistant_message("done")]])
    agent = Agent(name="reader", model=model, tools=[function_tool(archive), function_tool(recall)])
    guard = call_model_input_filter(stabilizer)
    await Runner.run(agent, "What does the log say?", run_config=RunConfig(call_model_input_filter=guard))
    return [item["output"] for item in model.calls[-1].input if item.get("type") == "function_call_output"]


@pytest.mark.parametrize("framework", [langchain, pydantic_ai, agents_sdk])
async def test_the_model_reads_what_was_left_out(framework):
    store = MemoryStore()
    shown, recalled = await framework(Stabilizer(1_500, stages=agent_stages(store=store)), recall_tool(store))
    assert WANTED["handle"] in shown
    assert len(shown) < len(LOG) / 4
    assert recalled.splitlines() == ["[lines 300-301 of 600]", *LOG.splitlines()[299:301]]
