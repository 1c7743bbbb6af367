"""The summary of a replay for a terminal: a table with units, the findings, and the remedies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ctxguard.harness.document import BillModel, FiguresModel, ReplayReport, RunModel
from ctxguard.harness.gain import is_installed
from ctxguard.harness.recordings import Recording, Source
from ctxguard.report.printing import counted
from ctxguard.settings import install_command

MANY_CUTS: Final = 1 / 3
"""Share of calls that cut the window above which the provider's cache is of little use."""
_CHEAPER: Final = 1.005
"""Smallest ratio of two bills at which one is called cheaper. Bills that differ less look equal when printed."""


def share(value: float | None) -> str:
    """Format a share as a percentage; a dash if it is undefined."""
    return "–" if value is None else f"{100 * value:.1f}%"


def saved_by(own: FiguresModel) -> str:
    """List the number of tokens that each action removed from messages or added to them.

    Together these are the saved tokens, for example `bounded 60,000, dropped 900; added: masked 300, new messages 80`.
    New messages are mainly the list of evicted steps.
    """
    removed, added = (
        ", ".join(f"{action} {abs(tokens):,}" for action, tokens in own.saved_by.items() if tokens * sign > 0)
        for sign in (1, -1)
    )
    return "; added: ".join(filter(None, (removed or "nothing" * bool(added), added)))


def money(value: float, bill: BillModel) -> str:
    """Format a price with its unit."""
    if bill.currency != "USD":
        return f"{value / 1_000:,.1f}k"
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def time_left(seconds: float, read: int, size: int | None) -> str:
    """Format the remaining time of a replay, based on the share of its bytes that was read; empty if unknown."""
    if not size or not read or seconds < 1:
        return ""
    left = seconds * max(0.0, size / read - 1)
    return f", {left:.0f} s left" if left < 100 else f", {left / 60:.0f} min left"


STOPPED: Final = 130
"""Exit code of a command that was ended by Ctrl-C, as shells use it."""
_LONG: Final = 60
"""Minimum number of remaining seconds for a note that says how long the rest takes and how to replay only a part."""
_KNOWN_AFTER: Final = 10
"""Minimum number of seconds, and of sessions, after which the remaining time is estimated well enough for the note."""
LARGE: Final = 4 << 20
"""Minimum size of a session, in bytes, for a note that it takes minutes. Such a session has about 1,500 calls."""


class Pace:
    """Estimates the remaining time of a replay from the share of the bytes that is done, and notes once if it is long.

    Args:
        size: Number of bytes of all files; None if it is not known.
        note: Function that prints a line.
    """

    def __init__(self, size: int | None, note: Callable[[str], object]) -> None:
        self._size, self._note, self._begun = size, note, time.monotonic()
        self._done = 0
        self._is_noted = False

    def watched(self, sources: Iterable[Source]) -> Iterator[Source]:
        """Yield the sources, and note the first session that alone takes minutes, before it is passed on."""
        is_noted = False
        for source in sources:
            if not is_noted and isinstance(source, Recording) and len(source.data) > LARGE:
                is_noted = True
                self._note(
                    f"{source.path}:{source.line}: a session of {len(source.data) / 1e6:.0f} MB, whose calls take "
                    "minutes to judge; there is no report on it before its end"
                )
            yield source

    def left(self, read: int) -> str:
        """Return the remaining time, as `time_left` does, when one more recording is done, the last of `read` bytes."""
        self._done += 1
        seconds = time.monotonic() - self._begun
        left = time_left(seconds, read, self._size)
        if left and not self._is_noted and seconds >= _KNOWN_AFTER and self._done >= _KNOWN_AFTER:
            self._is_noted = True
            if seconds * (self._size or 0) > (seconds + _LONG) * read:
                self._note(
                    f"about{left[1:]}, because every model call is judged; --every 10 takes one session in ten, and "
                    "Ctrl-C ends with the report on what is done"
                )
        return left


def summary(report: ReplayReport) -> str:
    """Format the figures of a replay as text."""
    lines = [report.title, ""]
    for run in report.runs:
        lines += [run.label, *(f"  {name:<26}{value}" for name, value in _rows(run.figures)), ""]
    if len(report.runs) > 1:
        lines += [*_picture(report.runs), ""]
    lines += [*report.judges, ""]
    prices = f"{report.model}, {report.prices}" if report.model else report.prices
    lines += [f"prices: {prices}", f"tokens: {report.counter}"]
    processes = counted(report.processes, "process", "processes")
    lines.append(f"ctxguard {report.ctxguard}, {report.seconds:.1f} s in {processes}")
    return "\n".join(lines)


