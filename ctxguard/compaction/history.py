"""Compact a history: a summary replaces the older messages, and the newer ones stay unchanged.

As with `StableWindow`, the same history is compacted at the same positions in every call and every process. The text
of the summaries has no influence on the positions, because a fixed number of tokens is reserved for a summary.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from pydantic import BaseModel

from ctxguard.adapting.adapter import with_adapter_stages
from ctxguard.artifacts import Artifact, Kind
from ctxguard.compaction.plan import CompactionPlan
from ctxguard.compaction.summaries import INSTRUCTIONS, Breaker, Summaries, Summarizer, model_summarizer
from ctxguard.compaction.transcript import head_and_tail, read_native, write_native
from ctxguard.config import CompactionConfig, load_context_config
from ctxguard.draft import Ask, Draft, StageResult
from ctxguard.errors import ConfigError, SummarizerError
from ctxguard.history import SUMMARY, write_record
from ctxguard.history.records import leading_records
from ctxguard.settings import OfOneProcess, adapter_of, instance, opened, whole_number
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens import ArtifactCounter, TokenCounter, find_counter
from ctxguard.tokens.artifact_counter import MESSAGE_TOKENS
from ctxguard.tokens.caches import TextCache

if TYPE_CHECKING:
    from ctxguard.pii import Detector, Masker
    from ctxguard.stores import Store

_UNLIMITED: Final = 1 << 40  # a budget that no history exceeds
_EXCEEDED: Final = (
    "a history is %d tokens over its limit: pins, the last exchange and a summary need more; raise max_tokens"
)
_log = logging.getLogger("ctxguard.compaction")

Native = TypeVar("Native", bound=Sequence[object])


class CompactionResult(BaseModel):
    """The result of a compaction.

    Attributes:
        original_messages: Number of messages before the compaction.
        compacted_messages: Number of messages after the compaction, including the summary.
        original_tokens: Number of tokens before the compaction.
        compacted_tokens: Number of tokens after the compaction.
        summary: The text that replaces the removed messages.
        fallback: True if no summary could be made. `summary` is then the start and the end of the transcript.
        excess: Number of tokens by which the compacted history exceeds `max_tokens`; 0 if it does not. It may exceed
            the limit because system messages, pins, and the last exchange always stay.
    """

    original_messages: int
    compacted_messages: int
    original_tokens: int
    compacted_tokens: int
    summary: str
    fallback: bool = False
    excess: int = 0


OnCompaction: TypeAlias = Callable[[CompactionResult], "Awaitable[None] | None"]


def _summarizer_of(summarizer: Summarizer | str | None) -> Summarizer | None:
    if isinstance(summarizer, str):
        return model_summarizer(summarizer)
    if summarizer is not None and not callable(summarizer):
        raise ConfigError(
            f"summarizer must be a function or the name of a model, not {type(summarizer).__name__}; "
            "make one of a model with pydantic_ai_summarizer, langchain_summarizer, or openai_summarizer",
            setting="summarizer",
        )
    return summarizer


class HistoryCompactor(OfOneProcess):
    """Replaces old exchanges with a summary when a history grows too long, as a stage or on its own.

    System messages, the task, pins, the latest messages, the last exchange, and the user message that opened the last
    turn are not summarized if they fit. If they do not fit, they are summarized in this order: the user message that
    opened the turn, the task, and the older of the latest messages. System messages, pins, and the last exchange always
    stay; if they alone exceed the limit, this is logged, and the result says so. In a chain with a budget, the last
    user message and the latest messages stay as well, because the checks of the chain require them.

    A compaction summarizes the previous summary together with the exchanges removed since then. Summaries are stored
    under a hash of the content that they replace. Therefore, none is paid for again after a restart or in another
    worker. If no summary can be made, the head and tail of the transcript are used, with a marker that says how many
    tokens are missing.

    Args:
        config: The number of tokens above which to compact, and the number to which a compaction shrinks the history.
            None means the settings of the configuration file. In a chain with a smaller budget, both numbers shrink in
            proportion.
        summarizer: Function that takes a prompt and returns a summary. It may be async in async calls. A string such as
            `openai:gpt-5-mini` names a model, which is called through PydanticAI or LangChain. None always uses the
            head and tail of the transcript.
        on_compaction: Sync or async function that is called with the result of every new compaction. Its errors are
            logged.
        store: Store for the summaries; None keeps them in the memory of this process.
        instructions: The beginning of the summarizer's prompt.
        rules: Detectors with which the summarizer's input is masked if the chain has no masking stage before this one;
            None means `ctxguard.pii.STANDARD`.
        timeout: Maximum duration of one request, in seconds; None means no limit.
        max_input: Maximum number of tokens in one request; longer transcripts are summarized in parts.
        max_failures: After this many failures in a row, the next 10 requests to the summarizer are skipped.
        keep_recent: Number of latest messages that stay, if the compactor is not used in a chain.
        counter: The token counter, as for `ctxguard.tokens.find_counter`, if the compactor is not used in a chain.

    Raises:
        ConfigError: If a setting is out of range, or is not a configuration, a summarizer, or an open store.
    """

    name = "HistoryCompactor"
    part = "fit"

    def __init__(
        self,
        config: CompactionConfig | None = None,
        *,
        summarizer: Summarizer | str | None = None,
        on_compaction: OnCompaction | None = None,
        store: Store | None = None,
        instructions: str = INSTRUCTIONS,
        rules: Detector | Sequence[Detector] | None = None,
        timeout: float | None = 60.0,
        max_input: int = 60_000,
        max_failures: int = 3,
        keep_recent: int = 2,
        counter: str | TokenCounter | Callable[[str], int] = "auto",
    ) -> None:
        from ctxguard.stores import MemoryStore

        chosen = load_context_config().compaction if config is None else config
        self.config = instance(chosen, CompactionConfig, "config")
        self.keep_recent = keep_recent
        self.summaries = Summaries(
            _summarizer_of(summarizer),
            MemoryStore(max_bytes=64_000_000) if store is None else opened(store),
            instructions,
            timeout,
            whole_number(max_input, "max_input", unit="tokens", least=1),
            Breaker(whole_number(max_failures, "max_failures", unit="failures", least=1)),
        )
        self._shared = _Shared(self.summaries, rules, on_compaction)
        self._counter = ArtifactCounter(find_counter(counter))

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the draft if nothing has to be compacted; otherwise a generator that requests the summary."""
        return draft.memory.of((self, draft.masking.masks), lambda: self._compacting(draft)).compacted(draft)

    def _compacting(self, draft: Draft) -> _Compacting:
        return _Compacting(self._shared, CompactionPlan(draft, self.config, keeps_latest=draft.budget != _UNLIMITED))

    def needs_compaction(self, messages: Sequence[object]) -> bool:
        """Return whether a history has more than `max_tokens` tokens.

        The history consists of artifacts, or of messages that an installed adapter knows.
        """
        return self.count_tokens(messages) > self.config.max_tokens

    def count_tokens(self, messages: Sequence[object]) -> int:
        """Return the number of tokens in a history of artifacts, or of messages that an installed adapter knows."""
        return self._counter.artifacts(read_native(messages)[1])

    async def compact(self, messages: Native) -> Native:
        """Return the history, compacted if necessary, in the format of `messages`. The given messages are not changed.

        Messages that stay are the same objects, unmasked. The summary is made from masked text.

        Raises:
            AdapterError: If no installed adapter knows the format.
        """
        adapter, artifacts = read_native(messages)
        result = await with_adapter_stages(self.as_stabilizer(), adapter).astabilize(artifacts)
        return cast("Native", write_native(adapter, messages, result.artifacts))

    def as_stabilizer(self) -> Stabilizer:
        """Return a stabilizer without a budget that repairs and compacts a history, for use with any adapter."""
        from ctxguard.stages import RepairExchanges

        return Stabilizer(
            _UNLIMITED,
            stages=[RepairExchanges(), self],
            checks=(),
            keep_recent=self.keep_recent,
            counter=self._counter.counter,
        )

    def create_history_processor(self) -> object:
        """Return a PydanticAI history processor: `Agent(model, capabilities=[ProcessHistory(processor)])`.

        Raises:
            ImportError: If PydanticAI is not installed.
        """
        made_with = adapter_of("pydantic-ai", "the history processor needs PydanticAI", "history_processor")
        processor: object = made_with(self.as_stabilizer())
        return processor


