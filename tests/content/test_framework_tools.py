"""Decorators of frameworks stand above `context_result`, and every adapter registers `recall` with its framework."""

from __future__ import annotations

import asyncio
import inspect
import json

import pytest

from ctxguard.config import TruncationConfig
from ctxguard.content import context_result, handle_of
from ctxguard.stores import MemoryStore

TEXT = "".join(f"line {n}\n" for n in range(1, 2001))
HANDLE = handle_of(TEXT.encode())
SMALL = TruncationConfig(threshold=50, max_preview_tokens=120)


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def report(store):
    """Return a tool, as a user writes it, before any framework's decorator."""

    @context_result(SMALL, store=store, counter="estimate")
    def report(city: str, days: int = 3) -> str:
        """Report the weather.

        Args:
            city: name of the city.
            days: days from today.
        """
        return TEXT

    return report


@pytest.fixture
def saved(store):
    store.put_new("tool-output", HANDLE, TEXT.encode())
    return store


def test_langchain_tool_describes_and_runs_the_function(report, saved):
    tools = pytest.importorskip("langchain_core.tools")
    from ctxguard_langchain import recall_tool

    tool = tools.tool(report)
    assert tool.name == "report"
    assert list(tool.args) == ["city", "days"]
    assert HANDLE in tool.invoke({"city": "Rome"})
    read = recall_tool(saved)
    assert read.name == "recall"
    assert read.args["handle"]["description"] == "The handle that the shortened result names."
    assert read.invoke({"handle": HANDLE, "first_line": 7, "last_line": 8}).endswith("line 7\nline 8")


def test_langchain_tool_may_be_async(store):
    tools = pytest.importorskip("langchain_core.tools")

    @tools.tool
    @context_result(SMALL, store=store, counter="estimate")
    async def report(city: str) -> str:
        """Report the weather."""
        return TEXT

    assert HANDLE in asyncio.run(report.ainvoke({"city": "Rome"}))


def test_pydantic_ai_agent_sees_the_preview_and_recalls_a_slice(report, saved):
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from ctxguard_pydantic_ai import recall_tool

    asked = [
        ToolCallPart("report", {"city": "Rome"}),
        ToolCallPart("recall", {"handle": HANDLE, "first_line": 7, "last_line": 8}),
    ]
    seen = []

    def model(messages, info):
        seen.append((messages, info))
        return ModelResponse([asked[len(seen) - 1] if len(seen) <= len(asked) else TextPart("done")])

    agent = pydantic_ai.Agent(FunctionModel(model), tools=[recall_tool(saved)])
    agent.tool_plain(report)
    assert agent.run_sync("go").output == "done"
    described = {tool.name: tool for tool in seen[0][1].function_tools}
    assert described["report"].parameters_json_schema["properties"].keys() == {"city", "days"}
    assert described["recall"].parameters_json_schema["required"] == ["handle"]
    results = [part.content for part in (message.parts[0] for message in seen[-1][0][2::2])]
    assert HANDLE in results[0]
    assert results[1].endswith("line 7\nline 8")


def test_agents_sdk_tool_describes_and_runs_the_function(report, saved):
    agents = pytest.importorskip("agents")
    from agents.tool_context import ToolContext

    from ctxguard_openai_agents import recall_tool

    def call(tool, **arguments):
        written = json.dumps(arguments)
        told = {"tool_name": tool.name, "tool_call_id": "1", "tool_arguments": written}
        # the oldest supported version takes no arguments here
        known = inspect.signature(ToolContext).parameters
        context = ToolContext(context=None, **{name: value for name, value in told.items() if name in known})
        return asyncio.run(tool.on_invoke_tool(context, written))

    tool = agents.function_tool(report)
    assert tool.params_json_schema["properties"].keys() == {"city", "days"}
    assert HANDLE in call(tool, city="Rome", days=2)
    read = recall_tool(saved)
    assert read.name == "recall"
    assert call(read, handle=HANDLE, first_line=7, last_line=8, contains=None).endswith("line 7\nline 8")


def test_openai_and_anthropic_get_a_schema_and_a_function_that_takes_its_arguments(saved):
    import ctxguard_anthropic
    import ctxguard_openai

    schema, function = ctxguard_openai.recall_tool(saved)
    assert schema["type"] == "function"
    arguments = schema["function"]["parameters"]["properties"]
    assert arguments.keys() == {"handle", "first_line", "last_line", "contains"}
    assert function(**dict.fromkeys(["handle"], HANDLE), contains="line 777").endswith("777: line 777")
    other, same = ctxguard_anthropic.recall_tool(saved)
    assert other["input_schema"] == schema["function"]["parameters"]
    assert other["name"] == schema["function"]["name"] == same.__name__
