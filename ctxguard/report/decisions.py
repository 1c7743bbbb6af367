"""The decisions of a report: what became of each artifact, traced through all changes of a draft.

A draft (`ctxguard.draft.Draft`) is the context while stages work on it; it records every change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple

from ctxguard.artifacts import Artifact
from ctxguard.draft import Action, Change, Draft
from ctxguard.pii.rule_sets import is_found_in

if TYPE_CHECKING:
    from ctxguard.pii import Span


@dataclass(frozen=True, slots=True)
class Step:
    """One action on an artifact.

    Attributes:
        action: What was done, such as `masked` or `dropped`.
        stage: Stage that took the action.
        reason: Reason for the action.
    """

    action: Action
    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for one artifact.

    Attributes:
        action: Final action, such as `kept` or `dropped`.
        artifact: The artifact after all changes, masked if masking is part of the chain.
        stage: Stage that took the final action; empty for an unchanged artifact.
        reason: Reason for the final action.
        tokens_before: Number of tokens in the original; 0 for an artifact that a stage added.
        tokens_after: Number of tokens in the result; 0 for a dropped artifact.
        position: Position in the history; None for an artifact that a stage added.
        steps: All actions on the artifact, in order.
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
        """Return the decision as JSON values, without the text of the artifact."""
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


def decisions_of(draft: Draft) -> list[Decision]:
    """Return one decision for each artifact in the history, in order, followed by the artifacts that stages added."""
    tracing = _traced(draft)
    return [tracing.decision(*given) for given in tracing.given()]


def saved_by(draft: Draft) -> Counter[str]:
    """Return how many tokens each action saved, and as `new messages` the negative number that were added.

    It needs no masked artifacts, so it is much cheaper than the decisions.
    """
    tracing = _traced(draft)
    saved = Counter[str]()
    for root, position, tokens in tracing.given():
        outcome = tracing.outcome(root, position)
        if tokens != outcome.tokens:
            saved["new messages" if position is None else outcome.last.action] += tokens - outcome.tokens
    return saved


def _traced(draft: Draft) -> _Tracing:
    tracing = _Tracing(draft, {id(artifact.root): artifact for artifact in draft.artifacts})
    for change in draft.changes:
        tracing.take(change)
    return tracing


class _Outcome(NamedTuple):
    """The last action on an artifact, all actions, the artifact in the result, or None, and its number of tokens."""

    last: Step
    steps: tuple[Step, ...]
    result: Artifact | None
    tokens: int


@dataclass(frozen=True, slots=True)
class _Tracing:
    """Traces artifacts through the changes of a draft. Mappings are keyed by the `id()` of the original artifact.

    Attributes:
        draft: Finished draft.
        final: Artifacts in the result.
        steps: Actions on each artifact.
        latest: Each artifact after its latest change.
        added: Artifacts that stages added.
        gone: Step that dropped each dropped artifact.
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

    def given(self) -> Iterator[tuple[Artifact, int | None, int]]:
        """Yield the history, and what was added: each artifact with its position and its number of tokens before."""
        count = self.draft.counter.artifact
        yield from ((each.root, position, count(each)) for position, each in enumerate(self.draft.history))
        yield from ((each, None, 0) for each in self.added.values())

    def outcome(self, root: Artifact, position: int | None) -> _Outcome:
        key, draft = id(root), self.draft
        steps = tuple(self.steps.get(key, ()))
        result = self.final.get(key)
        last = steps[-1] if steps else Step("kept", "", "")
        if result is None:
            last = self.gone.get(key, last)
        elif last.action == "repaired" and position is not None and result is draft.history[position]:
            # The message was split and joined again, so it is the same object as in the history.
            last, steps = Step("kept", "", ""), ()
        return _Outcome(last, steps, result, 0 if result is None else draft.counter.artifact(result))

    def decision(self, root: Artifact, position: int | None, tokens_before: int) -> Decision:
        draft = self.draft
        last, steps, result, tokens = self.outcome(root, position)
        latest = self.latest.get(id(root), root)
        return Decision(
            action=last.action,
            artifact=masked_artifact(draft, latest) if result is None else _mask_ids(draft, result),
            stage=last.stage,
            reason=last.reason,
            tokens_before=tokens_before,
            tokens_after=tokens,
            position=position,
            steps=steps,
        )


