"""The context manager of the requirements document: one configuration for strategy, compression, and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from ctxguard.adapting.adapter import with_adapter_stages
from ctxguard.artifacts import Artifact
from ctxguard.compaction.transcript import read_native, write_native
from ctxguard.compat.metrics import ContextMetrics
from ctxguard.config import ContextConfig
from ctxguard.draft import Stage
from ctxguard.errors import ConfigError
from ctxguard.settings import instance
from ctxguard.stabilizer import Stabilizer
from ctxguard.stages import MaskPII, OrderByAuthority, RepairExchanges, StableWindow
from ctxguard.stages.fold import WINDOW_SETTINGS
from ctxguard.stages.message_compressor import MessageCompressor
from ctxguard.strategies import CheckpointManager, IntelligentPruner, PruningRules, SlidingWindow
from ctxguard.strategies.checkpoints import phase_rules, state_of
from ctxguard.strategies.keep import UNLIMITED
from ctxguard.strategies.sliding_window import ERRORS, FIRST_INSTRUCTIONS, SCREENSHOTS, STATE_CHANGES, PreservationRule

if TYPE_CHECKING:
    from ctxguard.pii import Detector
    from ctxguard.report import Report
    from ctxguard.stores import Store

__all__ = ["ContextManager"]


Native = TypeVar("Native", bound=Sequence[object])


class ContextManager:
    """Masks and shortens the messages of an agent before each model call, by the strategy that `config` names.

    The strategy `sliding_window` keeps the latest messages and those that a preservation rule matches. `checkpoint`
    keeps the messages since the last completed phase. `hybrid` does the same, and then drops the least important
    of the messages that are older than the latest `window_size` ones. If the configuration sets a budget
    (`stabilizer.budget`), the result fits into it.

    Args:
        config: The configuration; None means the defaults.
        rules: The detectors of personal data; None means `ctxguard.pii.STANDARD`.
        store: The store for checkpoints; None means the memory of this process.
        session: Name under which the checkpoints are stored.

    Attributes:
        window: The sliding window.
        compressor: The compressor of single messages.
        checkpoints: The manager that creates and stores checkpoints.
        pruner: The stage that drops the least important of the messages older than the latest `window_size` ones.
        metrics: The metrics of all calls.
        report: The report on the latest call, or None before the first call.

    Raises:
        ConfigError: If `config` is not a `ContextConfig`, or its budget is a share of the model's context window.
    """

    def __init__(
        self,
        config: ContextConfig | None = None,
        *,
        rules: Detector | Sequence[Detector] | None = None,
        store: Store | None = None,
        session: str = "default",
    ) -> None:
        self.config = config = ContextConfig() if config is None else instance(config, ContextConfig, "config")
        preserve = _preservation_rules(config)
        self.window = SlidingWindow(config.window_size, rules=preserve, every=1)
        self.compressor = MessageCompressor(
            config.compression_level,
            max_snapshot_depth=config.max_snapshot_depth if "max_snapshot_depth" in config.model_fields_set else None,
            truncate_snapshots=config.truncate_snapshots,
            summarize_console=config.summarize_console,
            counter=config.stabilizer.counter,
        )
        self.checkpoints = CheckpointManager(
            phase_rules(config.checkpoint_phases) if config.auto_checkpoint else (),
            max_size=config.max_checkpoint_size,
            store=store,
            session=session,
        )
        self.pruner = IntelligentPruner(
            PruningRules(
                importance_threshold=config.importance_threshold,
                merge_similar=config.merge_similar,
                keep_error_context=config.keep_error_context,
                keep_latest=config.window_size,
                preserve=preserve,
            )
        )
        self.metrics = ContextMetrics(counter=config.stabilizer.counter)
        self.report: Report | None = None
        self._phase: str | None = None
        self._recorded: set[str] = set()
        self._stabilizer = self._build_stabilizer(rules)

    async def process_messages(self, messages: Native, current_phase: str | None = None) -> Native:
        """Return the messages to send, in the format of the input. The input is not changed.

        Args:
            messages: The whole history: artifacts, or messages of an installed adapter.
            current_phase: Name of the current phase. If it differs from that of the previous call, the previous phase
                is completed, and a checkpoint is created for it. None means that the phase is unchanged.

        Raises:
            AdapterError: If no installed adapter knows the messages.
            BudgetExceededError: If the configuration sets a budget and the mandatory messages do not fit.
        """
        if not self.config.enabled or not messages:
            return messages
        adapter, artifacts = read_native(messages)
        self._enter(current_phase, artifacts)
        result = await with_adapter_stages(self._stabilizer, adapter).astabilize(artifacts)
        self._record(result.report, artifacts)
        return cast("Native", write_native(adapter, messages, result.artifacts))

    def _build_stabilizer(self, rules: Detector | Sequence[Detector] | None) -> Stabilizer:
        config = self.config.stabilizer
        if isinstance(config.budget, str):
            raise ConfigError(
                f"a ContextManager knows no window, and its budget is a share of one: {config.budget!r}; "
                "give stabilizer.budget in tokens",
                setting="stabilizer.budget",
            )
        chain: list[Stage] = [RepairExchanges(), MaskPII(rules), *self._strategy(), self.compressor]
        if config.budget is not None:
            window = config.model_dump(include=set(WINDOW_SETTINGS))
            chain.append(StableWindow(**window))
        return Stabilizer(
            UNLIMITED if config.budget is None else config.budget,
            stages=[*chain, OrderByAuthority()],
            keep_recent=config.keep_recent,
            provider=config.provider,
            counter=config.counter,
            model=config.model,
            headroom=0 if config.budget is None else config.headroom,
        )

    def _strategy(self) -> list[Stage]:
        if self.config.strategy == "sliding_window":
            return [self.window]
        return [self.checkpoints] if self.config.strategy == "checkpoint" else [self.checkpoints, self.pruner]

    def _enter(self, phase: str | None, artifacts: Sequence[Artifact]) -> None:
        """Record the current phase. If it is a new one, create a checkpoint for the previous phase, if any."""
        if phase is None or phase == self._phase:
            return
        over, self._phase = self._phase, phase
        if over is not None:
            done = [*self.checkpoints.checkpoints, over]
            self.checkpoints.create_checkpoint(over, state_of(artifacts), done, messages=len(artifacts))
            self.metrics.record_checkpoint(over)

    def _record(self, report: Report, artifacts: Sequence[Artifact]) -> None:
        self.report = report
        self.metrics.record_input_size(report.tokens_before)
        self.metrics.record_output_size(report.tokens_after)
        if report.changed:
            self.metrics.record_compression(report.tokens_before, report.tokens_after, self.config.strategy)
        found = report.details.get(self.checkpoints.name)
        reached = cast("list[str]", found["reached"]) if isinstance(found, dict) else []
        for number, phase in enumerate(reached):
            if phase in self._recorded:
                continue
            self._recorded.add(phase)
            if phase not in self.checkpoints.checkpoints:
                self.checkpoints.create_checkpoint(phase, state_of(artifacts), reached[: number + 1])
                self.metrics.record_checkpoint(phase)


def _preservation_rules(config: ContextConfig) -> tuple[PreservationRule, ...]:
    errors = (ERRORS,) if config.preserve_errors else ()
    screenshots = (SCREENSHOTS,) if config.preserve_screenshots else ()
    return (FIRST_INSTRUCTIONS, *errors, STATE_CHANGES, *screenshots)
