"""Whole runs of the Agents SDK with its own scripted model: what the model sees fits, what is kept stays raw."""

from __future__ import annotations

import pytest

pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")

from agents import Agent, RunConfig, Runner, function_tool, set_tracing_disabled
from scripted_agents import ScriptedModel, assistant_message, function_call

from ctxguard import BudgetExceededError, Stabilizer
from ctxguard.history import pair
from ctxguard.policies import agent_stages
from ctxguard.stores import MemoryStore
from ctxguard_openai import ResponsesAdapter
from ctxguard_openai_agents import call_model_input_filter, with_vault

set_tracing_disabled(True)
MAIL = "jane.doe@corp-mail.net"


@function_tool
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} of {MAIL}\n" + "scan=truck status=moving\n" * 300


def scripted(steps):
    script = []
    for step in range(steps):
        script.append([function_call("look_up", {"order": f"A-{step}"}, call_id=f"c{step}")])
    return ScriptedModel([*script, [assistant_message("done")]])


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


async def test_tools_get_the_values_and_the_model_sees_placeholders():
    pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")
    from ctxguard.pii import STANDARD, Masker, Vault, new_key

    vault = Vault(MemoryStore(), key=new_key()).session("session-1")
    masker = Masker(STANDARD, strategy="pseudonymize", vault=vault)
    guard = call_model_input_filter(Stabilizer(4_000, stages=agent_stages(masker=masker)))
    sent = []

    @function_tool
    async def send_mail(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return f"sent to {to}"

    script = [[function_call("send_mail", {"to": "<EMAIL_1>"}, call_id="c1")], [assistant_message("To <EMAIL_1>.")]]
    model = ScriptedModel(script)
    agent = Agent(name="mailer", model=model, tools=with_vault([send_mail], vault))
    result = await Runner.run(agent, f"Write to {MAIL}", run_config=RunConfig(call_model_input_filter=guard))
    assert sent == [MAIL]
    assert MAIL not in str([call.input for call in model.calls])
    assert masker.session().unmask(result.final_output) == f"To {MAIL}."
    assert "<EMAIL_1>" in str(result.to_input_list()), "what the model wrote is kept as it wrote it"
