"""The command `ctxguard bench`: compare ctxguard with other libraries on the same sessions.

Each figure of the report is one `Column`, which JSON, terminal, and Markdown output share. A contestant is a library,
or a simple policy such as a rolling window, that takes part in the comparison. A call holds if its request fits the
budget and is valid.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any, Final, Literal

import typer

from ctxguard import __version__
from ctxguard.cli.options import CountingOptions, spread
from ctxguard.harness.bench import BenchCall, contestants, play
from ctxguard.harness.contestants import BASELINE, Peer, synthetic_recordings
from ctxguard.harness.document import rounded
from ctxguard.harness.engine import cores
from ctxguard.harness.gain import gain, judges
from ctxguard.harness.recordings import Recording, Skipped, every_nth, recordings, skipped_lines, total_size
from ctxguard.harness.summary import STOPPED, Pace
from ctxguard.report.printing import counted, note, out, refuse_overwriting, working
from ctxguard.tokens import find_counter

Row = Mapping[str, Any]
"""The name and description of a contestant, and its figures at one budget by the keys of their columns."""


class Played:
    """The calls of one contestant at one budget, and the calls of the baseline at the same budget."""

    def __init__(self, calls: Sequence[BenchCall], base: Sequence[BenchCall]) -> None:
        self.calls, self.base = calls, base
        self.held = [call for call in calls if call.holds]
        self.faults = dict(sorted(Counter(call.fault for call in calls if call.fault).items()))
        self.refused = sum(call.price is None and call.fault is None for call in calls)

    @cached_property
    def times(self) -> list[float]:
        """CPU time of each call in milliseconds, in ascending order."""
        return sorted(call.milliseconds for call in self.calls)

    @property
    def newest(self) -> float | None:
        """Characters sent of the newest tool outputs, as a share of those that would fit; None if none would fit."""
        return _share(sum(call.newest[0] for call in self.held), sum(call.newest[1] for call in self.held))


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of the report on a contestant at one budget. A share is None if it is undefined.

    Attributes:
        key: Key of the figure in the JSON.
        figure: Function that computes the figure from the calls.
        name: Heading in Markdown; empty if only the JSON contains the figure.
        head: Heading in a terminal; empty if the terminal's narrower table omits the figure.
        shown: Function that returns the text of a cell, given the figure and the number of calls.
    """

    key: str
    figure: Callable[[Played], object]
    name: str = ""
    head: str = ""
    shown: Callable[[Any, int], str] = lambda value, _: "–" if value is None else f"{value:.2f}"


def _percent(part: int, calls: int) -> str:
    share = 100 * part / calls if calls else 0
    return "0%" if not part else "<1%" if share < 1 else ">99%" if 99 < share < 100 else f"{share:.0f}%"


def _milliseconds(value: float | None, _: int) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return _share(sum(found), len(found))


def _share(part: float, whole: float) -> float | None:
    return rounded(part / whole) if whole else None


