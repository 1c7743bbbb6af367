"""How many tokens context management saves, over a conversation or a process.

The numbers are kept here, and also go to OpenTelemetry if the application has set up metrics: counters
`ctxguard.input.tokens`, `ctxguard.output.tokens`, `ctxguard.compressions` and `ctxguard.checkpoints`, and a histogram
`ctxguard.compression.ratio` of output to input. OpenTelemetry is never imported here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict, cast

from ctxguard.compaction.transcript import read_native
from ctxguard.compat.truncate import estimate_tokens
from ctxguard.errors import ConfigError
from ctxguard.report.telemetry import Metrics, export
from ctxguard.tokens import ArtifactCounter, TokenCounter, find_counter

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

__all__ = [
    "CheckpointEvent",
    "CompressionEvent",
    "ContextMetrics",
    "EmptySummary",
    "MetricsSummary",
    "RunEvent",
    "Size",
]

Size: TypeAlias = int | Iterable[object]
"""Tokens, or what to count them in: artifacts, or the messages of any installed adapter."""

EVENTS_KEPT: Final = 1_000  # of each kind, so that memory is bounded


@dataclass(frozen=True, slots=True)
class CompressionEvent:
    """One compression of a context, with its time in UTC and its strategy.

    `reduction_percent` is the share of the input that was saved; below 0 if it grew, 0 for an empty input.
    """

    timestamp: datetime
    input_tokens: int
    output_tokens: int
    reduction_percent: float
    strategy: str


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One call of `ContextManager.process_messages`, with its time in UTC and its strategy.

    `tokens_by_kind` holds the tokens before and after, by kind (`system`, `user`, `assistant`, `tool`).
    """

    timestamp: datetime
    input_tokens: int
    output_tokens: int
    strategy: str
    tokens_by_kind: Mapping[str, tuple[int, int]]

    @property
    def compression_ratio(self) -> float:
        """Ratio of output to input tokens: 1 means unchanged, 0.4 that 60% were saved; 1 for an empty input."""
        return self.output_tokens / self.input_tokens if self.input_tokens else 1.0


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """The creation of a phase's checkpoint, with its time in UTC."""

    timestamp: datetime
    phase: str


class MetricsSummary(TypedDict):
    """The totals of the compressions.

    Attributes:
        total_input_tokens: tokens of the inputs.
        total_output_tokens: tokens of the outputs.
        total_reduction: percent of all input tokens that were saved.
        compression_count: number of compressions.
        average_reduction: mean of the reductions of the compressions, in percent.
        checkpoint_count: number of checkpoints.
    """

    total_input_tokens: int
    total_output_tokens: int
    total_reduction: float
    compression_count: int
    average_reduction: float
    checkpoint_count: int


class EmptySummary(TypedDict):
    """The summary if nothing was compressed.

    Attributes:
        status: a sentence to that effect.
    """

    status: Literal["no compression events"]


