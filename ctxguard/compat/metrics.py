"""Metrics of how many tokens context management saves, over a conversation or a process.

If the application has set up OpenTelemetry metrics, the figures are also exported: as the counters
`ctxguard.input.tokens`, `ctxguard.output.tokens`, `ctxguard.compressions`, and `ctxguard.checkpoints`, and as the
histogram `ctxguard.compression.ratio` (output tokens divided by input tokens). This module never imports OpenTelemetry.
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
    "Size",
]

Size: TypeAlias = int | Iterable[object]
"""A number of tokens, or the messages in which to count them: artifacts, or messages of any installed adapter."""

EVENTS_KEPT: Final = 1_000
"""Maximum number of events of each kind that are kept, so that memory is bounded."""


@dataclass(frozen=True, slots=True)
class CompressionEvent:
    """One compression of a context.

    Attributes:
        timestamp: Time of the compression, in UTC.
        input_tokens: Number of tokens before the compression.
        output_tokens: Number of tokens after the compression.
        reduction_percent: Percentage of the input tokens that was saved; negative if the context grew, 0 for an empty
            input.
        strategy: Name of the strategy.
    """

    timestamp: datetime
    input_tokens: int
    output_tokens: int
    reduction_percent: float
    strategy: str


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """The creation of a checkpoint.

    Attributes:
        timestamp: Time of the creation, in UTC.
        phase: Name of the completed phase.
    """

    timestamp: datetime
    phase: str


class MetricsSummary(TypedDict):
    """The totals of all compressions.

    Attributes:
        total_input_tokens: Number of tokens before the compressions.
        total_output_tokens: Number of tokens after the compressions.
        total_reduction: Percentage of all input tokens that was saved.
        compression_count: Number of compressions.
        average_reduction: Mean of the compressions' `reduction_percent`.
        checkpoint_count: Number of checkpoints.
    """

    total_input_tokens: int
    total_output_tokens: int
    total_reduction: float
    compression_count: int
    average_reduction: float
    checkpoint_count: int


class EmptySummary(TypedDict):
    """The summary if no compression was recorded.

    Attributes:
        status: A message that says so.
    """

    status: Literal["no compression events"]


class ContextMetrics:
    """Tracks how many tokens context management saves. Thread-safe.

    Totals include everything that was ever recorded. Of the events, only the latest 1,000 of each kind are kept.

    Args:
        counter: The token counter for messages that are recorded instead of a number: a name, a `TokenCounter`, or a
            function.
        meter: The OpenTelemetry meter for the export. None means a meter of the application's provider, if it has one.
        clock: Function that returns the current time.
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

        self._compressions: deque[CompressionEvent] = deque(maxlen=EVENTS_KEPT)
        self._checkpoints: deque[CheckpointEvent] = deque(maxlen=EVENTS_KEPT)

    @property
    def total_input_tokens(self) -> int:
        """Number of tokens of all recorded inputs."""
        return self._sums.get("input.tokens")

    @property
    def total_output_tokens(self) -> int:
        """Number of tokens of all recorded outputs."""
        return self._sums.get("output.tokens")

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
            messages: The number of tokens, or the messages in which to count them: artifacts, or messages of any
                installed adapter. Dicts are counted as by `ctxguard.estimate_tokens`.

        Raises:
            ConfigError: If the number is below 0.
            AdapterError: If no installed adapter knows the messages.
        """
        self._sums.add("input.tokens", self._tokens(messages))

    def record_output_size(self, messages: Size) -> None:
        """Record the size of an output. Takes the arguments of `record_input_size`."""
        self._sums.add("output.tokens", self._tokens(messages))

    def record_compression(self, input_size: int, output_size: int, strategy: str) -> None:
        """Record that a strategy compressed a context.

        Args:
            input_size: Number of tokens before the compression.
            output_size: Number of tokens after the compression.
            strategy: Name of the strategy.

        Raises:
            ConfigError: If a size is below 0.
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
        """Record that a checkpoint was created for a phase."""
        event = CheckpointEvent(self._clock(), phase)
        with self._lock:
            self._checkpoints.append(event)
        self._sums.add("checkpoints", **{"ctxguard.phase": phase})

    def get_summary(self) -> MetricsSummary | EmptySummary:
        """Return the totals of compressions and checkpoints, or only a status if no compression was recorded."""
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
