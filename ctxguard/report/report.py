"""The report: its data, and its representations as text and HTML."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from ctxguard.report.data import ReportData
from ctxguard.report.decisions import DecisionRun, decision_runs


class Report(ReportData):
    """What a stabilizer did to one history: as data (`to_dict`), as text (`str`), and as an HTML page (`to_html`)."""

    def to_html(self, file: str | PathLike[str] | None = None, *, title: str = "", show_originals: bool = False) -> str:
        """Return a self-contained HTML page: figures, checks, and each message before and after stabilizing.

        Args:
            file: File to write the page to as well, in UTF-8; None writes none.
            title: Title of the page; empty means a default title.
            show_originals: Whether to show the original values. The page then contains personal data.

        Raises:
            ImportError: If Jinja2, which the extra `html` installs, is missing.
            OSError: If the file cannot be written.
        """
        from ctxguard.report.page import calls_page

        page = calls_page([self], title=title, show_originals=show_originals)
        if file is not None:
            Path(file).write_text(page, encoding="utf-8")
        return page

    def __str__(self) -> str:
        return "\n".join((*figure_lines(self), *_decision_lines(self)))

    def __repr__(self) -> str:
        state = "ok" if self.ok else "failed: " + ", ".join(c.name for c in self.checks if not c.ok)
        return f"<Report {self.tokens_before} -> {self.tokens_after} of {self.budget} tokens, {state}>"

    def _repr_html_(self) -> str | None:
        from ctxguard.report.page import notebook_html

        return notebook_html(self)


def figure_lines(report: ReportData) -> list[str]:
    """Format the figures and the checks of a report, one line each."""
    saved = report.tokens_before - report.tokens_after
    share = f"{100 * abs(saved) / max(report.tokens_before, 1):.0f}% {'added' if saved < 0 else 'saved'}"
    free = "".join(f"; {tokens:,} more are kept free: {name}" for name, tokens in report.kept_free if tokens > 0)
    counted = ", ".join(f"{n} {action}" for action, n in report.counts().items()) or "nothing came in"
    lines = [
        f"{report.tokens_before:,} -> {report.tokens_after:,} tokens of {report.budget:,} ({share}{free}); "
        f"counted by {report.counter}, {report.accuracy}",
        f"artifacts: {counted}",
    ]
    if report.cut_told:
        lines.append(report.cut_told)
    tools = report.details.get("tools")
    if isinstance(tools, Mapping):
        lines.append(f"tools: shorter descriptions, {tools['tokens_before']:,} -> {tools['tokens_after']:,} tokens")
    if report.unread:
        lines.append(report.unread_told)
    lines += [f"warning: {warning}" for warning in report.warnings]
    for check in report.checks:
        lines.append(f"  {'ok  ' if check.ok else 'FAIL'} {check.name}{f': {check.claim}' if check.claim else ''}")
        lines += [f"       {finding}" for finding in check.findings[:20]]
    return lines


def _decision_lines(report: ReportData, most: int = 40) -> list[str]:
    """Format the decisions that changed something, one line each, at most `most` lines."""
    shown = [
        run for run in decision_runs(report.decisions) if run.decisions[0].action != "kept" or run.role is not None
    ]
    lines = list(map(_decision_line, shown[:most]))
    return [*lines, f"  … and {sum(len(r.decisions) for r in shown[most:])} more"] if len(shown) > most else lines


def _decision_line(run: DecisionRun) -> str:
    decision = run.decisions[0]
    why = f"  {decision.stage}: {decision.reason}" if decision.stage else ""
    return (
        f"  [{run.place}] {run.kinds:<9} {decision.action:<10} {run.tokens_before:>6,} -> {run.tokens_after:>6,}{why}"
    )