class ContextMetrics:
    """Track the savings of context management; thread-safe, in bounded memory.

    Sums are exact over the whole lifetime; of the single events the latest 1,000 of each kind are kept.

    Args:
        counter: counts messages that are recorded instead of a number: a name, a `TokenCounter` or a function.
        meter: the OpenTelemetry meter to export by; None means that of the application's provider, if it has one.
        clock: returns the current time.
    """

    def __init__(
        self,
        *,
        counter: str | TokenCounter | Callable[[str], int] = "auto",
        meter: Meter | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._counter = ArtifactCounter(find_counter(counter))
        self._clock = clock
        self._sums = Metrics(meter)
        self._lock = Lock()
        self._reductions = 0.0
        self._runs: deque[RunEvent] = deque(maxlen=EVENTS_KEPT)
        self._compressions: deque[CompressionEvent] = deque(maxlen=EVENTS_KEPT)
        self._checkpoints: deque[CheckpointEvent] = deque(maxlen=EVENTS_KEPT)

    @property
    def total_input_tokens(self) -> int:
        """Tokens of every input that was recorded."""
        return self._sums.get("input.tokens")

    @property
    def total_output_tokens(self) -> int:
        """Tokens of every output that was recorded."""
        return self._sums.get("output.tokens")

    @property
    def runs(self) -> tuple[RunEvent, ...]:
        """The latest runs, oldest first."""
        with self._lock:
            return tuple(self._runs)

    @property
    def compression_events(self) -> tuple[CompressionEvent, ...]:
        """The latest compressions, oldest first."""
        with self._lock:
            return tuple(self._compressions)

    @property
    def checkpoint_events(self) -> tuple[CheckpointEvent, ...]:
        """The latest checkpoints, oldest first."""
        with self._lock:
            return tuple(self._checkpoints)

    def record_input_size(self, messages: Size) -> None:
        """Record the size of an input.

        Args:
            messages: the number of tokens, or the messages to count: artifacts, or messages of any installed adapter.
                Dicts are counted as `ctxguard.estimate_tokens` does.

        Raises:
            ConfigError: the number is below 0.
            AdapterError: no installed adapter knows the messages.
        """
        self._sums.add("input.tokens", self._tokens(messages))

    def record_output_size(self, messages: Size) -> None:
        """Record the size of an output, see `record_input_size`."""
        self._sums.add("output.tokens", self._tokens(messages))

    def record_run(
        self, input_size: int, output_size: int, strategy: str, by_kind: Mapping[str, tuple[int, int]]
    ) -> None:
        """Record a run: its tokens before and after, in total and by kind of message, and the strategy.

        Raises:
            ConfigError: a size is below 0.
        """
        event = RunEvent(self._clock(), self._tokens(input_size), self._tokens(output_size), strategy, dict(by_kind))
        with self._lock:
            self._runs.append(event)

    def record_compression(self, input_size: int, output_size: int, strategy: str) -> None:
        """Record that a strategy made a context smaller, by its tokens before and after.

        Raises:
            ConfigError: a size is below 0.
        """
        before, after = self._tokens(input_size), self._tokens(output_size)
        event = CompressionEvent(self._clock(), before, after, _reduction(before, after), strategy)
        with self._lock:
            self._compressions.append(event)
            self._reductions += event.reduction_percent
        labels = {"ctxguard.strategy": strategy}
        for name, amount in (("compressions", 1), ("before", before), ("after", after)):
            self._sums.add(name, amount, **labels)
        if before:
            export("compression.ratio", after / before, labels, meter=self._sums.meter)

    def record_checkpoint(self, phase: str = "") -> None:
        """Record that the checkpoint of a phase was made."""
        event = CheckpointEvent(self._clock(), phase)
        with self._lock:
            self._checkpoints.append(event)
        self._sums.add("checkpoints", **{"ctxguard.phase": phase})

    def get_summary(self) -> MetricsSummary | EmptySummary:
        """Return the totals of the compressions and checkpoints; a status alone if nothing was compressed."""
        compressions, before, after = map(self._sums.get, ("compressions", "before", "after"))
        if not compressions:
            return {"status": "no compression events"}
        return {
            "total_input_tokens": before,
            "total_output_tokens": after,
            "total_reduction": _reduction(before, after),
            "compression_count": compressions,
            "average_reduction": self._reductions / compressions,
            "checkpoint_count": self._sums.get("checkpoints"),
        }

    def _tokens(self, messages: Size) -> int:
        if isinstance(messages, int):
            if messages < 0:
                raise ConfigError(f"a size is 0 tokens or more, not {messages}", setting="size")
            return messages
        items = list(messages)
        if items and all(isinstance(item, Mapping) for item in items):
            return estimate_tokens(cast("list[Mapping[str, object]]", items))
        return self._counter.artifacts(read_native(items)[1])


def _reduction(before: int, after: int) -> float:
    return (1 - after / before) * 100 if before else 0.0
