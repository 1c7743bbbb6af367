"""The output of a replay: its report in each format, and notes on standard error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ctxguard import __version__
from ctxguard.harness.document import ReplayReport, RunModel, figures_model, session_model
from ctxguard.harness.engine import Plan, Results, Setting, Tally
from ctxguard.harness.gain import judges
from ctxguard.harness.recordings import skipped_lines
from ctxguard.harness.summary import advice, cheapest, summary
from ctxguard.report.printing import ReportFormat, counted, fitted, note, out

_FORMATS: Final[Mapping[str, ReportFormat]] = {".json": "json", ".html": "html", ".htm": "html"}
"""Formats by the suffix of a file; any other file gets the text."""


def replay_report(
    sources: list[str], plan: Plan, results: Results, seconds: float, processes: int, title: str | None
) -> ReplayReport:
    """Return the report on a replay.

    Args:
        sources: The files, folders, globs, and URLs of the recordings.
        plan: The settings that were compared, and the prices.
        results: The results, one tally for each setting.
        seconds: How long the replay took.
        processes: Number of processes in which it ran.
        title: The title; None names the number of sessions and calls.
    """
    count = plan.settings[0].stabilizer.counter.counter
    figures = results.tallies[0].figures
    return ReplayReport(
        ctxguard=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        title=title
        or f"Replay of {counted(figures.sessions, 'recorded session')}, {counted(figures.calls, 'model call')}",
        sources=sources,
        seconds=round(seconds, 2),
        processes=processes,
        prices=plan.prices.source,
        model=plan.prices.model,
        counter=f"{count.name}, {count.accuracy}",
        judges=judges(),
        skipped=results.skipped,
        skipped_count=results.skipped_count,
        runs=[_run(s, tally, plan) for s, tally in zip(plan.settings, results.tallies, strict=True)],
    )


def _run(setting: Setting, tally: Tally, plan: Plan) -> RunModel:
    worst = tally.worst
    return RunModel(
        label=setting.label,
        setting=dict(setting.options),
        figures=figures_model(tally.figures, plan.prices),
        findings=[finding for _, finding in sorted(tally.figures.places.items())],
        sessions=[session_model(result, plan.prices) for result, _ in worst],
        sessions_listed=len(worst),
    )


def print_report(
    made: ReplayReport,
    plan: Plan,
    results: Results,
    form: ReportFormat,
    outputs: list[Path],
    *,
    html: Path | None = None,
    show_originals: bool,
) -> None:
    """Print the report in the format `form`, and write it to each file in the format that matches the file's suffix.

    The page is also written to the file `html`, whatever its name.
    """
    from ctxguard.harness.page import replay_page

    files = [(path, _FORMATS.get(path.suffix, "text")) for path in outputs]
    files += [] if html is None else [(html, "html")]
    forms = {form, *(each for _, each in files)}
    shown: dict[ReportFormat, str] = {}
    for each in forms:
        if each == "html":
            shown[each] = replay_page(made, plan, results, show_originals=show_originals)
        else:
            shown[each] = made.to_json() if each == "json" else summary(made)
    if form != "text":
        out(shown[form])
    elif made.judged:
        out(fitted(shown[form]))
    for path, each in files:
        out(shown[each], path)


def print_notes(made: ReplayReport, results: Results, worse: list[str], support: float) -> None:
    """Print notes to standard error: skipped recordings, findings, worse figures, and the cheapest setting.

    Args:
        made: Report on the replay.
        results: Results of the replay.
        worse: Lines on figures that are worse than in the baseline.
        support: Minimum support that the cheapest setting must reach.
    """
    for line in skipped_lines(results.skipped, made.skipped_count):
        note(line)
    for line in advice(made):
        note(line)
    for line in worse:
        note(f"worse than the baseline: {line}")
    if len(made.runs) > 1:
        best = cheapest(made.runs, support)
        wanted = f", refuses nothing, and reaches a support of {support:.0%}" if support else " and refuses nothing"
        note(f"the cheapest setting that meets all guarantees{wanted}: {'none' if best is None else best.label}")