COLUMNS: Final = (
    Column("calls", lambda of: len(of.calls)),
    Column("held", lambda of: len(of.held), "holds", "holds", _percent),
    Column("refused", lambda of: of.refused),
    Column("over", lambda of: sum(call.is_over for call in of.calls), "over budget", "", _percent),
    Column("faults", lambda of: of.faults),
    Column("pairs_broken", lambda of: of.faults.get("pairs", 0), "pairs broken", "", _percent),
    Column(
        "otherwise_useless",
        lambda of: sum(of.faults.values()) + of.refused - of.faults.get("pairs", 0),
        "other fault or refused",
        "",
        _percent,
    ),
    Column("not_user_first", lambda of: sum(not call.opens_with_user for call in of.calls)),
    Column("support", lambda of: _mean(call.support for call in of.held), "support", "supp"),
    Column("gain", lambda of: rounded(gain(call.bits for call in of.held)), "gain", "gain"),
    Column("newest", lambda of: of.newest, "newest sent", "new"),
    Column("bill", lambda of: rounded(bill_beside(of.calls, of.base)), "bill", "bill"),
    Column("prefix_kept", lambda of: _mean(call.keeps for call in of.calls), "prefix kept", "kept"),
    Column("median_ms", lambda of: rounded(median(of.times), 3) if of.times else None, "ms", "ms", _milliseconds),
    Column("p95_ms", lambda of: rounded(of.times[int(0.95 * (len(of.times) - 1))], 3) if of.times else None),
)
NOTES: Final = (
    "Calls: the model calls whose history exceeds the budget. Everyone gets the same messages and the same counter.",
    "Holds: a request within the budget, every call paired with its results, system prompt and last message there.",
    "Support, gain, and newest are averages over the calls that hold in a row; rows can average over different calls.",
    f"Bill: a cached token costs a tenth; a share of the {BASELINE}'s at the calls that both send. Writing summaries "
    "is not billed.",
    "Time: processor time of the library's own work at one call, median; ctxguard masks and checks in it.",
    "Not compared: masking of personal data, which only ctxguard does; what a model answers; a summary that a model "
    "writes (a fixed extract of 2,000 characters stands in for it).",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """The report on a comparison.

    Attributes:
        ctxguard: Version of ctxguard.
        created: Time of creation, ISO 8601, UTC.
        sources: Files that were replayed.
        sessions: Number of sessions that were replayed.
        counter: Name of the token counter.
        absent: Contestants that are not installed.
        skipped: Recordings that could not be read, with the reasons.
        rows: Figures, one row for each contestant and budget.
    """

    ctxguard: str
    created: str
    sources: Sequence[str]
    sessions: int
    counter: str
    absent: Sequence[str]
    skipped: Sequence[str]
    rows: Sequence[Row]

    def to_json(self) -> str:
        """Return the report as a JSON string."""
        return json.dumps(
            {"schema_version": 1, **asdict(self), "notes": [*judges(), *NOTES]}, ensure_ascii=False, indent=1
        )


def bench_row(peer: Peer, budget: int, calls: Sequence[BenchCall], base: Sequence[BenchCall]) -> Row:
    """Return the figures of one contestant at one budget; its bill is relative to that of the baseline."""
    about = {"name": peer.name, "distribution": peer.distribution, "version": peer.version or "", "what": peer.what}
    played = Played(calls, base)
    return {**about, "budget": budget, **{column.key: column.figure(played) for column in COLUMNS}}


def bill_beside(calls: Iterable[BenchCall], base: Iterable[BenchCall]) -> float | None:
    """Return the price of `calls` as a share of the price of `base`.

    Only calls at which both contestants sent a request count. None if there are none, or if their price in `base` is 0.
    """
    ours, theirs = ({call.place: call.price for call in each if call.price is not None} for each in (calls, base))
    both = ours.keys() & theirs.keys()
    whole = sum(theirs[place] for place in both)
    return sum(ours[place] for place in both) / whole if whole else None


def table(report: BenchReport) -> str:
    """Format the report for a terminal of 60 columns."""
    lines = [f"{counted(report.sessions, 'session')}, counted by {report.counter}"]
    shown = [column for column in COLUMNS if column.head]
    for budget, rows in _by_budget(report.rows):
        lines += ["", f"budget {budget:,}: exceeded by {counted(rows[0]['calls'], 'call')}"]
        lines.append(f"{'':<21}" + "".join(map(_pad, shown, (column.head for column in shown))))
        lines += [f"{row['name']:<21}" + "".join(_pad(c, cell) for c, cell in _cells(row, shown)) for row in rows]
        lines += [
            f"{row['name']}: {row['over']} over budget, {row['pairs_broken'] + row['otherwise_useless']} useless"
            for row in rows
            if row["held"] < row["calls"]
        ]
    notes = [*judges(), *NOTES, *(f"left out: {each}" for each in report.absent)]
    lines += ["", *(line for note in notes for line in wrap(note, 60, subsequent_indent="  "))]
    return "\n".join(line.rstrip() for line in lines)


def _pad(column: Column, text: str) -> str:
    return f"{text:>{max(5, len(column.head) + 1)}}"


def _cells(row: Row, columns: Iterable[Column]) -> Iterator[tuple[Column, str]]:
    return ((column, column.shown(row[column.key], row["calls"])) for column in columns)


def _by_budget(rows: Sequence[Row]) -> Iterator[tuple[int, list[Row]]]:
    for budget in dict.fromkeys(row["budget"] for row in rows if row["calls"]):
        yield budget, [row for row in rows if row["budget"] == budget and row["calls"]]


def markdown(report: BenchReport) -> str:
    """Format the report as Markdown."""
    lines = []
    shown = [column for column in COLUMNS if column.name]
    for budget, rows in _by_budget(report.rows):
        calls, sessions = counted(rows[0]["calls"], "call"), counted(report.sessions, "session")
        lines += [f"Budget {budget:,} tokens: exceeded by {calls} of {sessions}.", ""]
        lines += [f"| | {' | '.join(c.name for c in shown)} |", "|---" * (len(shown) + 1) + "|"]
        lines += [f"| {' | '.join((row['name'], *(cell for _, cell in _cells(row, shown))))} |" for row in rows]
        lines.append("")
    lines += [f"* {note}" for note in (*judges(), *NOTES)]
    lines += [f"* Left out: {each}." for each in report.absent]
    versions = dict.fromkeys(f"{row['distribution']} {row['version']}" for row in report.rows)
    lines += ["", f"Versions: {', '.join(versions)}. {report.created[:10]}, `ctxguard bench`."]
    return "\n".join(lines)


@spread("bench")
def bench(
    budget: str = "8k",
    window: int | None = None,
    model: str | None = None,
    only: list[str] | None = None,
    modules: list[str] | None = None,
    counter: str = "auto",
    report: Literal["text", "json", "markdown"] = "text",
    output: Path | None = None,
    sessions: list[str] | None = None,
    processes: int | None = None,
    every: int = 1,
) -> None:
    """Compare ctxguard with other libraries: same sessions, same budget, same counter, one run.

    Alone, it compares with a rolling window. Drivers for LangChain, PydanticAI, litellm, headroom, Strands, and others
    are in the source repository: --with benchmarks.peers.

    Exit codes: 0 compared; 2 no call of the sessions exceeds a budget; 130 ended by Ctrl-C, with the report on what
    was done.
    """
    refuse_overwriting(output, sessions or [])
    counting = CountingOptions(budget=budget, window=window, model=model)
    tokens = [counting.tokens(each) for each in counting.budgets()]
    name = find_counter(counter).name
    able, absent = contestants(only or [], _importable(modules or []))
    calls, played, skipped, is_stopped = _play_all(sessions, able, tokens, counter, processes, every)
    for line in skipped_lines(skipped, len(skipped)):
        note(line)
    made = BenchReport(
        ctxguard=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        sources=list(sessions or ["invented sessions that ship with ctxguard"]),
        sessions=played,
        counter=name,
        absent=absent,
        skipped=list(map(str, skipped)),
        rows=[
            bench_row(peer, budget, calls[peer.name, budget], calls[BASELINE, budget])
            for budget in tokens
            for peer in able
        ],
    )
    if not any(row["calls"] for row in made.rows):
        smallest = f"no call exceeds {min(tokens):,} tokens; give a smaller budget, or longer sessions"
        note(f"nothing was compared: {smallest if played else 'no session could be played'}")
        raise typer.Exit(2)
    shown = {"text": table, "markdown": markdown}.get(report)
    out(made.to_json() if shown is None else shown(made), output)
    if is_stopped:
        raise typer.Exit(STOPPED)


def _play_all(
    sessions: list[str] | None,
    able: Sequence[Peer],
    tokens: list[int],
    counter: str,
    processes: int | None,
    every: int,
) -> tuple[Mapping[tuple[str, int], Sequence[BenchCall]], int, list[Skipped], bool]:
    """Replay every session with every contestant.

    Returns:
        The calls by contestant and budget, the number of sessions, the skipped recordings, and whether Ctrl-C ended
        the comparison.
    """
    pace = Pace(total_size(sessions or ()), note)
    sources = pace.watched(every_nth(recordings(sessions) if sessions else synthetic_recordings(), every))
    calls: dict[tuple[str, int], list[BenchCall]] = defaultdict(list)
    played = 0
    skipped: list[Skipped] = []
    with working("comparing") as now:
        workers = processes or (cores() if sessions else 1)
        try:
            for source, outcome in play(sources, able, tokens, counter=counter, processes=workers):
                if isinstance(outcome, Skipped):
                    skipped.append(outcome)
                    continue
                played += 1
                left = pace.left(source.read) if isinstance(source, Recording) else ""
                now(f"comparing: {counted(played, 'session')} played{left}")
                for call in outcome:
                    calls[call.name, call.budget].append(call)
        except KeyboardInterrupt:
            if not played:
                raise
            note("stopped; the report is on what was done so far")
            return calls, played, skipped, True
    return calls, played, skipped, False


def _importable(modules: Sequence[str]) -> Sequence[str]:
    """Return `modules`, after adding the working directory to the import path so that modules there can be imported."""
    if modules:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a path as Python searches it; worker processes inherit it
    else:
        note("no other library is compared; --with MODULE adds some: benchmarks.peers of the source repository")
    return modules
