"""Telemetry for operators: a log without any message content, and OpenTelemetry if the application uses it.

OpenTelemetry is never imported here. If the application has imported it, each stabilization is a span
`ctxguard.stabilize` and updates metrics. Attributes are named as in the GenAI conventions where these define a name.
"""

from __future__ import annotations

import logging
import re
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import resources
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from ctxguard.errors import CtxguardError

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

    from ctxguard.report import Report

_LOG: Final = logging.getLogger("ctxguard")
_LOG.addHandler(logging.NullHandler())  # applications decide what is shown
_SCOPE: Final = "ctxguard"
_COUNTED_BY_CALL: Final = "cuts"
"""A counter that `_count` exports for each stabilization, so that `Metrics` must not export it again."""
_MOST_SUMS: Final = 1_000
"""Maximum number of counters with all their labels. Further counters keep only their last label.

Otherwise, credentials that are renewed would create ever more counters.
"""
_POSITION: Final = re.compile(r"artifacts\[\d+\]")


class Watch:
    """Measures the time of one stabilization and reports its outcome."""

    def __init__(self) -> None:
        self._began = time.time_ns()

    def ended(self, report: Report) -> None:
        """Report that the stabilization succeeded."""
        _log(report)
        self._span(lambda: _attributes(report))
        if _metrics_are_read():
            _count(report, (time.time_ns() - self._began) / 1e9)

    def failed(self, error: CtxguardError) -> None:
        """Report that the stabilization failed, so that nothing was sent."""
        name = type(error).__name__
        _LOG.warning("stabilization failed: %s", name)
        self._span(lambda: {"error.type": name}, failed=True)

    def _span(self, attributes: Callable[[], dict[str, Any]], *, failed: bool = False) -> None:
        trace = sys.modules.get("opentelemetry.trace")
        if trace is None:
            return
        span = trace.get_tracer(_SCOPE).start_span("ctxguard.stabilize", start_time=self._began)
        # Other libraries import OpenTelemetry's API; counting a whole history for a span that is discarded would be
        # wasteful.
        if span.is_recording():
            span.set_attributes(attributes())
            if failed:
                span.set_status(trace.StatusCode.ERROR)
        span.end()


def _metrics_are_read() -> bool:
    """Return whether the application has set up metrics; the API of OpenTelemetry alone does nothing."""
    metrics = sys.modules.get("opentelemetry.metrics")
    return metrics is not None and not type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics")


def _log(report: Report) -> None:
    mode = " (observed only)" if report.observed else ""
    if report.cut is not None and report.cut.fresh and _LOG.isEnabledFor(logging.INFO):
        _LOG.info(
            "cut at artifact %d: %d of %d tokens are sent, the budget is %d%s",
            *(report.cut.at, report.tokens_after, report.tokens_before, report.budget, mode),
        )
    if report.observed and _LOG.isEnabledFor(logging.INFO):
        _LOG.info("observed: %d of %d tokens would be sent", report.tokens_after, report.tokens_before)
    for check in report.checks:
        if check.findings:
            found = (_POSITION.match(finding.path) for finding in check.findings[:5])
            places = ", ".join(dict.fromkeys(match[0] if match else "the context" for match in found))
            count = len(check.findings)
            _LOG.warning("%s: %d finding%s @ %s%s", check.name, count, "s" * (count > 1), places, mode)


def _attributes(report: Report) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "gen_ai.usage.input_tokens": report.tokens_before if report.observed else report.tokens_after,
        "ctxguard.tokens.before": report.tokens_before,
        "ctxguard.tokens.after": report.tokens_after,
        "ctxguard.budget": report.budget,
        "ctxguard.cut": report.cut is not None and report.cut.fresh,
        "ctxguard.ok": report.ok,
        "ctxguard.observed": report.observed,
    }
    if not report.ok:
        attributes["ctxguard.failed_checks"] = [check.name for check in report.checks if check.findings]
    return attributes


