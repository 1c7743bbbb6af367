"""Compact a history: a summary replaces the older messages, the newer ones stay as they are.

As with `StableWindow`, the same history is compacted at the same positions in every call and every process, whatever
the summaries say, because a fixed number of tokens is reserved for them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from pydantic import BaseModel

from ctxguard.adapting.adapter import with_adapter_stages
from ctxguard.artifacts import Artifact, Kind
from ctxguard.compaction.plan import CompactionPlan
from ctxguard.compaction.summaries import INSTRUCTIONS, Breaker, Summaries, Summarizer, model_summarizer
from ctxguard.compaction.transcript import head_and_tail, read_native, write_native
from ctxguard.config import CompactionConfig, load_context_config
from ctxguard.draft import Ask, Draft, FollowedStage, Follower, StageResult
from ctxguard.errors import ConfigError, SummarizerError
from ctxguard.history import SUMMARY, write_record
from ctxguard.history.records import leading_records
from ctxguard.settings import OfOneProcess, extra, instance, opened
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens import ArtifactCounter, TokenCounter, find_counter
from ctxguard.tokens.artifact_counter import MESSAGE_TOKENS
from ctxguard.tokens.text_cache import TextCache

if TYPE_CHECKING:
    from ctxguard.pii import Detector, Masker
    from ctxguard.stores import Store

_UNLIMITED: Final = 1 << 40  # a budget that nothing exceeds
_EXCEEDED: Final = (
    "a history is %d tokens over its limit: pins, the last exchange and a summary need more than it allows"
)
_log = logging.getLogger("ctxguard.compaction")

Native = TypeVar("Native", bound=Sequence[object])


class CompactionResult(BaseModel):
    """The result of a compaction.

    Attributes:
        original_messages: number of messages before.
        compacted_messages: number of messages after, including the summary.
        original_tokens: tokens before.
        compacted_tokens: tokens after.
        summary: the text that replaces the removed messages.
        fallback: True if no summary could be made, so that the text is the beginning and end of the transcript.
        excess: tokens by which the compacted history exceeds `max_tokens`, because pins, the last exchange and a
            summary need more; else 0.
    """

    original_messages: int
    compacted_messages: int
    original_tokens: int
    compacted_tokens: int
    summary: str
    fallback: bool = False
    excess: int = 0


OnCompaction: TypeAlias = Callable[[CompactionResult], "Awaitable[None] | None"]


def _asked(summarizer: Summarizer | str | None) -> Summarizer | None:
    if isinstance(summarizer, str):
        return model_summarizer(summarizer)
    if summarizer is not None and not callable(summarizer):
        raise ConfigError(
            f"summarizer is a function from a prompt to a summary or the name of a model, not "
            f"{type(summarizer).__name__}; of a model make "
            "one by pydantic_ai_summarizer, langchain_summarizer or openai_summarizer",
            setting="summarizer",
        )
    return summarizer


class HistoryCompactor(OfOneProcess, FollowedStage):
    """Replace old exchanges by a summary when a history grows too long. Works as a stage and on its own.

    System, task, pins, the latest messages, the last exchange and the user message that opened its turn are not
    summarized as long as they fit. If they do not, they are summarized in this order: the message that opened the turn,
    the task, the older of the latest messages. System, pins and the last exchange always stay; if they exceed the
    limit, this is logged and stated in the result. In a chain with a budget, the last user message and the latest
    messages stay as well, because its checks require them. A compaction summarizes the exchanges removed since the last
    one together with the last summary. Summaries are stored under a hash of the content they replace: after a restart,
    or in another worker, none is paid for twice. If none can be made, the beginning and end of the transcript are used
    instead, with a marker that counts the tokens removed.

    Args:
        config: the token counts at which to compact, and down to which; None means the configuration file's. In a chain
            with a smaller budget both shrink in proportion.
        summarizer: takes a prompt and returns a summary; sync, or async if the call is. The name of a model, such as
            `openai:gpt-5-mini`, is called through PydanticAI or LangChain. None always uses beginning and end.
        on_compaction: called with the result of every new compaction; sync or async; errors in it are logged.
        store: where summaries are stored; None means in the memory of this process.
        instructions: the beginning of the summarizer's prompt.
        rules: what is masked in the summarizer's input if no masking stage ran before; None means
            `ctxguard.pii.STANDARD`.
        timeout: seconds that one request may take; None means no limit.
        max_input: tokens that the summarizer accepts in one request; longer texts are summarized part by part.
        max_failures: failures in a row after which the next 10 requests to the summarizer are skipped.
        keep_recent: number of latest messages that stay, when used on its own.
        counter: as for `ctxguard.tokens.find_counter`, when used on its own.

    Raises:
        ConfigError: a setting is out of range, or not a configuration, a summarizer, or an open store.
    """

    name = "HistoryCompactor"

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

        if max_input < 1 or max_failures < 1:
            raise ConfigError("max_input and max_failures must be 1 or more", setting="max_input")
        chosen = load_context_config().compaction if config is None else config
        self.config = instance(chosen, CompactionConfig, "config")
        self.keep_recent = keep_recent
        self.summaries = Summaries(
            _asked(summarizer),
            MemoryStore(max_bytes=64_000_000) if store is None else opened(store),
            instructions,
            timeout,
            max_input,
            Breaker(max_failures),
        )
        self._summarizing = _Summarizing(self.summaries, rules, on_compaction)
        self._counter = ArtifactCounter(find_counter(counter))

    def begin(self, draft: Draft, /) -> Follower:
        """Return the follower that compacts one conversation."""
        return _Compacting(
            self._summarizing, CompactionPlan(draft, self.config, keeps_latest=draft.budget != _UNLIMITED)
        )

    def needs_compaction(self, messages: Sequence[object]) -> bool:
        """Return whether a history, of artifacts or of any adapter's messages, is over `max_tokens`."""
        return self.count_tokens(messages) > self.config.max_tokens

    def count_tokens(self, messages: Sequence[object]) -> int:
        """Return the tokens of a history, of artifacts or of any adapter's messages."""
        return self._counter.artifacts(read_native(messages)[1])

    async def compact(self, messages: Native) -> Native:
        """Return the history, compacted if necessary, in its own format. The input is not changed.

        Messages that stay are the same objects, unmasked; the summary is made from masked text.

        Raises:
            AdapterError: no installed adapter knows the format.
        """
        adapter, artifacts = read_native(messages)
        result = await with_adapter_stages(self.as_stabilizer(), adapter).astabilize(artifacts)
        return cast("Native", write_native(adapter, messages, result.artifacts))

    def as_stabilizer(self) -> Stabilizer:
        """Return a stabilizer that repairs and compacts, without a budget of its own, for use with any adapter."""
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
            ImportError: PydanticAI is not installed.
        """
        with extra("pydantic-ai", "the history processor needs PydanticAI"):
            package = import_module("ctxguard_pydantic_ai")
        processor: object = package.history_processor(self.as_stabilizer())
        return processor


class _Summarizing:
    """The shared state of one compactor's conversations: its summaries, its mask, and the compactions it reported."""

    def __init__(
        self, summaries: Summaries, rules: Detector | Sequence[Detector] | None, on_compaction: OnCompaction | None
    ) -> None:
        self.summaries = summaries
        self._rules = rules
        self._masker: Masker | None = None
        self._on_compaction = on_compaction
        self._told: TextCache[bool] = TextCache()

    def mask_of(self, draft: Draft) -> Callable[[str], str]:
        """Return the function that masks texts for the summarizer: the stages before this one, or rules of its own."""
        if draft.masks:
            return draft.mask
        if self._masker is None:
            from ctxguard.pii import STANDARD, Masker

            self._masker = Masker(STANDARD if self._rules is None else self._rules)
        return self._masker.session().text

    def summary(
        self, plan: CompactionPlan, keys: Sequence[str], mask: Callable[[str], str]
    ) -> Generator[Ask, object, str | None]:
        """Return the summary of all removed exchanges, made if it is not known; None if the fallback is used."""
        if self.summaries.given_up(keys[-1]):
            return None
        known = yield from self.summaries.known(keys[-1])
        return known if known is not None else (yield from self._made(plan, keys, mask))

    def known_summary(self, key: str) -> Generator[Ask, object, str | None]:
        """Return an existing summary; None if there is none, or if a dry run may not look it up."""
        try:
            return (yield from self.summaries.known(key))
        except SummarizerError:
            return None

    def _made(
        self, plan: CompactionPlan, keys: Sequence[str], mask: Callable[[str], str]
    ) -> Generator[Ask, object, str | None]:
        """Summarize the exchanges removed since the last cut, or all of them if the last summary is unknown."""
        earlier = (yield from self.summaries.known(keys[-2])) if len(keys) > 1 else None
        pieces = plan.pieces(mask, since=0 if earlier is None else len(keys) - 1)
        if earlier is not None:
            pieces = [f"Summary of what came before:\n{mask(earlier)}", *pieces]
        return (yield from self.summaries.make(keys[-1], pieces, plan.draft.counter.text, mask))

    def tell(self, key: str, told: CompactionResult) -> Generator[Ask, object, None]:
        """Report a compaction to the listener, once."""
        if self._on_compaction is None or self._told.get(key):
            return
        try:
            yield Ask(self._on_compaction, (told,))
        except Exception as error:  # noqa: BLE001 - a listener cannot break the call
            _log.warning("on_compaction failed: %s: %s", type(error).__name__, error)
        self._told.put(key, value=True)


