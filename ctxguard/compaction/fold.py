"""Where a history is compacted: a fold over its exchanges, the same in every call and every process."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.compaction.summaries import key_of
from ctxguard.compaction.transcript import transcript
from ctxguard.config import CompactionConfig
from ctxguard.draft import Cut, Draft
from ctxguard.history import RECALLED, stands_in, task_of
from ctxguard.stages.cuts import with_cut
from ctxguard.stages.growing import GrowingHistory

__all__ = ["Fold", "FoldedHistory"]

_ALLOWANCE_SHARE: Final = 3
_MOST_ALLOWANCE: Final = 4_000
_LEAST_GAIN: Final = 10
"""A cut frees at least one part in this many of the limit, or it waits."""
_OLDER: Final = "older than what stays verbatim"
_FALLBACK: Final = f"{_OLDER}; no summary was to be had, the transcript's head and tail stand in"


@dataclass(frozen=True, slots=True)
class _State:
    """Hold a fold after so many exchanges.

    Attributes:
        seen: exchanges that were taken in.
        begins: number of the first exchange that stays, for each cut.
        cut_at: number of the exchange that hit the limit last.
        fixed: tokens of what is never summarised, as far as it has come.
        authority: system and task artifacts counted in it.
        tokens: tokens of the rest from the last beginning on.
    """

    seen: int = 0
    begins: tuple[int, ...] = ()
    cut_at: int = 0
    fixed: int = 0
    authority: int = 0
    tokens: int = 0

    @property
    def begin(self) -> int:
        return self.begins[-1] if self.begins else 0


@dataclass(slots=True)
class FoldedHistory(GrowingHistory):
    """Hold a history, the fold over all of its exchanges but the last, and what was worked out for its cuts.

    Attributes:
        state: the fold.
        keys: of what the summaries stand for, by number of the cut and its beginning.
        shown: the message that stood for what is gone last, by what it was made from.
    """

    state: _State = field(default_factory=_State)
    keys: dict[tuple[int, int], str] = field(default_factory=dict)
    shown: dict[object, Artifact] = field(default_factory=dict)


class Fold:
    """Take the exchanges in one by one, as the calls of the session did, and note every cut.

    Args:
        draft: what is folded.
        history: the same, as far as it is known.
        config: the limits; a smaller budget shrinks them in proportion.

    Attributes:
        draft: what is folded.
        begins: number of the first exchange that stays, for each cut; empty where there is none.
    """

    def __init__(self, draft: Draft, history: FoldedHistory, config: CompactionConfig) -> None:
        self.draft = draft
        self.history = history
        self._limit = min(config.max_tokens, draft.budget)
        self._target = config.target_tokens * self._limit // config.max_tokens
        task = task_of(replace(draft, budget=self._limit))
        self._task = next((n for n in history.users if history.members(n)[0] is task), None)
        while history.state.seen < len(history.units) - 1:
            history.state = self._taken(history.state)
        self._state = self._taken(history.state) if history.units else history.state

    @property
    def begins(self) -> tuple[int, ...]:
        """Number of the first exchange that stays, for each cut; empty where there is none."""
        return self._state.begins

    @property
    def allowance(self) -> int:
        """Tokens that the summary may take; the fold counts them whatever it takes."""
        return min(self._target // _ALLOWANCE_SHARE, _MOST_ALLOWANCE)

    def _taken(self, state: _State) -> _State:
        """Return the fold with one more exchange in it, cut if that does not fit."""
        number, history = state.seen, self.history
        unit = history.units[number]
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
        return self._cut(state, number) if self._total(state, state.begin, state.tokens) > self._limit else state

    def _stays(self, number: int) -> bool:
        return number == self._task or self.history.units[number].pinned

    def _counted(self, number: int) -> int:
        """Return the tokens of an exchange; what a later stage brought back has its own share of the budget."""
        first = self.history.members(number)[0]
        return 0 if stands_in(first) and first.text.startswith(RECALLED) else self.history.units[number].tokens

    def _anchor(self, begin: int) -> int | None:
        """Return the user message that opened the turn an exchange stands in, where that is not the exchange itself."""
        users = self.history.users
        if begin == 0 or self.history.units[begin].user:
            return None
        opener = bisect_left(users, begin) - 1
        return None if opener < 0 or self._stays(users[opener]) else users[opener]

    def _total(self, state: _State, begin: int, tokens: int) -> int:
        anchor = self._anchor(begin)
        summary = self.allowance if begin else 0
        opening = 0 if anchor is None else self.history.units[anchor].tokens
        return self.draft.overhead + state.fixed + summary + tokens + opening

    def _cut(self, state: _State, number: int) -> _State:
        """Move the beginning up to the target as far as the latest messages allow, if that is worth it."""
        keep, messages = self.draft.keep_recent, self.history.messages
        come = bisect_left(messages, number + 1)
        if come < keep:
            return state
        end = min(number, messages[come - keep]) if keep else number
        begin, tokens = state.begin, state.tokens
        before = self._total(state, begin, tokens)
        while begin < end and self._total(state, begin, tokens) > self._target:
            tokens -= 0 if self._stays(begin) else self._counted(begin)
            begin += 1
        if before - self._total(state, begin, tokens) < self._limit // _LEAST_GAIN:
            return state
        return replace(state, begins=(*state.begins, begin), tokens=tokens, cut_at=number)

    def _left(self, cut: int) -> list[int]:
        """Return the exchanges that left at a cut, counted from 1; what the one before kept may be of them."""
        begin, earlier = self.begins[cut - 1], self.begins[cut - 2] if cut > 1 else 0
        anchor, kept = self._anchor(begin), self._anchor(earlier)
        numbers = (*(() if kept is None else (kept,)), *range(earlier, begin))
        return [n for n in numbers if not self._stays(n) and n != anchor]

    def pieces(self, mask: Callable[[str], str], *, since: int = 0) -> list[str]:
        """Return the transcript of what is gone, masked, one text an exchange.

        Args:
            mask: masks a text.
            since: leave out what was gone after that many cuts already.
        """
        numbers = sorted(n for cut in range(since, len(self.begins)) for n in self._left(cut + 1))
        return [mask(transcript(self.history.members(n))) for n in numbers]

    def keys(self, instructions: str) -> list[str]:
        """Return for each cut the key of what its summary stands for: the artifacts as they are in the draft."""
        known, keys = self.history.keys, [instructions]
        for cut, begin in enumerate(self.begins, 1):
            if (cut, begin) not in known:
                known[cut, begin] = key_of(keys[-1], *(transcript(self.history.members(n)) for n in self._left(cut)))
            keys.append(known[cut, begin])
        return keys[1:]

    def result(self, summary: Artifact, *, fallback: bool = False) -> Draft:
        """Return the draft with the summary in place of what it stands for, the cut noted.

        Args:
            summary: the message that stands for what is gone.
            fallback: whether it is head and tail of the transcript, for want of a summary; the report says so.
        """
        draft, history, begin = self.draft, self.history, self.begins[-1]
        anchor = self._anchor(begin)
        place = history.start(begin if anchor is None else anchor)
        before = sorted(self._kept_before(begin, anchor))
        head = [draft.artifacts[p] for p in before if p < place]
        tail = [
            *(draft.artifacts[p] for p in before if p >= place),
            *islice(draft.artifacts, history.start(begin), None),
        ]
        compacted = draft.revise([*head, summary, *tail], action="summarised", reason=_FALLBACK if fallback else _OLDER)
        hit = history.start(self._state.cut_at)
        cut = Cut(
            at=hit,
            position=len(head),
            fresh=bool(history.replies) and hit >= history.start(history.replies[-1]),
            rebilled=draft.counter.artifacts((summary, *tail)),
        )
        return with_cut(draft, compacted, cut)

    def _kept_before(self, begin: int, anchor: int | None) -> Iterable[int]:
        """Walk the positions that stay of what stands before the beginning."""
        history = self.history
        numbers = {*history.pinned[: bisect_left(history.pinned, begin)]}
        numbers.update(n for n in (self._task, anchor) if n is not None and n < begin)
        units = (history.units[n] for n in numbers)
        authority = history.authority[: bisect_left(history.authority, history.start(begin))]
        return chain(authority, *(range(u.start, u.end) for u in units))
