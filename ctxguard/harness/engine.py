"""Run a replay: read recordings, replay each under every setting, add up the figures; in this process or in several.

Results are added in the order of the recordings, so the report does not depend on the number of processes. Memory use
stays flat: recordings are read as needed, figures are added up, and only the worst sessions are kept.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from itertools import islice
from multiprocessing import get_context
from typing import Final, TypeVar

from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.harness.figures import Figures
from ctxguard.harness.pricing import PriceModel
from ctxguard.harness.recordings import Recording, Skipped, Source, played
from ctxguard.harness.replay import SessionReplay, replay_settings
from ctxguard.harness.sessions import RecordedSession
from ctxguard.stabilizer import Stabilizer

MOST_SKIPPED: Final = 1_000  # that a report lists, so that memory is bounded
MOST_SESSIONS: Final = 100
"""Sessions of each run that a report lists."""
_BATCH_BYTES: Final = 1 << 18  # of a batch for a worker, and
_BATCH: Final = 16  # recordings in it: few enough to keep all workers busy at the end
AHEAD: Final = 3
"""Batches that wait for each process: enough to keep it busy, without filling memory."""
SMALL: Final = 1 << 20
"""Bytes of recordings below which starting processes takes longer than it saves."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting under which sessions are replayed: in words, and as data for the report."""

    label: str
    options: Mapping[str, str | int | float | None]
    stabilizer: Stabilizer


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a worker process needs; an adapter of None is detected for each session."""

    settings: tuple[Setting, ...]
    prices: PriceModel = field(default_factory=PriceModel)
    adapter: str | None = None


Outcome = Skipped | list[SessionReplay]
Task = TypeVar("Task")


@dataclass(order=True, slots=True)
class Ranked:
    """A session that may be among the worst, with its position in the order of all, counted down."""

    badness: tuple[float, ...]
    order: int
    result: SessionReplay = field(compare=False)
    recording: Recording = field(compare=False)


class Tally:
    """The sum of the sessions of one setting, and the worst of them."""

    def __init__(self) -> None:
        self.figures = Figures()
        self.ranked: list[Ranked] = []

    def add(self, result: SessionReplay, recording: Recording) -> None:
        """Add one session."""
        self.figures.add(result.figures)
        self.rank(Ranked(result.badness, -self.figures.sessions, result, recording))

    def rank(self, ranked: Ranked) -> None:
        """Remember a session if it is among the worst."""
        if len(self.ranked) < MOST_SESSIONS:
            heappush(self.ranked, ranked)
        else:
            heappushpop(self.ranked, ranked)

    @property
    def worst(self) -> list[tuple[SessionReplay, Recording]]:
        """The worst sessions, the worst first, with their recordings."""
        return [(ranked.result, ranked.recording) for ranked in sorted(self.ranked, reverse=True)]


@dataclass(slots=True)
class Results:
    """The results of a plan.

    Attributes:
        tallies: one for each setting.
        skipped: the first 1,000 recordings that could not be replayed.
        skipped_count: number of these.
        done: number of finished recordings, including skipped ones.
    """

    tallies: list[Tally]
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0
    done: int = 0

    @property
    def sessions(self) -> int:
        """Number of replayed sessions."""
        return self.tallies[0].figures.sessions

    @property
    def calls(self) -> int:
        """Number of replayed model calls, under all settings."""
        return sum(tally.figures.calls for tally in self.tallies)

    def take(self, source: Source, outcome: Outcome) -> None:
        """Add the outcome of a recording."""
        self.done += 1
        if isinstance(outcome, Skipped):
            self.skipped_count += 1
            self.skipped += [outcome] if len(self.skipped) < MOST_SKIPPED else []
        elif isinstance(source, Recording):
            for tally, result in zip(self.tallies, outcome, strict=True):
                tally.add(result, source)


Replayed = Iterator[tuple[Source, Outcome]]
Spread = Callable[[Iterator[Source], Plan, int], Replayed]
"""Replays in other processes: recordings in, outcomes out in the same order."""


def run(
    sources: Iterable[Source],
    plan: Plan,
    *,
    processes: int = 1,
    results: Results | None = None,
    after: Callable[[Results, Source], object] | None = None,
    spread: Spread | None = None,
) -> Results:
    """Replay all recordings, and return the results.

    Args:
        sources: recordings, and files that could not be read.
        plan: the settings.
        processes: number of processes.
        results: results of earlier recordings, to add to; None means that there are none.
        after: called after each recording with the results so far.
        spread: replays in other processes or on other machines; None means processes of this one.

    Raises:
        ConfigError: a process died, or the settings cannot be sent to one.
    """
    total = results or Results([Tally() for _ in plan.settings])
    if spread is None:
        spread = _in_processes if processes > 1 else _inline
    for source, outcome in spread(iter(sources), plan, processes):
        total.take(source, outcome)
        if after is not None:
            after(total, source)
    return total


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _replayed(source: Source, plan: Plan) -> Outcome:
    def play(recording: Recording, session: RecordedSession) -> list[SessionReplay]:
        stabilizers = [setting.stabilizer for setting in plan.settings]
        path, line = recording.path, recording.line
        result = list(replay_settings(session, stabilizers, prices=plan.prices, path=path, line=line))
        if not result[0].calls:
            raise CtxguardError("no model call: calls are replayed up to each assistant message")
        return result

    return played(source, play, adapter=plan.adapter)


def _inline(sources: Iterator[Source], plan: Plan, _processes: int) -> Replayed:
    return ((source, _replayed(source, plan)) for source in sources)


_plan: Plan
"""The plan of a process that replays; set once when it starts."""


def _begin(plan: Plan) -> None:
    global _plan  # noqa: PLW0603 - what a process of a pool is given at its start has no other place
    _plan = plan


def _work(batch: Sequence[Source]) -> list[Outcome]:
    return replayed(batch, _plan)


def replayed(batch: Sequence[Source], plan: Plan) -> list[Outcome]:
    """Replay a batch of recordings."""
    return [_replayed(source, plan) for source in batch]


def _batches(sources: Iterator[Source]) -> Iterator[list[Source]]:
    """Yield recordings in batches, none of which is large."""
    batch: list[Source] = []
    size = 0
    for source in sources:
        batch.append(source)
        size += len(source.data) if isinstance(source, Recording) else 0
        if size >= _BATCH_BYTES or len(batch) >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _in_processes(sources: Iterator[Source], plan: Plan, processes: int) -> Replayed:
    """Replay in separate processes; reading waits if they are behind."""
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
    submit: Callable[[Sequence[Source]], Task],
    result: Callable[[Task], list[Outcome]],
) -> Replayed:
    """Replay in workers, and yield the outcomes in the order of the recordings; reading waits for workers."""
    batches = _batches(sources)
    waiting = deque((batch, submit(batch)) for batch in islice(batches, workers * AHEAD))
    while waiting:
        batch, task = waiting.popleft()
        yield from zip(batch, result(task), strict=True)
        waiting.extend((each, submit(each)) for each in islice(batches, 1))
