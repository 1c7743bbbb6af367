"""Where a history is compacted: a fold over its exchanges, the same in every call and every process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.compaction.summaries import key_of
from ctxguard.compaction.transcript import transcript
from ctxguard.config import CompactionConfig
from ctxguard.draft import Cut, Draft
from ctxguard.protection import AUTHORITY, Unit, units

__all__ = ["Fold"]

_ALLOWANCE_SHARE: Final = 3
_MOST_ALLOWANCE: Final = 4_000
_LEAST_GAIN: Final = 10
"""A cut frees at least one part in this many of the limit, or it waits."""
_TASK_SHARE: Final = 4
"""The first user message is the task unless it takes more than one part in four of the limit."""


@dataclass(slots=True)
class Fold:
    """Take the exchanges in one by one, as the calls of the session did, and note every cut.

    Attributes:
        draft: what is folded.
        limit: tokens that start a cut.
        target: tokens that a cut goes down to, the summary's allowance included.
        allowance: tokens that the summary may take; the fold counts them whatever it takes.
        begins: number of the first exchange that stays, for each cut; empty where there is none.
        cut_at: number of the exchange that hit the limit last.
    """

    draft: Draft
    limit: int
    target: int
    units: list[Unit]
    begins: list[int] = field(default_factory=list)
    cut_at: int = 0
    fixed: int = 0
    tokens: int = 0
    _opened_by: list[int | None] = field(default_factory=list)
    _messages: list[int] = field(default_factory=list)
    _texts: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, draft: Draft, config: CompactionConfig) -> Fold:
        """Fold a draft; a smaller budget shrinks the limits in proportion."""
        limit = min(config.max_tokens, draft.budget)
        fold = cls(draft, limit, config.target_tokens * limit // config.max_tokens, [])
        if draft.tokens > limit:
            fold.units = units(draft)
            fold.run()
        return fold

    @property
    def allowance(self) -> int:
        """Tokens that the summary may take."""
        return min(self.target // _ALLOWANCE_SHARE, _MOST_ALLOWANCE)

    def run(self) -> None:
        """Take every exchange in."""
        draft, task = self.draft, self._task()
        authority = [(p, draft.counter.artifact(a)) for p, a in enumerate(draft.artifacts) if a.kind in AUTHORITY]
        self.fixed = draft.overhead
        opener: int | None = None
        for number, unit in enumerate(self.units):
            while authority and authority[0][0] < unit.start:
                self.fixed += authority.pop(0)[1]
            unit.pinned = unit.pinned or draft.artifacts[unit.start] is task
            self._opened_by.append(opener)
            opener = number if unit.user else opener
            self._messages += [number] if unit.message else []
            if unit.pinned:
                self.fixed += unit.tokens
            else:
                self.tokens += unit.tokens
            if self._total(self._begin, self.tokens) > self.limit:
                self._cut(number)

    @property
    def _begin(self) -> int:
        return self.begins[-1] if self.begins else 0

    def _task(self) -> Artifact | None:
        first = next((a for a in self.draft.artifacts if a.kind is Kind.USER), None)
        if first is None or not self.draft.keep_task:
            return None
        return first if self.draft.counter.artifact(first) * _TASK_SHARE <= self.limit else None

    def _anchor(self, begin: int) -> int | None:
        """Return the user message that opened the turn an exchange stands in, where that is not the exchange itself."""
        if begin == 0 or self.units[begin].user:
            return None
        opener = self._opened_by[begin]
        return None if opener is None or self.units[opener].pinned else opener

    def _total(self, begin: int, tokens: int) -> int:
        anchor = self._anchor(begin)
        summary = self.allowance if begin else 0
        return self.fixed + summary + tokens + (0 if anchor is None else self.units[anchor].tokens)

    def _cut(self, number: int) -> None:
        """Move the beginning up to the target as far as the latest messages allow, if that is worth it."""
        keep = self.draft.keep_recent
        if len(self._messages) < keep:
            return
        end = min(number, self._messages[-keep]) if keep else number
        begin, tokens = self._begin, self.tokens
        before = self._total(begin, tokens)
        while begin < end and self._total(begin, tokens) > self.target:
            tokens -= 0 if self.units[begin].pinned else self.units[begin].tokens
            begin += 1
        if before - self._total(begin, tokens) >= self.limit // _LEAST_GAIN:
            self.begins.append(begin)
            self.tokens, self.cut_at = tokens, number

    def _left(self, cut: int) -> list[int]:
        """Return the exchanges that left at a cut, counted from 1; what the one before kept may be of them."""
        begin, earlier = self.begins[cut - 1], self.begins[cut - 2] if cut > 1 else 0
        anchor, kept = self._anchor(begin), self._anchor(earlier)
        numbers = (*(() if kept is None else (kept,)), *range(earlier, begin))
        return [n for n in numbers if not self.units[n].pinned and n != anchor]

    def pieces(self, mask: Callable[[str], str], *, since: int = 0) -> list[str]:
        """Return the transcript of what is gone, masked, one text an exchange.

        Args:
            mask: masks a text.
            since: leave out what was gone after that many cuts already.
        """
        numbers = sorted(n for cut in range(since, len(self.begins)) for n in self._left(cut + 1))
        return [self._piece(n, mask) for n in numbers]

    def _piece(self, number: int, mask: Callable[[str], str]) -> str:
        if number not in self._texts:
            unit = self.units[number]
            self._texts[number] = mask(transcript(self.draft.artifacts[unit.start : unit.end]))
        return self._texts[number]

    def keys(self, mask: Callable[[str], str], instructions: str) -> list[str]:
        """Return for each cut the key of what its summary stands for."""
        keys: list[str] = []
        for cut in range(1, len(self.begins) + 1):
            texts = (self._piece(n, mask) for n in self._left(cut))
            keys.append(key_of(keys[-1] if keys else instructions, *texts))
        return keys

    def result(self, summary: Artifact) -> Draft:
        """Return the draft with the summary in place of what it stands for, the cut noted."""
        draft, artifacts = self.draft, self.draft.artifacts
        anchor = self._anchor(self._begin)
        units = (u for n, u in enumerate(self.units[: self._begin]) if not u.pinned and n != anchor)
        gone = {p for u in units for p in range(u.start, u.end)}
        place = self.units[self._begin if anchor is None else anchor].start
        head = [a for p, a in enumerate(artifacts[:place]) if p not in gone]
        tail = [a for p, a in enumerate(artifacts[place:], place) if p not in gone]
        compacted = draft.revise([*head, summary, *tail], action="summarised", reason="older than what stays verbatim")
        hit = self.units[self.cut_at].start
        last_reply = max((u.start for u in self.units if artifacts[u.start].kind is Kind.ASSISTANT), default=None)
        cut = Cut(
            at=hit,
            position=len(head),
            fresh=last_reply is not None and hit >= last_reply,
            rebilled=draft.counter.artifacts((summary, *tail)),
        )
        return replace(compacted, cut=cut)
