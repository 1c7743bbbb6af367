"""Say what was done and why: one decision an artifact, every check, every number."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from ctxguard.artifacts import Artifact, Kind

if TYPE_CHECKING:
    from ctxguard.stabilizer import Draft

__all__ = ["Action", "Change", "CheckResult", "Cut", "Decision", "Finding", "Report", "Step"]

Action = Literal["kept", "masked", "bounded", "summarised", "dropped", "repaired", "recalled"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold one thing that a check found.

    Attributes:
        message: what is wrong; never holds a value that a rule would mask.
        path: where, as `artifacts[3].calls[0]`.
    """

    message: str
    path: str

    def __str__(self) -> str:
        return f"{self.message} @ {self.path}"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Hold what one check found; nothing means that it holds."""

    name: str
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the check holds."""
        return not self.findings


@dataclass(frozen=True, slots=True)
class Cut:
    """Say where the window was last cut.

    Attributes:
        at: position in the history of the artifact that hit the budget; everything older was sent before the cut.
        position: position in the result from which it differs from what was sent before.
        fresh: True where this very call made the cut, so that its prompt does not extend the previous one.
        rebilled: tokens from `position` on, which no prompt cache can serve after the cut.
    """

    at: int
    position: int
    fresh: bool
    rebilled: int


@dataclass(frozen=True, slots=True)
class Change:
    """Hold what one stage changed: the artifacts before and after, compared by identity when a report is read."""

    before: tuple[Artifact, ...]
    after: tuple[Artifact, ...]
    action: Action | None = None
    reason: str | Mapping[int, str] = ""
    otherwise: str = ""
    stage: str = ""

    def why(self, artifact: Artifact) -> str:
        """Return the reason that was given for an artifact."""
        return self.reason if isinstance(self.reason, str) else self.reason.get(id(artifact), self.otherwise)


@dataclass(frozen=True, slots=True)
class Step:
    """Hold one thing that happened to an artifact on its way."""

    action: Action
    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Say what became of one artifact.

    Attributes:
        action: what became of it in the end.
        artifact: the artifact as it last was, masked wherever masking is part of the chain.
        stage: the stage that decided; empty for what was kept as it is.
        reason: why.
        tokens_before: tokens it had when it came in; 0 for one that a stage added.
        tokens_after: tokens it takes in the result; 0 for one that is gone.
        position: place in the history; None for one that a stage added.
        steps: everything that happened to it, in order.
    """

    action: Action
    artifact: Artifact
    stage: str
    reason: str
    tokens_before: int
    tokens_after: int
    position: int | None
    steps: tuple[Step, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON values; the text of the artifact is left out."""
        return {
            "position": self.position,
            "kind": self.artifact.kind.value,
            "id": self.artifact.id,
            "name": self.artifact.name,
            "action": self.action,
            "stage": self.stage,
            "reason": self.reason,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "steps": [{"action": s.action, "stage": s.stage, "reason": s.reason} for s in self.steps],
        }


