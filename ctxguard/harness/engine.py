"""Run a replay: read recordings, replay each under every setting, and add up the figures, in one process or in several.

Results are added in the order of the recordings, so the report does not depend on the number of processes. Memory use
is constant: recordings are read as needed, figures are added up, and only the worst sessions are kept.

On a Ray cluster, each recording is a task, which runs again if its worker dies. Except for times, the report
is identical for any number of workers. `RAY_ADDRESS` names a cluster; if it is unset, a cluster is started on this
machine.

A checkpoint file saves the progress, so that a replay that was killed can continue. The file is JSON. It is written
under a temporary name and then moved, so it is always complete. It contains the number of finished recordings and the
figures so far, but no recordings: when a replay continues, the files are read again and finished recordings are
skipped.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from heapq import heappush, heappushpop
from itertools import islice
from math import isfinite, prod
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from ctxguard import __version__
from ctxguard.errors import ConfigError, CtxguardError, reason_of
from ctxguard.harness.judging import Figures
from ctxguard.harness.pricing import PriceModel
from ctxguard.harness.recordings import Recording, Skipped, Source, play_session
from ctxguard.harness.replay import SessionReplay, replay_settings
from ctxguard.harness.sessions import RecordedSession
from ctxguard.settings import extra
from ctxguard.stabilizer import Stabilizer

MOST_SETTINGS: Final = 64  # maximum number of combinations in a sweep
Value = str | int | float


def parse_sweep(text: str | None) -> dict[str, list[Value]]:
    """Parse a sweep such as `budget=4k,8k target=0.4:0.8:0.2 policy=agent,recall` into the values of each setting.

    `A:B` means five values from A to B, `A:B:STEP` means steps of STEP, and `4k` means 4,000.
    """
    swept: dict[str, list[Value]] = {}
    for part in (text or "").split():
        name, _, values = part.partition("=")
        if not name or not values or not all(values.split(",")):
            raise ConfigError(f"a sweep is NAME=VALUE,VALUE …, not {part!r}", setting="sweep")
        swept[name] = [each for value in values.split(",") for each in _range(value)]
    count = prod(map(len, swept.values()))
    if count > MOST_SETTINGS:
        raise ConfigError(f"the sweep has {count} combinations, and at most {MOST_SETTINGS} are run", setting="sweep")
    return swept


def _range(value: str) -> list[Value]:
    if ":" not in value:
        return [number(value)]
    bounds = [number(part) for part in value.split(":")]
    if len(bounds) > 3 or not all(isinstance(b, (int, float)) for b in bounds):
        raise ConfigError(f"a range is FROM:TO or FROM:TO:STEP in numbers, not {value!r}", setting="sweep")
    first, last, *rest = map(float, bounds)
    step = rest[0] if rest else (last - first) / 4
    if step <= 0 or last <= first or (last - first) / step > MOST_SETTINGS:
        raise ConfigError(f"the range {value!r} has no steps, or more than {MOST_SETTINGS}", setting="sweep")
    walked = [round(first + n * step, 10) for n in range(int((last - first) / step + 1e-9) + 1)]
    return [int(n) if n == int(n) and all(isinstance(b, int) for b in bounds) else n for n in walked]


def number(text: str) -> Value:
    """Parse a number, where `4k` means 4,000; return a string that is not a finite number unchanged."""
    is_thousand = text[-1:].lower() == "k"
    try:
        value = float(text[:-1] if is_thousand else text) * (1_000 if is_thousand else 1)
    except ValueError:
        return text
    if not isfinite(value):
        return text
    return int(value) if value.is_integer() and (is_thousand or "." not in text) else value


def label_of(options: Mapping[str, str | int | float | None]) -> str:
    """Return a one-line label for a combination of settings."""
    first = {"policy": options.get("policy"), "budget": options.get("budget")}
    rest = {name: value for name, value in options.items() if name not in first and value is not None}
    words = (
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in {**first, **rest}.items()
    )
    return ", ".join(words)


MOST_SKIPPED: Final = 1_000  # maximum number of skipped recordings in a report, so that memory is bounded
MOST_SESSIONS: Final = 100
"""Maximum number of sessions that a report lists for each setting."""
AHEAD: Final = 12
"""Number of recordings that wait for each worker: enough to keep it busy without filling memory."""
SMALL: Final = 1 << 20
"""Size of all recordings, in bytes, below which starting processes takes longer than it saves."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting under which sessions are replayed: its label, its options for the report, and its stabilizer."""

    label: str
    options: Mapping[str, str | int | float | None]
    stabilizer: Stabilizer


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a worker process needs. If `adapter` is None, the adapter is detected for each session."""

    settings: tuple[Setting, ...]
    prices: PriceModel = field(default_factory=PriceModel)
    adapter: str | None = None


Outcome = Skipped | list[SessionReplay]
Task = TypeVar("Task")
Played = TypeVar("Played")


@dataclass(order=True, slots=True)
class Ranked:
    """A session that may be among the worst.

    `order` is minus the position of the session in the input, so that the earlier of two equally bad sessions ranks
    higher.
    """

    badness: tuple[float, ...]
    order: int
    result: SessionReplay = field(compare=False)
    recording: Recording = field(compare=False)


@dataclass(slots=True)
class Tally:
    """The summed figures of one setting, and a heap of its worst sessions."""

    figures: Figures = field(default_factory=Figures)
    ranked: list[Ranked] = field(default_factory=list)

    def add(self, result: SessionReplay, recording: Recording) -> None:
        """Add the figures of one session, and keep the session if it is among the worst."""
        self.figures.add(result.figures)
        ranked = Ranked(result.badness, -self.figures.sessions, result, recording)
        (heappush if len(self.ranked) < MOST_SESSIONS else heappushpop)(self.ranked, ranked)

    @property
    def worst(self) -> list[tuple[SessionReplay, Recording]]:
        """The worst sessions with their recordings, in order, starting with the worst."""
        return [(ranked.result, ranked.recording) for ranked in sorted(self.ranked, reverse=True)]


@dataclass(slots=True)
class Results:
    """The results of replaying recordings under the settings of a plan.

    Attributes:
        tallies: One tally for each setting.
        skipped: Recordings that could not be replayed; at most the first 1,000.
        skipped_count: Number of all recordings that could not be replayed.
        done: Number of finished recordings, including skipped ones.
    """

    tallies: list[Tally]
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0
    done: int = 0

    @property
    def sessions(self) -> int:
        """Number of sessions that were replayed."""
        return self.tallies[0].figures.sessions

    @property
    def calls(self) -> int:
        """Number of model calls that were replayed, over all settings."""
        return sum(tally.figures.calls for tally in self.tallies)

    def take(self, source: Source, outcome: Outcome) -> None:
        """Add the outcome of one recording."""
        self.done += 1
        if isinstance(outcome, Skipped):
            self.skipped_count += 1
            self.skipped += [outcome] if len(self.skipped) < MOST_SKIPPED else []
        elif isinstance(source, Recording):
            for tally, result in zip(self.tallies, outcome, strict=True):
                tally.add(result, source)


Replayed = Iterator[tuple[Source, Outcome]]
Spread = Callable[[Iterator[Source], Plan, int], Replayed]
"""Function that replays recordings in workers and yields each recording with its outcome, in order."""


def run(
    sources: Iterable[Source],
    plan: Plan,
    *,
    processes: int = 1,
    results: Results | None = None,
    after: Callable[[Results, Source], object] | None = None,
    spread: Spread | None = None,
) -> Results:
    """Replay all recordings and return the results.

    Args:
        sources: Recordings, and files that could not be read.
        plan: Settings under which recordings are replayed.
        processes: Number of processes.
        results: Results of earlier recordings, which new results are added to; None means that there are none.
        after: Called after each recording, with the results so far and the recording.
        spread: Function that distributes recordings to workers; None means local processes.

    Raises:
        ConfigError: If a worker process died.
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
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _replay(source: Source, plan: Plan) -> Outcome:
    def play(recording: Recording, session: RecordedSession) -> list[SessionReplay]:
        stabilizers = [setting.stabilizer for setting in plan.settings]
        path, line = recording.path, recording.line
        result = list(replay_settings(session, stabilizers, prices=plan.prices, path=path, line=line))
        if not result[0].calls:
            raise CtxguardError("no model call: the session has no assistant message to replay up to")
        return result

    return play_session(source, play, adapter=plan.adapter)


