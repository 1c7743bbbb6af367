"""Count the guard's events, without any content, in Prometheus' text format."""

from __future__ import annotations

import re
from collections import Counter
from threading import Lock
from typing import Final

_HELP: Final = {
    "requests_total": "Requests by API.",
    "refused_total": "Requests that were not sent, by error.",
    "passed_unread_total": "Requests that were passed on unread.",
    "unknown_threads_total": "Requests that continue a history whose placeholders are not known: redacted.",
    "retries_total": "Requests sent again with a smaller budget.",
    "failures_total": "Answers that did not end as they should, by cause.",
    "malformed_events_total": "Events of answers that could not be read and were passed on as they are.",
    "unrestored_total": "Answers passed on with their placeholders: in a form or a compression that is not read.",
    "input_tokens_total": "Input tokens: what came in, and what was sent.",
    "billed_tokens_total": "Tokens that providers reported: input, cached (part of the input), output.",
    "masked_requests_total": "Requests in which personal data was masked.",
    "cuts_total": "Requests whose prompt does not extend the one before.",
    "answers_total": "Answers by status.",
}


class Metrics:
    """Count events. Thread-safe."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._lock = Lock()

    def add(self, name: str, label: str = "", value: str = "", *, count: int = 1) -> None:
        """Count an event by its name, and by the value of its label if it has one."""
        with self._lock:
            self._counts[name, label, value] += count

    def get(self, name: str, value: str = "") -> int:
        """Return a count; without a value, the sum over all values."""
        with self._lock:
            return sum(n for (known, _, held), n in self._counts.items() if known == name and value in ("", held))

    def text(self) -> str:
        """Return all counts in Prometheus' text format."""
        with self._lock:
            counts = sorted(self._counts.items())
        lines: list[str] = []
        for name, told in _HELP.items():
            lines += [f"# HELP ctxguard_{name} {told}", f"# TYPE ctxguard_{name} counter"]
            lines += [
                f'ctxguard_{name}{{{label}="{value}"}} {count}' if label else f"ctxguard_{name} {count}"
                for (known, label, value), count in counts
                if known == name
            ]
        return "\n".join(lines) + "\n"


_USAGE: Final = {
    "input": ("input_tokens", "prompt_tokens", "promptTokenCount", "inputTokens"),
    # Anthropic and Amazon count these separately from the others
    "read": ("cache_read_input_tokens", "cacheReadInputTokens"),
    "written": ("cache_creation_input_tokens", "cacheWriteInputTokens"),
    "cached": ("cached_tokens", "cachedContentTokenCount"),
    "output": ("output_tokens", "completion_tokens", "candidatesTokenCount", "outputTokens"),
}
_KIND: Final = {name.encode(): kind for kind, names in _USAGE.items() for name in names}
_COUNT: Final = re.compile(rb'(?<!\\)"(' + b"|".join(_KIND) + rb')"\s*:\s*(\d+)')
_LONGEST: Final = 80
"""Bytes of a number, which may arrive in two chunks."""


class Billed:
    """Find the token counts that a provider reports in a response as it passes, and add them up."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._most: dict[str, int] = {}
        self._tail = b""

    def feed(self, chunk: bytes) -> None:
        """Search some of the body; the events of a stream repeat growing counts."""
        text = self._tail + chunk
        for name, count in _COUNT.findall(text):
            kind = _KIND[name]
            self._most[kind] = max(self._most.get(kind, 0), int(count))
        self._tail = text[-_LONGEST:]

    def close(self) -> None:
        """Add the reported tokens to the metrics."""
        found = self._most.get
        beside = found("read", 0) + found("written", 0)
        totals = {
            "input": found("input", 0) + beside,
            "cached": found("cached", 0) + found("read", 0),
            "output": found("output", 0),
        }
        for kind, count in totals.items():
            self._metrics.add("billed_tokens_total", "kind", kind, count=count)
