"""Exported spans are masked in every field, and the spans themselves stay as they are."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ctxguard.pii import STANDARD, Masker, Vault, new_key
from ctxguard.report import MaskingSpanExporter
from ctxguard.stores import MemoryStore

MAIL = "ada@corp-mail.net"


def exported(record, **settings):
    """Return the spans as exported masked and as they are, after `record` was called with a tracer."""
    masked, raw = InMemorySpanExporter(), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(MaskingSpanExporter(masked, **settings)))
    provider.add_span_processor(SimpleSpanProcessor(raw))
    record(provider.get_tracer("test"))
    assert provider.force_flush()
    provider.shutdown()
    return masked.get_finished_spans(), raw.get_finished_spans()


def record(tracer):
    link = trace.Link(trace.SpanContext(1, 2, is_remote=False), {"by": MAIL})
    with suppress(ValueError), tracer.start_as_current_span(f"to {MAIL}", links=[link]) as span:
        span.set_attributes(
            {"text": f"to {MAIL}", "list": ("x", MAIL), "number": 4, "flag": True, "shares": (0.5, 1.0)}
        )
        span.set_attribute("json", json.dumps({"text": f"line\n{MAIL}", "more": [f"{MAIL}\t"]}))
        span.add_event(f"event of {MAIL}", {"who": MAIL})
        raise ValueError(f"no such user: {MAIL}")


def test_every_field_is_masked_and_everything_else_stays():
    (masked,), (raw,) = exported(record)
    assert MAIL not in masked.to_json() + masked.name
    assert raw.to_json().count(MAIL) > 8, "other exporters get the span as it is"
    assert masked.attributes["list"] == ("x", "[REDACTED_EMAIL]")
    assert masked.attributes["number"] == 4
    assert masked.attributes["flag"] is True
    assert masked.attributes["shares"] == (0.5, 1.0)
    assert json.loads(masked.attributes["json"])["text"] == "line\n[REDACTED_EMAIL]"
    for field in ("context", "parent", "resource", "kind", "start_time", "end_time", "instrumentation_scope"):
        assert getattr(masked, field) == getattr(raw, field)
    assert [(event.timestamp, {*event.attributes}) for event in masked.events] == [
        (event.timestamp, {*event.attributes}) for event in raw.events
    ]


def test_a_masker_with_a_vault_writes_the_placeholders_of_the_requests():
    session = Vault(MemoryStore(), key=new_key()).session("one")
    masker = Masker(STANDARD, strategy="pseudonymize", vault=session, escape=False)
    masker.mask("eve@corp-mail.net")
    (masked,), _ = exported(lambda tracer: tracer.start_span(f"{MAIL} and <EMAIL_1>").end(), mask=masker.mask)
    assert masked.name == "<EMAIL_2> and <EMAIL_1>"


def test_nothing_is_exported_where_masking_fails():
    def fail(text):
        raise RuntimeError("no detector")

    exporter = InMemorySpanExporter()
    with pytest.raises(RuntimeError):
        MaskingSpanExporter(exporter, mask=fail).export([exported(record)[1][0]])
    assert exporter.get_finished_spans() == ()
    assert MaskingSpanExporter(exporter).export([]) is SpanExportResult.SUCCESS


@pytest.mark.parametrize(
    "value", [b"to zora@mailhost.example", {"a": "zora@mailhost.example"}, {"a": [{"b": "zora@mailhost.example"}]}]
)
def test_bytes_and_records_are_masked(value):
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(MaskingSpanExporter(kept)))
    with provider.get_tracer("t").start_as_current_span("call") as span:
        span.set_attributes({"value": value, "raw": b"\xff\x00"})
        span.add_event("more", {"value": value})
    (exported,) = kept.get_finished_spans()
    assert "zora" not in repr([exported.attributes, [one.attributes for one in exported.events]])
