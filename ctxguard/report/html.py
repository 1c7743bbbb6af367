"""Show a report as HTML, in notebooks and pages."""

from __future__ import annotations

import html
from typing import Final

from ctxguard.report.data import DecisionRun, ReportData, decision_runs


def report_html(report: ReportData) -> str:
    """Return the report as one HTML fragment, every text escaped."""
    runs = decision_runs(report.decisions)
    rows = "".join(map(_row, runs[:_MOST_ROWS]))
    if len(runs) > _MOST_ROWS:
        rows += f"<tr><td>…</td><td colspan=6>{len(runs) - _MOST_ROWS:,} more rows; all are in to_dict()</td></tr>"
    checks = "".join(
        f"<li>{'✓' if c.ok else '✗'} {html.escape(c.name)}"
        + (f": {html.escape(c.claim)}" if c.claim else "")
        + "".join(f"<br><small>{html.escape(str(f))}</small>" for f in c.findings[:20])
        + "</li>"
        for c in report.checks
    )
    return (
        f"{_STYLE}<div class='ctxguard'><p><b>{report.tokens_before:,} → {report.tokens_after:,}</b> of "
        f"{report.budget:,} tokens · {html.escape(report.counter)} ({html.escape(report.accuracy)})</p>"
        f"{_bar(report)}<p>{sum(c.ok for c in report.checks)} of {len(report.checks)} checks hold:</p><ul>{checks}</ul>"
        f"{_told(report)}<details open><summary>{len(report.decisions):,} decisions; neighbors alike in one line"
        "</summary><table><thead><tr><th>position</th><th>kind</th><th>action</th><th>tokens before</th>"
        "<th>tokens after</th><th>stage</th>"
        f"<th>reason</th></tr></thead><tbody>{rows}</tbody></table></details></div>"
    )


def _told(report: ReportData) -> str:
    warnings = (f"warning: {warning}" for warning in report.warnings)
    lines = (report.cut_told, report.unread_told if report.unread else "", *warnings)
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines if line)


def _row(run: DecisionRun) -> str:
    decision = run.decisions[0]
    return (
        f"<tr><td>{run.place}</td><td>{html.escape(run.kinds)}</td>"
        f"<td class='ctxguard-{decision.action}'>{decision.action}</td>"
        f"<td>{run.tokens_before:,}</td><td>{run.tokens_after:,}</td>"
        f"<td>{html.escape(decision.stage)}</td><td>{html.escape(decision.reason)}</td></tr>"
    )


def _bar(report: ReportData) -> str:
    widest = max(report.tokens_before, report.budget, 1)
    return "".join(
        f"<div class='ctxguard-bar'><span style='width:{100 * tokens / widest:.1f}%;background:{colour}'></span>"
        f"<em>{label} {tokens:,}</em></div>"
        for label, tokens, colour in (
            ("before", report.tokens_before, "#c9ccd3"),
            ("after", report.tokens_after, "#7fb0ee"),
            ("budget", report.budget, "#e6a23c"),
        )
    )


_MOST_ROWS: Final = 500
_STYLE: Final = """<style>
.ctxguard{font:13px/1.45 system-ui,sans-serif;max-width:72em;color:#1f2328;background:#fff;padding:1em}
.ctxguard details{overflow-x:auto}
.ctxguard ul{list-style:none;padding:0;columns:2}
.ctxguard table{table-layout:auto!important;border-collapse:collapse;width:100%;font:inherit;color:inherit}
.ctxguard td,.ctxguard th{padding:2px 8px;border-bottom:1px solid #e4e6ea;text-align:left!important;vertical-align:top}
.ctxguard td:nth-child(4),.ctxguard td:nth-child(5){text-align:right!important;font-variant-numeric:tabular-nums}
.ctxguard td:nth-child(1){white-space:nowrap}
.ctxguard-dropped{color:#b42318}.ctxguard-masked{color:#9a6700}.ctxguard-bounded{color:#0b6bcb}
.ctxguard-summarised,.ctxguard-recalled{color:#6f42c1}.ctxguard-repaired{color:#0a7d33}
.ctxguard-bar{position:relative;height:18px;background:#f3f4f6;margin:2px 0;print-color-adjust:exact}
.ctxguard-bar span{position:absolute;inset:0 auto 0 0}.ctxguard-bar em{position:absolute;left:6px;font-style:normal}
@media(max-width:40em){.ctxguard td,.ctxguard th{padding:2px 3px;font-size:11px}
.ctxguard td:nth-child(n+6){overflow-wrap:anywhere}}
@media print{.ctxguard details{overflow-x:visible}.ctxguard tr{break-inside:avoid}}
</style>"""
