"""A report as text, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from ctxguard.report.data import ReportData
from ctxguard.report.decisions import DecisionRun, decision_runs


def report_lines(report: ReportData) -> list[str]:
    """Return the report, a line each for the figures, the checks and the decisions that changed something."""
    saved = report.tokens_before - report.tokens_after
    share = f"{100 * abs(saved) / max(report.tokens_before, 1):.0f}% {'added' if saved < 0 else 'saved'}"
    counted = ", ".join(f"{n} {action}" for action, n in report.counts().items()) or "nothing came in"
    lines = [
        f"{report.tokens_before:,} -> {report.tokens_after:,} tokens of {report.budget:,} ({share}); "
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
    lines += _decision_lines(report)
    return lines


def _decision_lines(report: ReportData, most: int = 40) -> list[str]:
    told = [run for run in decision_runs(report.decisions) if run.decisions[0].action != "kept" or run.role is not None]
    lines = list(map(_decision_line, told[:most]))
    return [*lines, f"  … and {sum(len(r.decisions) for r in told[most:])} more"] if len(told) > most else lines


def _decision_line(run: DecisionRun) -> str:
    decision = run.decisions[0]
    why = f"  {decision.stage}: {decision.reason}" if decision.stage else ""
    return (
        f"  [{run.place}] {run.kinds:<9} {decision.action:<10} {run.tokens_before:>6,} -> {run.tokens_after:>6,}{why}"
    )
