"""The demo: the main use of the library, shown on a session that ships with the package."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ctxguard.adapting.adapter import stabilize_native
from ctxguard.artifacts import Artifact, Kind
from ctxguard.harness.pricing import RollingWindow, common_prefix
from ctxguard.harness.sessions import RecordedSession, parse_json, parse_session
from ctxguard.report import Decision, Report
from ctxguard.report.decisions import DecisionRun, decision_runs
from ctxguard.report.report import figure_lines
from ctxguard.stabilizer import Stabilizer

DEMO_BUDGET: Final = 1_800  # tokens; small enough that the demo session needs a cut
DEMO_POLICY: Final = "chat"

COLORS: Final = {
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
"""Facts that the answer to the last message needs: a label, and the words that state the fact."""
_NARROWEST: Final = 60  # minimum width for two contexts side by side, in columns
_SHOWN: Final = 300
"""Maximum number of characters of a message in a row; the terminal shows as many as fit."""
ROLES: Final = {Kind.SYSTEM: "sys", Kind.TASK: "task", Kind.USER: "user", Kind.ASSISTANT: "asst", Kind.TOOL: "tool"}
FURTHER: Final = (
    ("ctxguard demo --budget 1000", "a budget that loses some of it"),
    ("ctxguard demo --save session.json", "the session, for the tutorial"),
    ("ctxguard stabilize FILE", "your own session"),
)


def demo_session() -> RecordedSession:
    """Return the demo session: a support chat of an invented bicycle shop, with tool calls and personal data."""
    text = files("ctxguard").joinpath("data/demo_session.json").read_text(encoding="utf-8")
    return parse_session(parse_json(text), adapter="openai")


@lru_cache(maxsize=1)
def _history() -> tuple[Artifact, ...]:
    return tuple(demo_session().read())


def demo_report(stabilizer: Stabilizer) -> Report:
    """Return the report on stabilizing the demo session."""
    session = demo_session()
    return stabilize_native(stabilizer, session.adapter, session.native, tools=session.tools)[1]


class AgreedFact(NamedTuple):
    """One fact of the demo session, and where the model can still read it at the end.

    Attributes:
        label: Name of the fact.
        words: Words that state the fact in the conversation.
        said_in: Position of the first message that contains the words.
        read_in: Position of a sent message that contains the words; `trail` for the summary of evicted messages, `lost`
            if the context does not contain them.
        in_newest: Like `read_in`, but for the context that a rolling window of the same budget would keep.
    """

    label: str
    words: str
    said_in: str
    read_in: str
    in_newest: str


def agreed_facts(report: Report) -> list[AgreedFact]:
    """Return each fact that the last message of the demo session asks for, and where the model can still read it."""
    history = _history()
    shown = [
        ("trail" if d.position is None else str(d.position), d.artifact) for d in report.decisions if d.tokens_after
    ]
    newest = [(str(position), history[position]) for position in _newest_that_fit(history, report)]
    everything = [(str(position), artifact) for position, artifact in enumerate(history)]
    return [
        AgreedFact(label, words, *(_first_with(words, place) for place in (everything, shown, newest)))
        for label, words in AGREED
    ]


def _first_with(words: str, shown: Sequence[tuple[str, Artifact]]) -> str:
    # Search the tool calls too: an agreed date is often in their arguments.
    texts = ((place, " ".join((a.text, *(call.arguments for call in a.calls)))) for place, a in shown)
    return next((place for place, text in texts if words in text), "lost")


def _newest_that_fit(history: Sequence[Artifact], report: Report) -> list[int]:
    """Return the positions that a rolling window would keep: the newest whole tool exchanges within the budget."""
    costs = [decision.tokens_before for decision in report.decisions if decision.position is not None]
    available = report.budget - report.tokens_before + sum(costs)
    return RollingWindow(history, costs, available).kept(len(history)) or []


def show_demo(report: Report) -> None:
    """Print the demo: the last question, both contexts, the summary of evicted messages, and the surviving facts."""
    console = Console(highlight=False)
    console.width = max(console.width, _NARROWEST)
    parts: list[RenderableType] = [_question(report), _contexts(report), *_trail(report), _answers(report), Text()]
    console.print(Group(*parts, _summary(report), _further()))


def _question(report: Report) -> Text:
    history = _history()
    return Text.assemble(
        "A support session: ",
        (f"{len(history)} messages, {report.tokens_before:,} tokens", "bold"),
        f". The budget is {report.budget:,}. At the end the customer writes:\n",
        (f"  {history[-1].text}\n", "bold"),
    )


def _contexts(report: Report) -> Table:
    """Return a table of the recorded context and the context that is sent, side by side."""
    table = Table(expand=True, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("#", justify="right", no_wrap=True, width=5)
    table.add_column("role", no_wrap=True, width=4)
    for title in ("before", "after"):
        table.add_column("", justify="right", no_wrap=True, width=6)
        table.add_column(title, overflow="ellipsis", no_wrap=True, ratio=1)
    for run in decision_runs(d for d in report.decisions if d.position is not None):
        gone = not run.decisions[0].tokens_after
        for part in (run,) if gone else (DecisionRun((decision,)) for decision in run.decisions):
            table.add_row(*_row(part))
    return table


def _row(run: DecisionRun) -> tuple[str | Text, ...]:
    decision, several = run.decisions[0], len(run.decisions) > 1
    roles = {d.artifact.kind for d in run.decisions}
    role = ROLES[decision.artifact.kind] if len(roles) == 1 else ""
    before, after = _sides(decision)
    content = f"{len(run.decisions)} messages: {before}" if several else before
    if not decision.tokens_after:
        return run.place, role, f"{run.tokens_before:,}", content, "", Text("dropped", style=COLORS["dropped"])
    if decision.action == "kept":
        return run.place, role, f"{run.tokens_before:,}", content, "", Text("the same", style=COLORS["kept"])
    shown = Text.assemble((f"{decision.action}: ", COLORS[decision.action]), after)
    return run.place, role, f"{run.tokens_before:,}", content, f"{run.tokens_after:,}", shown


def _sides(decision: Decision) -> tuple[str, str]:
    """Return a message's text before and after stabilizing, each shortened to fit a table.

    If values in the message were masked, both texts begin at the first masked value.
    """
    before, after = _said(_history()[decision.position or 0]), _said(decision.artifact)
    same = common_prefix(before, after) if decision.action == "masked" else 0
    lead = "…" if same else ""
    return lead + before[same:][:_SHOWN], lead + after[same:][:_SHOWN]


def _said(artifact: Artifact) -> str:
    calls = ", ".join(f"{call.name}({call.arguments})" for call in artifact.calls)
    return " ".join((artifact.text or calls).split())


def _trail(report: Report) -> list[Panel]:
    """Return a panel for the trail (the summary of evicted messages) that the stabilizer added."""
    written = [d for d in report.decisions if d.position is None and d.tokens_after]
    return [
        Panel(
            Text(decision.artifact.text),
            title=f"added: the trail, {decision.tokens_after:,} tokens",
            title_align="left",
            border_style="magenta",
        )
        for decision in written
    ]


def _answers(report: Report) -> Table:
    facts = agreed_facts(report)
    table = Table(title="What the answer needs, and where the model can read it", title_justify="left", box=None)
    table.add_column("agreed")
    table.add_column("said in", justify="right")
    table.add_column("ctxguard", justify="right")
    table.add_column("newest only", justify="right")
    for fact in facts:
        places = (Text(place, style="red" if place == "lost" else "green") for place in (fact.read_in, fact.in_newest))
        table.add_row(f"{fact.label}: {fact.words}", fact.said_in, *places)
    lost = ([f.read_in for f in facts].count("lost"), [f.in_newest for f in facts].count("lost"))
    table.add_row("still there", "", *(f"{len(facts) - number} of {len(facts)}" for number in lost), style="bold")
    return table


def _summary(report: Report) -> Panel:
    text = Text("\n".join(figure_lines(report)))
    return Panel(text, title="report", title_align="left", border_style="green" if report.ok else "red")


def _further() -> Text:
    return Text("\n").join(Text.assemble((f"{command:<38}", "bold"), what) for command, what in FURTHER)