def _count(report: Report, seconds: float) -> None:
    """Export the metrics of one stabilization."""
    export("stabilizations", 1, {"ok": report.ok, "observed": report.observed})
    export("cuts", int(report.cut is not None and report.cut.fresh))
    for check in report.checks:
        if check.findings:
            export("findings", len(check.findings), {"check": check.name})
    export("tokens", report.tokens_before, {"side": "before"})
    export("tokens", report.tokens_after, {"side": "after"})
    export("duration", seconds)


def export(
    name: str, amount: float, attributes: Mapping[str, str | bool] | None = None, *, meter: Meter | None = None
) -> None:
    """Add to a metric of OpenTelemetry, if the application has set up metrics or a meter is given.

    Args:
        name: Name of a counter or a histogram, without the prefix `ctxguard.`.
        amount: Amount to add to the counter, or to record in the histogram.
        attributes: Attributes of the metric.
        meter: Meter to use; None means the meter of the application's provider.
    """
    if meter is not None or _metrics_are_read():
        _instrument(meter or _meter(), name)(amount, attributes)


@lru_cache(maxsize=1)
def _meter() -> Meter:
    meter: Meter = sys.modules["opentelemetry.metrics"].get_meter(_SCOPE)
    return meter


@lru_cache(maxsize=1)
def _figures() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Return the metrics of `data/figures.toml` with units and descriptions. The key `sums` contains the counters."""
    return tomllib.loads(resources.files("ctxguard").joinpath("data/figures.toml").read_text(encoding="utf-8"))


# cached, because the SDK warns if an instrument is created twice
@lru_cache(maxsize=64)
def _instrument(meter: Meter, name: str) -> Callable[..., None]:
    figures = _figures()
    if name in figures["histograms"]:
        return meter.create_histogram(f"ctxguard.{name}", unit=figures["histograms"][name]["unit"]).record
    return meter.create_counter(f"ctxguard.{name}", unit=figures["sums"][name]["unit"]).add


class Metrics:
    """Counters of events, which are also exported to OpenTelemetry. Thread-safe, with bounded memory.

    The names are those of OpenTelemetry without the prefix `ctxguard.`. A counter of any other name is not exported.

    Args:
        meter: OpenTelemetry meter; None means the meter of the application's provider, if it has one.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        self.meter = meter
        self._sums: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._lock = Lock()

    def add(self, name: str, amount: int = 1, /, **labels: str) -> None:
        """Add to the counter with this name and these labels."""
        key = name, tuple(labels.items())
        with self._lock:
            if key not in self._sums and len(self._sums) >= _MOST_SUMS:
                key = name, key[1][1:][-1:]
            self._sums[key] += amount
        if name in _figures()["sums"] and name != _COUNTED_BY_CALL:
            export(name, amount, dict(key[1]), meter=self.meter)

    def get(self, name: str, /, **labels: str) -> int:
        """Return the sum of all counters with this name that have at least these labels."""
        with self._lock:
            found = ((has, amount) for (known, has), amount in self._sums.items() if known == name)
            return sum(amount for has, amount in found if labels.items() <= {*has})

    def by(self, name: str, label: str) -> dict[str, int]:
        """Return the sums of a counter by the values of one label, in descending order."""
        with self._lock:
            values = {dict(labels).get(label, "") for known, labels in self._sums if known == name} - {""}
        return dict(sorted(((v, self.get(name, **{label: v})) for v in values), key=lambda one: (-one[1], one[0])))

    def text(self) -> str:
        """Return the counters in the Prometheus text format."""
        with self._lock:
            sums = sorted(self._sums.items())
        lines: list[str] = []
        for name, figure in _figures()["sums"].items():
            if "help" in figure:
                full = f"ctxguard_{name.replace('.', '_')}_total"
                lines += [f"# HELP {full} {figure['help']}", f"# TYPE {full} counter"]
                lines += [f"{full}{_labels(labels)} {amount}" for (known, labels), amount in sums if known == name]
        return "\n".join(lines) + "\n"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    shown = ",".join(f'{name}="{value}"' for name, value in labels)
    return f"{{{shown}}}" if shown else ""
