"""Note cuts, also where several stages of a chain make some."""

from __future__ import annotations

from dataclasses import replace

from ctxguard.draft import Cut, Draft
from ctxguard.history import AUTHORITY

__all__ = ["moved_cut", "with_cut"]


def with_cut(before: Draft, after: Draft, own: Cut | None) -> Draft:
    """Return the draft with the cut of a stage noted beside that of the stages before it.

    Where one of those was made in this very call, the stage was given another history than in the call before, and may
    have chosen otherwise anywhere: only what has authority stands where it stood.

    Args:
        before: what the stage was given.
        after: what it makes of it.
        own: the cut it knows of, if it made one.
    """
    earlier = before.cut
    if earlier is None or not earlier.fresh:
        return after if own is None else replace(after, cut=own)
    rest = [artifact for artifact in after.artifacts if artifact.kind not in AUTHORITY]
    position = len(after.artifacts) - len(rest)
    return replace(after, cut=replace(earlier, position=position, rebilled=after.counter.artifacts(rest)))


def moved_cut(draft: Draft, position: int) -> Draft:
    """Return the draft with its last cut at another position: what stands before it has become less."""
    if draft.cut is None:
        return draft
    rebilled = draft.counter.artifacts(draft.artifacts[position:])
    return replace(draft, cut=replace(draft.cut, position=position, rebilled=rebilled))
