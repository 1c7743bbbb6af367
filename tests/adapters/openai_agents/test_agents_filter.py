"""Whole runs of the Agents SDK with its own scripted model: what the model sees fits, what is kept stays raw."""

from __future__ import annotations

import pytest

agents = pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")
testing = pytest.importorskip("agents.testing", reason="this version of the Agents SDK has no test model")

from agents import Agent, RunConfig, Runner, function_tool, set_tracing_disabled  # noqa: E402

from ctxguard import BudgetExceededError, Stabilizer  # noqa: E402
from ctxguard.artifacts import pair  # noqa: E402
from ctxguard_openai import ResponsesAdapter  # noqa: E402
from ctxguard_openai_agents import call_model_input_filter  # noqa: E402

set_tracing_disabled(True)
MAIL = "jane.doe@corp-mail.net"


@function_tool
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} of {MAIL}\n" + "scan=truck status=moving\n" * 300


def scripted(steps):
    script = []
    for step in range(steps):
        script.append([testing.function_call("look_up", {"order": f"A-{step}"}, call_id=f"c{step}")])
    return testing.ScriptedModel([*script, [testing.assistant_message("done")]])


def run(model, guard, prompt="Where are my orders?"):
    agent = Agent(name="support", instructions="Be brief.", model=model, tools=[look_up])
    return Runner.run(agent, prompt, run_config=RunConfig(call_model_input_filter=guard), max_turns=30)


async def test_a_long_tool_loop_fits_at_every_call_and_stays_raw_in_the_result():
    model, reports = scripted(12), []
    result = await run(model, call_model_input_filter(Stabilizer(1_500), on_report=reports.append), f"I am {MAIL}")
    assert result.final_output == "done"
    assert len(reports) == 13
    assert all(report.ok and report.tokens_after <= 1_500 for report in reports)
    for call in model.calls:
        assert MAIL not in str(call.input)
        found = pair(ResponsesAdapter().read(call.input))
        assert not found.orphans
        assert not found.unanswered
    kept = result.to_input_list()
    assert sum("function_call_output" in str(item.get("type")) for item in kept) == 12
    assert MAIL in str(kept)


async def test_instructions_and_tools_are_counted():
    reports = []
    await run(scripted(0), call_model_input_filter(Stabilizer(1_500), on_report=reports.append), "hi")
    assert reports[0].tokens_after > 40


async def test_a_budget_that_cannot_hold_what_must_stay_is_said():
    with pytest.raises(BudgetExceededError, match="the budget is 20"):
        await run(scripted(0), call_model_input_filter(Stabilizer(20)), "word " * 50)