def masked_artifact(draft: Draft, artifact: Artifact) -> Artifact:
    """Mask an artifact that was dropped before a masking stage ran, because a report must not contain personal data."""
    masked = artifact.edit_together(partial(_mask_all, draft), draft.mask) if draft.masking.masks else artifact
    masked = _mask_ids(draft, masked)
    return replace(masked, origin=None, source=None) if masked.origin is not None else replace(masked, source=None)


def _mask_all(draft: Draft, texts: Sequence[str]) -> list[str]:
    from ctxguard.pii.mask.session import mask_together

    def find(text: str) -> Sequence[Span]:
        return [span for detector in draft.masking.detectors for span in detector.find(text)]

    return mask_together(texts, find, draft.mask, lambda label, _: f"[REDACTED_{label}]")


def _mask_ids(draft: Draft, artifact: Artifact) -> Artifact:
    """Mask names, ids, and extra fields in which a rule matches. Only reports do this; requests keep them."""

    def shown(text: str) -> str:
        return draft.mask(text) if is_found_in(text, draft.masking.detectors) else text

    def optional(text: str | None) -> str | None:
        return None if text is None else shown(text)

    own = (artifact.id, artifact.name, artifact.role, artifact.answers)
    inner = (*((call.name, call.id) for call in artifact.calls), *((one.place, one.text) for one in artifact.fields))
    # fast path: this runs for each artifact of each report, and a match is very rare
    rules = draft.masking.detectors
    if not draft.masking.masks or not any(text and is_found_in(text, rules) for text in chain(own, *inner)):
        return artifact
    named = replace(
        artifact,
        id=optional(artifact.id),
        name=optional(artifact.name),
        role=optional(artifact.role),
        answers=optional(artifact.answers),
        calls=tuple(replace(call, name=shown(call.name), id=optional(call.id)) for call in artifact.calls),
        fields=tuple(replace(one, place=shown(one.place), text=shown(one.text)) for one in artifact.fields),
    )
    return artifact if named == artifact else named


@dataclass(frozen=True, slots=True)
class DecisionRun:
    """Consecutive decisions with the same action, stage, and reason.

    If the native role of the artifacts corresponds to no kind, it is also the same.

    Attributes:
        decisions: One or more decisions, in the order of the history.
    """

    decisions: tuple[Decision, ...]

    @property
    def place(self) -> str:
        """Positions of the artifacts in the history, such as `7` or `7-12`; `+` for added artifacts."""
        first, last = self.decisions[0].position, self.decisions[-1].position
        if first is None:
            return "+"
        return str(first) if first == last else f"{first}-{last}"

    @property
    def kinds(self) -> str:
        """Kinds of the artifacts, each with its count if it is greater than one."""
        found = Counter(decision.artifact.kind.value for decision in self.decisions)
        kinds = ", ".join(kind if times == 1 else f"{times} {kind}" for kind, times in found.items())
        return kinds if self.role is None else f"{kinds} (role {self.role!r:.40})"

    @property
    def role(self) -> str | None:
        """Native role of the artifacts if it corresponds to no kind; otherwise None."""
        return self.decisions[0].artifact.role

    @property
    def tokens_before(self) -> int:
        """Number of tokens in the originals."""
        return sum(decision.tokens_before for decision in self.decisions)

    @property
    def tokens_after(self) -> int:
        """Number of tokens in the result."""
        return sum(decision.tokens_after for decision in self.decisions)


def decision_runs(decisions: Iterable[Decision]) -> list[DecisionRun]:
    """Group consecutive decisions for people to read. `DecisionRun` says which decisions form a group."""
    alike = groupby(decisions, key=lambda d: (d.action, d.stage, d.reason, d.artifact.role, d.position is None))
    return [DecisionRun(tuple(members)) for _, members in alike]
