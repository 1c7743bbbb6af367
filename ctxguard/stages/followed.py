"""Stages that a session follows from call to call, and that can also be called for a single draft."""

from __future__ import annotations

from ctxguard.draft import Draft, IncrementalStage, StageResult, follow


class FollowedStage(IncrementalStage):
    """Call a stage that declares `begin` like any other stage."""

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the new draft, or a generator that returns it."""
        return follow(self, draft)
