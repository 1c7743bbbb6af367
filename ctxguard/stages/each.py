"""Change artifacts one by one, each when it first appears in the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ctxguard.artifacts import Artifact
from ctxguard.draft import Action, Change, Draft


class ChangedOnce:
    """Calls a function once for each artifact of a growing history, in order, and remembers the results.

    Args:
        change: Function that returns the artifact itself or a changed copy. The result may depend on earlier artifacts,
            but never on later ones.
        action: What was done to changed artifacts, for the report.
        reason: Why artifacts were changed, for the report: one string for all, or a mapping by `id()` of the original
            artifact.
    """

    def __init__(
        self, change: Callable[[Artifact], Artifact], *, action: Action, reason: str | Mapping[int, str]
    ) -> None:
        self._change = change
        self._action: Action = action
        self._reason = reason
        self._results: list[Artifact] = []
        self._is_changed = False

    def revised(self, draft: Draft) -> Draft:
        """Return the draft with the changed artifacts; the draft itself if none was changed."""
        memory = draft.memory
        for artifact in memory.new(draft.artifacts):
            result = self._change(artifact)
            memory.append(self._results, result)
            if result is not artifact and not self._is_changed:
                memory.set(self, "_is_changed", value=True)
        if not self._is_changed:
            return draft
        return draft.changed(Change(draft.artifacts, tuple(self._results), self._action, self._reason))
