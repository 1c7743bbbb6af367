"""The report as data: one decision for each artifact, every check, every number."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import is_not
from typing import Final

from ctxguard.artifacts import Artifact
from ctxguard.draft import Action, Change, Cut, Draft


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
    """Hold what one check found; nothing means that it holds.

    Attributes:
        name: the check.
        findings: what is wrong.
        claim: what is claimed where it holds, no more than was looked for; empty where the name says it all.
    """

    name: str
    findings: tuple[Finding, ...] = ()
    claim: str = ""

    @property
    def ok(self) -> bool:
        """Whether the check holds."""
        return not self.findings


@dataclass(frozen=True, slots=True)
class Step:
    """Hold one thing that happened to an artifact on its way.

    Attributes:
        action: what was done, such as `masked` or `dropped`.
        stage: the stage that did it.
        reason: why.
    """

    action: Action
    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Describe what became of one artifact.

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
            "role": self.artifact.role,
            "action": self.action,
            "stage": self.stage,
            "reason": self.reason,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "steps": list(map(asdict, self.steps)),
        }


class ReportData:
    """Tell what a stabilizer did to one history. Decisions are worked out when they are first asked for.

    Attributes:
        tokens_before: tokens of the history with everything sent beside it.
        tokens_after: tokens of the result with everything sent beside it.
        budget: tokens there were.
        counter: name of the counter.
        accuracy: how exact the counter is, in words.
        checks: what each check found.
        cut: where the prompt stopped extending the one before, or that an earlier cut still holds; None where neither.
        details: what stages tell beside their decisions, by the name of the stage.
        session: the name of the conversation, where the guard of a framework knows one: LangChain's session or thread
            id, PydanticAI's conversation id, the session header on the wire.
        tool: the name of the tool whose output was bounded as it returned, where the report is on that and not on a
            model call.
    """

    def __init__(self, draft: Draft, *, cut: Cut | None, tokens_after: int, checks: tuple[CheckResult, ...]) -> None:
        self._draft = draft
        self.tokens_after = tokens_after
        self.checks = checks
        self.budget: int = draft.budget
        self.counter: str = draft.counter.counter.name
        self.accuracy: str = draft.counter.counter.accuracy
        self.cut = cut
        self.details: Mapping[str, object] = draft.details
        self.session: str | None = None
        self.tool: str | None = None

    @property
    def observed(self) -> bool:
        """Whether the original was sent, and this is what would have been done (`mode="observe"`)."""
        return self.details.get("mode") == "observe"

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
        return self.first_changed is not None

    @property
    def masks(self) -> tuple[Callable[[str], str], ...]:
        """What masks texts as each masking stage did: a method of its `MaskSession` where it gives placeholders."""
        return self._draft.masks

    @cached_property
    def first_changed(self) -> int | None:
        """Position of the first artifact of the result that is not the one of the history; None if all are."""
        if not self._draft.changes:
            return None
        history, result = self._draft.history, self._draft.artifacts
        for position, (was, now) in enumerate(zip(history, result, strict=False)):
            if was is not now:
                return position
        return None if len(history) == len(result) else min(len(history), len(result))

    @cached_property
    def unread(self) -> int:
        """Parts of the result that are opaque to the adapter, of unknown kind or sealed: nothing in them is masked."""
        contents = (artifact.content for artifact in self._draft.artifacts)
        return sum(part.kind == "opaque" for parts in contents if not isinstance(parts, str) for part in parts)

    @property
    def cut_told(self) -> str:
        """What `str` and HTML say of the cut; empty where nothing was changed."""
        if self.cut is not None and self.cut.fresh:
            return (
                f"cut: the prompt changes from position {self.cut.position} on, {self.cut.rebilled:,} tokens re-billed"
            )
        if not self.changed:
            return ""
        return "no new cut" + ("" if self.cut is None else "; the context still starts where the last cut put it")

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What costs more or loses more than it should, each with its remedy."""
        return tuple(filter(None, (_cuts_in_a_row(self.details), _bounded_people(self.details))))

    @property
    def unread_told(self) -> str:
        """What `str` and HTML say of the parts that were not read."""
        return f"unread: parts that the adapter does not know, or that are sealed, passed on unmasked: {self.unread}"

    @cached_property
    def decisions(self) -> list[Decision]:
        """One decision an artifact of the history, in its order, then those that stages added."""
        return _decisions(self._draft)

    def counts(self) -> dict[str, int]:
        """Return how many artifacts met each action."""
        return dict(Counter(decision.action for decision in self.decisions))

    def brief(self) -> dict[str, int]:
        """Return the figures that cost little even for a long history: no decision is worked out for them.

        `masked` counts the artifacts in which something was masked, `dropped` those of the history that are not sent,
        and `cut` is 1 if this call made a cut.
        """
        masked = (change for change in self._draft.changes if change.action == "masked")
        own = set(map(id, self._draft.history))
        return {
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "masked": sum(sum(map(is_not, change.before, change.after)) for change in masked),
            "dropped": len(own) - sum(id(artifact.root) in own for artifact in self._draft.artifacts),
            "cut": int(self.cut is not None and self.cut.fresh),
        }

    def tokens_by_kind(self) -> dict[str, tuple[int, int]]:
        """Return the tokens of each kind of artifact before and after."""
        count, tokens = self._draft.counter.artifact, dict[str, tuple[int, int]]()
        for place, artifacts in enumerate((self._draft.history, self._draft.artifacts)):
            for artifact in artifacts:
                before, after = tokens.get(artifact.kind.value, (0, 0))
                cost = count(artifact)
                tokens[artifact.kind.value] = (before, after + cost) if place else (before + cost, after)
        return tokens

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values. It holds no text of any artifact."""
        return {
            **({} if self.session is None else {"session": self.session}),
            **({} if self.tool is None else {"tool": self.tool}),
            "ok": self.ok,
            "budget": self.budget,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "counter": self.counter,
            "accuracy": self.accuracy,
            "first_changed": self.first_changed,
            "unread": self.unread,
            "cut": None if self.cut is None else asdict(self.cut),
            "warnings": list(self.warnings),
            "actions": self.counts(),
            "checks": [
                {
                    "name": c.name,
                    "ok": c.ok,
                    **({"claim": c.claim} if c.claim else {}),
                    "findings": list(map(asdict, c.findings)),
                }
                for c in self.checks
            ],
            "decisions": [decision.to_dict() for decision in self.decisions],
            "details": dict(self.details),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as a JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent, default=str)

    def original(self, position: int, *, masked: bool = True) -> Artifact:
        """Return an artifact of the history as it came in.

        Args:
            position: place in the history.
            masked: hide what the masking stages of the chain hide.
        """
        artifact = self._draft.history[position]
        return _masked(self._draft, artifact) if masked else artifact


def _decisions(draft: Draft) -> list[Decision]:
    tracing = _Tracing(draft, {id(artifact.root): artifact for artifact in draft.artifacts})
    for change in draft.changes:
        tracing.take(change)
    came_in = (
        tracing.decision(artifact.root, position, draft.counter.artifact(artifact))
        for position, artifact in enumerate(draft.history)
    )
    return [*came_in, *(tracing.decision(artifact, None, 0) for artifact in tracing.added.values())]


@dataclass(frozen=True, slots=True)
class _Tracing:
    """Follow artifacts through the changes of a draft, each by the `id()` of what it was read as.

    Attributes:
        draft: the finished draft.
        final: what is in the result.
        steps: what happened to each.
        latest: what each last was.
        added: what stages added.
        gone: the step by which each left.
    """

    draft: Draft
    final: Mapping[int, Artifact]
    steps: dict[int, list[Step]] = field(default_factory=dict)
    latest: dict[int, Artifact] = field(default_factory=dict)
    added: dict[int, Artifact] = field(default_factory=dict)
    gone: dict[int, Step] = field(default_factory=dict)

    def take(self, change: Change) -> None:
        before = {id(artifact.root): artifact for artifact in change.before}
        after = {id(artifact.root): artifact for artifact in change.after}
        for key, artifact in after.items():
            was = before.get(key)
            if was is artifact:
                continue
            if was is None:
                self.added.setdefault(key, artifact.root)
                self.gone.pop(key, None)
            done = (
                change.actions.get(id(was or artifact)) or change.action or ("recalled" if was is None else "bounded")
            )
            self._note(key, artifact, Step(done, change.stage, change.why(was or artifact)))
        for key, artifact in before.items():
            if key not in after:
                action: Action = "summarised" if change.action == "summarised" else "dropped"
                self.gone[key] = self._note(key, artifact, Step(action, change.stage, change.why(artifact)))

    def _note(self, key: int, artifact: Artifact, step: Step) -> Step:
        self.steps.setdefault(key, []).append(step)
        self.latest[key] = artifact
        return step

    def decision(self, root: Artifact, position: int | None, tokens_before: int) -> Decision:
        key, draft = id(root), self.draft
        steps = tuple(self.steps.get(key, ()))
        result = self.final.get(key)
        last = steps[-1] if steps else Step("kept", "", "")
        if result is None:
            last = self.gone.get(key, last)
        elif last.action == "repaired" and position is not None and result is draft.history[position]:
            # It was taken apart and joined again: it is the very message that came in.
            last, steps = Step("kept", "", ""), ()
        return Decision(
            action=last.action,
            artifact=_masked(draft, self.latest.get(key, root)) if result is None else result,
            stage=last.stage,
            reason=last.reason,
            tokens_before=tokens_before,
            tokens_after=0 if result is None else draft.counter.artifact(result),
            position=position,
            steps=steps,
        )


def _masked(draft: Draft, artifact: Artifact) -> Artifact:
    """Mask what left the chain before its masking stage saw it; a report must not hold it bare."""
    masked = artifact.edit(lambda _slot, text: draft.mask(text)) if draft.masks else artifact
    return replace(masked, origin=None, source=None) if masked.origin is not None else replace(masked, source=None)


_IN_A_ROW: Final = 3
"""Calls cut, of the latest four, from which on the report warns."""


def _cuts_in_a_row(details: Mapping[str, object]) -> str:
    latest = details.get("latest_cuts")
    if not isinstance(latest, Mapping) or latest["cut"] < _IN_A_ROW:
        return ""
    return (
        f"{latest['cut']} of the latest {latest['calls']} calls were cut, so prompt caches serve little; raise the "
        "budget, or bound tool outputs to a smaller share (output_share)"
    )


def _bounded_people(details: Mapping[str, object]) -> str:
    """Warn that what a person said is sent only in part."""
    bounded = details.get("bounded_messages")
    if not isinstance(bounded, Sequence) or not bounded:
        return ""
    each = ", ".join(
        f"message {b['position']}: {b['tokens_after']:,} of {b['tokens_before']:,} tokens" for b in bounded
    )
    return f"what a person said is sent in part, since it did not fit (on_overflow='bound'): {each}"


@dataclass(frozen=True, slots=True)
class DecisionRun:
    """Hold decisions that follow one another and are alike: same action, stage and reason, and the same unknown role.

    Attributes:
        decisions: one or more, in the order of the history.
    """

    decisions: tuple[Decision, ...]

    @property
    def place(self) -> str:
        """Where they stand in the history, as `7` or `7-12`; `+` for what a stage added."""
        first, last = self.decisions[0].position, self.decisions[-1].position
        if first is None:
            return "+"
        return str(first) if first == last else f"{first}-{last}"

    @property
    def kinds(self) -> str:
        """Their kinds, each once with how often it stands there."""
        found = Counter(decision.artifact.kind.value for decision in self.decisions)
        kinds = ", ".join(kind if times == 1 else f"{times} {kind}" for kind, times in found.items())
        return kinds if self.role is None else f"{kinds} (role {self.role!r:.40})"

    @property
    def role(self) -> str | None:
        """Their native role, where no kind stands for it."""
        return self.decisions[0].artifact.role

    @property
    def tokens_before(self) -> int:
        """Tokens they had when they came in."""
        return sum(decision.tokens_before for decision in self.decisions)

    @property
    def tokens_after(self) -> int:
        """Tokens they take in the result."""
        return sum(decision.tokens_after for decision in self.decisions)


def decision_runs(decisions: Iterable[Decision]) -> list[DecisionRun]:
    """Return decisions with those that are alike and neighbors taken together, for a person to read."""
    alike = groupby(decisions, key=lambda d: (d.action, d.stage, d.reason, d.artifact.role, d.position is None))
    return [DecisionRun(tuple(members)) for _, members in alike]
