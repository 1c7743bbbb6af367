"""The command `ctxguard replay`. Exit codes: 0 success, 1 a violation or a worse figure, 2 nothing was judged."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ctxguard.cli.options import StabilizerOptions, settings_of, spread
from ctxguard.errors import ConfigError
from ctxguard.harness.document import ReplayReport, compare, load_baseline, parse_tolerances, schema_json
from ctxguard.harness.engine import (
    SMALL,
    Plan,
    ReplayCheckpoint,
    Results,
    Setting,
    Tally,
    cores,
    run,
    spread_on_ray,
)
from ctxguard.harness.pricing import price_model
from ctxguard.harness.recordings import Recording, Source, recordings, total_size
from ctxguard.harness.replay_output import print_notes, print_report, replay_report
from ctxguard.harness.settings import parse_sweep, swept
from ctxguard.harness.summary import time_left
from ctxguard.report.printing import ReportFormat, counted, note, out, refuse_overwriting, working

if TYPE_CHECKING:
    from ctxguard.stabilizer import Stabilizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """Options: the sessions and settings to compare, and the prices."""

    prices: Path | None = None
    sweep: str | None = None
    min_support: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPrinting:
    """Options: the output, and its destination."""

    report: ReportFormat = "text"
    output: list[Path] | None = None
    show_originals: bool = False
    title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailOptions:
    """Options: the conditions under which a replay fails."""

    baseline: Path | None = None
    tolerance: list[str] | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Options: the execution of a replay."""

    engine: str | None = None
    processes: int | None = None
    resume: Path | None = None


@spread("replay")
def replay(
    chain: StabilizerOptions,
    pricing: Pricing,
    printing: ReplayPrinting,
    verdict: FailOptions,
    running: Running,
    sessions: list[str] | None = None,
    adapter: str | None = None,
    schema: bool = False,
) -> None:
    """Replay recorded sessions call by call; judge, price, and show what each model call would be sent.

    With --model, requests are counted as for this model and priced by its prices; without it, prices are relative.

    Exit codes: 0 every law held; 1 a law broke, a figure is worse than in the baseline, or with --strict something was
    skipped or refused; 2 nothing was judged.
    """
    if schema:
        out(schema_json().rstrip())
        return
    if not sessions:
        raise ConfigError("name the sessions to replay: files, folders, or globs", setting="sessions")
    outputs = printing.output or []
    for path in outputs:
        refuse_overwriting(path, [*sessions, *([] if verdict.baseline is None else [verdict.baseline])])
    known = None if verdict.baseline is None else load_baseline(verdict.baseline)
    tolerances = parse_tolerances(_pairs(verdict.tolerance or []))
    plan = Plan(_settings(chain, pricing.sweep), price_model(chain.model, pricing.prices), adapter)
    begun = time.perf_counter()
    size = total_size(sessions)
    processes = _processes(running, size)
    results = _run(sessions, plan, running, processes, size)
    made = replay_report(sessions, plan, results, time.perf_counter() - begun, processes, printing.title)
    print_report(made, plan, results, printing.report, outputs, show_originals=printing.show_originals)
    worse = [] if known is None else compare(made, known, tolerances)
    print_notes(made, results, worse, pricing.min_support)
    code = _exit_code(made, worse, strict=verdict.strict)
    if code:
        raise typer.Exit(code)


def _exit_code(made: ReplayReport, worse: Sequence[str], *, strict: bool) -> int:
    if not made.judged:
        note("nothing was judged: no call of what was named could be replayed")
        return 2
    refused = any(each.figures.refused for each in made.runs)
    return int(bool(made.broken or worse or (strict and (made.skipped_count or refused))))


def _pairs(given: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if any(not value for _, _, value in pairs):
        raise ConfigError("a tolerance is FIGURE=N, such as bill=2%", setting="tolerance")
    return {name: value for name, _, value in pairs}


def _processes(running: Running, size: int | None) -> int:
    if running.engine not in (None, "inline", "local", "ray"):
        raise ConfigError(f"--engine is inline, local, or ray, not {running.engine!r}", setting="engine")
    is_small = running.engine is None and (size or 0) < SMALL  # the size of standard input is unknown
    return 1 if running.engine == "inline" else running.processes or (1 if is_small else cores())


def _run(names: list[str], plan: Plan, running: Running, processes: int, size: int | None) -> Results:
    """Replay, and show the progress and the remaining time on a terminal, on one line."""
    begun = time.monotonic()
    sources, results = recordings(names), Results([Tally() for _ in plan.settings])
    checkpoint = None if running.resume is None else ReplayCheckpoint(running.resume, plan, names)
    with working("reading", after=0) as now:
        if checkpoint is not None:
            checkpoint.restore(results, sources)

        def after(done: Results, latest: Source) -> None:
            if isinstance(latest, Recording):
                left = time_left(time.monotonic() - begun, latest.read, size)
                now(f"{counted(done.sessions, 'session')}, {counted(done.calls, 'call')}{left}")
            if checkpoint is not None:
                checkpoint.note(done, latest)

        on_ray = spread_on_ray if running.engine == "ray" else None
        run(sources, plan, processes=processes, results=results, after=after, spread=on_ray)
    if checkpoint is not None:
        checkpoint.remove()
    return results


def _settings(chain: StabilizerOptions, sweep: str | None) -> tuple[Setting, ...]:
    known = settings_of(chain.config)
    options = {
        "policy": chain.policy or known.policy,
        "provider": chain.provider or known.provider,
        **{name: getattr(chain, name) for name in ("target", "trail", "on_overflow", "headroom", "rules")},
    }

    def make(chosen: Mapping[str, str | int | float]) -> Stabilizer:
        return chain.stabilizer(known, changes=chosen)

    several = (chain.budget or "").replace(" ", "")
    budgets = f"budget={several} " if "," in several else ""
    return swept(make, parse_sweep(f"{budgets}{sweep or ''}"), options)
