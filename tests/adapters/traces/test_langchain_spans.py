"""What OpenInference records of a guarded LangChain agent with OpenTelemetry, and what our exporter makes of it."""

from __future__ import annotations

import pytest

pytest.importorskip("langchain", reason="LangChain is not installed (extra langchain)")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")
pytest.importorskip("openinference.instrumentation.langchain", reason="OpenInference is not installed (group dev)")

from langchain.agents import create_agent
from openinference.instrumentation import TraceConfig
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from traces.test_langsmith_traces import MAIL, Mailing, send_mail

from ctxguard import Stabilizer
from ctxguard.pii import Vault, new_key
from ctxguard.report import MaskingSpanExporter
from ctxguard.stores import MemoryStore
from ctxguard_langchain import ContextGuardMiddleware


def traced(*, masks=False, restore=False, **settings):
    """Return which attributes of each span hold the value, and the requests that were recorded."""
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(MaskingSpanExporter(memory) if masks else memory))
    instrumentor = LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider, **settings)
    try:
        vault = Vault(MemoryStore(), key=new_key()).session("one")
        guard = ContextGuardMiddleware(Stabilizer(4_000), vault=vault, restore=restore)
        agent = create_agent(Mailing(seen=[]), [send_mail], middleware=[guard])
        agent.invoke({"messages": [("user", f"I am {MAIL}, write to me")]})
    finally:
        instrumentor.uninstrument()
    raw, requests = {}, []
    for span in memory.get_finished_spans():
        raw.setdefault(span.name, set()).update(name for name, value in span.attributes.items() if MAIL in str(value))
        requests += [span.attributes["input.value"]] if span.name == "Mailing" else []
    return raw, requests


def test_the_span_of_the_model_holds_the_masked_request_and_all_others_the_values():
    raw, requests = traced()
    assert raw["Mailing"] == set()
    assert requests
    assert all("<EMAIL_1>" in one for one in requests)
    assert {"LangGraph", "model", "tools", "send_mail"} <= {name for name, found in raw.items() if found}


def test_restored_answers_are_written_into_the_span_of_the_model():
    raw, requests = traced(restore=True)
    assert "output.value" in raw["Mailing"]
    assert not [one for one in requests if MAIL in one]


@pytest.mark.parametrize("restore", [False, True])
def test_with_our_exporter_every_span_holds_masked_texts(restore):
    raw, requests = traced(masks=True, restore=restore)
    assert set().union(*raw.values()) == set()
    assert all("<EMAIL_1>" in one for one in requests)


def test_without_inputs_and_outputs_no_span_holds_a_text():
    raw, requests = traced(config=TraceConfig(hide_inputs=True, hide_outputs=True))
    assert set().union(*raw.values()) == set()
    assert not [one for one in requests if "<EMAIL_1>" in one]
