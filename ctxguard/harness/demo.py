"""The main job on a session that ships with the package."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ctxguard.adapting.adapter import stabilize_native
from ctxguard.artifacts import Artifact
from ctxguard.harness.sessions import Session, parse_records, parse_session
from ctxguard.history import exchanges
from ctxguard.report import DecisionRun, Report, decision_runs
from ctxguard.stabilizer import Stabilizer

__all__ = ["DEMO_BUDGET", "DEMO_POLICY", "AgreedFact", "agreed_facts", "demo_report", "demo_session", "show_demo"]

DEMO_BUDGET: Final = 2_000
DEMO_POLICY: Final = "chat"

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
AGREED: Final = (
    ("spare part", "hanger type D"),
    ("saddle", "Brunel 17"),
    ("refund", "78 EUR"),
    ("refund number", "RF-1180"),
    ("workshop", "Lindsdal"),
    ("day", "the 9th"),
    ("needed by", "12 June"),
)
"""What the answer to the last message needs, by the words that were used for it."""
_NARROWEST: Final = 60
_SHOWN: Final = 300
"""Characters of a message that a row holds at most; the terminal shows as many as fit."""


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


class AgreedFact(NamedTuple):
    """Hold one thing that was agreed in the demo session, and where it can still be read at the end.

    Attributes:
        label: what it is.
        words: how it was said.
        said_in: position of the message that said it first.
        read_in: position of the message in which the model still reads it, `trail`, or `lost`.
        in_newest: the same, if only the newest messages that fit the budget had been kept.
    """

    label: str
    words: str
    said_in: str
    read_in: str
    in_newest: str


def agreed_facts(report: Report) -> list[AgreedFact]:
    """Return what became of the facts that the last message of the demo session asks for."""
    history = demo_session().read()
    shown = [(_place(d.position), d.artifact) for d in report.decisions if d.tokens_after]
    newest = [(str(position), history[position]) for position in _newest_that_fit(history, report)]
    everything = [(str(position), artifact) for position, artifact in enumerate(history)]
    return [
        AgreedFact(label, words, *(_first_with(words, place) for place in (everything, shown, newest)))
        for label, words in AGREED
    ]


def _place(position: int | None) -> str:
    return "trail" if position is None else str(position)


def _first_with(words: str, shown: Sequence[tuple[str, Artifact]]) -> str:
    # Calls count, too: an agreed date often stands in the arguments of a tool call.
    texts = ((place, " ".join((a.text, *(call.arguments for call in a.calls)))) for place, a in shown)
    return next((place for place, text in texts if words in text), "lost")


def _newest_that_fit(history: Sequence[Artifact], report: Report) -> list[int]:
    """Return the positions that a plain rolling window would keep: the newest whole exchanges within the budget."""
    costs = [decision.tokens_before for decision in report.decisions if decision.position is not None]
    beside = report.tokens_before - sum(costs)
    first, *rest = exchanges(history)
    left = report.budget - beside - costs[0]
    kept: list[int] = []
    for exchange in reversed(rest):
        left -= sum(costs[position] for position in exchange.positions)
        if left < 0:
            break
        kept += exchange.positions
    return sorted([*first.positions, *kept])


def show_demo(report: Report) -> None:
    """Print the story of the demo session: what is asked at the end, what the model sees, and what it can answer."""
    console = Console(highlight=False)
    console.width = max(console.width, _NARROWEST)
    console.print(Group(_question(report), _messages(report), *_trail(report), _answers(report), _summary(report)))


def _question(report: Report) -> Text:
    asked = demo_session().read()[-1].text
    return Text.assemble(
        ("A support session of ", ""),
        (f"{report.tokens_before:,} tokens", "bold"),
        (f", a budget of {report.budget:,}. The customer's last message:\n", ""),
        (f"  {asked}\n", "bold"),
    )


def _messages(report: Report) -> Table:
    table = Table(expand=True, box=None, padding=(0, 1, 0, 0))
    table.add_column("#", justify="right", no_wrap=True, width=5)
    table.add_column("role", no_wrap=True, width=9)
    table.add_column("tokens", justify="right", no_wrap=True, width=14)
    table.add_column("what the model sees", overflow="ellipsis", no_wrap=True, ratio=1)
    for run in decision_runs(d for d in report.decisions if d.position is not None):
        if run.decisions[0].tokens_after:
            for decision in run.decisions:
                table.add_row(*_row(DecisionRun((decision,))))
        else:
            table.add_row(*_row(run))
    return table


def _row(run: DecisionRun) -> tuple[str | Text, ...]:
    decision, several = run.decisions[0], len(run.decisions) > 1
    tokens = f"{run.tokens_before:,}"
    if run.tokens_before != run.tokens_after:
        tokens += f" -> {run.tokens_after:,}"
    if not decision.tokens_after:
        shown = Text(f"dropped; {decision.reason}", style=COLOURS["dropped"])
    elif decision.action == "kept":
        shown = Text(_told(decision.artifact), style=COLOURS["kept"])
    else:
        shown = Text.assemble((f"{decision.action}: ", COLOURS[decision.action]), _told(decision.artifact))
    return run.place, f"{len(run.decisions)} items" if several else decision.artifact.kind.value, tokens, shown


def _told(artifact: Artifact) -> str:
    calls = ", ".join(f"{call.name}(…)" for call in artifact.calls)
    return " ".join((artifact.text or calls).split())[:_SHOWN]


def _trail(report: Report) -> list[Panel]:
    """Return what stages wrote themselves: the trail of what has left."""
    written = [d for d in report.decisions if d.position is None and d.tokens_after]
    return [
        Panel(
            Text(d.artifact.text), title=f"added: {d.tokens_after:,} tokens", title_align="left", border_style="magenta"
        )
        for d in written
    ]


def _answers(report: Report) -> Table:
    table = Table(title="What the answer needs, and where the model reads it", title_justify="left", box=None)
    table.add_column("agreed")
    table.add_column("said in", justify="right")
    table.add_column("ctxguard", justify="right")
    table.add_column("newest only", justify="right")
    for fact in agreed_facts(report):
        places = (Text(place, style="red" if place == "lost" else "green") for place in (fact.read_in, fact.in_newest))
        table.add_row(f"{fact.label}: {fact.words}", fact.said_in, *places)
    return table


def _summary(report: Report) -> Panel:
    passed = sum(check.ok for check in report.checks)
    came = [decision.action for decision in report.decisions if decision.position is not None]
    done = ", ".join(f"{came.count(action)} {action}" for action in dict.fromkeys(came))
    saved = 100 * (1 - report.tokens_after / report.tokens_before)
    lines = [
        f"[bold]{report.tokens_before:,} -> {report.tokens_after:,} tokens[/] of a budget of {report.budget:,} "
        f"({saved:.0f}% fewer)",
        f"{len(came)} messages: {done}",
        f"{passed} of {len(report.checks)} checks hold: " + ", ".join(c.name for c in report.checks if c.ok),
        *(f"[red]{check.name}: {finding}[/]" for check in report.checks for finding in check.findings),
        f"[dim]counted by {report.counter}, {report.accuracy}[/]",
        "[dim]try --budget 1000, --report json; your own session: ctxguard stabilize FILE --report text[/]",
    ]
    return Panel("\n".join(lines), title="report", title_align="left", border_style="green" if report.ok else "red")
