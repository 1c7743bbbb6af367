"""A stage that a session follows from call to call, and that can be called for one draft alone as well."""

from __future__ import annotations

from ctxguard.draft import Draft, IncrementalStage, StageResult, follow


class FollowedStage(IncrementalStage):
    """Call a stage that declares `begin` as any other stage is called."""

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the new draft, or a generator that returns it."""
        return follow(self, draft)
