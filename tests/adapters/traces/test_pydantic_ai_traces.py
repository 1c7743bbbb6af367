"""What PydanticAI's instrumentation records of a guarded agent: the model's span is masked, and one line masks the others."""

from __future__ import annotations

import pytest

pytest.importorskip("pydantic_ai", reason="PydanticAI is not installed (extra pydantic-ai)")
pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra vault)")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

try:
    from pydantic_ai.capabilities import Instrumentation
    from pydantic_ai.models.instrumented import InstrumentationSettings
except ImportError:
    pytest.skip("this PydanticAI has no capability Instrumentation", allow_module_level=True)
if not hasattr(AbstractCapability, "get_wrapper_model"):
    pytest.skip("this PydanticAI has no hook to wrap the model of a request", allow_module_level=True)

from ctxguard import Stabilizer
from ctxguard.pii import STANDARD, Masker, Vault, new_key
from ctxguard.report import MaskingSpanExporter
from ctxguard.stores import MemoryStore
from ctxguard_pydantic_ai import ContextGuard, DurableContextGuard

MAIL, CLERK = "ada@corp-mail.net", "eve@corp-mail.net"


def reply(messages, info):
    assert MAIL not in str(messages)
    if any(part.part_kind == "tool-return" for part in messages[-1].parts):
        return ModelResponse(parts=[TextPart("I wrote to <EMAIL_2>.")])
    return ModelResponse(parts=[ToolCallPart("send_mail", {"to": "<EMAIL_2>"})])


def send_mail(to: str) -> str:
    return f"sent to {to}"


def run(guard, instrument):
    agent = Agent(FunctionModel(reply), instructions=f"Ask {CLERK}.", tools=[send_mail], capabilities=instrument(guard))
    agent.run_sync(f"I am {MAIL}, write to me")


def fields(spans):
    """Return the attributes of each kind of span that hold a value, and the requests that were recorded."""
    raw, requests = {}, []
    for span in spans:
        found = raw.setdefault(span.name.split()[0], set())
        found |= {name for name, value in span.attributes.items() if MAIL in str(value) or CLERK in str(value)}
        requests += [span.attributes["gen_ai.input.messages"]] if "gen_ai.input.messages" in span.attributes else []
    return raw, requests


def traced(kind=ContextGuard, *, place=-1, exporter=lambda exporter, vault: exporter, settings=None, **options):
    memory, provider = InMemorySpanExporter(), TracerProvider()
    vault = Vault(MemoryStore(), key=new_key()).session("one")
    provider.add_span_processor(SimpleSpanProcessor(exporter(memory, vault)))
    spans = Instrumentation(InstrumentationSettings(tracer_provider=provider, **(settings or {})))
    guard = kind(Stabilizer(4_000), vault=vault, **options)
    run(guard, lambda guard: [guard, spans] if place else [spans, guard])
    return fields(memory.get_finished_spans())


@pytest.mark.parametrize("place", [0, -1])
def test_the_span_of_the_model_holds_the_masked_request_in_any_order_of_capabilities(place):
    raw, requests = traced(place=place)
    assert raw["chat"] == set()
    assert all("I am <EMAIL_2>, write to me" in one for one in requests)
    assert raw["execute_tool"] == {"gen_ai.tool.call.result"}
    assert raw["invoke_agent"] == {"pydantic_ai.all_messages"}


def test_restored_answers_are_written_into_the_spans():
    raw, requests = traced(restore=True)
    assert raw["chat"] == {"gen_ai.output.messages"}
    assert raw["execute_tool"] == {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}
    assert raw["invoke_agent"] == {"final_result", "pydantic_ai.all_messages"}
    assert not [one for one in requests if MAIL in one]


def test_the_guard_of_a_durable_engine_works_after_the_span_has_been_written():
    raw, requests = traced(DurableContextGuard)
    assert {"gen_ai.input.messages", "gen_ai.system_instructions"} <= raw["chat"]
    assert all(MAIL in one for one in requests)


GUARDS = [(ContextGuard, {}), (ContextGuard, {"restore": True}), (DurableContextGuard, {})]


@pytest.mark.parametrize(("kind", "options"), GUARDS)
def test_without_content_no_span_holds_a_value_or_a_text(kind, options):
    raw, requests = traced(kind, settings={"include_content": False}, **options)
    assert set().union(*raw.values()) == set()
    assert not [one for one in requests if "write to me" in one]


@pytest.mark.parametrize(("kind", "options"), GUARDS)
def test_with_our_exporter_every_span_holds_masked_texts(kind, options):
    raw, requests = traced(kind, exporter=lambda memory, _: MaskingSpanExporter(memory), **options)
    assert raw.keys() == {"chat", "execute_tool", "invoke_agent"}
    assert set().union(*raw.values()) == set()
    assert all("write to me" in one for one in requests)


@pytest.mark.parametrize(("kind", "options"), GUARDS)
def test_with_the_vault_it_records_the_request_that_was_sent(kind, options):
    def exporter(memory, vault):
        masker = Masker(STANDARD, strategy="pseudonymize", vault=vault, escape=False)
        return MaskingSpanExporter(memory, mask=masker.mask)

    raw, requests = traced(kind, exporter=exporter, **options)
    assert set().union(*raw.values()) == set()
    assert all("I am <EMAIL_2>, write to me" in one for one in requests)


def test_logfire_scrubs_no_messages_and_records_what_opentelemetry_does():
    logfire = pytest.importorskip("logfire", reason="logfire is not installed")
    vault = Vault(MemoryStore(), key=new_key()).session("one")
    for masks in (False, True):
        memory = InMemorySpanExporter()
        exporter = MaskingSpanExporter(memory) if masks else memory
        processors = [SimpleSpanProcessor(exporter)]
        logfire.configure(send_to_logfire=False, console=False, additional_span_processors=processors)
        logfire.instrument_pydantic_ai()
        run(ContextGuard(Stabilizer(4_000), vault=vault), lambda guard: [guard])
        raw, requests = fields(memory.get_finished_spans())
        assert raw["chat"] == set()
        assert (raw["invoke_agent"] == {"pydantic_ai.all_messages"}) is not masks
        assert set().union(*raw.values()) == set() or not masks
        assert all("I am <EMAIL_2>, write to me" in one for one in requests)