class _Compacting:
    """Compact one conversation."""

    def __init__(self, summarizing: _Summarizing, plan: CompactionPlan) -> None:
        self._summarizing = summarizing
        self._plan = plan
        self._shown: tuple[object, Artifact | None] = (None, None)

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:  # noqa: ARG002 - as every follower
        """Take in the artifacts that are new in the draft."""
        self._plan.take(artifacts)

    def result(self, draft: Draft) -> StageResult:
        """Return the draft, or a generator that requests the summary."""
        if self._plan.limit < draft.budget and not draft.dry and (excess := self._plan.excess) > 0:
            _log.warning(_EXCEEDED, excess)
        return self._compacted(draft) if self._plan.cuts else draft

    def _compacted(self, draft: Draft) -> Generator[Ask, object, Draft]:
        shared, plan = self._summarizing, self._plan
        keys = plan.keys(shared.summaries.instructions)
        mask = shared.mask_of(draft)
        if draft.dry:
            summary = yield from shared.known_summary(keys[-1])
            return plan.result(draft, self._message(draft, summary, keys[-1], mask))
        summary = self._shorter(draft, (yield from shared.summary(plan, keys, mask)), mask)
        message = self._message(draft, summary, keys[-1], mask)
        result = plan.result(draft, message, fallback=summary is None)
        told = _told(draft, result, message, fallback=summary is None)
        yield from shared.tell(keys[-1], told.model_copy(update={"excess": max(0, result.tokens - plan.limit)}))
        return result

    def _shorter(self, draft: Draft, summary: str | None, mask: Callable[[str], str]) -> str | None:
        """Return the summary if it is shorter than the text that it replaces, else None."""
        if summary is None:
            return None
        count = draft.counter.text
        tokens = count(summary)
        if tokens < self._plan.allowance // 2 or tokens < count("\n\n".join(self._plan.pieces(mask))):
            return summary
        _log.warning("a summary of %d tokens is not shorter than what it replaces; head and tail are kept", tokens)
        return None

    def _message(self, draft: Draft, summary: str | None, key: str, mask: Callable[[str], str]) -> Artifact:
        """Return the message with the summary: the same object as long as its text is the same."""
        made_from = (key, summary, draft.masks)
        known, message = self._shown
        if message is None or known != made_from:
            message = replace(self._written(draft, summary, mask), id=f"summary {key}")
            self._shown = (made_from, message)
        return message

    def _written(self, draft: Draft, summary: str | None, mask: Callable[[str], str]) -> Artifact:
        """Write that message; without a summary, from the beginning and end of the transcript."""
        count, allowance = draft.counter.text, self._plan.allowance
        available = allowance - draft.counter.artifact(Artifact(Kind.USER, write_record(SUMMARY, "")))
        text = "\n\n".join(self._plan.pieces(mask)) if summary is None else summary
        while True:
            shown = write_record(SUMMARY, mask(head_and_tail(text, available, count) if available > 0 else ""))
            if available <= 0 or count(shown) <= allowance - MESSAGE_TOKENS:
                return Artifact(Kind.USER, shown)
            available -= max(1, available // 8)  # masking joined text can make it longer


def _told(draft: Draft, result: Draft, message: Artifact, *, fallback: bool) -> CompactionResult:
    return CompactionResult(
        original_messages=len(draft.artifacts),
        compacted_messages=len(result.artifacts),
        original_tokens=draft.tokens,
        compacted_tokens=result.tokens,
        summary=leading_records(message.text)[0].body.strip(),
        fallback=fallback,
    )
