"""What operators see: a log without content, spans and metrics where OpenTelemetry is in use, and nothing where not."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from ctxguard import Artifact, Stabilizer
from ctxguard.checks import NoPII
from ctxguard.errors import BudgetExceededError
from ctxguard.pii import STANDARD

MAIL = "ada@example.com"
HISTORY = [
    Artifact("user" if n % 2 == 0 else "assistant", f"Line {n} for {MAIL}: " + "nothing new here. " * 20)
    for n in range(41)
]


def test_cuts_and_findings_are_logged_without_content(caplog):
    caplog.set_level(logging.DEBUG, "ctxguard")
    stabilizer = Stabilizer(1_000)
    for end in range(1, len(HISTORY) + 1, 2):
        stabilizer.stabilize(HISTORY[:end])
    Stabilizer(1_000, stages=[], checks=[NoPII(STANDARD)]).stabilize([Artifact("user", f"I am {MAIL}.")])
    told = [record.getMessage() for record in caplog.records if record.name == "ctxguard"]
    assert any(line.startswith("cut at artifact ") and "the budget is 1000" in line for line in told)
    assert "NoPII: 1 finding @ artifacts[0]" in told
    assert not [line for line in told if "ada" in line or "nothing new" in line]


def test_a_failure_is_logged_by_its_name_alone(caplog):
    with pytest.raises(BudgetExceededError):
        Stabilizer(50).stabilize([Artifact("user", f"{MAIL} " * 200)])
    assert [record.getMessage() for record in caplog.records] == ["stabilization failed: BudgetExceededError"]


def test_nothing_is_imported_without_opentelemetry():
    code = (
        "import sys; from ctxguard import Artifact, Stabilizer; Stabilizer(100).stabilize([Artifact('user', 'x')]);"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_each_stabilization_is_a_span_and_counts():
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    code = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ctxguard import Artifact, Stabilizer
from ctxguard.errors import BudgetExceededError

spans, reader, provider = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))
history = [Artifact("user" if n % 2 == 0 else "assistant", f"Line {n}: " + "nothing new here. " * 20) for n in range(41)]
with trace.get_tracer("app").start_as_current_span("chat"):
    report = Stabilizer(1_000).stabilize(history).report
try:
    Stabilizer(50).stabilize([Artifact("user", "word " * 200)])
except BudgetExceededError:
    pass
done, outer, failed = spans.get_finished_spans()
assert done.name == failed.name == "ctxguard.stabilize"
assert done.parent.span_id == outer.context.span_id
assert done.attributes["gen_ai.usage.input_tokens"] == report.tokens_after
assert done.attributes["ctxguard.tokens.before"] == report.tokens_before
assert done.attributes["ctxguard.cut"] is (report.cut is not None and report.cut.fresh)
assert done.end_time > done.start_time
assert failed.attributes["error.type"] == "BudgetExceededError" and not failed.status.is_ok
data = reader.get_metrics_data().resource_metrics[0].scope_metrics[0]
names = {metric.name for metric in data.metrics}
assert names == {"ctxguard.stabilizations", "ctxguard.cuts", "ctxguard.tokens", "ctxguard.duration"}, names
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_sum_of_the_guard_also_goes_to_opentelemetry_and_a_cut_once():
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    pytest.importorskip("httpx")
    code = """
import json
from collections import Counter

import httpx
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from ctxguard import Stabilizer
from ctxguard.wire import Guard, Transport

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
usage = {"prompt_tokens": 900, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 400}}
answer = {"choices": [{"message": {"role": "assistant", "content": "Yes."}}], "usage": usage}
guard = Guard(Stabilizer(1_500))
told = []
with httpx.Client(transport=Transport(guard, transport=httpx.MockTransport(lambda _: httpx.Response(200, json=answer)))) as c:
    for turn in range(24):
        told += [{"role": "user", "content": f"{turn}, for ada@example.com: " + "nothing new here. " * 50}]
        c.post("http://p/v1/chat/completions", json={"model": "gpt-4o", "messages": told})
        told += [{"role": "assistant", "content": "Yes."}]
sums = Counter()
for metric in json.loads(reader.get_metrics_data().to_json())["resource_metrics"][0]["scope_metrics"][0]["metrics"]:
    for point in metric["data"]["data_points"]:
        sums[metric["name"]] += point.get("value", 0)

for name in ("requests", "input.tokens", "billed.tokens", "masked_requests", "cuts"):
    assert sums[f"ctxguard.{name}"] == guard.metrics.get(name) > 0, (name, sums)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
