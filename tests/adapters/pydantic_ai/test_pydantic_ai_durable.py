"""The guard for durable engines does all its work in the model call, and sends what the other guard sends."""

from __future__ import annotations

import asyncio
import re

import pytest

pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.pii import Vault, new_key
from ctxguard.policies import agent_stages
from ctxguard.stores import MemoryStore
from ctxguard_pydantic_ai import ContextGuard, DurableContextGuard, recall_tool

HAS_HOOK = hasattr(AbstractCapability, "get_wrapper_model")
needs_hook = pytest.mark.skipif(not HAS_HOOK, reason="this PydanticAI has no hook to wrap the model of a request")
PEOPLE = ("ada@corp-mail.net", "bob@corp-mail.net")
ASKED = f"These are {' and '.join(PEOPLE)}."
SAID = "Write to <EMAIL_2>, then <EMAIL_1>; 1 < 2"
SHOWN = f"Write to {PEOPLE[1]}, then {PEOPLE[0]}; 1 < 2"


def session(name="one"):
    return Vault(MemoryStore(), key=new_key()).session(name)


def scripted(seen, *parts):
    def reply(messages, info):
        seen.append(messages)
        part = parts[min(len(seen), len(parts)) - 1]
        return ModelResponse(parts=[TextPart(part) if isinstance(part, str) else part])

    return FunctionModel(reply)


def test_all_that_it_overrides_is_called_in_a_step_or_does_no_work():
    hooks = {name for name in vars(DurableContextGuard) if callable(getattr(AbstractCapability, name, None))}
    ours = {name for name in hooks if not name.startswith("__")}
    assert ours == {"get_serialization_name", *(["get_wrapper_model"] if HAS_HOOK else [])} or not HAS_HOOK
    assert not {"prepare_model_request", "wrap_model_request", "after_tool_execute", "for_run"} & hooks


@pytest.mark.skipif(HAS_HOOK, reason="this PydanticAI has the hook")
def test_a_version_without_the_hook_is_refused():
    with pytest.raises(ConfigError, match="cannot restore responses"):
        DurableContextGuard(Stabilizer(4_000))


@needs_hook
def test_it_sends_what_the_other_guard_sends_and_keeps_the_same_history():
    def look_up(query: str) -> str:
        return f"{query}: " + f"{PEOPLE[1]} asked, the order left the warehouse\n" * 60

    runs = []
    for guard in (
        ContextGuard(Stabilizer(900), vault=session(), restore=True),
        DurableContextGuard(Stabilizer(900), vault=session()),
    ):
        seen, history = [], []
        calls = [ToolCallPart("look_up", {"query": "<EMAIL_1>"}, tool_call_id=f"c{n}") for n in range(5)]
        agent = Agent(scripted(seen, *calls, SAID), instructions="Be brief.", tools=[look_up], capabilities=[guard])
        for _ in range(2):
            result = agent.run_sync(ASKED, message_history=history)
            history = result.all_messages()
            assert result.output == SHOWN
        parts = [[part for message in messages for part in message.parts] for messages in (*seen, history)]
        runs.append([[(one.part_kind, getattr(one, "content", None) or one.args) for one in each] for each in parts])
    assert runs[0] == runs[1]
    assert not [person for person in PEOPLE if person in str(runs[1][:-1])]
    assert "[shortened by ctxguard" in str(runs[1])


@needs_hook
@pytest.mark.parametrize("at", range(0, len(SAID), 5))
async def test_a_stream_is_shown_whole_wherever_it_is_cut(at):
    seen = []

    async def stream(messages, info):
        seen.append(str(messages))
        for piece in (SAID[:at], SAID[at:]):
            yield piece

    guard = DurableContextGuard(Stabilizer(4_000), vault=lambda ctx: ctx.deps)
    agent = Agent(FunctionModel(stream_function=stream), capabilities=[guard])
    async with agent.run_stream(ASKED, deps=session()) as result:
        assert "".join([piece async for piece in result.stream_text(delta=True, debounce_by=None)]) == SHOWN
    assert not [person for person in PEOPLE if person in str(seen)]


