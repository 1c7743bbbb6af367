"""Where a history is compacted: decided an exchange at a time, the same in every call and every process."""

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

_SUMMARY_SHARE: Final = 3
_LEAST_SUMMARY: Final = 400
_MOST_SUMMARY: Final = 4_000
"""A summary gets a third of the target, at most 4,000 tokens, or whatever more the messages that stay leave of the
target; of a small target it gets all that the latest messages leave."""
_LEAST_TEXT: Final = 64
"""Tokens of text without which a summary is not worth its heading."""
_LEAST_GAIN: Final = 10
"""A cut frees at least one part in this many of the limit, or it waits."""
_OLDER: Final = "older than what stays verbatim"
_FALLBACK: Final = f"{_OLDER}; no summary was to be had, the transcript's head and tail stand in"


@dataclass(frozen=True, slots=True)
class _State:
    """Hold a plan after so many exchanges.

    Attributes:
        seen: exchanges that were taken in.
        begins: number of the first exchange that stays, for each cut.
        fixed: tokens of what is never summarized, as far as it has come.
        authority: system and task artifacts counted in it.
        tokens: tokens of the rest from the last beginning on.
        allowance: tokens that the summary of the last cut may take; they are counted whatever it takes.
    """

    seen: int = 0
    begins: tuple[int, ...] = ()
    fixed: int = 0
    authority: int = 0
    tokens: int = 0
    allowance: int = 0

    @property
    def begin(self) -> int:
        return self.begins[-1] if self.begins else 0


class CompactionPlan:
    """Decide where one conversation is compacted: an exchange at a time, the same in every call and every process.

    A budget below the limits of `config` shrinks them in proportion.
    """

    def __init__(self, draft: Draft, config: CompactionConfig) -> None:
        self.draft = draft
        self.history = History(draft.counter.artifact)
        self._limit = min(config.max_tokens, draft.budget)
        self._target = config.target_tokens * self._limit // config.max_tokens
        self._settled = self._state = _State()
        self._least = draft.counter.artifact(Artifact(Kind.USER, write_record(SUMMARY, ""))) + _LEAST_TEXT
        self._task: int | None = None
        self._keys: dict[tuple[int, int], str] = {}

    def take(self, artifacts: Sequence[Artifact]) -> None:
        """Take in new artifacts. The last exchange may still grow, so it is judged again each time."""
        self.history.extend(artifacts)
        if self._task is None and self.draft.keep_task:
            self._task = self.history.task(self._limit)
        while self._settled.seen < len(self.history) - 1:
            self._settled = self._taken(self._settled)
        self._state = self._taken(self._settled) if len(self.history) else self._settled

    @property
    def begins(self) -> tuple[int, ...]:
        """Number of the first exchange that stays, for each cut; empty where there is none."""
        return self._state.begins

    @property
    def allowance(self) -> int:
        """Tokens that the summary may take; the plan counts them whatever it takes."""
        return self._state.allowance

    def _taken(self, state: _State) -> _State:
        """Return the state with one more exchange in it, cut if that does not fit."""
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
        return self._cut(state, number) if self._total(state) > self._limit else state

    def _stays(self, number: int) -> bool:
        return number == self._task or self.history.spans[number].is_pinned

    def _counted(self, number: int) -> int:
        """Return the tokens of an exchange; what a later stage brought back has its own share of the budget."""
        is_recalled = record_title(self.history.artifacts[self.history.start(number)]) == RECALLED
        return 0 if is_recalled else self.history.spans[number].tokens

    def _anchor(self, begin: int) -> int | None:
        """Return the user message that opened the turn an exchange stands in, where that is not the exchange itself."""
        if begin == 0 or self.history.spans[begin].has_user_role:
            return None
        opener = self.history.opener(begin)
        return None if opener is None or self._stays(opener) else opener

    def _total(self, state: _State) -> int:
        return self._staying(state, state.begin, state.tokens) + state.allowance

    def _staying(self, state: _State, begin: int, tokens: int) -> int:
        """Return the tokens of everything but the summary."""
        anchor = self._anchor(begin)
        opening = 0 if anchor is None else self.history.spans[anchor].tokens
        return self.draft.overhead + state.fixed + tokens + opening

    def _cut(self, state: _State, number: int) -> _State:
        """Move the beginning up to the target as far as the latest messages allow, if that is worth it."""
        keep, messages = self.draft.keep_recent, self.history.messages
        come = bisect_left(messages, number + 1)
        if come < keep:
            return state
        end = min(number, messages[come - keep]) if keep else number
        begin, tokens = state.begin, state.tokens
        usual = min(max(self._target // _SUMMARY_SHARE, min(self._target, _LEAST_SUMMARY)), _MOST_SUMMARY)
        while begin < end and self._staying(state, begin, tokens) + usual > self._target:
            tokens -= 0 if self._stays(begin) else self._counted(begin)
            begin += 1
        staying = self._staying(state, begin, tokens)
        allowance = max(self._target - staying, min(self._least, self._limit - staying))
        gain = self._total(state) - staying - min(allowance, usual)
        if begin == state.begin or allowance < self._least or gain < self._limit // _LEAST_GAIN:
            return state
        return replace(state, begins=(*state.begins, begin), tokens=tokens, allowance=allowance)

    def _left(self, cut: int) -> list[int]:
        """Return the exchanges that left at a cut, counted from 1; what the one before kept may be of them."""
        begin, earlier = self.begins[cut - 1], self.begins[cut - 2] if cut > 1 else 0
        anchor, kept = self._anchor(begin), self._anchor(earlier)
        numbers = (*(() if kept is None else (kept,)), *range(earlier, begin))
        return [n for n in numbers if not self._stays(n) and n != anchor]

    def pieces(self, mask: Callable[[str], str], *, since: int = 0) -> list[str]:
        """Return the masked transcript of what left after the first `since` cuts, one text an exchange."""
        numbers = sorted(n for cut in range(since, len(self.begins)) for n in self._left(cut + 1))
        return [mask(transcript(self.history.members(n))) for n in numbers]

    def keys(self, instructions: str) -> list[str]:
        """Return for each cut the key of what its summary stands for: the artifacts as they are in the draft."""
        known, keys = self._keys, [instructions]
        for cut, begin in enumerate(self.begins, 1):
            if (cut, begin) not in known:
                known[cut, begin] = key_of(keys[-1], *(transcript(self.history.members(n)) for n in self._left(cut)))
            keys.append(known[cut, begin])
        return keys[1:]

    def result(self, draft: Draft, summary: Artifact, *, fallback: bool = False) -> Draft:
        """Return the draft with the summary in place of what it stands for; the report names a fallback."""
        history, begin = self.history, self.begins[-1]
        anchor = self._anchor(begin)
        place = history.start(begin if anchor is None else anchor)
        before = sorted(self._kept_before(begin, anchor))
        head = [draft.artifacts[p] for p in before if p < place]
        tail = [draft.artifacts[p] for p in before if p >= place]
        artifacts = [*head, summary, *tail, *draft.artifacts[history.start(begin) :]]
        return draft.revise(artifacts, action="summarised", reason=_FALLBACK if fallback else _OLDER)

    def _kept_before(self, begin: int, anchor: int | None) -> Iterable[int]:
        """Yield the positions that are kept from before the beginning."""
        history = self.history
        numbers = {*history.pinned[: bisect_left(history.pinned, begin)]}
        numbers.update(n for n in (self._task, anchor) if n is not None and n < begin)
        spans = (history.spans[n] for n in numbers)
        authority = history.authority[: bisect_left(history.authority, history.start(begin))]
        return chain(authority, *(range(span.start, span.end) for span in spans))
