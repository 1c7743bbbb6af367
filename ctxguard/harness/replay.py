"""Replay recorded sessions call by call: what would each model call have been sent, and did every law hold?

Laws are the guarantees of the library that a judge checks at each call (see `ctxguard.harness.judging`): the budget,
valid tool-call pairs, no personal data, and others. Support measures how much of what the next recorded message needs
is still in the context.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from ctxguard.adapting.adapter import with_adapter_stages
from ctxguard.artifacts import Artifact, Kind
from ctxguard.errors import BudgetExceededError
from ctxguard.harness.fidelity import Fidelity, Need, Support
from ctxguard.harness.gain import Bits, Gain, newest_exchange, newest_sent
from ctxguard.harness.judging import Figures, Judge, Verdict
from ctxguard.harness.pricing import PriceModel, RollingWindow, common_prefix
from ctxguard.harness.requests import WireReader
from ctxguard.harness.sessions import RecordedSession
from ctxguard.report import Report
from ctxguard.session import Context
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens import ArtifactCounter

MOST_PLACES: Final = 50
"""Maximum number of findings that are listed for one session; all findings are counted."""


@dataclass(frozen=True, slots=True)
class Call:
    """One model call of a replay.

    Attributes:
        end: Number of history messages before the call.
        before: Number of tokens in the whole history.
        after: Number of tokens in the request; 0 if the call was refused.
        cut: Whether the call cut the window.
        bill: Price of the request.
        trimmed: Price of the request that a rolling window would have sent.
        unmanaged: Price of sending the whole history.
    """

    end: int
    before: int
    after: int
    cut: bool = False
    bill: float = 0.0
    trimmed: float = 0.0
    unmanaged: float = 0.0


@dataclass(slots=True)
class SessionReplay:
    """One session, replayed under one setting.

    Attributes:
        id: Name of the session.
        path: File that contains the session.
        line: Line of that file at which the session was found, from 1.
        budget: Token budget of each call, without the tokens reserved for the reply.
        figures: Figures of the session, which can be added to those of other sessions.
        calls: Every call, in order.
        places: Findings; at most 50 of them are listed.
    """

    id: str
    path: str = ""
    line: int = 1
    budget: int = 0
    figures: Figures = field(default_factory=lambda: Figures(sessions=1))
    calls: list[Call] = field(default_factory=list)
    places: list[Verdict] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether at least one call was judged and every law held."""
        return self.figures.ok

    @property
    def badness(self) -> tuple[float, ...]:
        """Sort key, higher for worse sessions: by findings, then refusals, missing support, cuts, and history size."""
        own, calls = self.figures, max(self.figures.calls, 1)
        lost = 0.0 if own.support is None else 1 - own.support
        return (sum(own.findings.values()), own.refused / calls, round(lost, 6), own.cuts / calls, own.tokens_before)


class Measures(NamedTuple):
    """Measures of one context. `support` and `bits` are None if they cannot be measured.

    `newest` is the number of characters of the newest tool outputs that were sent, and the number that would have fit.
    """

    support: Support | None
    bits: Bits | None = None
    newest: tuple[int, int] = (0, 0)


class Recorded:
    """One session, with everything that does not depend on the setting under which it is replayed."""

    def __init__(self, session: RecordedSession) -> None:
        self.session = session
        self.artifacts = _distinct(session.read())
        self.ends = [n for n, a in enumerate(self.artifacts) if a.kind is Kind.ASSISTANT and n]
        self.reader = WireReader()
        self.gain = Gain(self.artifacts)
        self.measure = cache(Fidelity)
        self._needs = cache(self._find_needs)

    def measures(
        self, end: int, context: Sequence[Artifact], available: int, count: ArtifactCounter, measure: Fidelity
    ) -> Measures:
        """Measure how much a context contains of what the next message needs, for a history that exceeds the budget.

        Args:
            end: Number of history messages before the call.
            context: Context that is sent.
            available: Number of tokens available for messages.
            count: Token counter in use.
            measure: Measure of support.
        """
        newest = newest_sent(self.artifacts[:end], context, available, count)
        return Measures(self.support(end, context, measure), self.gain(end, context, available, count), newest)

    def support(self, end: int, context: Sequence[Artifact], measure: Fidelity) -> Support | None:
        """Return the next-action support of a context; None if the next message needs nothing from older history."""
        needs = self._needs(measure, end)
        return measure.support(needs, context) if needs else None

    def _find_needs(self, measure: Fidelity, end: int) -> list[Need]:
        return measure.needs(self.artifacts[:end], self.artifacts[end])


