"""Whole crews with a scripted LLM: what the model sees fits, what the agent keeps stays raw."""

from __future__ import annotations

import copy
import json

import pytest

pytest.importorskip("crewai.llms", reason="CrewAI is not installed (extra crewai)")

from crewai.tools import tool
from crewai.utilities.exceptions.context_window_exceeding_exception import LLMContextLengthExceededError
from pydantic import BaseModel
from restored import restoring
from scripted_crew import ScriptedLLM, crew_of

from ctxguard import BudgetExceededError, Stabilizer
from ctxguard.errors import CheckFailedError, ConfigError
from ctxguard.history import pair
from ctxguard_crewai import CrewAIAdapter, guarded_llm

pytestmark = pytest.mark.filterwarnings("ignore")  # CrewAI warns of its own dependencies

MAIL = "jane.doe@corp-mail.net"


@tool
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} of {MAIL}\n" + "scan=truck status=moving\n" * 100


def steps(count, parallel=1, of=""):
    return [[("look_up", json.dumps({"order": f"A-{step}-{n}{of}"})) for n in range(parallel)] for step in range(count)]


def actions(count):
    return [f'Thought: I look.\nAction: look_up\nAction Input: {{"order": "A-{n}"}}' for n in range(count)]


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("parallel", [1, 3])
def test_thirty_steps_fit_at_every_call_with_cuts(parallel, restore):
    llm, reports, given = ScriptedLLM(*steps(30, parallel, " of <EMAIL_1>"), "done, <EMAIL_1>"), [], []

    @tool
    def look_up(order: str) -> str:
        """Look an order up."""
        given.append(order)
        return f"It is that of {MAIL}\n" + "scan=truck status=moving\n" * 100

    budget = 1_900 * parallel
    settings = restoring() if restore else {}
    guarded = guarded_llm(llm, Stabilizer(budget), on_report=reports.append, **settings)
    crew = crew_of(guarded, f"I am {MAIL}. Where are my orders?", [look_up])
    shown = MAIL if restore else "<EMAIL_1>"
    assert crew.kickoff().raw == f"done, {shown}"
    assert sorted(given) == sorted(f"A-{step}-{n} of {shown}" for step in range(30) for n in range(parallel))
    assert len(reports) == len(llm.seen) == 31
    assert all(report.ok and report.tokens_after <= budget for report in reports)
    assert {report.session for report in reports} == {str(crew.tasks[0].id)}
    assert any(decision.action == "dropped" for decision in reports[-1].decisions)
    assert MAIL not in str(llm.seen)
    for call in llm.seen:
        found = pair(CrewAIAdapter().read(call["messages"]))
        assert not found.orphans
        assert not found.unanswered


def test_thirty_steps_without_native_calls_fit_too():
    llm, reports = ScriptedLLM(*actions(30), "Thought: I know.\nFinal Answer: done", native=False), []
    guarded = guarded_llm(llm, Stabilizer(2_500), on_report=reports.append)
    assert crew_of(guarded, f"I am {MAIL}. Where are my orders?", [look_up]).kickoff().raw == "done"
    assert len(llm.seen) == 31
    assert all(report.ok and report.tokens_after <= 2_500 for report in reports)
    assert any(decision.action == "dropped" for decision in reports[-1].decisions)
    assert MAIL not in str(llm.seen)


async def test_calls_of_an_async_kickoff_are_guarded():
    llm, reports = ScriptedLLM(*steps(2), "done"), []
    guarded = guarded_llm(llm, Stabilizer(2_500), on_report=reports.append)
    assert (await crew_of(guarded, f"I am {MAIL}.", [look_up]).akickoff()).raw == "done"
    assert len(reports) == 3
    assert MAIL not in str(llm.seen)


def test_a_text_tools_and_the_model_of_the_response_are_counted_and_masked():
    class Contact(BaseModel):
        mail: str

    llm, reports = ScriptedLLM('{"mail": "a"}'), []
    guarded = guarded_llm(llm, Stabilizer(1_500), on_report=reports.append)
    schema = {"name": "ask", "description": f"Ask {MAIL}.", "parameters": {"type": "object", "properties": {}}}
    guarded.call(f"I am {MAIL}")
    guarded.call(f"I am {MAIL}", tools=[{"type": "function", "function": schema}])
    assert guarded.call(f"I am {MAIL}", response_model=Contact) == Contact(mail="a")
    assert MAIL not in str(llm.seen)
    assert "Ask [REDACTED_EMAIL]." in str(llm.seen[1]["tools"])
    assert reports[1].tokens_after > reports[0].tokens_after < reports[2].tokens_after


def test_a_name_in_a_tool_that_cannot_be_masked_ends_the_call():
    llm = ScriptedLLM("done")
    schema = {"name": "ask", "parameters": {"type": "object", "properties": {"to": {"enum": [MAIL]}}}}
    with pytest.raises(CheckFailedError, match="NoPII"):
        guarded_llm(llm, Stabilizer(1_500)).call("hi", tools=[{"type": "function", "function": schema}])
    assert not llm.seen


def test_a_budget_that_cannot_hold_the_question_is_an_error_with_its_numbers():
    with pytest.raises(BudgetExceededError, match="the budget is 20"):
        guarded_llm(ScriptedLLM("done"), Stabilizer(20)).call("word " * 50)


async def test_a_window_that_is_exceeded_gets_one_more_try_with_a_smaller_budget():
    refused = LLMContextLengthExceededError("maximum context length")
    for asks in ("call", "acall"):
        llm, reports = ScriptedLLM(refused, "done"), []
        guarded = guarded_llm(llm, Stabilizer(1_800), on_report=reports.append)
        said = guarded.call("hi") if asks == "call" else await guarded.acall("hi")
        assert said == "done"
        assert [report.budget for report in reports] == [1_800, 1_080]


def test_a_share_of_the_window_is_that_of_the_llm():
    reports = []
    guarded_llm(ScriptedLLM("done"), Stabilizer("50%"), on_report=reports.append).call("hi")
    assert reports[0].budget == 50_000


def test_everything_else_is_that_of_the_original_which_stays_as_it_was():
    llm = ScriptedLLM("done", stop=["Observation:"], temperature=0.5)
    guarded = guarded_llm(llm, Stabilizer(1_800))
    assert isinstance(guarded, ScriptedLLM)
    assert guarded.supports_function_calling()
    assert guarded.get_context_window_size() == 100_000
    assert guarded.stop_sequences == ["Observation:"]
    assert guarded.model_dump() == llm.model_dump()
    assert type(llm) is ScriptedLLM
    assert not guarded.is_context_window_overflowing_threshold("word " * 500_000), "the agent need not summarize"
    for copied in (copy.copy(guarded), copy.deepcopy(guarded), guarded.model_copy()):
        assert copied.call(f"I am {MAIL}") == "done"
    assert MAIL not in str(llm.seen)
    with pytest.raises(ConfigError, match="llm is an LLM of crewai, not str"):
        guarded_llm("gpt-5.5", Stabilizer(1_800))
    with pytest.raises(ConfigError, match="guarded already"):
        guarded_llm(guarded, Stabilizer(1_800))
    with pytest.raises(ConfigError, match=r"write guarded_llm\(llm, Stabilizer\(budget=…\)\)"):
        guarded_llm(llm, budget=1_800)
