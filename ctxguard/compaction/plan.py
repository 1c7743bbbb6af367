"""Decide at which positions a history is compacted, so that they are the same in every call and every process.

A position is the index of an exchange in the history, counted from 0. An exchange is an assistant message with tool
calls and their results, or any other single message. A cut is one compaction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.compaction.summaries import key_of
from ctxguard.compaction.transcript import transcript
from ctxguard.config import CompactionConfig
from ctxguard.draft import Draft
from ctxguard.history import RECALLED, SUMMARY, record_title, write_record
from ctxguard.history.conversation import Fold

_SUMMARY_SHARE: Final = 3  # one third of the target is reserved for the summary
_LEAST_SUMMARY: Final = 400  # minimum tokens reserved for the summary, if the target has as many
_MOST_SUMMARY: Final = 4_000
"""Maximum number of tokens reserved for the summary. It may use more if the messages that stay leave more of the
target."""
_LEAST_TEXT: Final = 64
"""Minimum number of tokens in the text of a summary. A shorter one is not worth its heading."""
_SHORTEST: Final = 8
"""The same minimum in a case in which otherwise nothing could be removed."""
_LEAST_GAIN: Final = 10
"""A cut is postponed if it would free less than a tenth of the limit (the limit divided by this number)."""
_OLDER: Final = "older than the messages that stay"
_FALLBACK: Final = f"{_OLDER}; no summary could be made, so the head and tail of the transcript replace it"


@dataclass(frozen=True, slots=True)
class _Compaction:
    """Which exchanges one compaction removes.

    Attributes:
        begin: Index of the first exchange that stays.
        gives_up: How many protected items are summarized because they do not fit. 1 means the user message that opened
            the turn; 2 means the task as well; higher numbers mean that the older of the latest messages are also
            summarized.
        keeps_opener: Whether the user message that opened the turn stays despite `gives_up`, because it is the last
            user message.
        arrived: Index of the exchange whose arrival causes the compaction.
    """

    begin: int = 0
    gives_up: int = 0
    keeps_opener: bool = False
    arrived: int = 0


@dataclass(frozen=True, slots=True)
class _State:
    """The state of a plan after a number of exchanges.

    Attributes:
        cuts: The compactions so far, oldest first.
        fixed: Number of tokens in artifacts that are never summarized.
        authority: Number of system and task artifacts that `fixed` includes.
        tokens: Number of tokens in all other exchanges since the last cut.
        allowance: Number of tokens reserved for the summary of the last cut, whether the summary uses them or not.
    """

    cuts: tuple[_Compaction, ...] = ()
    fixed: int = 0
    authority: int = 0
    tokens: int = 0
    allowance: int = 0

    @property
    def cut(self) -> _Compaction:
        return self.cuts[-1] if self.cuts else _Compaction()


class CompactionPlan(Fold[_State]):
    """Decides at which exchanges one conversation is compacted.

    If the budget is below `max_tokens`, both numbers of `config` shrink in proportion.

    Args:
        draft: A draft with the settings of the conversation.
        config: The number of tokens above which to compact, and the target of a compaction.
        keeps_latest: Whether the last user message and the latest messages are never summarized. In a chain with a
            budget, the checks require this.
    """

    def __init__(self, draft: Draft, config: CompactionConfig, *, keeps_latest: bool) -> None:
        super().__init__(draft.counter.artifact, draft.memory, _State())
        self.draft = draft
        self._keeps_latest = keeps_latest
        self.limit = min(config.max_tokens, draft.budget)
        self._target = config.target_tokens * self.limit // config.max_tokens
        self._heading = draft.counter.artifact(Artifact(Kind.USER, write_record(SUMMARY, "")))
        self._least = self._heading + _LEAST_TEXT
        self._task: int | None = None
        self._keys: dict[tuple[int, _Compaction], str] = {}

    @property
    def state(self) -> _State:
        """The state after the whole history."""
        return self.current()

    @property
    def excess(self) -> int:
        """Number of tokens by which the compacted history exceeds the limit; 0 or negative if the history fits."""
        return self._total(self.state) - self.limit

    def step(self, state: _State, number: int) -> _State:
        """Return the state after one more exchange, with a new cut if the history does not fit."""
        history = self.history
        if self._task is None and self.draft.keep_task and history.task(self.limit) == number:
            self.draft.memory.set(self, "_task", number)
        unit = history.spans[number]
        authority = bisect_left(history.authority, unit.start)
        fixed = state.fixed + sum(history.costs[p] for p in history.authority[state.authority : authority])
        stays = self._stays(number)
        state = replace(
            state,
            authority=authority,
            fixed=fixed + unit.tokens * stays,
            tokens=state.tokens + self._tokens_of(number) * (not stays),
        )
        return self._cut(state, number) if self._total(state) > self.limit else state

    def _stays(self, number: int, gives_up: int = 0) -> bool:
        return (number == self._task and gives_up < 2) or self.history.spans[number].is_pinned

    def _tokens_of(self, number: int) -> int:
        """Return the number of tokens in an exchange; 0 for recalled messages, which do not count here."""
        is_recalled = record_title(self.history.artifacts[self.history.start(number)]) == RECALLED
        return 0 if is_recalled else self.history.spans[number].tokens

    def _anchor(self, cut: _Compaction) -> int | None:
        """Return the index of the user message that opened the first remaining turn, if it stays before `begin`."""
        gives_up = cut.gives_up and not cut.keeps_opener
        if gives_up or cut.begin == 0 or self.history.spans[cut.begin].has_user_role:
            return None
        opener = self.history.opener(cut.begin)
        return None if opener is None or self._stays(opener, cut.gives_up) else opener

    def _cut_at(self, begin: int, gives_up: int, number: int) -> _Compaction:
        """Return the compaction with `begin` as the first exchange that stays. `number` is the last exchange so far."""
        keeps_opener = self._keeps_latest and self.history.opener(begin) == self.history.last_asked(number + 1)
        return _Compaction(begin, gives_up, keeps_opener, number)

    def _total(self, state: _State) -> int:
        return self._staying(state, state.cut, state.tokens) + state.allowance

    def _staying(self, state: _State, cut: _Compaction, tokens: int) -> int:
        """Return the number of tokens that stay after a cut, without the summary."""
        anchor = self._anchor(cut)
        opening = 0 if anchor is None else self.history.spans[anchor].tokens
        return self.draft.overhead + state.fixed + tokens + opening - self._freed_tokens(state, cut)

    def _freed_tokens(self, state: _State, cut: _Compaction) -> int:
        """Return the number of tokens in the task if this cut is the first one to remove it; otherwise 0."""
        task, last = self._task, state.cut
        if task is None or task >= cut.begin or cut.gives_up < 2 or (last.gives_up > 1 and task < last.begin):
            return 0
        return 0 if self._stays(task, cut.gives_up) else self.history.spans[task].tokens

    def _cut(self, state: _State, number: int) -> _State:
        """Return the state after a cut that meets the limit. If necessary, protected items are given up one by one."""
        arrived = bisect_left(self.history.messages, number + 1)
        kept = max(1, min(self.draft.keep_recent, arrived))
        # A later cut may keep protected items again, except for the task, whose tokens are no longer counted.
        last = 2 if self._keeps_latest else kept + 1
        for gives_up in range(2 if state.cut.gives_up > 1 else 0, last + 1):
            cut = self._cut_to(state, number, gives_up, self._heading + _SHORTEST if gives_up == last else self._least)
            if cut is not state and self._total(cut) <= self.limit:
                return cut
        return state if self._total(cut) >= self._total(state) else cut

    def _cut_to(self, state: _State, number: int, gives_up: int, least: int) -> _State:
        """Return the state after a cut that removes the oldest exchanges; `state` itself if that frees too little.

        The cut removes exchanges until the target is met, but not the latest messages. `least` is the minimum number of
        tokens for the summary.
        """
        keep, messages = self.draft.keep_recent - max(0, gives_up - 2), self.history.messages
        arrived = bisect_left(messages, number + 1)
        if arrived < keep:
            return state
        end = min(number, messages[arrived - keep]) if keep > 0 else number
        begin, tokens = state.cut.begin, state.tokens
        usual = min(max(self._target // _SUMMARY_SHARE, min(self._target, _LEAST_SUMMARY)), _MOST_SUMMARY)
        while (
            begin < end and self._staying(state, self._cut_at(begin, gives_up, number), tokens) + usual > self._target
        ):
            tokens -= 0 if self._stays(begin) else self._tokens_of(begin)
            begin += 1
        cut = self._cut_at(begin, gives_up, number)
        staying = self._staying(state, cut, tokens)
        allowance = max(self._target - staying, least if least < self._least else min(least, self.limit - staying))
        gain = self._total(state) - staying - min(allowance, usual)
        is_worth_it = gain >= self.limit // _LEAST_GAIN or (gain > 0 and staying + allowance <= self.limit)
        if begin == state.cut.begin or allowance < least or not is_worth_it:
            return state
        fixed = state.fixed - self._freed_tokens(state, cut)
        return replace(state, cuts=(*state.cuts, cut), fixed=fixed, tokens=tokens, allowance=allowance)

    def _left(self, number: int) -> list[int]:
        """Return the exchanges that cut `number` (1 is the first) removed, also those that earlier cuts had kept."""
        cuts = self.state.cuts
        cut, earlier = cuts[number - 1], cuts[number - 2] if number > 1 else _Compaction()
        anchor = self._anchor(cut)
        kept = (self._anchor(earlier), self._task if earlier.gives_up < 2 else None)
        numbers = {n for n in kept if n is not None and n < earlier.begin}
        numbers.update(range(earlier.begin, cut.begin))
        return sorted(n for n in numbers if not self._stays(n, cut.gives_up) and n != anchor)

    @property
    def cut_at(self) -> Artifact:
        """The artifact whose arrival caused the last compaction."""
        return self.history.artifacts[self.history.start(self.state.cut.arrived)]

    def pieces(self, mask: Callable[[str], str], *, since: int = 0) -> list[str]:
        """Return a masked transcript of each exchange removed by the cuts after the first `since` ones."""
        numbers = sorted(n for cut in range(since, len(self.state.cuts)) for n in self._left(cut + 1))
        return [mask(transcript(self.history.members(n))) for n in numbers]

    def keys(self, instructions: str) -> list[str]:
        """Return a key for each cut: a hash of the instructions and of all text that the summary replaces."""
        known, keys = self._keys, [instructions]
        for number, cut in enumerate(self.state.cuts, 1):
            if (number, cut) not in known:
                left = (transcript(self.history.members(n)) for n in self._left(number))
                self.draft.memory.put(known, (number, cut), key_of(keys[-1], *left))
            keys.append(known[number, cut])
        return keys[1:]

    def result(self, draft: Draft, summary: Artifact, *, fallback: bool = False) -> Draft:
        """Return the draft with the summary in place of the removed exchanges. With `fallback`, the report says so."""
        history, cut, begin = self.history, self.state.cut, self.state.cut.begin
        anchor = self._anchor(cut)
        place = history.start(begin if anchor is None else anchor)
        before = sorted(self._kept_before(begin, {anchor, self._task if cut.gives_up < 2 else None}))
        head = [draft.artifacts[p] for p in before if p < place]
        tail = [draft.artifacts[p] for p in before if p >= place]
        artifacts = [*head, summary, *tail, *draft.artifacts[history.start(begin) :]]
        return draft.revise(artifacts, action="summarised", reason=_FALLBACK if fallback else _OLDER)

    def _kept_before(self, begin: int, also: set[int | None]) -> Iterable[int]:
        """Return the positions of artifacts that stay before exchange `begin`: system, task, pins, and `also`."""
        history = self.history
        numbers = {*history.pinned[: bisect_left(history.pinned, begin)]}
        numbers.update(n for n in also if n is not None and n < begin)
        spans = (history.spans[n] for n in numbers)
        authority = history.authority[: bisect_left(history.authority, history.start(begin))]
        return chain(authority, *(range(span.start, span.end) for span in spans))
