"""Count the guard's events, without any content, in Prometheus' text format."""

from __future__ import annotations

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
    "billed_tokens_total": "Tokens that providers reported: input, cached and written (parts of the input), output.",
    "masked_requests_total": "Requests in which personal data was masked.",
    "read_backs_total": "Calls of models that were answered here, by handle or by query.",
    "cuts_total": "Requests whose prompt does not extend the one before.",
    "answers_total": "Answers by status.",
}

_MOST_LABELS: Final = 1_000  # so that clients cannot fill the memory


class Metrics:
    """Count events. Thread-safe."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._labels: set[str] = set()
        self._lock = Lock()

    def add(self, name: str, label: str = "", value: str = "", *, count: int = 1) -> None:
        """Count an event by its name, and by the value of its label if it has one, after any other labels."""
        with self._lock:
            if label not in self._labels and len(self._labels) >= _MOST_LABELS:
                label = label.rpartition(",")[2]  # tokens of credentials that are renewed would add up
            self._labels.add(label)
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