@dataclass(frozen=True)
class _Shared:
    """What the conversations of one compactor share. `reported` has the keys of the compactions reported so far."""

    summaries: Summaries
    rules: Detector | Sequence[Detector] | None
    on_compaction: OnCompaction | None
    reported: TextCache[bool] = field(default_factory=TextCache)

    @cached_property
    def masker(self) -> Masker:
        """Masks the summarizer's input if no masking stage ran before. It is created on first use, which takes time."""
        from ctxguard.pii import STANDARD, Masker

        return Masker(STANDARD if self.rules is None else self.rules)


class _Compacting:
    """Compacts one conversation, for `HistoryCompactor`."""

    def __init__(self, shared: _Shared, plan: CompactionPlan) -> None:
        self._shared = shared
        self._plan = plan
        self._shown: tuple[object, Artifact | None] = (None, None)

    def compacted(self, draft: Draft) -> StageResult:
        """Return the draft with a summary in place of old exchanges, see `HistoryCompactor`."""
        self._plan.extend(draft.artifacts)
        if self._plan.limit < draft.budget and not draft.dry and (excess := self._plan.excess) > 0:
            _log.warning(_EXCEEDED, excess)
        return self._compact(draft) if self._plan.state.cuts else draft

    def _compact(self, draft: Draft) -> Generator[Ask, object, Draft]:
        plan, summaries = self._plan, self._shared.summaries
        keys = plan.keys(summaries.instructions)
        # As it was known at the cut, so that the summary is the same whenever it is written.
        at_cut = partial(draft.mask, at=plan.cut_at)
        mask = at_cut if draft.masking.masks else self._shared.masker.session().text
        if draft.dry:
            known = None
            with suppress(SummarizerError):  # a dry run may not be allowed to access the store
                known = yield from summaries.known(keys[-1])
            return plan.result(draft, self._message(draft, known, keys[-1], mask))
        summary = yield from self._summary(keys, mask)
        message = self._message(draft, summary, keys[-1], mask)
        result = plan.result(draft, message, fallback=summary is None)
        yield from self._report(keys[-1], draft, result, message, fallback=summary is None)
        return result

    def _summary(self, keys: Sequence[str], mask: Callable[[str], str]) -> Generator[Ask, object, str | None]:
        """Return the summary of all removed exchanges. If there is none yet, make it; return None if that fails.

        If the previous summary is known, the new one is made from it and from the exchanges removed after it.
        Otherwise, it is made from all removed exchanges.
        """
        plan, summaries = self._plan, self._shared.summaries
        if summaries.given_up(keys[-1]):
            return None
        known = yield from summaries.known(keys[-1])
        if known is not None:
            return known
        earlier = (yield from summaries.known(keys[-2])) if len(keys) > 1 else None
        pieces = plan.pieces(mask, since=0 if earlier is None else len(keys) - 1)
        if earlier is not None:
            pieces = [f"Summary of what came before:\n{mask(earlier)}", *pieces]
        return (yield from summaries.make(keys[-1], pieces, plan.draft.counter.text, mask))

    def _message(self, draft: Draft, summary: str | None, key: str, mask: Callable[[str], str]) -> Artifact:
        """Return the message with the summary. If the summary is the same as before, so is the object."""
        made_from = (key, summary, self._plan.state.allowance)
        known, message = self._shown
        if message is None or known != made_from:
            message = replace(self._write(draft, summary, mask), id=f"summary {key}")
            draft.memory.set(self, "_shown", (made_from, message))
        return message

    def _write(self, draft: Draft, summary: str | None, mask: Callable[[str], str]) -> Artifact:
        """Return a new message with the summary; if there is none, with the start and the end of the transcript."""
        count, allowance = draft.counter.text, self._plan.state.allowance
        available = allowance - draft.counter.artifact(Artifact(Kind.USER, write_record(SUMMARY, "")))
        text = "\n\n".join(self._plan.pieces(mask)) if summary is None else summary
        while True:
            shown = write_record(SUMMARY, mask(head_and_tail(text, available, count) if available > 0 else ""))
            if available <= 0 or count(shown) <= allowance - MESSAGE_TOKENS:
                return Artifact(Kind.USER, shown)
            available -= max(1, available // 8)  # masking the joined text can make it longer

    def _report(
        self, key: str, draft: Draft, result: Draft, message: Artifact, *, fallback: bool
    ) -> Generator[Ask, object, None]:
        """Call `on_compaction`, once for each compaction."""
        shared = self._shared
        if shared.on_compaction is None or shared.reported.get(key):
            return
        report = CompactionResult(
            original_messages=len(draft.artifacts),
            compacted_messages=len(result.artifacts),
            original_tokens=draft.tokens,
            compacted_tokens=result.tokens,
            summary=leading_records(message.text)[0].body.strip(),
            fallback=fallback,
            excess=max(0, result.tokens - self._plan.limit),
        )
        try:
            yield Ask(shared.on_compaction, (report,))
        except Exception as error:  # noqa: BLE001 - a listener must not break the call
            _log.warning("on_compaction failed: %s: %s", type(error).__name__, error)
        shared.reported.put(key, value=True)
