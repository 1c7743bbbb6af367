"""A model with a filter of its own sends what a run with that filter sends, without code of the run."""

from __future__ import annotations

import pytest

pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from agents import Agent, ModelProvider, ModelSettings, RunConfig, Runner, function_tool, handoff, set_tracing_disabled
from agents.models.interface import ModelTracing
from openai_agents.test_agents_overflow import HISTORY, SmallModel
from openai_agents.test_agents_restored import ASKED, PEOPLE, SAID, SHOWN, Scripted, call, deltas_of, message, session
from pydantic import BaseModel

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError
from ctxguard_openai_agents import (
    call_model_input_filter,
    with_input_filter,
    with_overflow_retry,
    with_restored_values,
)

set_tracing_disabled(True)


@function_tool
def look_up(query: str) -> str:
    """Look an order up."""
    return f"{query}: " + f"{PEOPLE[1]} asked, the order left the warehouse\n" * 60


class Order(BaseModel):
    number: int


class OneModel(ModelProvider):
    def __init__(self, model):
        self.model = model

    def get_model(self, model_name):
        return self.model


async def test_it_sends_what_a_run_with_the_filter_sends_and_counts_the_same():
    runs = []
    for is_durable in (False, True):
        reports, vault = [], session()
        guard = call_model_input_filter(Stabilizer(1_200), vault=vault, on_report=reports.append)
        scripted = Scripted(call("look_up", '{"query":"<EMAIL_1>"}'), message(SAID))
        model = with_restored_values(scripted)
        settings = {} if is_durable else {"run_config": RunConfig(call_model_input_filter=guard)}
        model = with_input_filter(model, guard) if is_durable else model
        other = handoff(Agent(name="other"))
        agent = Agent(name="clerk", instructions="Be brief.", model=model, tools=[look_up], handoffs=[other])
        result = await Runner.run(agent, ASKED, **settings)
        assert result.final_output == SHOWN
        runs.append((scripted.seen, [report.tokens_after for report in reports], result.to_input_list()))
    assert runs[0] == runs[1]
    assert not [person for person in PEOPLE if person in str(runs[1][0])]


async def test_the_output_type_is_counted():
    counts = []
    for output in (None, Order):
        reports = []
        guard = call_model_input_filter(Stabilizer(4_000), on_report=reports.append)
        model = with_input_filter(Scripted(message('{"number":1}')), guard)
        await Runner.run(Agent(name="clerk", model=model, output_type=output), "Order 1")
        counts.append(reports[0].tokens_after)
    assert counts[1] > counts[0]


@pytest.mark.parametrize("wrap", [lambda model: model, OneModel])
async def test_a_stream_of_a_model_or_of_a_provider_shows_the_values(wrap):
    scripted = Scripted(message(SAID), at=9)
    guard = call_model_input_filter(Stabilizer(4_000), vault=session())
    guarded = with_input_filter(with_restored_values(wrap(scripted)), guard)
    is_model = not isinstance(guarded, ModelProvider)
    agent = Agent(name="clerk", model=guarded if is_model else "any")
    config = RunConfig() if is_model else RunConfig(model_provider=guarded)
    assert await deltas_of(Runner.run_streamed(agent, ASKED, run_config=config)) == SHOWN
    assert not [person for person in PEOPLE if person in str(scripted.seen)]


async def test_an_overflow_is_answered_once_with_a_tighter_budget():
    guard = call_model_input_filter(Stabilizer(1_500))
    small = SmallModel(window=800)
    agent = Agent(name="clerk", model=with_input_filter(with_overflow_retry(small), guard))
    assert (await Runner.run(agent, HISTORY)).final_output == "fine"
    assert len(small.calls) == 2


async def test_a_text_as_input_is_a_message_of_the_user():
    scripted = Scripted(message("fine"))
    model = with_input_filter(scripted, call_model_input_filter(Stabilizer(4_000)))
    await model.get_response(
        None,
        ASKED,
        ModelSettings(),
        [],
        None,
        [],
        ModelTracing.DISABLED,
        previous_response_id=None,
        conversation_id=None,
        prompt=None,
    )
    assert "[REDACTED_EMAIL]" in scripted.seen[0]


def test_anything_else_is_refused():
    with pytest.raises(ConfigError, match="with_input_filter"):
        with_input_filter("gpt-5.5", call_model_input_filter(Stabilizer(4_000)))
