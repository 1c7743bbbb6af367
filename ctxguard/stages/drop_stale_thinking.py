"""Leave out thinking that no longer belongs to the prompt it stands in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Part

if TYPE_CHECKING:
    from ctxguard.draft import Change, Draft

__all__ = ["DropStaleThinking"]

_WINDOW: Final = "StableWindow"
_BLANK: Final = Part("reasoning", "", signed=True)
_MENDS: Final = ("RepairExchanges", "OrderByAuthority", "StartWithUser")
"""Stages that decide once, when an artifact is first seen: what they do was done when the thinking was written."""


class DropStaleThinking:
    """Drop the signed thinking that was written under a prompt which has been cut since.

    Anthropic's models of 2026 bind each thinking block to everything before it and refuse it elsewhere ("Invalid
    signature in thinking block. The block is bound to a different conversation"). What was written after the cut was
    bound to the prompt as it is now, and stays; what was masked or bounded was so when it was first sent. A stage that
    drops anything but at a cut leaves no way to tell, so all thinking behind it goes.

    Adapters mark such thinking as `Part.signed` and leave out what is blank here. `stabilize_native`, and with it every
    door, puts this stage behind the chain where a history holds any.
    """

    name = "DropStaleThinking"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft without the thinking of artifacts that were written before what is cut by now."""
        stale = {key for change in draft.changes for key in _stale(draft, change)}
        if not stale:
            return draft
        artifacts = [_without_thinking(a) if id(a.root) in stale else a for a in draft.artifacts]
        return draft.revise(artifacts, action="bounded", reason="its thinking belongs to a prompt from before a cut")


def _stale(draft: Draft, change: Change) -> set[int]:
    """Return the artifacts, by `id()` of their roots, that were written before a change took effect."""
    if change.stage in _MENDS:
        return set()
    if change.stage == _WINDOW and draft.cut is not None:  # all before it: an earlier cut may have come between
        return {id(artifact.root) for artifact in change.before[: draft.cut.at + 1]}
    kept = {id(artifact.root) for artifact in change.after}
    known = {id(artifact.root) for artifact in change.before}
    if not kept ^ known:
        return set()
    first = next((n for n, artifact in enumerate(change.before) if id(artifact.root) not in kept), 0)
    return {id(artifact.root) for artifact in change.before[first:]}


def _without_thinking(artifact: Artifact) -> Artifact:
    if isinstance(artifact.content, str) or not any(part.signed for part in artifact.content):
        return artifact
    return artifact.revised(content=tuple(_BLANK if part.signed else part for part in artifact.content))
