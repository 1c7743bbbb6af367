"""The page on a replay: the figures in words, each session over time, and its messages before and after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.errors import CtxguardError
from ctxguard.harness.document import FiguresModel, ReplayReport, RunModel, SessionModel
from ctxguard.harness.engine import Plan, Results
from ctxguard.harness.recordings import Recording, Skipped, opened
from ctxguard.harness.replay import replay
from ctxguard.harness.summary import advice, money, pareto, saved_by, share
from ctxguard.report import Report
from ctxguard.report.messages import messages_html, shown_text
from ctxguard.report.page import chart, page, table, tiles, words
from ctxguard.stabilizer import Stabilizer

MOST_BYTES: Final = 4_500_000
"""Bytes that the page may take; sessions that would make it larger are shown without their messages."""
MOST_IN_FULL: Final = 20
"""Sessions whose messages are shown, the worst first."""
MOST_CUTS: Final = 30


def replay_page(report: ReplayReport, plan: Plan, results: Results, *, show_originals: bool = False) -> str:
    """Return the page on a replay; with `show_originals` it holds personal data.

    The worst sessions are replayed once more for their messages. What was masked is not shown.
    """
    shown = _shown_run(report.runs)
    number = report.runs.index(shown)
    body = [_head(report, shown), _figures(shown), _runs(report.runs), _findings(report), _skipped(report)]
    sessions = list(
        _sessions(
            shown,
            [recording for _, recording in results.tallies[number].worst],
            plan.settings[number].stabilizer,
            plan.adapter,
            MOST_BYTES - sum(map(_size, body)),
            show_originals=show_originals,
        )
    )
    listed, all_of_them = len(shown.sessions), shown.figures.sessions
    few = f"The worst first; {listed:,} of {all_of_them:,} are listed. " if all_of_them > 1 else ""
    body.append(f"<h2>Sessions</h2><p class='small'>{few}Open one to see its calls and messages.</p>")
    return page(report.title, "".join((*body, *sessions)))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _shown_run(runs: Sequence[RunModel]) -> RunModel:
    """Return the run that is shown in full: the first that broke a law, else the one that refused least."""
    broken = next((run for run in runs if run.figures.findings), None)
    return broken or min(runs, key=lambda run: run.figures.refused)


def _head(report: ReplayReport, run: RunModel) -> str:
    when = report.created.replace("T", " ").replace("+00:00", " UTC")
    sources = ", ".join(report.sources)
    own = run.figures
    is_good = own.served > 0 and not own.findings
    return (
        f"<h1>{escape(report.title)}</h1>"
        f"<p class='meta'>{escape(when)} · ctxguard {escape(report.ctxguard)} · {escape(run.label)}</p>"
        f"<p class='meta'>Replayed: {escape(sources)}</p>" + words(list(_sentences(run)), is_good=is_good)
    )


def _sentences(run: RunModel) -> Iterator[str]:
    own = run.figures
    if not own.served:
        yield f"Nothing was judged: all {own.calls:,} calls were refused." if own.calls else "Nothing was judged."
    elif own.findings:
        broken = ", ".join(f"{law} at {calls:,}" for law, calls in own.findings.items())
        yield f"Laws broke: {broken} of {own.served:,} calls."
    else:
        yield f"Every law held at each of the {own.served:,} calls that were served."
    if own.refused:
        yield (
            f"{own.refused:,} of {own.calls:,} calls were refused: what must stay takes up to {own.needed:,} tokens, "
            "more than the budget."
        )
    if own.saved is not None:
        saved = f" Tokens by what was done: {saved_by(own)}." if own.saved_by else ""
        yield f"The requests took {share(own.saved)} fewer tokens than the whole histories would have.{saved}"
        yield _price_told(own)
    if own.support is not None:
        yield f"They held {share(own.support)} of what the next message used of the older history."


def _price_told(own: FiguresModel) -> str:
    bill = own.bill
    trimmed = (
        "" if not bill.trimmed else f", {_against(bill.stabilized, bill.trimmed)} plain trimming to the same budget"
    )
    unit = "" if bill.currency == "USD" else " tokens' worth of uncached input"
    cost = money(bill.stabilized, bill)
    return f"They cost {cost}{unit}: {_against(bill.stabilized, bill.unmanaged)} no management{trimmed}."


def _against(ours: float, theirs: float) -> str:
    if not theirs:
        return "the same as"
    change = 1 - ours / theirs
    return f"{100 * abs(change):.0f}% {'less' if change >= 0 else 'more'} than"


def _figures(run: RunModel) -> str:
    own = run.figures
    p95 = "–" if own.time.p95_ms is None else f"{own.time.p95_ms:.1f} ms"
    return tiles(
        [
            ("session" if own.sessions == 1 else "sessions", f"{own.sessions:,}"),
            ("model call" if own.calls == 1 else "model calls", f"{own.calls:,}"),
            ("calls refused", f"{own.refused:,}"),
            ("of the input tokens saved", share(own.saved)),
            ("next-action support", share(own.support)),
            ("of prompts extend the last one, where the budget is hit", share(own.prefix_share)),
            ("of calls cut the window", share(own.cut_share)),
            (
                "bill" if own.bill.currency == "USD" else "bill, in uncached tokens",
                money(own.bill.stabilized, own.bill),
            ),
            ("bill of plain trimming", money(own.bill.trimmed, own.bill)),
            ("bill of the whole history", money(own.bill.unmanaged, own.bill)),
            ("time of a call, 95th percentile", p95),
        ]
    )


def _runs(runs: Sequence[RunModel]) -> str:
    if len(runs) < 2:
        return ""
    best = {run.label for run in pareto(runs)}
    rows = (
        (
            f"{run.label}{' ★' if run.label in best else ''}",
            share(run.figures.support),
            money(run.figures.bill.stabilized / max(run.figures.served, 1), run.figures.bill),
            f"{run.figures.refused:,}",
            share(run.figures.prefix_share),
            f"{sum(run.figures.findings.values()):,}",
        )
        for run in runs
    )
    heads = ("setting", "support", "bill a call", "refused", "prefix kept", "findings")
    told = "<p class='small'>★: no other setting is both cheaper and holds more.</p>"
    return f"<h2>Settings compared</h2>{table(heads, rows, numbers=frozenset(range(1, 6)))}{told}"


def _findings(report: ReplayReport) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in advice(report))
    return f"<h2>What to look at</h2><ul>{lines}</ul>" if lines else ""


def _skipped(report: ReplayReport) -> str:
    if not report.skipped_count:
        return ""
    rows = ((each.path, str(each.line or ""), each.session or "", each.reason) for each in report.skipped[:100])
    title = f"<h2>{report.skipped_count:,} recordings were skipped</h2>"
    return title + table(("file", "line", "session", "reason"), rows, numbers=frozenset({1}))


def _sessions(
    run: RunModel,
    recordings: Iterable[Recording],
    stabilizer: Stabilizer,
    adapter: str | None,
    room: int,
    *,
    show_originals: bool,
) -> Iterator[str]:
    for number, (session, recording) in enumerate(zip(run.sessions, recordings, strict=True)):
        brief = _session(session, run, "")
        inside = ""
        if number < MOST_IN_FULL:
            inside = _in_full(recording, stabilizer, adapter, show_originals=show_originals)
        shown = _session(session, run, inside)
        if _size(shown) > room:
            shown = _session(
                session, run, "<p class='small'>Its messages are left out: the page would be too large.</p>"
            )
            shown = brief if _size(shown) > room else shown
        if _size(shown) > room:
            yield "<p class='small'>More sessions are left out: the page would be too large.</p>"
            return
        room -= _size(shown)
        yield shown


def _session(session: SessionModel, run: RunModel, inside: str) -> str:
    own, bill = session.figures, session.figures.bill
    state = "<span class='good'>held</span>" if not own.findings else "<span class='bad'>broke</span>"
    if not own.served:
        state = "<span class='bad'>refused</span>"
    line = (
        f"{own.calls:,} calls, {own.refused:,} refused, {own.cuts:,} cuts, support {share(own.support)}, "
        f"{own.tokens_before:,} → {own.tokens_after:,} tokens, {money(bill.stabilized, bill)}"
    )
    found = "".join(
        f"<li>call {f.call}: {escape(f.law)}: {escape(f.message)} <span class='small'>{escape(f.at)}</span></li>"
        for f in session.findings
    )
    budget = run.setting.get("budget")
    tokens = chart(
        "tokens of each call",
        [("whole history", "before", session.before), ("request", "after", session.after)],
        level=("budget", float(budget)) if isinstance(budget, (int, float)) else None,
        cuts=session.cuts,
        top=f"{max([*session.before, *session.after], default=0):,} tokens",
    )
    ours, theirs = list(accumulate(session.bill)), list(accumulate(session.trimmed))
    cost = chart(
        "bill so far",
        [("plain trimming", "trim", theirs), ("ours", "after", ours)],
        cuts=session.cuts,
        top=money(max([*ours, *theirs], default=0.0), bill),
    )
    return (
        f"<details class='session'{' open' if len(run.sessions) == 1 else ''}><summary>{escape(session.id)} · {state}"
        f"<span class='small'>{escape(line)}</span></summary>"
        f"<div class='inside'><p class='meta'>{escape(session.path)}, line {session.line}</p>"
        f"{f'<ul>{found}</ul>' if found else ''}<div class='charts'>{tokens}{cost}</div>{inside}</div></details>"
    )


@dataclass(slots=True)
class _Seen:
    """Remember what the page shows of a session: the latest call, and each call that cut.

    Attributes:
        latest: number of the latest served call, and its report.
        cuts: number of the call, what changed at it, and what the chain added of its own.
    """

    latest: tuple[int, Report] | None = None
    cuts: list[tuple[int, Report, str, str]] = field(default_factory=list)
    before: dict[int, str] = field(default_factory=dict)

    def __call__(self, number: int, _context: Sequence[Artifact], report: Report) -> None:
        """Take a look at a served call."""
        self.latest = (number, report)
        if report.cut is None or not report.cut.fresh:
            return
        decisions: dict[int, str] = {d.position: d.action for d in report.decisions if d.position is not None}
        changed: dict[str, list[int]] = {}
        for position, action in decisions.items():
            if action != "kept" and self.before.get(position) != action:
                changed.setdefault(action, []).append(position)
        told = "; ".join(f"{action} {_ranges(positions)}" for action, positions in sorted(changed.items()))
        added = [d.artifact for d in report.decisions if d.position is None and d.tokens_after]
        self.before = decisions
        self.cuts.append((number, report, told, "\n\n".join(map(shown_text, added))))


def _ranges(positions: Sequence[int]) -> str:
    """Return positions in words: `2-5, 9`."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position == runs[-1][1] + 1:
            runs[-1][1] = position
        else:
            runs.append([position, position])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _in_full(recording: Recording, stabilizer: Stabilizer, adapter: str | None, *, show_originals: bool) -> str:
    """Return the messages of a session at its last call, and the trail at each cut."""
    session = opened(recording, adapter=adapter)
    if isinstance(session, Skipped):
        return ""
    seen = _Seen()
    try:
        replay(session, stabilizer, watch=seen)
    except CtxguardError:
        return ""
    if seen.latest is None:
        return "<p class='small'>No call was served, so there is no request to show.</p>"
    number, report = seen.latest
    return _cuts(seen) + (
        f"<h3>Messages at call {number}, before and after</h3>{messages_html(report, show_originals=show_originals)}"
    )


def _cuts(seen: _Seen) -> str:
    if not seen.cuts:
        return ""
    shown = seen.cuts[-MOST_CUTS:]
    more = (
        f"<p class='small'>The last {MOST_CUTS} of {len(seen.cuts):,} are shown.</p>"
        if len(seen.cuts) > MOST_CUTS
        else ""
    )
    told = "".join(
        f"<details><summary>call {number}: {report.tokens_before:,} → {report.tokens_after:,} tokens"
        f"{f', {report.cut.rebilled:,} re-billed' if report.cut else ''}"
        f"<span class='small'> {escape(changed)}</span></summary><div class='inside'>"
        + (f"<pre>{escape(added)}</pre>" if added else "<p class='small'>The cut left no trail.</p>")
        + "</div></details>"
        for number, report, changed, added in shown
    )
    return f"<h3>Cuts, and the trail at each</h3>{more}{told}"