class Report:
    """Tell what a stabilizer did to one history. Decisions are worked out when they are first asked for.

    Attributes:
        tokens_before: tokens of the history with everything sent beside it.
        tokens_after: tokens of the result with everything sent beside it.
        budget: tokens there were.
        counter: name of the counter, with how exact it is in `accuracy`.
        checks: what each check found.
        cut: the last cut of the window, or None.
    """

    def __init__(self, draft: Draft, *, tokens_after: int, checks: tuple[CheckResult, ...]) -> None:
        self._draft = draft
        self.tokens_after = tokens_after
        self.checks = checks
        self.budget = draft.budget
        self.counter = draft.counter.counter.name
        self.accuracy = draft.counter.counter.accuracy
        self.cut = draft.cut
        self.details: Mapping[str, object] = draft.details

    @cached_property
    def tokens_before(self) -> int:
        """Tokens of the history with everything sent beside it."""
        return self._draft.overhead + self._draft.counter.artifacts(self._draft.history)

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    @property
    def changed(self) -> bool:
        """Whether the result differs from the history in anything."""
        return bool(self._draft.changes)

    @cached_property
    def first_changed(self) -> int | None:
        """Position of the first artifact of the result that is not the one of the history; None if all are."""
        if not self.changed:
            return None
        history, result = self._draft.history, self._draft.artifacts
        for position, (was, now) in enumerate(zip(history, result, strict=False)):
            if was is not now:
                return position
        return None if len(history) == len(result) else min(len(history), len(result))

    @cached_property
    def decisions(self) -> list[Decision]:
        """One decision an artifact of the history, in its order, then those that stages added."""
        return _decisions(self._draft)

    def counts(self) -> dict[str, int]:
        """Return how many artifacts met each action."""
        return dict(Counter(decision.action for decision in self.decisions))

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values. It holds no text of any artifact."""
        return {
            "ok": self.ok,
            "budget": self.budget,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "counter": self.counter,
            "accuracy": self.accuracy,
            "first_changed": self.first_changed,
            "cut": None
            if self.cut is None
            else {
                "at": self.cut.at,
                "position": self.cut.position,
                "fresh": self.cut.fresh,
                "rebilled": self.cut.rebilled,
            },
            "actions": self.counts(),
            "checks": [
                {"name": c.name, "ok": c.ok, "findings": [{"message": f.message, "path": f.path} for f in c.findings]}
                for c in self.checks
            ],
            "decisions": [decision.to_dict() for decision in self.decisions],
            "details": dict(self.details),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as a JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent, default=str)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def __repr__(self) -> str:
        state = "ok" if self.ok else "failed: " + ", ".join(c.name for c in self.checks if not c.ok)
        return f"<Report {self.tokens_before} -> {self.tokens_after} of {self.budget} tokens, {state}>"

    def _repr_html_(self) -> str:
        return report_html(self)


def _decisions(draft: Draft) -> list[Decision]:
    counter = draft.counter
    steps: dict[int, list[Step]] = {}
    latest: dict[int, Artifact] = {}
    added: dict[int, Artifact] = {}
    gone: dict[int, Step] = {}
    for change in draft.changes:
        _trace(change, steps, latest, added, gone)
    final = {id(artifact.root): artifact for artifact in draft.artifacts}
    decisions = [
        _decide(draft, artifact.root, position, counter.artifact(artifact), steps, latest, final, gone)
        for position, artifact in enumerate(draft.history)
    ]
    decisions += [_decide(draft, a, None, 0, steps, latest, final, gone) for a in added.values()]
    return decisions


def _trace(
    change: Change,
    steps: dict[int, list[Step]],
    latest: dict[int, Artifact],
    added: dict[int, Artifact],
    gone: dict[int, Step],
) -> None:
    before = {id(artifact.root): artifact for artifact in change.before}
    after = {id(artifact.root): artifact for artifact in change.after}
    for key, artifact in after.items():
        was = before.get(key)
        if was is artifact:
            continue
        if was is None:
            added.setdefault(key, artifact.root)
            gone.pop(key, None)
        step = Step(
            change.action or ("recalled" if was is None else "bounded"), change.stage, change.why(was or artifact)
        )
        steps.setdefault(key, []).append(step)
        latest[key] = artifact
    for key, artifact in before.items():
        if key not in after:
            action: Action = "summarised" if change.action == "summarised" else "dropped"
            step = Step(action, change.stage, change.why(artifact))
            steps.setdefault(key, []).append(step)
            gone[key] = step
            latest[key] = artifact


def _decide(
    draft: Draft,
    root: Artifact,
    position: int | None,
    tokens_before: int,
    steps: Mapping[int, list[Step]],
    latest: Mapping[int, Artifact],
    final: Mapping[int, Artifact],
    gone: Mapping[int, Step],
) -> Decision:
    key = id(root)
    own = tuple(steps.get(key, ()))
    last = own[-1] if own else Step("kept", "", "")
    result = final.get(key)
    shown = result if result is not None else latest.get(key, root)
    if result is None and key in gone:
        last = gone[key]
    return Decision(
        action=last.action,
        artifact=_masked(draft, shown) if result is None else shown,
        stage=last.stage,
        reason=last.reason,
        tokens_before=tokens_before,
        tokens_after=0 if result is None else draft.counter.artifact(result),
        position=position,
        steps=own,
    )


def _masked(draft: Draft, artifact: Artifact) -> Artifact:
    """Mask what left the chain before its masking stage saw it; a report must not hold it bare."""
    masked = artifact.edit(lambda _slot, text: draft.mask(text)) if draft.masks else artifact
    return replace(masked, origin=None, source=None) if masked.origin is not None else replace(masked, source=None)


def _lines(report: Report) -> list[str]:
    saved = report.tokens_before - report.tokens_after
    share = f"{100 * saved / report.tokens_before:.0f}%" if report.tokens_before else "0%"
    counted = ", ".join(f"{n} {action}" for action, n in report.counts().items()) or "nothing came in"
    lines = [
        f"{report.tokens_before:,} -> {report.tokens_after:,} tokens of {report.budget:,} ({share} saved); "
        f"counted by {report.counter}, {report.accuracy}",
        f"artifacts: {counted}",
    ]
    if report.cut is not None and report.cut.fresh:
        lines.append(
            f"cut: the prompt changes from position {report.cut.position} on, {report.cut.rebilled:,} tokens re-billed"
        )
    elif report.changed:
        lines.append("prompt prefix: only extended since the previous call")
    for check in report.checks:
        lines.append(f"  {'ok  ' if check.ok else 'FAIL'} {check.name}")
        lines += [f"       {finding}" for finding in check.findings[:20]]
    lines += _decision_lines(report)
    return lines


def _decision_lines(report: Report, most: int = 40) -> list[str]:
    told = [d for d in report.decisions if d.action != "kept"]
    lines = [
        f"  [{'+' if d.position is None else d.position}] {d.artifact.kind.value:<9} {d.action:<10} "
        f"{d.tokens_before:>6,} -> {d.tokens_after:>6,}  {d.stage}: {d.reason}"
        for d in told[:most]
    ]
    return [*lines, f"  … and {len(told) - most} more"] if len(told) > most else lines


def report_html(report: Report) -> str:
    """Return the report as one HTML fragment, every text escaped."""
    rows = "".join(
        f"<tr><td>{'+' if d.position is None else d.position}</td><td>{html.escape(d.artifact.kind.value)}</td>"
        f"<td class='ctxguard-{d.action}'>{d.action}</td><td>{d.tokens_before:,}</td><td>{d.tokens_after:,}</td>"
        f"<td>{html.escape(d.stage)}</td><td>{html.escape(d.reason)}</td></tr>"
        for d in report.decisions
    )
    checks = "".join(
        f"<li>{'✓' if c.ok else '✗'} {html.escape(c.name)}"
        + "".join(f"<br><small>{html.escape(str(f))}</small>" for f in c.findings[:20])
        + "</li>"
        for c in report.checks
    )
    return (
        f"{_STYLE}<div class='ctxguard'><p><b>{report.tokens_before:,} → {report.tokens_after:,}</b> of "
        f"{report.budget:,} tokens · {html.escape(report.counter)} ({html.escape(report.accuracy)})</p>"
        f"{_bar(report)}<ul>{checks}</ul><details open><summary>{len(report.decisions)} decisions</summary>"
        "<table><thead><tr><th>#</th><th>kind</th><th>action</th><th>before</th><th>after</th><th>stage</th>"
        f"<th>reason</th></tr></thead><tbody>{rows}</tbody></table></details></div>"
    )


def _bar(report: Report) -> str:
    widest = max(report.tokens_before, report.budget, 1)
    return "".join(
        f"<div class='ctxguard-bar'><span style='width:{100 * tokens / widest:.1f}%;background:{colour}'></span>"
        f"<em>{label} {tokens:,}</em></div>"
        for label, tokens, colour in (
            ("before", report.tokens_before, "#c9ccd3"),
            ("after", report.tokens_after, "#3b7dd8"),
            ("budget", report.budget, "#e6a23c"),
        )
    )


_STYLE = """<style>
.ctxguard{font:13px/1.45 system-ui,sans-serif;max-width:72em;color:#1f2328;background:#fff;padding:1em}
.ctxguard ul{list-style:none;padding:0;columns:2}
.ctxguard table{border-collapse:collapse;width:100%;font:inherit;color:inherit}
.ctxguard td,.ctxguard th{padding:2px 8px;border-bottom:1px solid #e4e6ea;text-align:left!important;vertical-align:top}
.ctxguard td:nth-child(4),.ctxguard td:nth-child(5){text-align:right!important;font-variant-numeric:tabular-nums}
.ctxguard-dropped{color:#b42318}.ctxguard-masked{color:#9a6700}.ctxguard-bounded{color:#0b6bcb}
.ctxguard-summarised,.ctxguard-recalled{color:#6f42c1}.ctxguard-repaired{color:#0a7d33}
.ctxguard-bar{position:relative;height:18px;background:#f3f4f6;margin:2px 0}
.ctxguard-bar span{position:absolute;inset:0 auto 0 0}.ctxguard-bar em{position:absolute;left:6px;font-style:normal}
</style>"""


def message_kinds() -> tuple[Kind, Kind]:
    """Return the kinds that count as messages: what a person or the model said."""
    return Kind.USER, Kind.ASSISTANT
