"""`ctxguard prompts`: check a folder of prompt templates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ctxguard.errors import CtxguardError
from ctxguard.prompts.checking import PromptsReport, check_prompts
from ctxguard.prompts.loading import find_prompts_dir
from ctxguard.report.printing import note, out
from ctxguard.tokens import find_counter

__all__ = ["app"]

app = typer.Typer(name="prompts", help="Check prompt templates.", add_completion=False, no_args_is_help=True)


@app.callback()
def prompts() -> None:
    """Check prompt templates."""


@app.command("check")
def check(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The templates; else as `load_prompt` finds them.")
    ] = None,
    *,
    entry: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of templates that programs load, else *.md; may be given more than once."),
    ] = None,
    counter: Annotated[
        str, typer.Option(help="What counts tokens: auto (exact where it can be), estimate, o200k_base or cl100k_base.")
    ] = "auto",
) -> None:
    """List the variables and tokens of each template; exit 1 on missing includes, circles, and unused files."""
    try:
        counts = find_counter(counter)
        report = check_prompts(find_prompts_dir(folder), counts, entries=entry or ("*.md",))
    except CtxguardError as error:
        note(str(error))
        raise typer.Exit(2) from error
    _print(report, counts.name)
    raise typer.Exit(0 if report.ok else 1)


def _print(report: PromptsReport, counter: str) -> None:
    width = max((len(template.name) for template in report.templates), default=0)
    for template in report.templates:
        variables = ", ".join(template.variables) or "none"
        out(f"{template.name:<{width}}  {template.tokens:>6} tokens  variables: {variables}")
    out(f"{len(report.templates)} templates, tokens by {counter}; {len(report.problems)} problems")
    for problem in report.problems:
        out(f"  {problem}")
