"""The command `ctxguard bench`: compare ctxguard with other libraries on the same sessions."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import typer

from ctxguard import __version__
from ctxguard.cli.options import spread
from ctxguard.errors import ConfigError
from ctxguard.harness.bench import BenchCall, contestants, play
from ctxguard.harness.bench_report import BenchReport, bench_row, markdown, table
from ctxguard.harness.contestants import BASELINE, Peer
from ctxguard.harness.engine import cores
from ctxguard.harness.recordings import Skipped, recordings
from ctxguard.harness.settings import number
from ctxguard.harness.synthetic import synthetic_recordings
from ctxguard.report.printing import counted, note, out, refuse_overwriting
from ctxguard.report.progress import working
from ctxguard.tokens import find_counter

MOST_NOTES: Final = 20  # so that notes do not hide the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """Options: what to compare."""

    budgets: str = "8k"
    only: list[str] | None = None
    modules: list[str] | None = None
    counter: str = "auto"


@spread("bench")
def bench(
    comparing: Comparing,
    report: Literal["text", "json", "markdown"] = "text",
    output: Path | None = None,
    sessions: list[str] | None = None,
    processes: int | None = None,
) -> None:
    """Compare ctxguard with other libraries: same sessions, same budget, same counter, one run.

    Alone, it compares with a rolling window. Drivers for LangChain, PydanticAI, litellm, headroom, Strands, and
    others are in the source repository: --with benchmarks.peers.

    Exit codes: 0 compared; 2 no call of the sessions exceeds a budget.
    """
    refuse_overwriting(output, sessions or [])
    tokens = _budgets(comparing.budgets)
    name = find_counter(comparing.counter).name
    able, absent = contestants(comparing.only or [], _importable(comparing.modules or []))
    calls, played, skipped = _played(sessions, able, tokens, comparing.counter, processes)
    for line in skipped[:MOST_NOTES]:
        note(f"skipped {line}")
    made = BenchReport(
        ctxguard=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        sources=list(sessions or ["invented sessions that ship with ctxguard"]),
        sessions=played,
        counter=name,
        absent=absent,
        skipped=skipped,
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


def _played(
    sessions: list[str] | None, able: Sequence[Peer], tokens: list[int], counter: str, processes: int | None
) -> tuple[Mapping[tuple[str, int], Sequence[BenchCall]], int, list[str]]:
    """Replay every session with every library; return the calls, the number of sessions, and the skipped ones."""
    sources = recordings(sessions) if sessions else synthetic_recordings()
    calls: dict[tuple[str, int], list[BenchCall]] = defaultdict(list)
    played, skipped = 0, []
    with working("comparing") as now:
        workers = processes or (cores() if sessions else 1)
        for outcome in play(sources, able, tokens, counter=counter, processes=workers):
            if isinstance(outcome, Skipped):
                skipped.append(str(outcome))
                continue
            played += 1
            now(f"comparing: {counted(played, 'session')} played")
            for call in outcome:
                calls[call.name, call.budget].append(call)
    return calls, played, skipped


def _importable(modules: Sequence[str]) -> Sequence[str]:
    """Return names of modules, which may also be in the working directory from now on."""
    if modules:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a path as Python searches it; worker processes inherit it
    else:
        note("no other library is compared; --with MODULE adds some: benchmarks.peers of the source repository")
    return modules


def _budgets(text: str) -> list[int]:
    values = [number(part.strip()) for part in text.split(",")]
    found = [int(value) for value in values if not isinstance(value, str) and value >= 1]
    if len(found) < len(values):
        raise ConfigError(f"budgets are whole numbers of tokens, such as 4k,8k, not {text!r}", setting="budgets")
    return list(dict.fromkeys(found))
