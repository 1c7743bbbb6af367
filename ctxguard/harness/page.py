"""The HTML page on a replay: figures in words, each session over time, and messages before and after stabilizing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from ctxguard.harness.document import ReplayReport, RunModel, SessionModel
from ctxguard.harness.engine import Plan, Results, Tally
from ctxguard.harness.recordings import Recording, Skipped, play_session
from ctxguard.harness.replay import served_contexts
from ctxguard.harness.sessions import RecordedSession
from ctxguard.harness.summary import advice, cost_of_a_call, money, pareto, saved_by, share
from ctxguard.report import Report
from ctxguard.report.page import Chart, chart, message_rows, render, shown_text
from ctxguard.stabilizer import Stabilizer

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_CHARACTERS: Final = 4_500_000
"""Maximum length of all sessions on a page, in characters; further sessions are shown without their messages."""
MOST_IN_FULL: Final = 20
"""Maximum number of sessions that are shown with their messages, starting with the worst."""
MOST_CUTS: Final = 30  # cuts shown for each session
_FILTERS: Final[Mapping[str, Callable[..., object]]] = {"share": share, "money": money, "saved_by": saved_by}


def replay_page(report: ReplayReport, plan: Plan, results: Results, *, show_originals: bool = False) -> str:
    """Return the HTML page on a replay.

    The worst sessions are replayed again to show their messages.

    Args:
        report: Report on the replay.
        plan: Settings that were replayed.
        results: Results of the replay, which name the recordings of the worst sessions.
        show_originals: Whether the original messages are shown too. They contain personal data.

    Raises:
        ImportError: If Jinja2, which the extra `html` installs, is missing.
    """
    run = _shown_run(report.runs)
    number = report.runs.index(run)
    best = {each.label for each in pareto(report.runs)}
    replayed = partial(_replay_cuts, stabilizer=plan.settings[number].stabilizer, adapter=plan.adapter)
    page = render(
        "replay.html",
        _FILTERS,
        title=report.title,
        report=report,
        run=run,
        settings=[_setting_row(each, is_best=each.label in best) for each in report.runs],
        advice=list(advice(report)),
        sessions=list(_sessions(run, results.tallies[number], replayed, show_originals=show_originals)),
    )
    return str(page)


def _shown_run(runs: Sequence[RunModel]) -> RunModel:
    """Return the run that is shown in full: the first one with a finding, or else the one with the fewest refusals."""
    broken = next((run for run in runs if run.figures.findings), None)
    return broken or min(runs, key=lambda run: run.figures.refused)


def _setting_row(run: RunModel, *, is_best: bool) -> tuple[str, ...]:
    own = run.figures
    return (
        f"{run.label}{' ★' if is_best else ''}",
        share(own.support),
        money(cost_of_a_call(run), own.bill),
        f"{own.refused:,}",
        share(own.prefix_share),
        f"{sum(own.findings.values()):,}",
    )


class _ShownCut(NamedTuple):
    """The data of one cut on the page.

    `changed` says in words what became of which messages; `added` is the text that the chain added, such as the trail
    (the summary of evicted messages).
    """

    call: int
    before: int
    after: int
    rebilled: int
    changed: str
    added: str
    has_dropped: bool


@dataclass(slots=True)
class _Seen:
    """Collects data for the page during a replay: each call with a cut, and the latest call that was not refused."""

    call: int = 0
    report: Report | None = None
    cuts: list[_ShownCut] = field(default_factory=list)
    before: dict[int, str] = field(default_factory=dict)

    def __call__(self, call: int, report: Report) -> None:
        """Collect the data of one served call."""
        self.call, self.report = call, report
        if report.cut is None or not report.cut.fresh:
            return
        decisions: dict[int, str] = {d.position: d.action for d in report.decisions if d.position is not None}
        changed: dict[str, list[int]] = {}
        for position, action in decisions.items():
            if action != "kept" and self.before.get(position) != action:
                changed.setdefault(action, []).append(position)
        words = "; ".join(f"{action} {_ranges(positions)}" for action, positions in sorted(changed.items()))
        added = (shown_text(d.artifact) for d in report.decisions if d.position is None and d.tokens_after)
        self.before = decisions
        tokens = (report.tokens_before, report.tokens_after, report.cut.rebilled)
        self.cuts.append(_ShownCut(call, *tokens, words, "\n\n".join(added), "dropped" in decisions.values()))


def _ranges(positions: Sequence[int]) -> str:
    """Format sorted positions as ranges, such as `2-5, 9`."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position == runs[-1][1] + 1:
            runs[-1][1] = position
        else:
            runs.append([position, position])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _replay_cuts(recording: Recording, *, stabilizer: Stabilizer, adapter: str | None) -> _Seen | None:
    """Replay a session to collect its messages; return None if the session cannot be replayed."""

    def play(_: Recording, session: RecordedSession) -> _Seen:
        seen = _Seen()
        for call, context in served_contexts(session, stabilizer):
            seen(call, context.report)
        return seen

    found = play_session(recording, play, adapter=adapter)
    return None if isinstance(found, Skipped) else found


def _sessions(
    run: RunModel, tally: Tally, replayed: Callable[[Recording], _Seen | None], *, show_originals: bool
) -> Iterator[Markup]:
    """Yield each session of the page as HTML, with messages for the worst sessions."""
    available = MOST_CHARACTERS
    for number, (session, (_, recording)) in enumerate(zip(run.sessions, tally.worst, strict=True)):
        seen = replayed(recording) if number < MOST_IN_FULL and available > 0 else None
        report = None if seen is None else seen.report
        shown = render(
            "session.html",
            _FILTERS,
            session=session,
            is_open=len(run.sessions) == 1,
            most_cuts=MOST_CUTS,
            charts=_charts(session, run),
            seen=seen,
            rows=[] if report is None else list(message_rows(report, show_originals=show_originals)),
        )
        available -= len(shown)
        yield shown


def _charts(session: SessionModel, run: RunModel) -> tuple[Chart, Chart]:
    """Return two charts of a session: the number of tokens at each call, and the cumulative bill."""
    budget = run.setting.get("budget")
    tokens = max([*session.before, *session.after], default=0)
    bills = [
        (name, style, list(accumulate(prices)))
        for name, style, prices in (
            ("whole history", "before", session.unmanaged),
            ("plain trimming", "trim", session.trimmed),
            ("ours", "after", session.bill),
        )
    ]
    most = max((figure for _, _, figures in bills for figure in figures), default=0.0)
    return (
        chart(
            "tokens of each call",
            [("whole history", "before", session.before), ("request", "after", session.after)],
            level=float(budget) if isinstance(budget, (int, float)) else None,
            cuts=session.cuts,
            top=f"{tokens:,} tokens",
        ),
        chart("bill so far", bills, cuts=session.cuts, top=money(most, session.figures.bill)),
    )
