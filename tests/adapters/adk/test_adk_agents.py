"""Whole runs of ADK with a scripted model: what the model sees fits, what the session keeps stays raw."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("google.adk", reason="the Agent Development Kit is not installed (extra adk)")

from google.adk.agents import LiveRequestQueue, LlmAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import BaseModel
from restored import restoring
from scripted_llm import Chat, ScriptedLlm, calls_of, text_of

from ctxguard import BudgetExceededError, Stabilizer
from ctxguard.errors import CheckFailedError, ConfigError
from ctxguard.formats.gemini import GoogleAdapter
from ctxguard.history import pair
from ctxguard.policies import agent_stages
from ctxguard.stores import MemoryStore
from ctxguard_adk import ContextGuard, recall_tool

pytestmark = pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]")  # ADK warns of its own features
MAIL = "jane.doe@corp-mail.net"


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("parallel", [1, 3])
async def test_thirty_steps_fit_at_every_call_with_cuts_and_stay_raw_in_the_session(parallel, restore):
    given, reports, wanted = [], [], [f"A-{step}-{n} of <EMAIL_1>" for step in range(30) for n in range(parallel)]

    def look_up(order: str) -> str:
        """Look an order up."""
        given.append(order)
        return f"It is that of {MAIL}\n" + "scan=truck status=moving\n" * 100

    calls = [("look_up", {"order": order}) for order in wanted]
    steps = [calls[at : at + parallel] for at in range(0, len(calls), parallel)]
    model = ScriptedLlm(*steps, "done, <EMAIL_1>")
    budget = 1_600 * parallel
    guard = ContextGuard(Stabilizer(budget), on_report=reports.append, **(restoring() if restore else {}))
    chat = Chat(model, guard, instruction="Be brief.", tools=[look_up])
    events = await chat.ask(f"I am {MAIL}. Where are my orders?")
    shown = [text.replace("<EMAIL_1>", MAIL) if restore else text for text in ("done, <EMAIL_1>", *wanted)]
    assert [text_of(events), *given] == shown
    assert len(reports) == len(model.seen) == 31
    assert all(report.ok and report.tokens_after <= budget for report in reports)
    assert {report.session for report in reports} == {"of-ada"}
    assert any(decision.action == "dropped" for decision in reports[-1].decisions)
    assert MAIL not in str(model.seen)
    for request in model.requests:
        found = pair(GoogleAdapter().read(request.contents))
        assert not found.orphans
        assert not found.unanswered
        assert "Be brief." in request.config.system_instruction
    responses = [one for event in chat.session.events for one in event.get_function_responses()]
    assert len(responses) == 30 * parallel
    assert str(chat.session.events).count(MAIL) == 30 * parallel + 1 + str(shown).count(MAIL)


async def test_the_instruction_and_the_tools_are_counted_and_masked_and_the_agent_keeps_its_own():
    async def ask(question: str) -> str:
        return "no"

    ask.__doc__ = f"Ask {MAIL}."
    model, reports = ScriptedLlm("done"), []
    guard = ContextGuard(Stabilizer(1_500), on_report=reports.append)
    words = f"You work for {MAIL}. " + "Be kind. " * 100
    agent = LlmAgent(name="clerk", model=model, instruction=words, tools=[ask])
    chat = Chat(agent, guard)
    await chat.ask("hi")
    await chat.ask("hi again")
    assert MAIL not in str(model.seen)
    assert "[REDACTED_EMAIL]" in model.requests[1].config.system_instruction
    assert "[REDACTED_EMAIL]" in str(model.requests[1].config.tools)
    assert reports[0].tokens_after > 250
    assert agent.instruction == words


class Contact(BaseModel):
    mail: str
    note: str


async def test_an_output_schema_is_counted():
    counts = []
    for schema in ({}, {"output_schema": Contact}):
        reports = []
        guard = ContextGuard(Stabilizer(1_500), on_report=reports.append)
        await Chat(ScriptedLlm('{"mail": "a", "note": "b"}'), guard, **schema).ask("hi")
        counts.append(reports[0].tokens_after)
    assert counts[1] > counts[0] + 10


async def test_an_error_of_the_guard_is_the_cause_of_the_one_that_is_raised():
    model = ScriptedLlm("done")
    with pytest.raises(RuntimeError, match="the budget is 20") as caught:
        await Chat(model, ContextGuard(Stabilizer(20))).ask("word " * 50)
    assert isinstance(caught.value.__cause__, BudgetExceededError)
    config = types.GenerateContentConfig(response_json_schema={"enum": [MAIL]}, response_mime_type="application/json")
    with pytest.raises(RuntimeError) as caught:
        await Chat(model, ContextGuard(Stabilizer(1_500)), generate_content_config=config).ask("hi")
    assert isinstance(caught.value.__cause__, CheckFailedError)
    assert not model.seen


async def test_a_share_of_the_window_is_that_of_the_models_name():
    reports = []
    await Chat(ScriptedLlm("done"), ContextGuard(Stabilizer("50%"), on_report=reports.append)).ask("hi")
    assert reports[0].budget > 400_000


async def test_a_transfer_reaches_the_other_agent_whose_calls_are_guarded_too():
    told = ScriptedLlm([("transfer_to_agent", {"agent_name": "helper"})])
    helper = ScriptedLlm("helped")
    root = LlmAgent(name="clerk", model=told, sub_agents=[LlmAgent(name="helper", model=helper, description="Helps.")])
    reports = []
    events = await Chat(root, ContextGuard(Stabilizer(2_000), on_report=reports.append)).ask(f"I am {MAIL}.")
    assert text_of(events) == "helped"
    assert len(told.seen) == len(helper.seen) == 1
    assert MAIL not in str(told.seen + helper.seen)
    assert "transfer_to_agent" in helper.seen[0]
    assert len(reports) == 2


async def test_a_text_that_was_shortened_is_read_back_whole_and_with_its_values():
    pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")
    import re

    from ctxguard.pii import Vault, new_key

    def read_back(request):
        (handle,) = re.findall(r"\b[a-p]{20}\b", str(request.contents))[:1]
        return [("recall", {"handle": handle, "contains": "order 333 "})]

    def archive() -> str:
        """Read all orders."""
        return "\n".join(f"order {number} of buyer{number}@example.com" for number in range(400))

    store, vault = MemoryStore(), Vault(MemoryStore(), key=new_key()).session("one")
    model = ScriptedLlm([("archive", {})], read_back, "done")
    guard = ContextGuard(Stabilizer(1_500, stages=agent_stages(store=store)), vault=vault)
    chat = Chat(model, guard, tools=[archive, recall_tool(store)])
    events = await chat.ask("Who bought 333?")
    assert text_of(events) == "done"
    assert "buyer333@example.com" in str(events[-2].content), "the session has the values"
    assert "@example.com" not in str(model.seen)
    assert calls_of(events)[0] == {}


async def test_a_live_run_is_refused_by_name_and_nothing_is_sent():
    class Live(ScriptedLlm):
        @asynccontextmanager
        async def connect(self, llm_request):
            self.seen.append(str(llm_request.contents))
            yield None

    model = Live("done")
    chat = Chat(model, ContextGuard(Stabilizer(2_000)))
    await chat.ask(f"I am {MAIL}.")
    queue = LiveRequestQueue()
    queue.send_content(types.Content(role="user", parts=[types.Part(text=f"I am {MAIL}.")]))
    with pytest.raises(RuntimeError, match="run_live is not guarded") as caught:
        async for _ in chat.runner.run_live(user_id="ada", session_id="of-ada", live_request_queue=queue):
            pass
    assert isinstance(caught.value.__cause__, ConfigError)
    assert len(model.seen) == 1


@pytest.mark.parametrize(
    ("place", "told", "make"),
    [
        ("plugins", "Input should be a valid list", lambda guard: App(name="a", root_agent=AGENT, plugins=guard)),
        (
            "plugins.0",
            "Input should be an instance of BasePlugin",
            lambda guard: App(name="a", root_agent=AGENT, plugins=[ContextGuard]),
        ),
        (
            "before_model_callback",
            "Input should be callable",
            lambda guard: LlmAgent(name="a", before_model_callback=guard),
        ),
        ("", "Plugin with name 'ctxguard' already registered", lambda guard: InMemoryRunner(app=two(guard))),
    ],
)
def test_what_adk_rejects_is_explained_on_the_page(place, told, make):
    with pytest.raises(ValueError, match=told) as caught:
        make(ContextGuard(Stabilizer(1_500)))
    page = (Path(__file__).parents[3] / "docs" / "adk.md").read_text(encoding="utf-8")
    assert place in str(caught.value)
    assert any(place in row and told in row for row in page.splitlines())


AGENT = LlmAgent(name="clerk", model=ScriptedLlm("done"))


def two(guard):
    return App(name="a", root_agent=AGENT, plugins=[guard, guard])


def test_arguments_of_a_stabilizer_are_answered_with_the_line_to_write():
    with pytest.raises(ConfigError, match=r"ContextGuard\(Stabilizer\("):
        ContextGuard(budget=8_000)
