"""The main job on a session that ships with the package."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from typing import Final

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ctxguard.adapting.adapter import stabilize_native
from ctxguard.harness.sessions import Session, parse_records, parse_session
from ctxguard.report import Decision, Report
from ctxguard.stabilizer import Stabilizer

__all__ = ["demo_report", "demo_session", "show_demo"]

COLOURS: Final = {
    "kept": "dim",
    "masked": "yellow",
    "bounded": "cyan",
    "digested": "cyan",
    "dropped": "red",
    "repaired": "green",
    "summarised": "magenta",
    "recalled": "magenta",
}


def demo_session() -> Session:
    """Return the session of the demo: support of an invented bicycle shop, with tool calls and personal data."""
    text = files("ctxguard").joinpath("data/demo_session.json").read_text(encoding="utf-8")
    return parse_session(parse_records(text)[0][1], adapter="openai")


def demo_report(stabilizer: Stabilizer) -> Report:
    """Return the report of what a stabilizer makes of the demo session.

    Raises:
        BudgetExceededError: what must stay does not fit.
    """
    session = demo_session()
    return stabilize_native(stabilizer, session.adapter, session.native, tools=session.tools)[1]


def show_demo(report: Report) -> None:
    """Print what became of the demo session, message by message, and the sums."""
    console = Console(highlight=False)
    console.width = max(console.width, 100)
    console.print(Group(_messages(report), _summary(report)))


def _messages(report: Report) -> Table:
    table = Table(
        title="A support session, message by message", expand=True, box=None, padding=(0, 1), title_justify="left"
    )
    for heading, width in (("#", 3), ("role", 9), ("before", 6), ("after", 6), ("", 10)):
        right = heading in ("#", "before", "after")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True, width=width)
    table.add_column("what the model sees", overflow="ellipsis", no_wrap=True, ratio=1)
    for decision in report.decisions:
        table.add_row(*_row(decision))
    return table


def _row(decision: Decision) -> tuple[str | Text, ...]:
    artifact, gone = decision.artifact, not decision.tokens_after
    calls = ", ".join(f"{call.name}(…)" for call in artifact.calls)
    shown = " ".join((artifact.text or calls).split())
    style = COLOURS[decision.action]
    return (
        "+" if decision.position is None else str(decision.position),
        artifact.kind.value,
        f"{decision.tokens_before:,}",
        "" if gone else f"{decision.tokens_after:,}",
        Text(decision.action, style=style),
        Text("" if gone else shown[:160], style="" if decision.action != "kept" else "dim"),
    )


def _summary(report: Report) -> Panel:
    passed = sum(check.ok for check in report.checks)
    steps = Counter(step.action for d in report.decisions for step in d.steps)
    done = ", ".join(
        f"{steps[action]} {action}"
        for action in ("masked", "bounded", "digested", "repaired", "dropped")
        if steps[action]
    )
    saved = 100 * (1 - report.tokens_after / report.tokens_before)
    lines = [
        f"[bold]{report.tokens_before:,} -> {report.tokens_after:,} tokens[/] of a budget of {report.budget:,} "
        f"({saved:.0f}% fewer)",
        f"{len(report.decisions)} messages: {done}",
        f"{passed} of {len(report.checks)} checks hold: " + ", ".join(c.name for c in report.checks if c.ok),
        *(f"[red]{check.name}: {finding}[/]" for check in report.checks for finding in check.findings),
        f"[dim]counted by {report.counter}, {report.accuracy}[/]",
        "[dim]all of it: ctxguard demo --report json; your own session: ctxguard stabilize FILE --report text[/]",
    ]
    return Panel("\n".join(lines), title="report", title_align="left", border_style="green" if report.ok else "red")