@needs_hook
async def test_runs_at_once_on_one_agent_have_their_own_values():
    vaults = Vault(MemoryStore(), key=new_key())

    async def reply(messages, info):
        await asyncio.sleep(0)
        return ModelResponse(parts=[TextPart("You are <EMAIL_1>.")])

    guard = DurableContextGuard(Stabilizer(4_000), vault=lambda ctx: vaults.session(ctx.deps))
    agent = Agent(FunctionModel(reply), deps_type=str, capabilities=[guard])
    users = [f"user{n}@corp-mail.net" for n in range(8)]
    answers = await asyncio.gather(*(agent.run(f"I am {user}.", deps=user) for user in users))
    assert [answer.output for answer in answers] == [f"You are {user}." for user in users]


@needs_hook
def test_an_overflow_is_answered_once_with_a_tighter_budget_and_other_errors_are_raised():
    from pydantic_ai.exceptions import ModelContextWindowExceededError

    reports, sizes = [], []

    def small_window(messages, info):
        sizes.append(len(str(messages)))
        if "fail" in str(messages[-1]):
            raise ZeroDivisionError
        if "never" in str(messages[-1]) or len(sizes) == 1:
            raise ModelContextWindowExceededError("scripted", "too long")
        return ModelResponse(parts=[TextPart("fine")])

    guard = DurableContextGuard(Stabilizer(1_000), on_report=reports.append)
    agent = Agent(FunctionModel(small_window), capabilities=[guard])
    history = [ModelRequest.user_text_prompt("the same old words again " * 8) for _ in range(20)]
    assert agent.run_sync("And now?", message_history=history).output == "fine"
    assert [report.budget for report in reports] == [1_000, 600]
    with pytest.raises(ModelContextWindowExceededError):
        agent.run_sync("never")
    with pytest.raises(ZeroDivisionError):
        agent.run_sync("fail")
    assert len(sizes) == 5


@needs_hook
def test_a_count_by_the_provider_is_of_what_is_sent():
    counted = []

    class Counting(FunctionModel):
        async def count_tokens(self, messages, settings, parameters):
            counted.append(messages)
            return RequestUsage(input_tokens=1)

    model = Counting(scripted([], SAID).function)
    agent = Agent(model, capabilities=[DurableContextGuard(Stabilizer(4_000), vault=session())])
    agent.run_sync(ASKED, usage_limits=UsageLimits(input_tokens_limit=1_000, count_tokens_before_request=True))
    assert counted
    assert not [person for person in PEOPLE if person in str(counted)]


@needs_hook
def test_a_text_that_is_recalled_has_values_that_are_masked_again():
    store, seen, found = MemoryStore(), [], []

    def log(query: str) -> str:
        return "\n".join(f"line {n}: {PEOPLE[1]} asked" for n in range(400))

    def reply(messages, info):
        seen.append(str(messages))
        if len(seen) == 1:
            return ModelResponse(parts=[ToolCallPart("log", {"query": "all"})])
        if len(seen) == 2:
            handle = re.search(r"\b[a-p]{20}\b", seen[-1])[0]
            wanted = {"handle": handle, "first_line": 201, "last_line": 201}
            return ModelResponse(parts=[ToolCallPart("recall", wanted)])
        found.append(messages[-1].parts[0].content)
        return ModelResponse(parts=[TextPart("It was <EMAIL_2>.")])

    guard = DurableContextGuard(Stabilizer(1_500, stages=agent_stages(store=store)), vault=session())
    agent = Agent(FunctionModel(reply), tools=[log, recall_tool(store)], capabilities=[guard])
    assert agent.run_sync(ASKED).output == f"It was {PEOPLE[1]}."
    assert found[0].splitlines()[-1] == "line 200: <EMAIL_2> asked"
    assert not [person for person in PEOPLE if person in str(seen)]
