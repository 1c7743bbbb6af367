"""The command `ctxguard prompts`, which checks a folder of prompt templates."""

from __future__ import annotations

from pathlib import Path

import typer

from ctxguard.cli.groups import Command, command_group
from ctxguard.cli.options import TextCounting, spread
from ctxguard.prompts.loading import PromptsReport, check_prompts, find_prompts_dir
from ctxguard.report.printing import counted, out, working

app = command_group("prompts", "Check prompt templates.")


@app.callback()
def prompts() -> None:
    """Check prompt templates."""


@app.command("check", cls=Command)
@spread("prompts check")
def check(
    counting: TextCounting,
    folder: Path | None = None,
    entry: list[str] | None = None,
) -> None:
    """List the variables and tokens of each template; exit 1 on missing includes, circles, and unused files."""
    counter, place = counting.found(), find_prompts_dir(folder)
    with working(f"checking {place}"):
        report = check_prompts(place, counter, entries=entry or ("*.md",))
    _print(report, counter.name)
    if not report.ok:
        raise typer.Exit(1)


def _print(report: PromptsReport, counter: str) -> None:
    width = max((len(template.name) for template in report.templates), default=0)
    for template in report.templates:
        variables = ", ".join(template.variables) or "none"
        out(f"{template.name:<{width}}  {template.tokens:>6} tokens  variables: {variables}")
    problems = counted(len(report.problems), "problem")
    out(f"{counted(len(report.templates), 'template')}, tokens by {counter}; {problems}")
    for problem in report.problems:
        out(f"  {problem}")