def _inline(sources: Iterator[Source], plan: Plan, _processes: int) -> Replayed:
    return ((source, _replay(source, plan)) for source in sources)


_work: Callable[[Source], Any]
"""The work of a worker process, which is set once when the process starts."""


def _begin(work: Callable[[Source], Any]) -> None:
    """Begin a worker process. Ctrl-C, which reaches all processes of a terminal, is left to the main process."""
    global _work  # noqa: PLW0603 - a pool passes initial data to its processes only through globals
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _do(source: Source) -> Any:  # noqa: ANN401 - what the work returns
    return _work(source)


def _in_processes(sources: Iterator[Source], plan: Plan, processes: int) -> Replayed:
    return in_processes(sources, partial(_replay, plan=plan), processes)


def in_processes(
    sources: Iterator[Source], work: Callable[[Source], Played], processes: int
) -> Iterator[tuple[Source, Played]]:
    """Work on recordings in separate processes, which stop at once if the main process is interrupted.

    While enough recordings are waiting, no further ones are read.

    Args:
        sources: Recordings, and files that could not be read.
        work: Function that returns the outcome of a recording. It is sent to each process once.
        processes: Number of processes.

    Raises:
        ConfigError: If a worker process died.
    """
    try:
        with ProcessPoolExecutor(
            processes, mp_context=get_context("spawn"), initializer=_begin, initargs=(work,)
        ) as pool:
            try:
                yield from in_order(sources, processes, lambda source: pool.submit(_do, source), Future.result)
            except (KeyboardInterrupt, GeneratorExit):
                for process in active_children():
                    process.terminate()
                raise
    except BrokenProcessPool as error:
        raise ConfigError(
            "a worker process was killed, most likely for lack of memory; use fewer processes, as with --processes 1",
            setting="processes",
        ) from error


