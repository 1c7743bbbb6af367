"""Drop signed thinking blocks that no longer match the prompt before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from ctxguard.artifacts import Artifact, Part
from ctxguard.history import AUTHORITY

if TYPE_CHECKING:
    from ctxguard.draft import Change, Draft

_WINDOW: Final = "StableWindow"
_BLANK: Final = Part("reasoning", "", signed=True)
_MENDS: Final = ("RepairExchanges", "OrderByAuthority", "StartWithUser")
"""Stages that decide once, when an artifact arrives: their changes were already made when the thinking was written."""


@dataclass(frozen=True, slots=True)
class DropStaleThinking:
    """Drop the signed thinking that was written under a prompt which has been cut since.

    Anthropic's models of 2026 bind each thinking block to everything before it and refuse it elsewhere ("Invalid
    signature in thinking block. The block is bound to a different conversation"). Thinking that was written after the
    cut is bound to the current prompt, and stays; texts that were masked or bounded already were so when first sent. If
    a stage drops artifacts at any other time, what thinking was bound to is unknown, so all thinking after them is
    dropped.
    Thinking written before the provider refused a prompt as too long (`Stabilizer.tighten`) is dropped as well.

    Adapters mark such thinking as `Part.signed` and leave out parts that are blank here. `stabilize_native`, and with
    it every entry point of the adapters, appends this stage to the chain if a history contains signed thinking.

    Attributes:
        everything: Drop all of it, because what it was bound to is unknown.
    """

    everything: bool = False
    name: ClassVar[str] = "DropStaleThinking"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft without the thinking of artifacts that were written before the latest cut."""
        if not any(_is_signed(artifact) for artifact in draft.artifacts):
            return draft
        stale = {key for change in draft.changes for key in _stale(draft, change)}
        stale |= _before_late_authority(draft) | _before_overflow(draft)
        if self.everything:
            stale = {id(artifact.root) for artifact in draft.artifacts}
        artifacts = [_without_thinking(a) if id(a.root) in stale else a for a in draft.artifacts]
        return draft.revise(artifacts, action="bounded", reason="its thinking belongs to a prompt from before a cut")


def _stale(draft: Draft, change: Change) -> set[int]:
    """Return the artifacts, by `id()` of their roots, that were written before a change took effect."""
    if change.stage in _MENDS:
        return set()
    if change.stage == _WINDOW and draft.changed_at is not None:  # an earlier cut may have come between
        return {id(artifact.root) for artifact in draft.history[: draft.changed_at + 1]}
    kept = {id(artifact.root) for artifact in change.after}
    known = {id(artifact.root) for artifact in change.before}
    if not kept ^ known:
        return set()
    # Everything after the first dropped artifact was written under another prompt.
    first = next((n for n, artifact in enumerate(change.before) if id(artifact.root) not in kept), 0)
    return {id(artifact.root) for artifact in change.before[first:]}


def _before_late_authority(draft: Draft) -> set[int]:
    """Return the artifacts before a late system or task artifact, which was moved to the front of the prompt."""
    late = (p for p in range(len(draft.history) - 1, 0, -1) if draft.history[p].kind in AUTHORITY)
    end = next((p for p in late if draft.history[p - 1].kind not in AUTHORITY), 0)
    return {id(artifact.root) for artifact in draft.history[:end]}


def _before_overflow(draft: Draft) -> set[int]:
    """Return the artifacts from before the provider refused a prompt, after which all prompts became shorter."""
    overflow = draft.settings.overflow
    return set() if overflow is None else {id(artifact.root) for artifact in draft.history[: overflow.at]}


def _is_signed(artifact: Artifact) -> bool:
    return type(artifact.content) is tuple and any(part.signed for part in artifact.content)


def _without_thinking(artifact: Artifact) -> Artifact:
    if isinstance(artifact.content, str) or not _is_signed(artifact):
        return artifact
    return artifact.revised(content=tuple(_BLANK if part.signed else part for part in artifact.content))