def _distinct(artifacts: Iterable[Artifact]) -> list[Artifact]:
    """Return the artifacts, copying repeated ones, since decisions are matched to artifacts by object identity."""
    seen: set[int] = set()
    apart = []
    for artifact in artifacts:
        own = replace(artifact) if id(artifact) in seen else artifact
        seen.add(id(own))
        apart.append(own)
    return apart


def replay(session: RecordedSession, stabilizer: Stabilizer, *, prices: PriceModel | None = None) -> SessionReplay:
    """Replay one session: append it message by message, and stabilize before each assistant message.

    Args:
        session: Recorded session.
        stabilizer: Stabilizer that is replayed.
        prices: Prices of the model; None means relative prices.
    """
    (result,) = replay_settings(session, [stabilizer], prices=prices)
    return result


def served_contexts(session: RecordedSession, stabilizer: Stabilizer) -> Iterator[tuple[int, Context]]:
    """Yield the number and the context of each served call, without judging any of them.

    Judging takes most of a replay's time.
    """
    recorded = Recorded(session)
    chain = with_adapter_stages(stabilizer, session.adapter)
    running = chain.session(tools=session.tools, overhead=session.overhead(chain.counter))
    for call, (begin, end) in enumerate(pairwise([0, *recorded.ends]), start=1):
        running.extend(recorded.artifacts[begin:end])
        with suppress(BudgetExceededError):
            yield call, running.context()


def replay_settings(
    session: RecordedSession,
    stabilizers: Iterable[Stabilizer],
    *,
    prices: PriceModel | None = None,
    path: str = "",
    line: int = 1,
) -> Iterator[SessionReplay]:
    """Replay one session under several settings; what does not depend on the setting is computed only once.

    Args:
        session: Recorded session.
        stabilizers: One stabilizer for each setting.
        prices: Prices of the model; None means relative prices.
        path: File that contains the session, for the results.
        line: Line number of the session in that file, for the results.
    """
    recorded = Recorded(session)
    for stabilizer in stabilizers:
        result = SessionReplay(session.id, path, line)
        yield _Player(recorded, stabilizer, prices or PriceModel(), result).play()


def replay_sessions(
    sessions: Iterable[RecordedSession], stabilizer: Stabilizer, *, prices: PriceModel | None = None
) -> Figures:
    """Replay many sessions and add up their figures."""
    result = Figures()
    for session in sessions:
        result.add(replay(session, stabilizer, prices=prices).figures)
    return result


_TIMES: Final = ("timestamp", "created_at", "created", "time")


def time_of(artifact: Artifact) -> float | None:
    """Return when a message was recorded, in seconds since 1970; None if the recording does not say."""
    source = artifact.source
    found = source if isinstance(source, Mapping) else {}
    for value in map(found.get, _TIMES):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value / 1_000 if value > _MILLISECONDS else float(value)
        if isinstance(value, str):
            with suppress(ValueError):
                return datetime.fromisoformat(value).timestamp()
    return None


_MILLISECONDS: Final = 100_000_000_000
"""Timestamps beyond this value are in milliseconds: in seconds, the value is in the year 5138."""


