"""Where the provider says that a prompt is too long, the model call is repeated once with a smaller budget."""

from __future__ import annotations

import pytest

pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")

from agents import Agent, ModelProvider, ModelResponse, RunConfig, Runner, Usage, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import Response, ResponseCompletedEvent
from scripted_agents import assistant_message

from ctxguard import Stabilizer
from ctxguard.errors import ConfigError
from ctxguard.tokens import find_counter
from ctxguard_openai_agents import call_model_input_filter, with_overflow_retry

set_tracing_disabled(True)
HISTORY = [
    {"role": "user" if n % 2 == 0 else "assistant", "content": f"Line {n}: " + "nothing new to see here. " * 20}
    for n in range(41)
]


class TooLongError(Exception):
    """What the SDKs raise, as far as it matters here."""

    status_code = 400
    code = "context_length_exceeded"


class SmallModel(Model):
    def __init__(self, window, error=None):
        self.window = window
        self.calls = []
        self.error = error or TooLongError("This model's maximum context length was exceeded.")

    def take(self, given):
        tokens = find_counter("o200k_base").count(str(given))
        self.calls.append(tokens)
        if tokens > self.window:
            raise self.error

    async def get_response(self, system_instructions, input, *args, **settings):  # noqa: A002 - the SDK's name
        self.take(input)
        return ModelResponse(output=[assistant_message("fine")], usage=Usage(), response_id=None)

    async def stream_response(self, system_instructions, input, *args, **settings):  # noqa: A002 - the SDK's name
        self.take(input)
        response = Response.model_construct(id="r", output=[assistant_message("fine")], usage=None)
        yield ResponseCompletedEvent.model_construct(type="response.completed", response=response, sequence_number=0)


class Provider(ModelProvider):
    def __init__(self, model):
        self.model = model

    def get_model(self, model_name):
        return self.model


async def run(model, *, streams=False, guarded=True, by_provider=False):
    guard = call_model_input_filter(Stabilizer(2_000)) if guarded else None
    chosen = "any" if by_provider else with_overflow_retry(model)
    provider = {"model_provider": with_overflow_retry(Provider(model))} if by_provider else {}
    config = RunConfig(call_model_input_filter=guard, **provider)
    agent = Agent("clerk", instructions="Be brief.", model=chosen)
    if not streams:
        return (await Runner.run(agent, list(HISTORY), run_config=config)).final_output
    result = Runner.run_streamed(agent, list(HISTORY), run_config=config)
    async for _ in result.stream_events():
        pass
    return result.final_output


@pytest.mark.parametrize("by_provider", [False, True])
@pytest.mark.parametrize("streams", [False, True])
async def test_the_call_is_repeated_once_and_fits(streams, by_provider):
    model = SmallModel(1_200)
    assert await run(model, streams=streams, by_provider=by_provider) == "fine"
    first, second = model.calls
    assert first > 1_200 >= second


async def test_a_model_that_is_too_small_for_both_says_so():
    model = SmallModel(100)
    with pytest.raises(TooLongError):
        await run(model)
    assert len(model.calls) == 2


async def test_another_error_is_not_answered_by_a_second_call():
    model = SmallModel(100, ValueError("no such model"))
    with pytest.raises(ValueError, match="no such model"):
        await run(model)
    assert len(model.calls) == 1


async def test_a_run_without_the_filter_is_left_alone():
    assert await run(SmallModel(10**6)) == "fine"  # what this run noted is not the next one's
    model = SmallModel(100)
    with pytest.raises(TooLongError):
        await run(model, guarded=False)
    assert len(model.calls) == 1


def test_the_name_of_a_model_is_no_model():
    with pytest.raises(ConfigError, match="expected a Model or a ModelProvider, got str"):
        with_overflow_retry("gpt-5")
