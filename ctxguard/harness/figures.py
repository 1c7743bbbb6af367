"""The figures of replayed sessions: they can be added in any order, and take constant memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import Final

from ctxguard.harness.gain import Bits, gain
from ctxguard.harness.judging import Verdict

_STEP: Final = math.log(1.01)
"""Times whose logarithms differ by less than this count as equal: percentiles are within one percent."""
_LEAST: Final = 1e-6
"""The shortest time, in milliseconds; shorter ones count as this one."""


@dataclass(slots=True)
class Figures:
    """The figures of one or more replayed sessions under one setting.

    Attributes:
        sessions: number of sessions.
        calls: number of model calls: each is the history up to an assistant message.
        refused: calls whose mandatory messages do not fit (`BudgetExceededError`).
        pressed: calls whose history exceeds the budget.
        needed: the largest number of tokens that mandatory messages took at a refused call.
        tokens_before: tokens of the histories, over all calls that were served.
        tokens_after: tokens of the requests, over the same calls.
        saved_by: tokens that each action removed from messages, over the same calls.
        successors: calls that follow a served call, in sessions that exceed the budget.
        extended: those of them whose prompt extends the previous one up to its newest exchange.
        cuts: calls that cut the window.
        rebilled: tokens of requests after the first position that a cut changed.
        bill: price of the requests.
        bill_unmanaged: price of the whole histories at the same calls.
        bill_trimmed: price of what plain trimming to the same budget would have sent at the same calls.
        needing: calls whose next message uses something that only the older history contains.
        held: sum over them of the share that the request contains.
        held_in_context: the same, counting only strings among the words that surrounded them in the history.
        weighed: calls whose next message was compressed (`ctxguard.harness.gain`).
        floor_bits: bits of those messages after the floor, which any valid context contains.
        bits: the same after the requests.
        whole_bits: the same after the whole histories.
        newest_sent: characters of the newest tool outputs that were sent, at calls over the budget.
        newest_fitting: characters of them that would fit into half of the free tokens.
        findings: number of calls that violate a law, by law.
        places: the first finding of each law.
        times: number of calls by the logarithm of their time; `timed` adds one.
    """

    sessions: int = 0
    calls: int = 0
    refused: int = 0
    pressed: int = 0
    needed: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    saved_by: Counter[str] = field(default_factory=Counter)
    successors: int = 0
    extended: int = 0
    cuts: int = 0
    rebilled: int = 0
    bill: float = 0.0
    bill_unmanaged: float = 0.0
    bill_trimmed: float = 0.0
    needing: int = 0
    held: float = 0.0
    held_in_context: float = 0.0
    weighed: int = 0
    floor_bits: int = 0
    bits: int = 0
    whole_bits: int = 0
    newest_sent: int = 0
    newest_fitting: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    places: dict[str, Verdict] = field(default_factory=dict)
    times: Counter[int] = field(default_factory=Counter)

    def add(self, other: Figures) -> None:
        """Add the figures of other sessions."""
        for each in _SUMMED:
            setattr(self, each, getattr(self, each) + getattr(other, each))
        self.needed = max(self.needed, other.needed)
        self.saved_by.update(other.saved_by)
        self.findings.update(other.findings)
        self.places = {**other.places, **self.places}
        self.times.update(other.times)

    def timed(self, milliseconds: float) -> None:
        """Add the time of a call."""
        self.times[round(math.log(max(milliseconds, _LEAST)) / _STEP)] += 1

    def judged(self, verdicts: Iterable[Verdict]) -> None:
        """Add the violations of the latest call."""
        first = {verdict.law: verdict for verdict in reversed(list(verdicts))}
        self.findings.update(first.keys())
        self.places = {**first, **self.places}

    @property
    def served(self) -> int:
        """Calls that were not refused."""
        return self.calls - self.refused

    @property
    def ok(self) -> bool:
        """Whether something was judged and no call violates a law."""
        return self.served > 0 and not self.findings

    @property
    def prefix_share(self) -> float | None:
        """Share of calls that extend the previous prompt up to its newest exchange; None if none exceeds the budget."""
        return self.extended / self.successors if self.successors else None

    @property
    def cut_share(self) -> float | None:
        """Share of the served calls that cut the window; None if none was served."""
        return self.cuts / self.served if self.served else None

    @property
    def saved(self) -> float | None:
        """Share of the input tokens that were saved; None if no call was served."""
        return 1 - self.tokens_after / self.tokens_before if self.tokens_before else None

    @property
    def support(self) -> float | None:
        """Next-action support, averaged over the calls that need something; None if none does."""
        return self.held / self.needing if self.needing else None

    @property
    def support_in_context(self) -> float | None:
        """The same, counting only strings among the words that surrounded them in the history."""
        return self.held_in_context / self.needing if self.needing else None

    @property
    def gain(self) -> float | None:
        """Share of the older history's value, in bits, that the requests contain; None if nothing was compressed."""
        return gain([Bits(self.floor_bits, self.bits, self.whole_bits)])

    @property
    def newest(self) -> float | None:
        """Share of the newest tool outputs that is sent, in characters, of those that would fit; None if none would."""
        return self.newest_sent / self.newest_fitting if self.newest_fitting else None

    def percentile(self, share: float) -> float | None:
        """Return a percentile of the times of calls, in milliseconds; None if nothing was timed."""
        rank = share * (self.times.total() - 1)
        steps = sorted(self.times)
        seen = accumulate(map(self.times.__getitem__, steps))
        return next((math.exp(step * _STEP) for step, count in zip(steps, seen, strict=True) if count > rank), None)


_APART = ("needed", "saved_by", "findings", "places", "times")
_SUMMED = tuple(f.name for f in fields(Figures) if f.name not in _APART)
