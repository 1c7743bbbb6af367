"""Telemetry for operators: a log without any content, and OpenTelemetry if the application uses it.

OpenTelemetry is never imported here. If the application has imported it, each stabilization is a span
`ctxguard.stabilize` and adds to metrics. Names follow the GenAI conventions if these define one.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ctxguard.errors import CtxguardError

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

    from ctxguard.report import Report

_LOG: Final = logging.getLogger("ctxguard")
_LOG.addHandler(logging.NullHandler())  # applications decide what is shown
_SCOPE: Final = "ctxguard"
_COUNTERS: Final = {
    "stabilizations": "{call}",
    "cuts": "{cut}",
    "findings": "{finding}",
    "input.tokens": "{token}",
    "output.tokens": "{token}",
    "billed.tokens": "{token}",
    "compressions": "{compression}",
    "checkpoints": "{checkpoint}",
}
"""Counters and their units."""
_HISTOGRAMS: Final = {"tokens": "{token}", "duration": "s", "compression.ratio": "1"}
_POSITION: Final = re.compile(r"artifacts\[\d+\]")


class Watch:
    """Time one stabilization, and report its outcome."""

    def __init__(self) -> None:
        self._began = time.time_ns()

    def ended(self, report: Report) -> None:
        """Report the result."""
        _log(report)
        self._span(lambda: _attributes(report))
        if _metrics_are_read():
            _count(report, (time.time_ns() - self._began) / 1e9)

    def failed(self, error: CtxguardError) -> None:
        """Report that nothing was sent."""
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
    """Return whether the application has set up metrics: the API alone has providers that do nothing."""
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
    """Count one stabilization."""
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
    """Add to a figure of OpenTelemetry, if the application has set up metrics or a meter is given.

    Args:
        name: the name of a counter or a histogram, without the prefix `ctxguard.`.
        amount: the amount to add, or to record.
        attributes: the attributes of the figure.
        meter: the meter to use; None means that of the application's provider.
    """
    if meter is not None or _metrics_are_read():
        _instrument(meter or _meter(), name)(amount, attributes)


@lru_cache(maxsize=1)
def _meter() -> Meter:
    meter: Meter = sys.modules["opentelemetry.metrics"].get_meter(_SCOPE)
    return meter


# the SDK warns if an instrument is created twice
@lru_cache(maxsize=64)
def _instrument(meter: Meter, name: str) -> Callable[..., None]:
    if name in _HISTOGRAMS:
        return meter.create_histogram(f"ctxguard.{name}", unit=_HISTOGRAMS[name]).record
    return meter.create_counter(f"ctxguard.{name}", unit=_COUNTERS[name]).add
