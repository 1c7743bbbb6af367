"""Change artifacts one by one, each when it first appears."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_not

from ctxguard.artifacts import Artifact
from ctxguard.draft import Action, Change, Draft, StageResult


class EachFollower:
    """Follow a history with a function that is called once for each artifact, in order.

    Args:
        change: returns the artifact itself or a changed copy. It may depend on earlier artifacts.
        action: the action that the report names for changed artifacts.
        reason: the reason, one for all or by `id()` of the original artifact.

    Attributes:
        only_appends: whether the result for a longer history starts with the result for a shorter one.
        changed: all artifacts so far, in their changed form.
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
        """Take in the artifacts that are new in the draft."""
        # In order and once: the change of an artifact may depend on earlier artifacts, never on later ones.
        new = list(map(self.change, artifacts))
        if self._first_change is None and any(map(is_not, new, artifacts)):
            self._first_change = len(self.changed) + list(map(is_not, new, artifacts)).index(True)
        self.changed += new

    def forget_after(self, count: int) -> None:
        """Forget all but the first `count` artifacts, for followers whose function can continue from there."""
        del self.changed[count:]
        if self._first_change is not None and self._first_change >= count:
            self._first_change = None

    def result(self, draft: Draft) -> StageResult:
        """Return the draft with the changed artifacts."""
        return self.revised(draft)

    def revised(self, draft: Draft) -> Draft:
        """Return the draft with the changed artifacts."""
        if self._first_change is None:
            return draft
        return draft.changed(Change(draft.artifacts, tuple(self.changed), self.action, self.reason))
