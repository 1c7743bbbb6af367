"""The command `ctxguard prompts`, which checks a folder of prompt templates."""

from __future__ import annotations

from pathlib import Path

import typer

from ctxguard.cli.options import spread
from ctxguard.cli.program import Command, command_group
from ctxguard.errors import ConfigError
from ctxguard.prompts.templates import PromptsReport, check_prompts, find_prompts_dir
from ctxguard.report.printing import counted, out, working
from ctxguard.tokens import find_counter

app = command_group("prompts", "Check prompt templates.")


@app.callback()
def prompts() -> None:
    """Check prompt templates."""


@app.command("check", cls=Command)
@spread("prompts check")
def check(
    counter: str = "auto",
    model: str | None = None,
    folder: Path | None = None,
    entry: list[str] | None = None,
) -> None:
    """List the variables and tokens of each template; exit with 1 on missing or circular includes and unused files."""
    place, counts = find_prompts_dir(folder), find_counter(counter, model=model)
    with working(f"checking {place}"):
        report = check_prompts(place, counts, entries=entry or ("*.md",))
    if not report.templates:
        raise ConfigError(f"{place} contains no template (*.md); name the folder of the templates", setting="folder")
    _print(report, counts.name)
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
