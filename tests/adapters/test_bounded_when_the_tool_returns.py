"""What a tool returned stays as it is, unless `max_result_tokens` bounds it; then `on_report` names the tool."""

from __future__ import annotations

import logging
from inspect import signature

import pytest

from ctxguard import Stabilizer
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore

ROWS = "\n".join(f"row {n}: the order of ann@example.com left the warehouse" for n in range(400))
BUDGET = 1_500
LIMIT = 400


def search(query: str) -> str:
    """Search for a query."""
    return ROWS if query == "long" else "one row"


async def in_langchain(reports, query, limit=LIMIT, vault=None, **settings):
    agents = pytest.importorskip("langchain.agents")
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    from ctxguard_langchain import ContextGuardMiddleware

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools, **_):
            return self

    calls = [{"name": "search", "args": {"query": query}, "id": "1"}]
    model = Model(messages=iter([AIMessage("", tool_calls=calls), AIMessage("fine")]))
    guard = ContextGuardMiddleware(
        Stabilizer(BUDGET, **settings), vault=vault, max_result_tokens=limit, on_report=reports.append
    )
    agent = agents.create_agent(model, [search], middleware=[guard])
    done = await agent.ainvoke({"messages": [("user", "Go")]}, {"configurable": {"thread_id": "s1"}})
    return done["messages"][2].content


async def in_pydantic_ai(reports, query, limit=LIMIT, vault=None, **settings):
    ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from ctxguard_pydantic_ai import ContextGuard

    def scripted(messages, info):
        is_first = len(messages) == 1
        return ModelResponse(parts=[ToolCallPart("search", {"query": query}) if is_first else TextPart("fine")])

    if "conversation_id" not in signature(ai.Agent.run).parameters:
        pytest.skip("this PydanticAI has no name for a conversation")
    guard = ContextGuard(Stabilizer(BUDGET, **settings), vault=vault, max_result_tokens=limit, on_report=reports.append)
    done = await ai.Agent(FunctionModel(scripted), capabilities=[guard], tools=[search]).run("Go", conversation_id="s1")
    return done.all_messages()[2].parts[0].content


DOORS = (in_langchain, in_pydantic_ai)


@pytest.mark.parametrize("door", DOORS)
async def test_the_report_names_the_tool_and_both_sizes(door, caplog):
    reports = []
    with caplog.at_level(logging.INFO, "ctxguard"):
        await door(reports, "long")
    assert [report.tool for report in reports] == [None, "search", None]
    told = reports[1]
    assert told.session == reports[0].session == "s1"
    output = told.decisions[-1]
    assert [step.action for step in output.steps] == ["masked", "bounded"]
    assert output.tokens_after <= LIMIT < output.tokens_before
    assert told.to_dict()["tool"] == "search"
    assert "tool" not in reports[0].to_dict()
    lines = [record.getMessage() for record in caplog.records if "tool's output" in record.getMessage()]
    assert lines == [f"a tool's output was bounded: {output.tokens_after} of {output.tokens_before} tokens are kept"]


@pytest.mark.parametrize("door", DOORS)
async def test_without_a_limit_it_is_bounded_for_the_model_alone(door):
    reports = []
    await door(reports, "long", limit=None)
    assert [report.tool for report in reports] == [None, None]
    (output,) = (one for one in reports[-1].decisions if one.artifact.kind == "tool")
    assert [step.action for step in output.steps] == ["masked", "bounded"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("query", "settings"), [("short", {}), ("long", {"mode": "observe"})])
async def test_what_is_not_bounded_is_not_told(door, query, settings):
    reports = []
    await door(reports, query, **settings)
    assert [report.tool for report in reports] == [None, None]


@pytest.mark.parametrize("door", DOORS)
async def test_the_history_stays_raw_with_a_vault(door):
    pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")
    vault = Vault(MemoryStore(), key=new_key()).session("s")
    output = await door([], "long", vault=vault)
    assert "ann@example.com" in output
    assert "<EMAIL_1>" not in output, "the next call would take it for one that the tool planted"
    assert len(output) < len(ROWS) / 4
    assert vault.original("<LITERAL_1>") is None