def in_order(
    sources: Iterator[Source],
    workers: int,
    submit: Callable[[Source], Task],
    result: Callable[[Task], Played],
) -> Iterator[tuple[Source, Played]]:
    """Work on recordings in workers, and yield each recording with its outcome, in the order of the recordings.

    While enough recordings are waiting, no further ones are read.

    Args:
        sources: Recordings, and files that could not be read.
        workers: Number of workers.
        submit: Function that starts the work on a recording in a worker.
        result: Function that waits for this work and returns its outcome.
    """
    waiting = deque((source, submit(source)) for source in islice(sources, workers * AHEAD))
    while waiting:
        source, task = waiting.popleft()
        yield source, result(task)
        waiting.extend((each, submit(each)) for each in islice(sources, 1))


RETRIES: Final = 3
"""Number of retries for a recording whose worker was killed."""


def spread_on_ray(sources: Iterator[Source], plan: Plan, workers: int) -> Replayed:
    """Replay recordings in the workers of a Ray cluster. While enough recordings wait, no further ones are read.

    Raises:
        ImportError: If ray is not installed.
        ConfigError: If a recording repeatedly killed its worker.
    """
    with _cluster(workers) as ray:
        shared = ray.put(plan)
        task = ray.remote(max_retries=RETRIES, num_cpus=1)(_replay)
        yield from in_order(
            sources, workers, lambda source: task.remote(source, shared), lambda future: _result(ray, future)
        )


