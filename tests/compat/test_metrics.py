"""What the metrics say, in the summary and to OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxguard.artifacts import Artifact
from ctxguard.compat.metrics import EVENTS_KEPT, CheckpointEvent, CompressionEvent, ContextMetrics
from ctxguard.errors import AdapterError, ConfigError
from ctxguard.tokens import ArtifactCounter, EstimateCounter

KEYS = [
    "total_input_tokens",
    "total_output_tokens",
    "total_reduction",
    "compression_count",
    "average_reduction",
    "checkpoint_count",
]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def metrics() -> ContextMetrics:
    return ContextMetrics(clock=lambda: NOON)


def test_without_compressions_the_summary_says_so(metrics: ContextMetrics) -> None:
    assert metrics.get_summary() == {"status": "no compression events"}
    metrics.record_checkpoint("login")
    metrics.record_input_size(5)
    assert metrics.get_summary() == {"status": "no compression events"}


def test_the_summary_has_the_documented_keys_and_numbers(metrics: ContextMetrics) -> None:
    metrics.record_compression(1000, 400, "sliding_window")
    metrics.record_compression(100, 80, "hybrid")
    metrics.record_checkpoint("login")
    summary = metrics.get_summary()
    assert list(summary) == KEYS
    assert summary == {
        "total_input_tokens": 1100,
        "total_output_tokens": 480,
        "total_reduction": pytest.approx((1 - 480 / 1100) * 100),
        "compression_count": 2,
        "average_reduction": pytest.approx((60 + 20) / 2),
        "checkpoint_count": 1,
    }


def test_events_are_kept_with_their_time(metrics: ContextMetrics) -> None:
    metrics.record_compression(1000, 400, "sliding_window")
    metrics.record_checkpoint("login")
    assert metrics.compression_events == (CompressionEvent(NOON, 1000, 400, pytest.approx(60.0), "sliding_window"),)
    assert metrics.checkpoint_events == (CheckpointEvent(NOON, "login"),)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1))
def test_any_sizes_sum_up(sizes: list[tuple[int, int]]) -> None:
    metrics = ContextMetrics(counter="estimate")
    for before, after in sizes:
        metrics.record_compression(before, after, "any")
    summary = metrics.get_summary()
    assert summary["total_input_tokens"] == sum(before for before, _ in sizes)
    assert summary["total_output_tokens"] == sum(after for _, after in sizes)
    assert summary["total_reduction"] <= 100
    assert summary["average_reduction"] <= 100


def test_an_empty_input_is_no_division_by_zero(metrics: ContextMetrics) -> None:
    metrics.record_compression(0, 0, "any")
    summary = metrics.get_summary()
    assert (summary["total_reduction"], summary["average_reduction"]) == (0.0, 0.0)


def test_growth_is_a_negative_reduction(metrics: ContextMetrics) -> None:
    metrics.record_compression(100, 150, "any")
    assert metrics.get_summary()["total_reduction"] == pytest.approx(-50.0)


def test_sizes_are_numbers_artifacts_or_messages() -> None:
    metrics = ContextMetrics(counter="estimate")
    artifacts = [Artifact("user", "hello there"), Artifact("assistant", "hello to you")]
    metrics.record_input_size(artifacts)
    counted = ArtifactCounter(EstimateCounter()).artifacts(artifacts)
    assert metrics.total_input_tokens == counted
    metrics.record_input_size(7)
    metrics.record_input_size([])
    assert metrics.total_input_tokens == counted + 7
    metrics.record_output_size({"role": "user", "content": "hello"} for _ in range(3))
    assert metrics.total_output_tokens >= 3


def test_sizes_that_are_none_are_refused(metrics: ContextMetrics) -> None:
    with pytest.raises(ConfigError, match="0 tokens or more, not -1"):
        metrics.record_input_size(-1)
    with pytest.raises(ConfigError):
        metrics.record_compression(1, -1, "any")
    with pytest.raises(AdapterError):
        metrics.record_output_size(["text"])
    assert metrics.get_summary() == {"status": "no compression events"}
    assert metrics.total_input_tokens == metrics.total_output_tokens == 0


def test_memory_is_bounded_and_sums_are_not_cut(metrics: ContextMetrics) -> None:
    for _ in range(2 * EVENTS_KEPT):
        metrics.record_compression(10, 5, "any")
        metrics.record_checkpoint("p")
    tracemalloc.start()
    for _ in range(10 * EVENTS_KEPT):
        metrics.record_compression(10, 5, "any")
        metrics.record_checkpoint("p")
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(metrics.compression_events) == len(metrics.checkpoint_events) == EVENTS_KEPT
    assert metrics.get_summary()["compression_count"] == metrics.get_summary()["checkpoint_count"] == 12 * EVENTS_KEPT
    assert grown < EVENTS_KEPT * 500


def test_threads_lose_no_event(metrics: ContextMetrics) -> None:
    def work(_: int) -> None:
        for _ in range(2_000):
            metrics.record_compression(10, 5, "any")
            metrics.record_input_size(1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert metrics.get_summary()["total_input_tokens"] == 160_000
    assert metrics.total_input_tokens == 16_000


def test_it_exports_through_opentelemetry() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="export of metrics: opentelemetry-sdk is not installed")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics = ContextMetrics(meter=provider.get_meter("ctxguard"))
    metrics.record_input_size(1000)
    metrics.record_output_size(400)
    metrics.record_compression(1000, 400, "hybrid")
    metrics.record_compression(0, 0, "hybrid")
    metrics.record_compression(100, 50, "sliding_window")
    metrics.record_checkpoint("login")
    found = {
        metric.name: {tuple((point.attributes or {}).values()): point for point in metric.data.data_points}
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    provider.shutdown()
    assert found["ctxguard.input.tokens"][()].value == 1000
    assert found["ctxguard.output.tokens"][()].value == 400
    assert found["ctxguard.compressions"]["hybrid",].value == 2
    assert found["ctxguard.checkpoints"]["login",].value == 1
    ratios = found["ctxguard.compression.ratio"]
    assert (ratios["hybrid",].sum, ratios["hybrid",].count) == (pytest.approx(0.4), 1)
    assert ratios["sliding_window",].sum == pytest.approx(0.5)


def test_without_opentelemetry_it_works_and_the_import_loads_none_of_it() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from ctxguard.compat.metrics import ContextMetrics\n"
        "metrics = ContextMetrics(counter='estimate')\n"
        "metrics.record_compression(10, 5, 'any'); metrics.record_checkpoint('p'); metrics.record_input_size(3)\n"
        "assert metrics.get_summary()['total_reduction'] == 50.0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    loaded = (
        "import sys, ctxguard.compat.metrics; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", loaded], check=True)


def test_the_meter_of_a_provider_that_is_set_later_is_used() -> None:
    """The global one, so in a process of its own."""
    pytest.importorskip("opentelemetry.sdk", reason="export of metrics: opentelemetry-sdk is not installed")
    program = """
from ctxguard.compat.metrics import ContextMetrics
metrics = ContextMetrics(counter="estimate")
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
set_meter_provider(MeterProvider([reader]))
metrics.record_input_size(42)
assert '"ctxguard.input.tokens"' in reader.get_metrics_data().to_json()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
