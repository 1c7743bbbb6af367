"""How much context management saves, over a conversation or a process.

The numbers are kept here, and go to OpenTelemetry as well where `opentelemetry-api` is installed: counters
`ctxguard.input.tokens`, `ctxguard.output.tokens`, `ctxguard.compressions` and `ctxguard.checkpoints`, and a histogram
`ctxguard.compression.ratio` of output to input. Without it nothing is imported and nothing is paid.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict, cast

from ctxguard.artifacts import Artifact
from ctxguard.compat.truncate import estimate_tokens
from ctxguard.errors import ConfigError
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

Size: TypeAlias = int | Iterable[Artifact] | Iterable[Mapping[str, object]]
"""Tokens, or what to count them in: artifacts, or OpenAI messages."""

EVENTS_KEPT: Final = 1_000


@dataclass(frozen=True, slots=True)
class CompressionEvent:
    """Record that a context was made smaller, when in UTC, and by which strategy.

    `reduction_percent` is the share of the input that is gone; below 0 where it grew, 0 for an empty input.
    """

    timestamp: datetime
    input_tokens: int
    output_tokens: int
    reduction_percent: float
    strategy: str


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Record one call of `ContextManager.process_messages`, when in UTC, and the strategy in use.

    `tokens_by_kind` holds the tokens before and after, by kind (`system`, `user`, `assistant`, `tool`).
    """

    timestamp: datetime
    input_tokens: int
    output_tokens: int
    strategy: str
    tokens_by_kind: Mapping[str, tuple[int, int]]

    @property
    def compression_ratio(self) -> float:
        """Output tokens to input tokens: 1 means unchanged, 0.4 that 60% were saved; 1 for an empty input."""
        return self.output_tokens / self.input_tokens if self.input_tokens else 1.0


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """Record that the checkpoint of a phase was made, when in UTC."""

    timestamp: datetime
    phase: str


class MetricsSummary(TypedDict):
    """Sum the compressions up.

    Attributes:
        total_input_tokens: tokens of the inputs.
        total_output_tokens: tokens of the outputs.
        total_reduction: percent of all input tokens that were saved.
        compression_count: how many compressions there were.
        average_reduction: mean of the reductions of the compressions, in percent.
        checkpoint_count: how many checkpoints there were.
    """

    total_input_tokens: int
    total_output_tokens: int
    total_reduction: float
    compression_count: int
    average_reduction: float
    checkpoint_count: int


class EmptySummary(TypedDict):
    """Stand for a summary where nothing was compressed.

    Attributes:
        status: says so.
    """

    status: Literal["no compression events"]


class ContextMetrics:
    """Track what context management does; safe for many threads, in bounded memory.

    Sums are exact over the whole life; of the single events the latest 1,000 of each kind are kept.

    Args:
        counter: counts messages where they are recorded in place of a number: a name, a `TokenCounter` or a function.
        meter: the OpenTelemetry meter to export by; None means that of the global provider, if the API is installed.
        clock: tells the time.

    Attributes:
        total_input_tokens: tokens of every input that was recorded.
        total_output_tokens: tokens of every output that was recorded.
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
        self._lock = Lock()
        self._exports = _exports(meter)
        self.total_input_tokens = 0
        self.total_output_tokens = 0
        self._runs: deque[RunEvent] = deque(maxlen=EVENTS_KEPT)
        self._compressions: deque[CompressionEvent] = deque(maxlen=EVENTS_KEPT)
        self._checkpoints: deque[CheckpointEvent] = deque(maxlen=EVENTS_KEPT)
        self._compressed_from = 0
        self._compressed_to = 0
        self._reductions = 0.0
        self._compression_count = 0
        self._checkpoint_count = 0

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
        """Record what came in.

        Args:
            messages: tokens, or artifacts or OpenAI messages to count.

        Raises:
            ConfigError: the number is below 0.
            HistoryError: an item is neither an artifact nor a dict.
        """
        tokens = self._tokens(messages)
        with self._lock:
            self.total_input_tokens += tokens
        self._export("input.tokens", tokens)

    def record_output_size(self, messages: Size) -> None:
        """Record what went out, see `record_input_size`."""
        tokens = self._tokens(messages)
        with self._lock:
            self.total_output_tokens += tokens
        self._export("output.tokens", tokens)

    def record_run(
        self, input_size: int, output_size: int, strategy: str, by_kind: Mapping[str, tuple[int, int]]
    ) -> None:
        """Record a run: its tokens before and after, in all and by kind of message, and the strategy in use.

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
        reduction = _reduction(before, after)
        event = CompressionEvent(self._clock(), before, after, reduction, strategy)
        with self._lock:
            self._compressions.append(event)
            self._compression_count += 1
            self._compressed_from += before
            self._compressed_to += after
            self._reductions += reduction
        attributes = {"ctxguard.strategy": strategy}
        self._export("compressions", 1, attributes)
        if before:
            self._export("compression.ratio", after / before, attributes)

    def record_checkpoint(self, phase: str = "") -> None:
        """Record that the checkpoint of a phase was made."""
        event = CheckpointEvent(self._clock(), phase)
        with self._lock:
            self._checkpoints.append(event)
            self._checkpoint_count += 1
        self._export("checkpoints", 1, {"ctxguard.phase": phase})

    def get_summary(self) -> MetricsSummary | EmptySummary:
        """Sum up the compressions and count the checkpoints; a status alone where nothing was compressed."""
        with self._lock:
            if not self._compression_count:
                return {"status": "no compression events"}
            return {
                "total_input_tokens": self._compressed_from,
                "total_output_tokens": self._compressed_to,
                "total_reduction": _reduction(self._compressed_from, self._compressed_to),
                "compression_count": self._compression_count,
                "average_reduction": self._reductions / self._compression_count,
                "checkpoint_count": self._checkpoint_count,
            }

    def _export(self, name: str, amount: float, attributes: Mapping[str, str] | None = None) -> None:
        if name in self._exports:
            self._exports[name](amount, attributes)

    def _tokens(self, messages: Size) -> int:
        if isinstance(messages, int):
            if messages < 0:
                raise ConfigError(f"a size is 0 tokens or more, not {messages}", setting="size")
            return messages
        items = list(messages)
        artifacts = [item for item in items if isinstance(item, Artifact)]
        if len(artifacts) == len(items):
            return self._counter.artifacts(artifacts)
        return estimate_tokens(cast("list[Mapping[str, object]]", items))


def _reduction(before: int, after: int) -> float:
    return (1 - after / before) * 100 if before else 0.0


def _exports(meter: Meter | None) -> dict[str, Callable[..., None]]:
    """Return what hands figures to OpenTelemetry, by name; nothing where there is none: the numbers are kept here."""
    if meter is None:
        try:
            from opentelemetry.metrics import get_meter
        except ImportError:
            return {}
        meter = get_meter("ctxguard")
    counters = {
        "input.tokens": ("{token}", "Tokens that came in."),
        "output.tokens": ("{token}", "Tokens that went out."),
        "compressions": ("{compression}", "Contexts made smaller."),
        "checkpoints": ("{checkpoint}", "Checkpoints made."),
    }
    ratio = meter.create_histogram("ctxguard.compression.ratio", "1", "Tokens after to tokens before.")
    adding = {name: meter.create_counter(f"ctxguard.{name}", *told).add for name, told in counters.items()}
    return {**adding, "compression.ratio": ratio.record}
