"""Save the progress of a replay in a file, so that a killed replay can continue from there.

The file is JSON, written under a temporary name and then moved, so that it is always complete. It contains the number
of finished recordings and the figures so far, not the recordings: those are read again, and finished ones are skipped.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeAlias

from pydantic import TypeAdapter

from ctxguard import __version__
from ctxguard.errors import ConfigError, reason_of
from ctxguard.harness.engine import Plan, Ranked, Results
from ctxguard.harness.figures import Figures
from ctxguard.harness.recordings import Recording, Skipped, Source
from ctxguard.harness.replay import SessionReplay

EVERY: Final = 5.0
"""Seconds between two writes."""
_At: TypeAlias = tuple[str, int, int]
"""File, line, and number of a recording."""


@dataclass(frozen=True, slots=True)
class _Progress:
    """The content of the file.

    Attributes:
        key: identifies the replay.
        done: number of finished recordings.
        last: identifies the last of them.
        tallies: for each setting the figures, and the worst sessions: the location of each recording, its position in
            the order of all, and its figures.
        skipped: the recordings that could not be replayed.
        skipped_count: their number.
    """

    key: str
    done: int
    last: str
    tallies: list[tuple[Figures, list[tuple[_At, int, SessionReplay]]]]
    skipped: list[Skipped]
    skipped_count: int


_FORMAT: Final = TypeAdapter(_Progress)


class ReplayCheckpoint:
    """Save progress to a file at intervals, and continue from it; a file of another replay is rejected."""

    def __init__(self, path: Path, plan: Plan, names: Sequence[str]) -> None:
        self._path = path
        identity = {
            "version": __version__,
            "settings": [[s.label, dict(s.options)] for s in plan.settings],
            "prices": asdict(plan.prices),
            "adapter": plan.adapter,
            "names": list(names),
        }
        self._key = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
        self._written = time.monotonic()

    def restore(self, results: Results, sources: Iterator[Source]) -> None:
        """Restore the results so far, and skip the finished recordings.

        Raises:
            ConfigError: the file cannot be read, is of another replay, or the recordings have changed since.
        """
        state = self._read()
        if state is None:
            return
        wanted = {at for _, worst in state.tallies for at, _, _ in worst}
        found: dict[_At, Recording] = {}
        last: Source | None = None
        for _ in range(state.done):
            last = next(sources, None)
            if isinstance(last, Recording) and (at := _at(last)) in wanted:
                found[at] = last
        if last is None or _mark(last) != state.last or wanted - found.keys():
            raise self._refused("the recordings have changed since it was written")
        results.skipped, results.skipped_count, results.done = state.skipped, state.skipped_count, state.done
        for (figures, worst), tally in zip(state.tallies, results.tallies, strict=True):
            tally.figures = figures
            for at, order, result in worst:
                tally.rank(Ranked(result.badness, order, result, found[at]))

    def note(self, results: Results, last: Source) -> None:
        """Save the progress, if it is time to."""
        if time.monotonic() - self._written < EVERY:
            return
        tallies = [
            (tally.figures, [(_at(each.recording), each.order, each.result) for each in tally.ranked])
            for tally in results.tallies
        ]
        state = _Progress(self._key, results.done, _mark(last), tallies, results.skipped, results.skipped_count)
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            beside.write_bytes(_FORMAT.dump_json(state))
            os.replace(beside, self._path)  # noqa: PTH105 - the name says that it replaces
        except OSError as error:
            raise self._refused(reason_of(error)) from error
        self._written = time.monotonic()

    def remove(self) -> None:
        """Remove the file: the replay is finished."""
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
            f"the replay cannot go on from {self._path}: {why}; remove it to begin anew", setting="resume"
        )


def _at(recording: Recording) -> _At:
    return recording.path, recording.line, recording.place


def _mark(source: Source) -> str:
    """Return an identifier of a recording."""
    data = source.data if isinstance(source, Recording) else str(source).encode()
    return hashlib.sha256(data).hexdigest()