def _result(ray: Any, future: Any) -> Any:  # noqa: ANN401 - Ray may be absent where types are checked
    try:
        return ray.get(future)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise ConfigError(
            f"a worker of the Ray cluster was lost {RETRIES + 1} times: {str(error).splitlines()[0]}", setting="engine"
        ) from error


@contextmanager
def _cluster(workers: int) -> Iterator[Any]:
    """Connect to the running Ray cluster, or start a cluster and stop it at the end."""
    with extra("ray", "--engine ray needs Ray"):
        import ray
    if ray.is_initialized():
        yield ray
        return
    local: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": workers, "include_dashboard": False}
    ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
    try:
        yield ray
    finally:
        ray.shutdown()


EVERY: Final = 5.0
"""Minimum number of seconds between two writes of a checkpoint file."""


@dataclass(frozen=True, slots=True)
class _Progress:
    """The content of a checkpoint file.

    Attributes:
        key: Digest of the settings and the names of the recordings, which identifies the replay.
        last: Digest of the last finished recording.
        results: Results so far. For the worst sessions, only the locations of their recordings are saved.
    """

    key: str
    last: str
    results: Results


_FORMAT: Final = TypeAdapter(_Progress)


class ReplayCheckpoint:
    """Saves the progress of a replay to a file at intervals, and restores it.

    A file that belongs to another replay is rejected.
    """

    def __init__(self, path: Path, plan: Plan, names: Sequence[str], every: int = 1) -> None:
        self._path = path
        identity = {
            "version": __version__,
            "settings": [[s.label, dict(s.options)] for s in plan.settings],
            "prices": asdict(plan.prices),
            "adapter": plan.adapter,
            "names": list(names),
            **({} if every == 1 else {"every": every}),
        }
        self._key = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
        self._saved_at = time.monotonic()

    def restore(self, sources: Iterator[Source]) -> Results | None:
        """Read the results so far, and skip the finished recordings in `sources`; return None if there is no file.

        Raises:
            ConfigError: If the file cannot be read or belongs to another replay, or if the recordings have changed
                since the file was written.
        """
        state = self._read()
        if state is None:
            return None
        awaited = defaultdict[tuple[str, int, int], list[Ranked]](list)
        for ranked in (each for tally in state.results.tallies for each in tally.ranked):
            awaited[ranked.recording.location].append(ranked)
        last: Source | None = None
        for _ in range(state.results.done):
            last = next(sources, None)
            if isinstance(last, Recording):
                for ranked in awaited.pop(last.location, ()):
                    ranked.recording = last
        if last is None or _mark(last) != state.last or awaited:
            raise self._refused("the recordings have changed since it was written")
        return state.results

    def save(self, results: Results, last: Source) -> None:
        """Save the results so far, unless they were saved within the last five seconds.

        `last` is the last finished recording.
        """
        if time.monotonic() - self._saved_at < EVERY:
            return
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            beside.write_bytes(_FORMAT.dump_json(_Progress(self._key, _mark(last), results)))
            os.replace(beside, self._path)  # noqa: PTH105 - the name says that it replaces
        except OSError as error:
            raise self._refused(reason_of(error)) from error
        self._saved_at = time.monotonic()

    def remove(self) -> None:
        """Remove the file after the replay has finished."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> _Progress | None:
        try:
            text = self._path.read_bytes()
            state = json.loads(text)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._refused(f"it cannot be read ({reason_of(error)})") from error
        if not isinstance(state, dict) or state.get("key") != self._key:
            raise self._refused("it is of another replay, or of another version of ctxguard")
        return _FORMAT.validate_json(text)

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(
            f"the replay cannot continue from {self._path}: {why}; remove the file to start over", setting="resume"
        )


def _mark(source: Source) -> str:
    """Return a digest that identifies a recording."""
    data = source.data if isinstance(source, Recording) else str(source).encode()
    return hashlib.sha256(data).hexdigest()
