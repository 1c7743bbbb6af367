"""The command `ctxguard replay`.

Exit codes are 0 for success, 1 if a guarantee was not met or a figure is worse than in the baseline, and 2 if nothing
was judged.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

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
    Spread,
    Tally,
    cores,
    label_of,
    parse_sweep,
    run,
    spread_on_ray,
)
from ctxguard.harness.pricing import price_model
from ctxguard.harness.recordings import Recording, Source, every_nth, recordings, total_size
from ctxguard.harness.replay_output import print_notes, print_report, replay_report
from ctxguard.harness.summary import STOPPED, Pace
from ctxguard.report.printing import ReportFormat, counted, note, out, refuse_overwriting, working
from ctxguard.stages.fold import WINDOW_SETTINGS


@spread("replay")
def replay(
    chain: StabilizerOptions,
    prices: Path | None = None,
    sweep: str | None = None,
    min_support: float = 0.0,
    report: ReportFormat = "text",
    output: list[Path] | None = None,
    html: Path | None = None,
    show_originals: bool = False,
    title: str | None = None,
    baseline: Path | None = None,
    tolerance: list[str] | None = None,
    strict: bool = False,
    engine: Literal["inline", "local", "ray"] | None = None,
    processes: int | None = None,
    resume: Path | None = None,
    every: int = 1,
    sessions: list[str] | None = None,
    adapter: str | None = None,
    schema: bool = False,
) -> None:
    """Replay recorded sessions call by call; show what would be sent at each model call, check it, and price it.

    With --model, requests are counted as for this model and priced by its prices; without it, prices are relative.

    Exit codes: 0 every guarantee was met; 1 one was not, a figure is worse than in the baseline, or with --strict
    something was skipped or refused; 2 nothing was judged; 130 ended by Ctrl-C, with the report on what was done.
    """
    if schema:
        out(schema_json().rstrip())
        return
    if not sessions:
        raise ConfigError("name the sessions to replay: files, folders, or globs", setting="sessions")
    outputs = output or []
    for path in (*outputs, *([] if html is None else [html])):
        refuse_overwriting(path, [*sessions, *([] if baseline is None else [baseline])])
    known = None if baseline is None else load_baseline(baseline)
    tolerances = parse_tolerances(tolerance or [])
    plan = Plan(_settings(chain, sweep), price_model(chain.model, prices), adapter)
    begun = time.perf_counter()
    size = total_size(sessions)
    used = _processes(engine, processes, size)
    spread = spread_on_ray if engine == "ray" else None
    results, is_stopped = _run(sessions, plan, used, size, resume, spread, every)
    made = replay_report(sessions, plan, results, time.perf_counter() - begun, used, title)
    print_report(made, plan, results, report, outputs, html=html, show_originals=show_originals)
    worse = [] if known is None else compare(made, known, tolerances)
    print_notes(made, results, worse, min_support)
    code = STOPPED if is_stopped else _exit_code(made, worse, strict=strict)
    if code:
        raise typer.Exit(code)


def _exit_code(made: ReplayReport, worse: Sequence[str], *, strict: bool) -> int:
    if not made.judged:
        note("nothing was judged: no call of what was named could be replayed")
        return 2
    refused = any(each.figures.refused for each in made.runs)
    return int(bool(made.broken or worse or (strict and (made.skipped_count or refused))))


def _processes(engine: str | None, processes: int | None, size: int | None) -> int:
    is_small = engine is None and (size or 0) < SMALL  # None means that the size is unknown, as of standard input
    return 1 if engine == "inline" else processes or (1 if is_small else cores())


def _run(
    names: list[str],
    plan: Plan,
    processes: int,
    size: int | None,
    resume: Path | None,
    spread: Spread | None,
    every: int,
) -> tuple[Results, bool]:
    """Replay the sessions, showing progress and remaining time on one line of the terminal.

    Returns:
        The results, and whether Ctrl-C ended the replay.
    """
    pace = Pace(size, note)
    sources = pace.watched(every_nth(recordings(names), every))
    checkpoint = None if resume is None else ReplayCheckpoint(resume, plan, names, every)
    with working("reading", after=0) as now:

        def after(done: Results, latest: Source) -> None:
            if isinstance(latest, Recording):
                now(f"{counted(done.sessions, 'session')}, {counted(done.calls, 'call')}{pace.left(latest.read)}")
            if checkpoint is not None:
                checkpoint.save(done, latest)

        earlier = None if checkpoint is None else checkpoint.restore(sources)
        results = earlier or Results([Tally() for _ in plan.settings])
        try:
            run(sources, plan, processes=processes, results=results, after=after, spread=spread)
        except KeyboardInterrupt:
            if not results.done:
                raise
            note("stopped; the report is on what was done so far")
            return results, True
    if checkpoint is not None:
        checkpoint.remove()
    return results, False


def _settings(chain: StabilizerOptions, sweep: str | None) -> tuple[Setting, ...]:
    """Return one setting for each combination of a sweep, to which `--budget 4k,8k` adds; a single one without."""
    several = ",".join(map(str, chain.budgets()))
    budgets = f"budget={several} " if several else ""
    known, values = settings_of(chain.config), parse_sweep(f"{budgets}{sweep or ''}")
    given: dict[str, Any] = {
        "policy": chain.policy or known.policy,
        "provider": chain.provider or known.provider,
        **dict.fromkeys(WINDOW_SETTINGS),
        **chain.window_settings,
        "headroom": chain.headroom,
        "rules": chain.rules,
    }
    settings = []
    for combination in product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        stabilizer = chain.stabilizer(known, changes=chosen)
        options = {**given, **chosen, "budget": stabilizer.budget_for()}
        if kept_free := stabilizer.budget_for(with_headroom=True) - stabilizer.budget_for():
            options["headroom"] = kept_free
        settings.append(Setting(label_of(options), options, stabilizer))
    return tuple(settings)