class _Player:
    """Replays one session under one setting."""

    def __init__(self, recorded: Recorded, stabilizer: Stabilizer, prices: PriceModel, result: SessionReplay) -> None:
        session = recorded.session
        chain = with_adapter_stages(stabilizer, session.adapter)
        counter = chain.counter
        overhead = session.overhead(counter)
        self.recorded, self.prices, self.counter = recorded, prices, counter
        self.running = chain.session(tools=session.tools, overhead=overhead)
        self.judge = Judge(session, chain, recorded.reader)
        self.measure = recorded.measure(next((masker.mask for masker in chain.stages.maskers), None))
        self.overhead = overhead + counter.tools(session.tools)
        costs = list(map(counter.artifact, recorded.artifacts))
        self.tokens = list(accumulate(costs, initial=self.overhead))
        self.result = result
        result.budget = chain.budget_for()
        self.window = RollingWindow(recorded.artifacts, costs, result.budget - self.overhead)
        self.window_before: list[int] = []
        self.previous: list[Artifact] | None = None
        self.history_before = 0
        self.called_at: float | None = None

    def play(self) -> SessionReplay:
        for begin, end in pairwise([0, *self.recorded.ends]):
            self.running.extend(self.recorded.artifacts[begin:end])
            self._call(end)
        if not self.result.figures.pressed:
            self.result.figures.successors = self.result.figures.extended = 0
        return self.result

    def _call(self, end: int) -> None:
        own = self.result.figures
        own.calls += 1
        begun = time.perf_counter()
        try:
            context = self.running.context()
        except BudgetExceededError as error:
            self._refuse(end, error)
            return
        own.timed(1_000 * (time.perf_counter() - begun))
        report, before = context.report, self.tokens[end]
        cut = report.cut is not None and report.cut.fresh
        own.pressed += before > report.budget
        own.tokens_before += before
        own.tokens_after += report.tokens_after
        for action, tokens in report.saved_by().items():
            own.saved_by[action] += tokens
        own.cuts += cut
        own.rebilled += report.cut.rebilled if report.cut is not None else 0
        self._judge(end, context.artifacts, report)
        self._measure(end, context.artifacts, is_pressed=before > report.budget)
        prices = self._price(end, context.artifacts, report.tokens_after, is_cold=self._is_cold(end))
        self.result.calls.append(Call(end, before, report.tokens_after, cut, *prices))

    def _refuse(self, end: int, error: BudgetExceededError) -> None:
        own = self.result.figures
        own.refused += 1
        own.pressed += 1
        own.needed = max(own.needed, error.needed)
        self.previous = None
        self.judge.refused()
        self.result.calls.append(Call(end, self.tokens[end], 0))

    def _judge(self, end: int, artifacts: list[Artifact], report: Report) -> None:
        own, session = self.result.figures, self.recorded.session
        native = session.adapter.write(session.native, artifacts)
        found = self.judge.judge(self.recorded.artifacts[:end], artifacts, native, report)
        if found:
            verdicts = [replace(one, session=session.id, path=self.result.path, call=own.calls) for one in found]
            own.judged(verdicts)
            self.result.places += verdicts[: MOST_PLACES - len(self.result.places)]

    def _measure(self, end: int, artifacts: list[Artifact], *, is_pressed: bool) -> None:
        own, recorded, available = self.result.figures, self.recorded, self.result.budget - self.overhead
        held = (
            recorded.measures(end, artifacts, available, self.counter, self.measure)
            if is_pressed
            else Measures(recorded.support(end, artifacts, self.measure))
        )
        if held.support:
            own.needing += 1
            own.held += held.support.plain
            own.held_in_context += held.support.with_context
        if held.bits:
            own.weighed += 1
            own.floor_bits += held.bits.floor
            own.bits += held.bits.context
            own.whole_bits += held.bits.whole
        own.newest_sent += held.newest[0]
        own.newest_fitting += held.newest[1]

    def _is_cold(self, end: int) -> bool:
        """Return whether the provider's cache has expired since the previous call; False if a timestamp is missing."""
        before, self.called_at = self.called_at, time_of(self.recorded.artifacts[end - 1]) or self.called_at
        return self.prices.is_cold(before, self.called_at)

    def _price(self, end: int, artifacts: list[Artifact], after: int, *, is_cold: bool) -> tuple[float, float, float]:
        own, shared = self.result.figures, 0
        if self.previous is not None:
            same = common_prefix(self.previous, artifacts)
            own.successors += 1
            own.extended += same >= newest_exchange(self.previous)
            counted = self.counter.artifacts
            overhead = after - counted(artifacts)  # tool schemas and framing precede the messages
            shared = overhead + counted(artifacts[:same])
        bill = self.prices.price(after, 0 if is_cold else shared)
        tokens, same_trimmed = self._trim(end)
        trimmed = self.prices.price(tokens, 0 if is_cold else same_trimmed)
        own.bill += bill
        own.bill_trimmed += trimmed
        unmanaged = self.prices.price(self.tokens[end], 0 if is_cold else self.history_before)
        own.bill_unmanaged += unmanaged
        self.previous, self.history_before = artifacts, self.tokens[end]
        return bill, trimmed, unmanaged

    def _trim(self, end: int) -> tuple[int, int]:
        """Return the number of tokens in a rolling window's request, and the number that a cache could serve.

        A cache could serve the tokens with which the window's previous request also begins.
        """
        before, kept = self.window_before, self.window.kept(end)
        self.window_before = kept or []
        if kept is None:  # not even the newest tool exchange fits: it would be truncated to the budget
            return self.result.budget, 0
        artifacts, same = self.recorded.artifacts, common_prefix(before, kept)
        whole, shared = (self.counter.artifacts(artifacts[n] for n in part) for part in (kept, kept[:same]))
        return self.overhead + whole, self.overhead + shared if before else 0
