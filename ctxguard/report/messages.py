"""Show the messages of one call before and after: what became of each, by which stage and why."""

from __future__ import annotations

import re
import sys
from html import escape
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.report.data import Decision, ReportData
from ctxguard.report.page import page, table, tiles, words

MOST_TEXT: Final = 3_000
"""Characters of a text that the page shows; of a longer one the beginning and the end."""
_HEAD: Final = 2_000
_PLACEHOLDER: Final = re.compile(r"\[REDACTED[A-Z_]*\]|&lt;[A-Z][A-Z_]*_\d+&gt;")


def call_page(report: ReportData, *, title: str = "", show_originals: bool = False) -> str:
    """Return the page of one call."""
    named = title or "One model call, before and after"
    release = sys.modules["ctxguard"].__version__  # not imported: the report stands below the package's own names
    head = f"<h1>{escape(named)}</h1><p class='meta'>ctxguard {escape(release)}</p>"
    return page(named, head + call_section(report, show_originals=show_originals))


def call_section(report: ReportData, *, show_originals: bool = False) -> str:
    """Return what there is to say of one call, as HTML."""
    failed = [check for check in report.checks if not check.ok]
    saved = report.tokens_before - report.tokens_after
    counts = ", ".join(f"{n:,} {action}" for action, n in report.counts().items()) or "nothing came in"
    told = [
        f"All {len(report.checks)} checks hold."
        if not failed
        else f"{len(failed)} of {len(report.checks)} checks fail.",
        f"The request takes {report.tokens_after:,} of {report.budget:,} tokens, "
        + (f"{saved:,} fewer than the whole history." if saved >= 0 else f"{-saved:,} more than the history."),
        f"Messages: {counts}.",
        *([f"{report.cut_told[0].upper()}{report.cut_told[1:]}."] if report.cut_told else []),
        *([f"{report.unread_told[0].upper()}{report.unread_told[1:]}."] if report.unread else []),
    ]
    figures = [
        ("tokens before", f"{report.tokens_before:,}"),
        ("tokens after", f"{report.tokens_after:,}"),
        ("tokens of the budget", f"{report.budget:,}"),
        (f"counted by, {report.accuracy}", report.counter),
    ]
    found = [
        (check.name, "holds" if check.ok else "fails", "; ".join(map(str, check.findings[:20])) or check.claim)
        for check in report.checks
    ]
    return (
        words(told, is_good=not failed)
        + tiles(figures)
        + "<h2>Checks</h2>"
        + table(("check", "", "findings"), found)
        + f"<h2>Messages</h2>{messages_html(report, show_originals=show_originals)}"
    )


def messages_html(report: ReportData, *, show_originals: bool = False) -> str:
    """Return every message of a call with its text before and after; `show_originals` shows personal data, too."""
    return "".join(_message(report, decision, show_originals=show_originals) for decision in report.decisions)


def _message(report: ReportData, decision: Decision, *, show_originals: bool) -> str:
    before = None if decision.position is None else report.original(decision.position, masked=not show_originals)
    after = decision.artifact if decision.tokens_after else None
    shown = shown_text(after if after is not None else before)
    tokens = f"{decision.tokens_before:,} → {decision.tokens_after:,}"
    line = (
        f"<span class='num'>{'+' if decision.position is None else decision.position}</span>"
        f"<span>{escape(decision.artifact.kind.value)}</span>"
        f"<span class='action {decision.action}'>{decision.action}</span>"
        f"<span class='num'>{tokens}</span><span>{escape(' '.join(shown.split())[:160])}</span>"
    )
    steps = "".join(
        f"<li><span class='action {step.action}'>{step.action}</span> by {escape(step.stage)}"
        f"{': ' + escape(step.reason) if step.reason else ''}</li>"
        for step in decision.steps
    )
    why = f"<ul class='small'>{steps}</ul>" if steps else "<p class='small'>Kept as it is.</p>"
    inside = f"<div class='inside'>{why}{_pair(before, after)}</div>"
    return f"<details class='message'><summary>{line}</summary>{inside}</details>"


def _pair(before: Artifact | None, after: Artifact | None) -> str:
    was, now = (None if artifact is None else shown_text(artifact) for artifact in (before, after))
    if was is not None and was == now:
        return f"<div class='pair one'><div><h4>before and after</h4>{_text(was)}</div></div>"
    left = "<p class='small'>It was added.</p>" if was is None else _text(was)
    right = "<p class='small'>It is not in the request.</p>" if now is None else _text(now)
    return f"<div class='pair'><div><h4>before</h4>{left}</div><div><h4>after</h4>{right}</div></div>"


def _text(text: str) -> str:
    if len(text) > MOST_TEXT:
        left_out = len(text) - MOST_TEXT
        text = f"{text[:_HEAD]}\n… {left_out:,} characters are not shown here …\n{text[_HEAD - MOST_TEXT :]}"
    return f"<pre>{_PLACEHOLDER.sub(lambda m: f'<mark>{m[0]}</mark>', escape(text, quote=False))}</pre>"


def shown_text(artifact: Artifact | None) -> str:
    """Return what a model reads of an artifact: its text, and its calls with their arguments."""
    if artifact is None:
        return ""
    calls = (f"{call.name}({call.arguments})" for call in artifact.calls)
    return "\n".join(part for part in (artifact.text, *calls) if part)
