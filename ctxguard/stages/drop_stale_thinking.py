"""Drop signed thinking if the prompt before it has changed after it was signed, because the provider refuses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from ctxguard.artifacts import Artifact, Kind, Part

if TYPE_CHECKING:
    from ctxguard.draft import Change, Draft

_CUT: Final = "its thinking belongs to a prompt from before a cut"
_BLANK: Final = Part("reasoning", "", signed=True)
_AT_ARRIVAL: Final = ("fault", "order")
"""Causes for which an artifact is changed only when it arrives. When later thinking was signed, the prompt already had
these changes."""


@dataclass(frozen=True, slots=True)
class DropStaleThinking:
    """Drops signed thinking that was written before the latest cut.

    Anthropic's models of 2026 sign each thinking block together with everything before it, and refuse the block in
    another prompt ("Invalid signature in thinking block. The block is bound to a different conversation"). Thinking
    that was written after the latest cut was signed with the current prompt, so it stays. Texts that were masked or
    shortened when they first appeared were sent so from the beginning and do not matter. If another stage drops or adds
    artifacts, it is unknown since which call, so all thinking that may be affected is dropped. Thinking from before the
    provider refused a prompt as too long (`Stabilizer.tighten`) is dropped as well.

    Adapters mark signed thinking by `Part.signed`. This stage replaces it with blank parts, which the adapters leave
    out. All entry points of the adapters append this stage to the chain if a history contains signed thinking.

    Attributes:
        everything: Whether to drop all signed thinking, because it is unknown with which prompt it was signed.
    """

    everything: bool = False
    name: ClassVar[str] = "DropStaleThinking"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with stale thinking dropped; the draft itself if there is none."""
        if not any(_is_signed(artifact) for artifact in draft.artifacts):
            return draft
        reasons = {key: _reason(change) for change in draft.changes for key in _stale(draft, change)}
        stale = reasons.keys() | _before_late_task(draft) | _before_overflow(draft)
        if self.everything:
            stale = {id(artifact.root) for artifact in draft.artifacts}
        artifacts = [_without_thinking(a) if id(a.root) in stale else a for a in draft.artifacts]
        named = {id(a): reasons[id(a.root)] for a in draft.artifacts if id(a.root) in reasons}
        return draft.revise(artifacts, action="bounded", reason=named, otherwise=_CUT)


def _reason(change: Change) -> str:
    """Return why thinking is dropped because of a change, which names the stage that changed the prompt."""
    return _CUT if change.cause == "cut" else f"its thinking was signed for a prompt that {change.stage} changed"


def _stale(draft: Draft, change: Change) -> set[int]:
    """Return the `id()` of the root of each artifact whose thinking is stale because a stage made this change."""
    if change.cause in _AT_ARRIVAL:
        return set()
    if change.cause == "cut" and draft.cut_at is not None:  # the exact position of the latest cut is known
        return {id(artifact.root) for artifact in draft.history[: draft.cut_at + 1]}
    kept = {id(artifact.root) for artifact in change.after}
    known = {id(artifact.root) for artifact in change.before}
    if not kept ^ known:
        return set()
    # Thinking after the first dropped artifact was signed with a prompt that contained it.
    first = next((n for n, artifact in enumerate(change.before) if id(artifact.root) not in kept), 0)
    return {id(artifact.root) for artifact in change.before[first:]}


def _before_late_task(draft: Draft) -> set[int]:
    """Return the `id()` of the root of each artifact before the last task artifact that arrived late.

    Late means after another kind of artifact. A late task is moved to the front of the prompt, which changes the prompt
    before all thinking.
    """
    late = (p for p in range(len(draft.history) - 1, 0, -1) if draft.history[p].kind is Kind.TASK)
    end = next((p for p in late if draft.history[p - 1].kind not in (Kind.SYSTEM, Kind.TASK)), 0)
    return {id(artifact.root) for artifact in draft.history[:end]}


def _before_overflow(draft: Draft) -> set[int]:
    """Return the `id()` of the root of each artifact from before the provider refused a prompt as too long.

    Their thinking is stale, because all later prompts are shorter than those with which it was signed.
    """
    overflow = draft.settings.overflow
    return set() if overflow is None else {id(artifact.root) for artifact in draft.history[: overflow.at]}


def _is_signed(artifact: Artifact) -> bool:
    return type(artifact.content) is tuple and any(part.signed for part in artifact.content)


def _without_thinking(artifact: Artifact) -> Artifact:
    if isinstance(artifact.content, str) or not _is_signed(artifact):
        return artifact
    return artifact.revised(content=tuple(_BLANK if part.signed else part for part in artifact.content))
