"""The command `ctxguard replay`. Exit codes: 0 held, 1 a law broke or a figure is worse, 2 nothing was judged."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from ctxguard import __version__
from ctxguard.cli import AdapterName, Budget, Config, Counter, Policy, Provider, Window, settings_of, stabilizer_of
from ctxguard.errors import ConfigError
from ctxguard.harness.baseline import compare, load_baseline, parse_tolerances
from ctxguard.harness.checkpoints import Checkpoint
from ctxguard.harness.document import (
    ReplayReport,
    RunModel,
    figures_model,
    finding_model,
    schema_json,
    session_model,
    skipped_model,
)
from ctxguard.harness.engine import Plan, Progress, Results, Setting, Spread, Tally, run
from ctxguard.harness.locations import total_size
from ctxguard.harness.pricing import price_model
from ctxguard.harness.recordings import Recording, recordings
from ctxguard.harness.settings import parse_sweep, swept
from ctxguard.harness.summary import advice, cheapest, summary, time_left
from ctxguard.report.printing import ReportFormat, note, out, refuse_overwriting
from ctxguard.stabilizer import Stabilizer

__all__ = ["replay"]

MOST_NOTES: Final = 20
Sessions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SESSIONS...",
        help="Recorded sessions: files, folders, globs; JSON or JSONL, .gz too; - is standard input.",
        show_default=False,
    ),
]
FORMATS: Final = {".json": ReportFormat.JSON, ".html": ReportFormat.HTML, ".htm": ReportFormat.HTML}


def replay(
    sessions: Sessions = None,
    budget: Budget = None,
    window: Window = None,
    policy: Policy = None,
    adapter: AdapterName = None,
    provider: Provider = None,
    counter: Counter = None,
    config: Config = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Price the requests for this model.", show_default="relative prices")
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option("--prices", help="Price table, YAML: MODEL: {input: 3, cache_read: 0.3}, USD a million tokens."),
    ] = None,
    sweep: Annotated[
        str | None, typer.Option("--sweep", help="Replay under every combination: 'budget=4k,8k target=0.3:0.7'.")
    ] = None,
    support: Annotated[
        float, typer.Option("--min-support", min=0, max=1, help="Support that the cheapest setting must reach.")
    ] = 0.0,
    report: Annotated[ReportFormat, typer.Option("--report", "-r", help="What is printed.")] = ReportFormat.TEXT,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help="Write a report to this file; JSON or HTML by its name. May be repeated."),
    ] = None,
    show_originals: Annotated[
        bool, typer.Option("--show-originals", help="Show in the HTML what was masked. It then holds personal data.")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="JSON report of an earlier replay; worse figures fail.")
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option("--tolerance", metavar="FIGURE=N", help="How much worse a figure may be; 2% or 0.02."),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict/--keep-going", help="Exit with 1 also where a session was skipped or a call refused."),
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            help="inline: in this process; local: in one for each core; ray: on a Ray cluster.",
            show_default="by how much there is",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="How many processes.", show_default="the number of cores")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="Keep the progress in this file, and go on from it after the replay was killed."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Title of the report.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of the report and stop.")] = False,
) -> None:
    """Replay recorded sessions turn by turn, and judge, price and show what each model call would be sent.

    Exit codes: 0 every law held; 1 a law broke, a figure is worse than in the baseline, or with --strict something was
    skipped or refused; 2 nothing was judged.
    """
    if schema:
        out(schema_json().rstrip())
        return
    if not sessions:
        raise ConfigError("name the sessions to replay: files, folders or globs", setting="sessions")
    outputs = output or []
    for path in outputs:
        refuse_overwriting(path, [*sessions, *([] if baseline is None else [baseline])])
    known = None if baseline is None else load_baseline(baseline)
    tolerances = parse_tolerances(_pairs(tolerance or []))
    plan = Plan(
        _settings(config, budget, window, sweep, policy=policy, provider=provider, counter=counter),
        price_model(model, prices),
        adapter,
    )
    begun = time.perf_counter()
    with _progress(sessions) as told:
        results, used = run(
            recordings(sessions),
            plan,
            processes=_processes(engine, processes),
            progress=told,
            keeper=None if resume is None else Checkpoint(resume, plan, sessions),
            spread=_spread(engine),
        )
    made = _report(sessions, plan, results, time.perf_counter() - begun, used, title)
    _print(made, plan, results, report, outputs, show_originals=show_originals)
    worse = () if known is None else compare(made, known, tolerances).worse
    _notes(made, results, worse, support)
    if not made.judged:
        note("nothing was judged: no call of what was named could be replayed")
        raise typer.Exit(2)
    refused = any(r.figures.refused for r in made.runs)
    if made.broken or worse or (strict and (made.skipped_count or refused)):
        raise typer.Exit(1)


def _pairs(given: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if any(not value for _, _, value in pairs):
        raise ConfigError("a tolerance is FIGURE=N, such as bill=2%", setting="tolerance")
    return {name: value for name, _, value in pairs}


def _processes(engine: str | None, processes: int | None) -> int | None:
    if engine not in (None, "inline", "local", "ray"):
        raise ConfigError(f"--engine is inline, local or ray, not {engine!r}", setting="engine")
    if engine == "inline":
        return 1
    return processes or (None if engine is None else os.cpu_count() or 1)


def _spread(engine: str | None) -> Spread | None:
    if engine != "ray":
        return None
    from ctxguard.harness.ray_engine import spread_on_ray

    return spread_on_ray


def _settings(
    config: Path | None, budget: str | None, window: int | None, sweep: str | None, **given: str | None
) -> tuple[Setting, ...]:
    known = settings_of(config)
    options = {
        "policy": given["policy"] or known.policy,
        "provider": given["provider"] or known.provider,
    }

    def make(chosen: Mapping[str, str | int | float]) -> Stabilizer:
        own = dict(chosen)
        tokens = own.pop("budget", budget)
        return stabilizer_of(
            config, None if tokens is None else str(tokens), window, settings={**given, **own}, known=known
        )

    return swept(make, parse_sweep(sweep), options)


@contextmanager
def _progress(names: list[str]) -> Iterator[Progress | None]:
    """Show on a terminal how far the replay is and how long it will take, on one line."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        size, begun = total_size(names), time.monotonic()

        def told(sessions: int, calls: int, latest: Recording) -> None:
            left = time_left(time.monotonic() - begun, latest.read, size)
            bar.update(task, description=f"{sessions:,} sessions, {calls:,} calls{left}")

        yield told


