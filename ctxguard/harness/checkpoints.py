"""Keep the progress of a replay in a file, so that one that was killed goes on from there.

The file is JSON, written beside its place and then moved there, so that it is always whole. It holds how many
recordings are done and the figures so far, not the recordings: those are read again, and what is done is passed over.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from ctxguard import __version__
from ctxguard.errors import ConfigError, reason_of
from ctxguard.harness.engine import Plan, Results, Tally
from ctxguard.harness.figures import Figures, Place
from ctxguard.harness.judging import Verdict
from ctxguard.harness.recordings import Recording, Skipped, Source
from ctxguard.harness.replay import Call, SessionReplay

EVERY: Final = 5.0
"""Seconds between two writes."""
_ADDED: Final = tuple(f.name for f in fields(Figures) if f.name not in ("places", "milliseconds"))


class Checkpoint:
    """Write progress to a file now and then, and take it up again.

    Args:
        path: the file; it need not exist.
        plan: what is replayed; a file of another plan is refused.
        names: the recordings as they were named.
    """

    def __init__(self, path: Path, plan: Plan, names: Sequence[str]) -> None:
        self._path = path
        told = {
            "version": __version__,
            "settings": [[s.label, dict(s.options)] for s in plan.settings],
            "prices": asdict(plan.prices),
            "adapter": plan.adapter,
            "names": list(names),
        }
        self._key = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()
        self._written = time.monotonic()

    def taken_up(self, results: Results, sources: Iterator[Source]) -> int:
        """Fill results with what is done and pass over its recordings; return how many there are.

        Raises:
            ConfigError: the file cannot be read, is of another replay, or the recordings have changed since.
        """
        state = self._read()
        if state is None:
            return 0
        worst = [_tally_of(each, tally) for each, tally in zip(state["tallies"], results.tallies, strict=True)]
        results.skipped = [Skipped(**each) for each in state["skipped"]]
        results.skipped_count = state["skipped_count"]
        wanted = {place for own in worst for place in own}
        kept: dict[tuple[str, int, int], Recording] = {}
        last: Source | None = None
        for _ in range(state["done"]):
            last = next(sources, None)
            if isinstance(last, Recording) and (place := _place(last)) in wanted:
                kept[place] = last
        if last is None or _mark(last) != state["last"] or wanted - kept.keys():
            raise self._refused("the recordings have changed since it was written")
        for own, tally in zip(worst, results.tallies, strict=True):
            for place, (order, told) in own.items():
                tally.restore(told, kept[place], order)
        return int(state["done"])

    def note(self, results: Results, done: int, last: Source) -> None:
        """Write the progress, where it is time to."""
        if time.monotonic() - self._written >= EVERY:
            self.write(results, done, last)

    def write(self, results: Results, done: int, last: Source) -> None:
        """Write the progress.

        Raises:
            ConfigError: the file cannot be written.
        """
        state = {
            "key": self._key,
            "done": done,
            "last": _mark(last),
            "tallies": [_of_tally(tally) for tally in results.tallies],
            "skipped": [asdict(each) for each in results.skipped],
            "skipped_count": results.skipped_count,
        }
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            beside.write_text(json.dumps(state), encoding="utf-8")
            os.replace(beside, self._path)  # noqa: PTH105 - the name says that it replaces
        except OSError as error:
            raise self._refused(reason_of(error)) from error
        self._written = time.monotonic()

    def done(self) -> None:
        """Remove the file: there is nothing to take up any more."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> Any:  # noqa: ANN401 - JSON that this module wrote
        try:
            state = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._refused(f"it cannot be read ({reason_of(error)})") from error
        if not isinstance(state, dict) or state.get("key") != self._key:
            raise self._refused("it is of another replay, or of another version of ctxguard")
        return state

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(
            f"the replay cannot go on from {self._path}: {why}; remove it to begin anew", setting="resume"
        )


def _place(recording: Recording) -> tuple[str, int, int]:
    return recording.path, recording.line, recording.place


def _mark(source: Source) -> str:
    """Return what tells a recording from another one."""
    data = source.data if isinstance(source, Recording) else str(source).encode()
    return hashlib.sha256(data).hexdigest()


def _of_tally(tally: Tally) -> dict[str, object]:
    worst = [{"place": _place(recording), "order": order, "told": _of_told(told)} for told, recording, order in tally]
    return {"figures": _of_figures(tally.figures), "seen": tally.seen, "worst": worst}


def _tally_of(state: Mapping[str, Any], tally: Tally) -> dict[tuple[str, int, int], tuple[int, SessionReplay]]:
    """Fill a tally but for its worst sessions, which are returned by the places of their recordings."""
    tally.figures = _figures_of(state["figures"])
    tally.seen = state["seen"]
    return {tuple(each["place"]): (each["order"], _told_of(each["told"])) for each in state["worst"]}


def _of_told(told: SessionReplay) -> dict[str, object]:
    return {
        "named": [told.id, told.path, told.line, told.budget],
        "figures": _of_figures(told.figures),
        "calls": [[c.end, c.before, c.after, c.cut, c.bill, c.trimmed] for c in told.calls],
        "places": [asdict(place) for place in told.places],
    }


def _told_of(state: Mapping[str, Any]) -> SessionReplay:
    calls, places = [Call(*each) for each in state["calls"]], [_place_of(each) for each in state["places"]]
    name, path, line, budget = state["named"]
    return SessionReplay(name, path, line, budget, _figures_of(state["figures"]), calls, places)


def _place_of(state: Mapping[str, Any]) -> Place:
    return Place(state["session"], state["path"], state["call"], Verdict(**state["verdict"]))


def _of_figures(figures: Figures) -> dict[str, object]:
    told: dict[str, object] = {name: getattr(figures, name) for name in _ADDED}
    told["places"] = {law: asdict(place) for law, place in figures.places.items()}
    told["milliseconds"] = list(_bins(figures.milliseconds))
    return told


def _bins(sketch: Any) -> Iterator[tuple[float, float]]:  # noqa: ANN401 - what is looked at has no public name
    """Walk the values of a sketch with their counts; the library itself saves one only with protobuf."""
    store = sketch._store  # noqa: SLF001
    yield from ((sketch._mapping.value(n + store.offset), count) for n, count in enumerate(store.bins) if count)  # noqa: SLF001
    if sketch._zero_count:  # noqa: SLF001
        yield 0.0, sketch._zero_count  # noqa: SLF001


def _figures_of(state: Mapping[str, Any]) -> Figures:
    figures = Figures(**{name: state[name] for name in _ADDED})
    figures.saved_by = Counter(figures.saved_by)
    figures.places = {law: _place_of(each) for law, each in state["places"].items()}
    for value, count in state["milliseconds"]:
        figures.milliseconds.add(value, count)
    return figures
