"""What the Agents SDK's tracing records of a guarded run: the model's span is masked, and one line empties the others."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("agents", reason="the Agents SDK (openai-agents) is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    function_tool,
    set_trace_processors,
    set_tracing_disabled,
)
from agents.tracing import TracingProcessor
from durable.scripted_provider import ANSWER, PEOPLE, TASK, Provider, look_up

from ctxguard import Stabilizer
from ctxguard.pii import Vault, new_key
from ctxguard.stores import MemoryStore
from ctxguard_openai_agents import call_model_input_filter, with_input_filter, with_restored_values


class Recording(TracingProcessor):
    def __init__(self):
        self.spans = []

    def on_span_end(self, span):
        self.spans.append(span.export()["span_data"])

    def on_trace_start(self, trace): ...
    def on_trace_end(self, trace): ...
    def on_span_start(self, span): ...
    def shutdown(self): ...
    def force_flush(self): ...


@function_tool
def send_mail(to: str, text: str) -> str:
    return f"sent to {to}"


async def traced(folder, *, is_durable=False, **settings):
    """Return which fields of each kind of span hold a value, and the requests that were recorded."""
    recording = Recording()
    set_tracing_disabled(False)
    set_trace_processors([recording])
    try:
        guard = call_model_input_filter(Stabilizer(4_000), vault=Vault(MemoryStore(), key=new_key()).session("one"))
        provider = Provider(folder / "log", None)
        model = with_restored_values(OpenAIChatCompletionsModel("gpt-5.5", provider.client()))
        model = with_input_filter(model, guard) if is_durable else model
        agent = Agent(name="clerk", model=model, tools=[function_tool(look_up), send_mail])
        config = RunConfig(call_model_input_filter=None if is_durable else guard, **settings)
        assert (await Runner.run(agent, TASK, run_config=config)).final_output == ANSWER
    finally:
        set_trace_processors([])
        set_tracing_disabled(True)
    raw, requests = {}, []
    for span in recording.spans:
        found = raw.setdefault(span["type"], set())
        found |= {name for name, value in span.items() if any(one in json.dumps(value) for one in PEOPLE)}
        requests += [json.dumps(span["input"])] if span["type"] == "generation" and span["input"] else []
    return raw, requests


@pytest.mark.parametrize("is_durable", [False, True])
async def test_the_span_of_the_model_holds_the_masked_request_and_those_of_tools_the_values(is_durable, tmp_path):
    raw, requests = await traced(tmp_path, is_durable=is_durable)
    assert raw["generation"] == set()
    assert raw["function"] == {"input", "output"}
    assert len(requests) == 4
    assert all("I am <EMAIL_1>" in one for one in requests)
    assert not [kind for kind in raw if raw[kind] and kind != "function"]


async def test_without_sensitive_data_no_span_holds_a_value_or_a_text(tmp_path):
    raw, requests = await traced(tmp_path, trace_include_sensitive_data=False)
    assert set().union(*raw.values()) == set()
    assert requests == []