def _report(
    sources: list[str], plan: Plan, results: Results, seconds: float, processes: int, title: str | None
) -> ReplayReport:
    count = plan.settings[0].stabilizer.counter.counter
    figures = results.tallies[0].figures
    return ReplayReport(
        ctxguard=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        title=title
        or f"Replay of {_plural(figures.sessions, 'recorded session')}, {_plural(figures.calls, 'model call')}",
        sources=sources,
        seconds=round(seconds, 2),
        processes=processes,
        prices=plan.prices.source,
        model=plan.prices.model,
        counter=f"{count.name}, {count.accuracy}",
        skipped=[skipped_model(each) for each in results.skipped],
        skipped_count=results.skipped_count,
        runs=[_run(s, tally, plan) for s, tally in zip(plan.settings, results.tallies, strict=True)],
    )


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _run(setting: Setting, tally: Tally, plan: Plan) -> RunModel:
    worst = tally.worst
    return RunModel(
        label=setting.label,
        setting=dict(setting.options),
        figures=figures_model(tally.figures, plan.prices),
        findings=[finding_model(place) for _, place in sorted(tally.figures.places.items())],
        sessions=[session_model(told, plan.prices) for told, _ in worst],
        sessions_listed=len(worst),
    )


def _print(
    made: ReplayReport,
    plan: Plan,
    results: Results,
    form: ReportFormat,
    outputs: list[Path],
    *,
    show_originals: bool,
) -> None:
    from ctxguard.harness.page import replay_page

    forms = {form, *(FORMATS.get(path.suffix, ReportFormat.TEXT) for path in outputs)}
    shown: dict[ReportFormat, str] = {}
    for each in forms:
        if each is ReportFormat.HTML:
            shown[each] = replay_page(made, plan, results, show_originals=show_originals)
        else:
            shown[each] = made.to_json() if each is ReportFormat.JSON else summary(made)
    out(shown[form])
    for path in outputs:
        out(shown[FORMATS.get(path.suffix, ReportFormat.TEXT)], path)


def _notes(made: ReplayReport, results: Results, worse: tuple[str, ...], support: float) -> None:
    for each in results.skipped[:MOST_NOTES]:
        note(f"skipped {each}")
    if made.skipped_count > MOST_NOTES:
        note(f"skipped {made.skipped_count - MOST_NOTES} more; all are in the JSON report")
    for line in advice(made):
        note(line)
    for line in worse:
        note(f"worse than the baseline: {line}")
    if len(made.runs) > 1:
        best = cheapest(made.runs, support)
        note(
            f"the cheapest setting that holds all laws, refuses nothing and reaches a support of {support:.0%}: "
            f"{'none' if best is None else best.label}"
        )
