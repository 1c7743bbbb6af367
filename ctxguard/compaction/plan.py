"""Decide at which positions a history is compacted: the same in every call and every process."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.compaction.summaries import key_of
from ctxguard.compaction.transcript import transcript
from ctxguard.config import CompactionConfig
from ctxguard.draft import Draft
from ctxguard.history import RECALLED, SUMMARY, History, record_title, write_record

_SUMMARY_SHARE: Final = 3  # a third of the target is reserved for the summary, and
_LEAST_SUMMARY: Final = 400  # tokens at least, if the target allows
_MOST_SUMMARY: Final = 4_000
"""A summary gets a third of the target, at most 4,000 tokens, or more if the messages that stay leave
more of the target; with a small target it gets all that the latest messages leave."""
_LEAST_TEXT: Final = 64
"""Tokens of text without which a summary is not worth its heading."""
_SHORTEST: Final = 8
"""The same where otherwise nothing could be cut: a few words, or none."""
_LEAST_GAIN: Final = 10
"""A cut frees at least one part in this many of the limit, or it waits."""
_OLDER: Final = "older than what stays verbatim"
_FALLBACK: Final = f"{_OLDER}; no summary was to be had, the transcript's head and tail stand in"


@dataclass(frozen=True, slots=True)
class _Compaction:
    """What one compaction removes.

    Attributes:
        begin: number of the first exchange that stays.
        gives_up: how many protected items are summarized for lack of tokens: 1 is the user message that opened the
            turn, 2 also the task, and higher numbers also the older of the latest messages.
        keeps_opener: whether that user message stays nevertheless, because it is the last one.
    """

    begin: int = 0
    gives_up: int = 0
    keeps_opener: bool = False


@dataclass(frozen=True, slots=True)
class _State:
    """A plan after a number of exchanges.

    Attributes:
        seen: number of exchanges taken in.
        cuts: the cuts so far.
        fixed: tokens so far that are never summarized.
        authority: number of system and task artifacts counted in it.
        tokens: tokens of all other exchanges since the last cut.
        allowance: tokens reserved for the summary of the last cut, counted whether it uses them or not.
    """

    seen: int = 0
    cuts: tuple[_Compaction, ...] = ()
    fixed: int = 0
    authority: int = 0
    tokens: int = 0
    allowance: int = 0

    @property
    def cut(self) -> _Compaction:
        return self.cuts[-1] if self.cuts else _Compaction()


class CompactionPlan:
    """Decide at which exchanges one conversation is compacted: the same in every call and every process.

    A budget below the limits of `config` shrinks them in proportion.

    Args:
        draft: provides the settings.
        config: the token counts at which to compact, and down to which.
        keeps_latest: whether the last user message and the latest messages are never summarized, as in a chain with a
            budget, whose checks require them.
    """

    def __init__(self, draft: Draft, config: CompactionConfig, *, keeps_latest: bool) -> None:
        self.draft = draft
        self._keeps_latest = keeps_latest
        self.history = History(draft.counter.artifact)
        self.limit = min(config.max_tokens, draft.budget)
        self._target = config.target_tokens * self.limit // config.max_tokens
        self._settled = self._state = _State()
        self._heading = draft.counter.artifact(Artifact(Kind.USER, write_record(SUMMARY, "")))
        self._least = self._heading + _LEAST_TEXT
        self._task: int | None = None
        self._keys: dict[tuple[int, _Compaction], str] = {}

    def take(self, artifacts: Sequence[Artifact]) -> None:
        """Take in new artifacts. The last exchange may still grow, so it is decided again each time."""
        self.history.extend(artifacts)
        if self._task is None and self.draft.keep_task:
            self._task = self.history.task(self.limit)
        while self._settled.seen < len(self.history) - 1:
            self._settled = self._taken(self._settled)
        self._state = self._taken(self._settled) if len(self.history) else self._settled

    @property
    def cuts(self) -> tuple[_Compaction, ...]:
        """The cuts, oldest first; empty if there is none."""
        return self._state.cuts

    @property
    def excess(self) -> int:
        """Tokens by which pins, the last exchange and a summary exceed the limit; 0 or less if they do not."""
        return self._total(self._state) - self.limit

    @property
    def allowance(self) -> int:
        """Tokens reserved for the summary, counted whether it uses them or not."""
        return self._state.allowance

    def _taken(self, state: _State) -> _State:
        """Return the state with one more exchange in it, cut if it does not fit."""
        number, history = state.seen, self.history
        unit = history.spans[number]
        authority = bisect_left(history.authority, unit.start)
        fixed = state.fixed + sum(history.costs[p] for p in history.authority[state.authority : authority])
        stays = self._stays(number)
        state = replace(
            state,
            seen=number + 1,
            authority=authority,
            fixed=fixed + unit.tokens * stays,
            tokens=state.tokens + self._counted(number) * (not stays),
        )
        return self._cut(state, number) if self._total(state) > self.limit else state

    def _stays(self, number: int, gives_up: int = 0) -> bool:
        return (number == self._task and gives_up < 2) or self.history.spans[number].is_pinned

    def _counted(self, number: int) -> int:
        """Return the tokens of an exchange; recalled messages have their own share of the budget."""
        is_recalled = record_title(self.history.artifacts[self.history.start(number)]) == RECALLED
        return 0 if is_recalled else self.history.spans[number].tokens

    def _anchor(self, cut: _Compaction) -> int | None:
        """Return the user message that opened the context's first turn, if it is kept from before the beginning."""
        gives_up = cut.gives_up and not cut.keeps_opener
        if gives_up or cut.begin == 0 or self.history.spans[cut.begin].has_user_role:
            return None
        opener = self.history.opener(cut.begin)
        return None if opener is None or self._stays(opener, cut.gives_up) else opener

    def _cut_at(self, begin: int, gives_up: int, number: int) -> _Compaction:
        """Return a cut that is made when there are exchanges up to `number`."""
        opener = self.history.opener(begin)
        return _Compaction(begin, gives_up, self._keeps_latest and opener == self.history.last_asked(number + 1))

    def _total(self, state: _State) -> int:
        return self._staying(state, state.cut, state.tokens) + state.allowance

    def _staying(self, state: _State, cut: _Compaction, tokens: int) -> int:
        """Return the tokens of everything but the summary."""
        anchor = self._anchor(cut)
        opening = 0 if anchor is None else self.history.spans[anchor].tokens
        return self.draft.overhead + state.fixed + tokens + opening - self._freed(state, cut)

    def _freed(self, state: _State, cut: _Compaction) -> int:
        """Return the tokens of the task if this cut removes it: until then they count among the fixed ones."""
        task, last = self._task, state.cut
        if task is None or task >= cut.begin or cut.gives_up < 2 or (last.gives_up > 1 and task < last.begin):
            return 0
        return 0 if self._stays(task, cut.gives_up) else self.history.spans[task].tokens

    def _cut(self, state: _State, number: int) -> _State:
        """Remove the oldest exchanges; if the limit cannot be met otherwise, summarize protected items one by one."""
        come = bisect_left(self.history.messages, number + 1)
        kept = max(1, min(self.draft.keep_recent, come))
        # protected items may be kept again at a later cut, except for the task, whose tokens are no longer counted
        last = 2 if self._keeps_latest else kept + 1
        for gives_up in range(2 if state.cut.gives_up > 1 else 0, last + 1):
            cut = self._cut_to(state, number, gives_up, self._heading + _SHORTEST if gives_up == last else self._least)
            if cut is not state and self._total(cut) <= self.limit:
                return cut
        return state if self._total(cut) >= self._total(state) else cut

    def _cut_to(self, state: _State, number: int, gives_up: int, least: int) -> _State:
        """Remove the oldest exchanges down to the target, but not the latest messages, if that saves enough."""
        keep, messages = self.draft.keep_recent - max(0, gives_up - 2), self.history.messages
        come = bisect_left(messages, number + 1)
        if come < keep:
            return state
        end = min(number, messages[come - keep]) if keep > 0 else number
        begin, tokens = state.cut.begin, state.tokens
        usual = min(max(self._target // _SUMMARY_SHARE, min(self._target, _LEAST_SUMMARY)), _MOST_SUMMARY)
        while (
            begin < end and self._staying(state, self._cut_at(begin, gives_up, number), tokens) + usual > self._target
        ):
            tokens -= 0 if self._stays(begin) else self._counted(begin)
            begin += 1
        cut = self._cut_at(begin, gives_up, number)
        staying = self._staying(state, cut, tokens)
        allowance = max(self._target - staying, least if least < self._least else min(least, self.limit - staying))
        gain = self._total(state) - staying - min(allowance, usual)
        is_worth_it = gain >= self.limit // _LEAST_GAIN or (gain > 0 and staying + allowance <= self.limit)
        if begin == state.cut.begin or allowance < least or not is_worth_it:
            return state
        fixed = state.fixed - self._freed(state, cut)
        return replace(state, cuts=(*state.cuts, cut), fixed=fixed, tokens=tokens, allowance=allowance)

    def _left(self, number: int) -> list[int]:
        """Return the exchanges removed at a cut, counted from 1, including those that the cut before it had kept."""
        cut, earlier = self.cuts[number - 1], self.cuts[number - 2] if number > 1 else _Compaction()
        anchor = self._anchor(cut)
        kept = (self._anchor(earlier), self._task if earlier.gives_up < 2 else None)
        numbers = {n for n in kept if n is not None and n < earlier.begin}
        numbers.update(range(earlier.begin, cut.begin))
        return sorted(n for n in numbers if not self._stays(n, cut.gives_up) and n != anchor)

    def pieces(self, mask: Callable[[str], str], *, since: int = 0) -> list[str]:
        """Return the masked transcript of the exchanges removed after the first `since` cuts, one text each."""
        numbers = sorted(n for cut in range(since, len(self.cuts)) for n in self._left(cut + 1))
        return [mask(transcript(self.history.members(n))) for n in numbers]

    def keys(self, instructions: str) -> list[str]:
        """Return for each cut the key of the content that its summary replaces, as it is in the draft."""
        known, keys = self._keys, [instructions]
        for number, cut in enumerate(self.cuts, 1):
            if (number, cut) not in known:
                left = (transcript(self.history.members(n)) for n in self._left(number))
                known[number, cut] = key_of(keys[-1], *left)
            keys.append(known[number, cut])
        return keys[1:]

    def result(self, draft: Draft, summary: Artifact, *, fallback: bool = False) -> Draft:
        """Return the draft with the summary in place of the removed exchanges; the report names a fallback."""
        history, cut, begin = self.history, self.cuts[-1], self.cuts[-1].begin
        anchor = self._anchor(cut)
        place = history.start(begin if anchor is None else anchor)
        before = sorted(self._kept_before(begin, {anchor, self._task if cut.gives_up < 2 else None}))
        head = [draft.artifacts[p] for p in before if p < place]
        tail = [draft.artifacts[p] for p in before if p >= place]
        artifacts = [*head, summary, *tail, *draft.artifacts[history.start(begin) :]]
        return draft.revise(artifacts, action="summarised", reason=_FALLBACK if fallback else _OLDER)

    def _kept_before(self, begin: int, also: set[int | None]) -> Iterable[int]:
        """Yield the positions before the beginning that are kept."""
        history = self.history
        numbers = {*history.pinned[: bisect_left(history.pinned, begin)]}
        numbers.update(n for n in also if n is not None and n < begin)
        spans = (history.spans[n] for n in numbers)
        authority = history.authority[: bisect_left(history.authority, history.start(begin))]
        return chain(authority, *(range(span.start, span.end) for span in spans))