def _rows(own: FiguresModel) -> Iterator[tuple[str, str]]:
    bill = own.bill
    over = f"({own.refused:,} refused, {own.pressed:,} over the budget)"
    yield "sessions, calls", f"{own.sessions:,}, {own.calls:,} {over}"
    broken = ", ".join(f"{law} not met at {counted(n, 'call')}" for law, n in own.findings.items())
    yield "guarantees", broken or "all met"
    yield "tokens", f"{own.tokens_before:,} -> {own.tokens_after:,} ({share(own.saved)} saved)"
    yield "saved by", saved_by(own) or "nothing: no message was changed"
    yield "prefix kept", f"{share(own.prefix_share)} of the calls, up to the newest exchange of the call before"
    yield "cuts", f"{own.cuts:,} ({share(own.cut_share)} of the calls), {own.rebilled:,} tokens re-billed"
    yield (
        "next-action support",
        f"{share(own.support)} ({share(own.support_in_context)} with its context) of {counted(own.needing, 'call')}",
    )
    worth = f"{share(own.gain)} of what older history is worth in bits, over {counted(own.weighed, 'call')}"
    yield "gain", worth if own.weighed or is_installed() else f"not measured: {install_command('gain')}"
    yield "newest outputs sent", f"{share(own.newest)} of what fits into half of the available tokens"
    unit = "" if bill.currency == "USD" else " tokens' worth"
    others = f"whole history {money(bill.unmanaged, bill)}, plain trimming {money(bill.trimmed, bill)}"
    yield "bill", f"{money(bill.stabilized, bill)}{unit}; {others}"
    if own.time.p50_ms is not None and own.time.p95_ms is not None:
        yield "time of a call", f"{own.time.p50_ms:.1f} ms median, {own.time.p95_ms:.1f} ms p95"


def pareto(runs: Sequence[RunModel]) -> list[RunModel]:
    """Return the runs that no other run beats in both bill and support, starting with the cheapest."""
    able = sorted((run for run in runs if run.figures.served), key=lambda run: (cost_of_a_call(run), -_held(run)))
    best: list[RunModel] = []
    for run in able:
        if not best or _held(run) > _held(best[-1]):
            best.append(run)
    return best


def cheapest(runs: Sequence[RunModel], support: float = 0.0) -> RunModel | None:
    """Return the cheapest run that has no findings or refusals and reaches `support`; None if there is none."""
    able = [
        r for r in runs if r.figures.served and not r.figures.refused and not r.figures.findings and _held(r) >= support
    ]
    return min(able, key=cost_of_a_call, default=None)


def cost_of_a_call(run: RunModel) -> float:
    """Return the average price of a served call, so that refusing calls does not make a run cheaper."""
    return run.figures.bill.stabilized / max(run.figures.served, 1)


def _held(run: RunModel) -> float:
    return 1.0 if run.figures.support is None else run.figures.support


def _picture(runs: Sequence[RunModel]) -> Iterator[str]:
    best = {run.label for run in pareto(runs)}
    width = max(len(run.label) for run in runs)
    yield f"  {'setting':<{width}}  {'a call':>10}  {'support':>8}  {'refused':>8}  {'cuts':>7}"
    for run in sorted(runs, key=cost_of_a_call):
        own = run.figures
        mark = "*" if run.label in best else " "
        cost = money(cost_of_a_call(run), own.bill) if own.served else "–"
        figures = f"{cost:>10}  {share(own.support):>8}  {own.refused:>8,}  {share(own.cut_share):>7}"
        yield f"{mark} {run.label:<{width}}  {figures}"
    yield "* no other setting is both cheaper and keeps more support"


def advice(report: ReplayReport) -> Iterator[str]:
    """Yield the first finding of each law with its call, and a remedy for refused calls and for frequent cuts."""
    for run in report.runs:
        own = run.figures
        for f in run.findings:
            at = f" @ {f.at}" if f.at else ""
            yield (
                f"{run.label}: {f.law} fails at {counted(own.findings[f.law], 'call')}, "
                f"first at call {f.call} of session {f.session} ({f.path}): {f.message}{at}"
            )
        if own.refused:
            yield (
                f"{run.label}: {own.refused:,} of {counted(own.calls, 'call')} refused: mandatory messages take up to "
                f"{own.needed:,} tokens; raise the budget"
            )
        if own.cuts and own.bill.stabilized > _CHEAPER * own.bill.unmanaged:
            whole, sent = (money(price, own.bill) for price in (own.bill.unmanaged, own.bill.stabilized))
            yield (
                f"{run.label}: sending the whole history would have cost less here ({whole} against {sent}): the "
                "histories are short for this budget, or the provider's cache makes re-sending cheap"
            )
        if own.cut_share is not None and own.cut_share > MANY_CUTS:
            yield (
                f"{run.label}: {own.cut_share:.0%} of the calls cut: the budget is small for this history; "
                "raise it or lower target"
            )
