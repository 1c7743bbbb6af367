"""Run a replay: read recordings, replay each under every setting, add up; in this process or in one for each core.

Results are taken in the order of the recordings, so the report does not depend on how many processes there are. Memory
stays flat: recordings are read as they are needed, figures add up, and only the worst sessions are remembered.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from itertools import chain, islice
from multiprocessing import get_context
from typing import Final, Protocol, TypeVar

from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.harness.figures import Figures
from ctxguard.harness.pricing import PriceModel
from ctxguard.harness.recordings import Recording, Skipped, Source, opened
from ctxguard.harness.replay import SessionReplay, replay_settings
from ctxguard.stabilizer import Stabilizer

MOST_SKIPPED: Final = 1_000
MOST_SESSIONS: Final = 100
"""Sessions of each run that a report lists."""
_BATCH_BYTES: Final = 1 << 18
_BATCH: Final = 16
AHEAD: Final = 3
"""Batches that wait for each process: enough to keep it busy, and no more in memory."""
_SMALL: Final = 1 << 20
"""Below so many bytes of recordings, starting processes takes longer than it saves."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Hold one setting under which sessions are replayed: in words, and as data for the report."""

    label: str
    options: Mapping[str, str | int | float | None]
    stabilizer: Stabilizer


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold all that a process needs to know; an adapter of None is detected for each session."""

    settings: tuple[Setting, ...]
    prices: PriceModel = field(default_factory=PriceModel)
    adapter: str | None = None


Outcome = Skipped | list[SessionReplay]
Task = TypeVar("Task")


@dataclass(order=True, slots=True)
class _Ranked:
    badness: tuple[float, ...]
    order: int
    told: SessionReplay = field(compare=False)
    recording: Recording = field(compare=False)


class Tally:
    """Add up the sessions of one setting, and remember the worst of them."""

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        self.figures = Figures()
        self._most = most
        self._worst: list[_Ranked] = []
        self.seen = 0

    def add(self, told: SessionReplay, recording: Recording) -> None:
        """Take in one session."""
        self.figures.add(told.figures)
        self.seen += 1
        self.restore(told, recording, -self.seen)

    def restore(self, told: SessionReplay, recording: Recording, order: int) -> None:
        """Rank a session whose figures have been added, by its place in the order of all."""
        ranked = _Ranked(told.badness, order, told, recording)
        if len(self._worst) < self._most:
            heappush(self._worst, ranked)
        else:
            heappushpop(self._worst, ranked)

    def __iter__(self) -> Iterator[tuple[SessionReplay, Recording, int]]:
        """Walk the worst sessions with their recordings and their place in the order of all."""
        return ((ranked.told, ranked.recording, ranked.order) for ranked in self._worst)

    @property
    def worst(self) -> list[tuple[SessionReplay, Recording]]:
        """The worst sessions, the worst first, with their recordings."""
        return [(ranked.told, ranked.recording) for ranked in sorted(self._worst, reverse=True)]


@dataclass(slots=True)
class Results:
    """Hold what came of a plan: a tally for each setting, and the first 1,000 of what could not be replayed."""

    tallies: list[Tally]
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0

    @property
    def sessions(self) -> int:
        """Sessions that were replayed."""
        return self.tallies[0].seen

    @property
    def calls(self) -> int:
        """Model calls that were replayed, under all settings."""
        return sum(tally.figures.calls for tally in self.tallies)

    def take(self, source: Source, outcome: Outcome) -> None:
        """Take in what came of a recording."""
        if isinstance(outcome, Skipped):
            self.skip(outcome)
        elif isinstance(source, Recording):
            for tally, told in zip(self.tallies, outcome, strict=True):
                tally.add(told, source)

    def skip(self, skipped: Skipped) -> None:
        """Take note of what could not be replayed."""
        self.skipped_count += 1
        if len(self.skipped) < MOST_SKIPPED:
            self.skipped.append(skipped)


Progress = Callable[[int, int, Recording], object]
"""Is told how many sessions and calls have been replayed so far, and the latest recording."""
Replayed = Iterator[tuple[Source, Outcome]]
Spread = Callable[[Iterator[Source], Plan, int], Replayed]
"""Replays in other processes: recordings in, outcomes out in the same order."""


class Keeper(Protocol):
    """Keeps the progress of a replay, and takes it up again."""

    def taken_up(self, results: Results, sources: Iterator[Source]) -> int:
        """Fill results with what is done, pass over its recordings, and return how many there are."""
        ...

    def note(self, results: Results, done: int, last: Source) -> None:
        """Keep the progress, where it is time to."""
        ...

    def done(self) -> None:
        """Forget the progress."""
        ...


def run(
    sources: Iterable[Source],
    plan: Plan,
    *,
    processes: int | None = None,
    progress: Progress | None = None,
    keeper: Keeper | None = None,
    spread: Spread | None = None,
) -> tuple[Results, int]:
    """Replay all recordings, and return what came of it and how many processes did it.

    Args:
        sources: recordings, and what could not be read.
        plan: the settings.
        processes: how many; None means one for each core, or none of its own where there is little to do.
        progress: called after each session.
        keeper: keeps the progress, so that a replay that was killed can go on.
        spread: replays in other processes or on other machines; None means processes of this one.

    Raises:
        ConfigError: a process died, the settings cannot be handed to one, or the progress cannot be taken up.
    """
    results = Results([Tally() for _ in plan.settings])
    remaining = iter(sources)
    done = 0 if keeper is None else keeper.taken_up(results, remaining)
    ahead, walked = _peeked(remaining)
    wanted = cores() if processes is None else processes
    if processes is None and ahead < _SMALL and spread is None:
        wanted = 1
    if spread is not None:
        outcomes = spread(walked, plan, wanted)
    else:
        outcomes = _inline(walked, plan) if wanted <= 1 else _spread(walked, plan, wanted)
    for source, outcome in outcomes:
        done += 1
        results.take(source, outcome)
        if progress is not None and isinstance(source, Recording):
            progress(results.sessions, results.calls, source)
        if keeper is not None:
            keeper.note(results, done, source)
    if keeper is not None:
        keeper.done()
    return results, max(1, wanted)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _peeked(sources: Iterator[Source]) -> tuple[int, Iterator[Source]]:
    """Return how many bytes the first recordings hold, as far as that matters, and all of them."""
    seen: list[Source] = []
    size = 0
    for source in sources:
        seen.append(source)
        size += len(source.data) if isinstance(source, Recording) else 0
        if size >= _SMALL:
            break
    return size, chain(seen, sources)


def _replayed(recording: Recording, plan: Plan) -> Outcome:
    session = opened(recording, adapter=plan.adapter)
    if isinstance(session, Skipped):
        return session
    try:
        stabilizers = [setting.stabilizer for setting in plan.settings]
        told = list(replay_settings(session, stabilizers, prices=plan.prices, path=recording.path, line=recording.line))
    except CtxguardError as error:
        return Skipped(recording.path, str(error), line=recording.line, session=session.id)
    if not told[0].calls:
        reason = "no model call: calls are replayed up to each assistant message"
        return Skipped(recording.path, reason, line=recording.line, session=session.id)
    return told


def _inline(sources: Iterator[Source], plan: Plan) -> Replayed:
    for source in sources:
        yield source, source if isinstance(source, Skipped) else _replayed(source, plan)


_plan: Plan | None = None
"""The plan of a process that replays; set once when it starts."""


def _begin(plan: Plan) -> None:
    global _plan  # noqa: PLW0603 - what a process of a pool is given at its start has no other place
    _plan = plan


def _work(recordings: Sequence[Recording]) -> list[Outcome]:
    if _plan is None:
        raise ConfigError("this process was started without a plan", setting="processes")
    return replayed(recordings, _plan)


def replayed(recordings: Sequence[Recording], plan: Plan) -> list[Outcome]:
    """Replay a batch of recordings."""
    return [_replayed(recording, plan) for recording in recordings]


Batch = Sequence[Recording] | Skipped


def batches(sources: Iterator[Source]) -> Iterator[Batch]:
    """Walk recordings in batches, in order; what could not be read stands alone."""
    batch: list[Recording] = []
    size = 0
    for source in sources:
        is_full = size >= _BATCH_BYTES or len(batch) >= _BATCH
        if batch and (is_full or isinstance(source, Skipped)):
            yield batch
            batch, size = [], 0
        if isinstance(source, Skipped):
            yield source
        else:
            batch.append(source)
            size += len(source.data)
    if batch:
        yield batch


def _spread(sources: Iterator[Source], plan: Plan, processes: int) -> Replayed:
    """Replay in processes of their own; reading waits where they are behind."""
    try:
        with ProcessPoolExecutor(
            processes, mp_context=get_context("spawn"), initializer=_begin, initargs=(plan,)
        ) as pool:
            yield from in_order(sources, processes, lambda batch: pool.submit(_work, batch), Future.result)
    except BrokenProcessPool as error:
        raise ConfigError(
            "a process that replays was killed, most likely for lack of memory; use fewer with --processes 1",
            setting="processes",
        ) from error


def in_order(
    sources: Iterator[Source],
    workers: int,
    submit: Callable[[Sequence[Recording]], Task],
    result: Callable[[Task], list[Outcome]],
) -> Replayed:
    """Replay in workers, and walk the outcomes in the order of the recordings; reading waits for workers."""
    read = batches(sources)
    waiting: deque[tuple[Sequence[Recording], Task] | Skipped] = deque()
    while True:
        for batch in islice(read, workers * AHEAD - len(waiting)):
            waiting.append(batch if isinstance(batch, Skipped) else (batch, submit(batch)))
        if not waiting:
            return
        first = waiting.popleft()
        if isinstance(first, Skipped):
            yield first, first
        else:
            yield from zip(first[0], result(first[1]), strict=True)
