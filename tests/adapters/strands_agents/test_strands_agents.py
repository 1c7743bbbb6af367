"""Whole runs of a Strands agent with a scripted model: what the model sees fits, what the agent keeps stays raw."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("strands.middleware", reason="Strands is not installed (extra strands)")

from restored import restoring
from scripted_strands import ScriptedModel
from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.middleware import InvokeModelStage
from strands.types.exceptions import ContextWindowOverflowException

from ctxguard import BudgetExceededError, Stabilizer
from ctxguard.errors import CheckFailedError
from ctxguard.history import pair
from ctxguard_strands import ContextGuard, StrandsAdapter

MAIL = "jane.doe@corp-mail.net"


@tool
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} of {MAIL}\n" + "scan=truck status=moving\n" * 100


def agent_of(model, guard, **settings):
    settings = {"system_prompt": "Be brief.", "tools": [look_up], "retry_strategy": None, **settings}
    keeps_all = NullConversationManager()
    return Agent(model, plugins=[guard], callback_handler=None, conversation_manager=keeps_all, **settings)


def steps(count, parallel=1, of=""):
    return [[("look_up", {"order": f"A-{step}-{n}{of}"}) for n in range(parallel)] for step in range(count)]


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("parallel", [1, 3])
async def test_thirty_steps_fit_at_every_call_with_cuts_and_stay_raw_in_the_agent(parallel, restore):
    model, reports = ScriptedModel(*steps(30, parallel, " of <EMAIL_1>"), "done, <EMAIL_1>", at=3), []
    budget = 1_600 * parallel
    guard = ContextGuard(Stabilizer(budget), on_report=reports.append, **(restoring() if restore else {}))
    agent = agent_of(model, guard)
    result = await agent.invoke_async(f"I am {MAIL}. Where are my orders?")
    shown = MAIL if restore else "<EMAIL_1>"
    assert str(result).strip() == f"done, {shown}"
    assert len(reports) == len(model.calls) == 31
    assert all(report.ok and report.tokens_after <= budget for report in reports)
    assert {report.session for report in reports} == {agent.session_id}
    assert any(decision.action == "dropped" for decision in reports[-1].decisions)
    for call in model.calls:
        assert MAIL not in str(call)
        assert call["system"] == "Be brief."
        found = pair(StrandsAdapter().read(call["messages"]))
        assert not found.orphans
        assert not found.unanswered
    assert sum("toolResult" in block for message in agent.messages for block in message["content"]) == 30 * parallel
    results = [b["toolResult"] for message in agent.messages for b in message["content"] if "toolResult" in b]
    assert all(f" of {shown} of {MAIL}" in str(result) for result in results), (
        "tools get the values, and results stay raw"
    )


@pytest.mark.parametrize("shape", ["text", "blocks"])
async def test_the_system_prompt_and_the_tools_are_counted_and_masked(shape):
    @tool(description=f"Ask {MAIL}.")
    def ask(question: str) -> str:
        return "no"

    model, reports = ScriptedModel("done"), []
    words = f"You work for {MAIL}. " + "Be kind. " * 100
    prompt = words if shape == "text" else [{"text": words}, {"cachePoint": {"type": "default"}}]
    agent = agent_of(
        model, ContextGuard(Stabilizer(1_500), on_report=reports.append), system_prompt=prompt, tools=[ask]
    )
    await agent.invoke_async("hi")
    (call,) = model.calls
    assert MAIL not in str(call)
    assert "[REDACTED_EMAIL]" in call["system"]
    assert "[REDACTED_EMAIL]" in str(call["tools"])
    assert reports[0].tokens_after > 250
    assert MAIL in agent.system_prompt
    assert MAIL in str(agent.tool_registry.get_all_tool_specs())


async def test_a_name_in_a_tool_that_cannot_be_masked_ends_the_call():
    @tool(inputSchema={"json": {"type": "object", "properties": {"to": {"enum": [MAIL]}}}})
    def send(to: str) -> str:
        """Send."""
        return "no"

    model = ScriptedModel("done")
    with pytest.raises(CheckFailedError, match="NoPII"):
        await agent_of(model, ContextGuard(Stabilizer(1_500)), tools=[send]).invoke_async("hi")
    assert not model.calls


async def test_a_budget_that_cannot_hold_the_question_is_an_error_with_its_numbers():
    with pytest.raises(BudgetExceededError, match="the budget is 20"):
        await agent_of(ScriptedModel("done"), ContextGuard(Stabilizer(20))).invoke_async("word " * 50)


async def test_a_share_of_the_window_is_that_of_the_models_configuration():
    model, reports = ScriptedModel("done"), []
    model.update_config(context_window_limit=2_000)
    await agent_of(model, ContextGuard(Stabilizer("50%"), on_report=reports.append)).invoke_async("hi")
    assert reports[0].budget == 1_000


async def test_a_window_that_is_exceeded_gets_one_more_try_with_a_smaller_budget():
    refused = ContextWindowOverflowException("too long")
    model, reports = ScriptedModel(*steps(8), refused, "done", at=3), []
    agent = agent_of(model, ContextGuard(Stabilizer(1_800), on_report=reports.append))
    assert str(await agent.invoke_async("Where are my orders?")).strip() == "done"
    assert len(model.calls) == 10
    assert reports[-1].budget < 1_800
    assert len(agent.messages) == 18, "the framework did not have to cut"


async def test_what_input_middleware_adds_is_masked_whatever_the_order():
    model = ScriptedModel("done")
    agent = agent_of(model, ContextGuard(Stabilizer(1_500)))
    agent.add_middleware(InvokeModelStage.Input, lambda context: context.replace(system_prompt=f"Call {MAIL}."))
    await agent.invoke_async("hi")
    assert model.calls[0]["system"] == "Call [REDACTED_EMAIL]."


def test_what_is_called_without_a_loop_is_guarded_too():
    model = ScriptedModel([("look_up", {"order": "A-1"})], "done")
    assert str(agent_of(model, ContextGuard(Stabilizer(1_500)))(f"I am {MAIL}")).strip() == "done"
    assert MAIL not in str(model.calls)


@pytest.mark.parametrize(
    ("told", "make"),
    [
        ("'ContextGuard' object is not iterable", lambda guard: {"plugins": guard}),
        ("missing 1 required positional argument: 'agent'", lambda guard: {"plugins": [ContextGuard]}),
        ("Must be a HookProvider instance", lambda guard: {"hooks": [guard]}),
        ("has no attribute 'register_hooks'", lambda guard: {"conversation_manager": guard}),
        ("'Stabilizer' object has no attribute 'name'", lambda guard: {"plugins": [Stabilizer(1_500)]}),
    ],
)
def test_what_strands_rejects_is_explained_on_the_page(told, make):
    with pytest.raises(Exception, match=told):
        Agent(ScriptedModel("done"), **make(ContextGuard(Stabilizer(1_500))))
    assert told in (Path(__file__).parents[3] / "docs" / "strands.md").read_text(encoding="utf-8")


def test_arguments_of_a_stabilizer_are_answered_with_the_line_to_write():
    from ctxguard.errors import ConfigError
    from ctxguard_strands import ContextGuard

    with pytest.raises(ConfigError, match=r"ContextGuard\(Stabilizer\("):
        ContextGuard(budget=8_000)
