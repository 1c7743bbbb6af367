"""Process histories for stages that change artifacts one by one, each when it first appears in the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_not

from ctxguard.artifacts import Artifact
from ctxguard.draft import Action, Change, Draft, StageResult


class EachFollower:
    """Calls a function once for each artifact of a growing history, in order, and keeps the results (see `Follower`).

    Args:
        change: Function that returns the artifact itself or a changed copy. The result may depend on earlier artifacts.
        action: What was done to changed artifacts, for the report.
        reason: Why artifacts were changed, for the report: one string for all, or a mapping by `id()` of the original
            artifact.

    Attributes:
        only_appends: Whether the result for a longer history always begins with the result for the shorter one.
        changed: The result for each artifact so far.
    """

    only_appends = True

    def __init__(
        self, change: Callable[[Artifact], Artifact], *, action: Action, reason: str | Mapping[int, str]
    ) -> None:
        self.change = change
        self.action: Action = action
        self.reason = reason
        self.changed: list[Artifact] = []
        self._first_change: int | None = None

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:  # noqa: ARG002 - as every follower
        """Change the artifacts that are new in the draft."""
        # Each is changed once, in order: a change may depend on earlier artifacts, but never on later ones.
        new = list(map(self.change, artifacts))
        if self._first_change is None and any(map(is_not, new, artifacts)):
            self._first_change = len(self.changed) + list(map(is_not, new, artifacts)).index(True)
        self.changed += new

    def forget_after(self, count: int) -> None:
        """Forget all but the first `count` results. Only valid if new results do not depend on those forgotten."""
        del self.changed[count:]
        if self._first_change is not None and self._first_change >= count:
            self._first_change = None

    def result(self, draft: Draft) -> StageResult:
        """Return the draft with the changed artifacts. A subclass may override this method and call `revise` in it."""
        return self.revise(draft)

    def revise(self, draft: Draft) -> Draft:
        """Return the draft with the changed artifacts; the draft itself if none was changed."""
        if self._first_change is None:
            return draft
        return draft.changed(Change(draft.artifacts, tuple(self.changed), self.action, self.reason))
