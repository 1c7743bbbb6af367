"""The check that the system prompt and the task come first."""

from __future__ import annotations

from collections.abc import Iterator

from ctxguard.artifacts import Kind
from ctxguard.draft import Draft
from ctxguard.history import AUTHORITY
from ctxguard.report import Finding


class AuthorityFirst:
    """Holds if the system prompt comes first, then task artifacts, then all others.

    Models give more weight to the beginning. A system message that arrived after the conversation had begun keeps its
    place; a provider that refuses the role there gets it as user text, which its format writes.
    """

    name = "AuthorityFirst"

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield a finding for each violation."""
        begun = next((p for p, a in enumerate(draft.artifacts) if a.kind not in AUTHORITY), len(draft.artifacts))
        prompt = _system_prompt(draft)
        had_task = False
        for position, artifact in enumerate(draft.artifacts):
            if artifact.kind is Kind.TASK:
                had_task = True
                is_late = position > begun
            else:
                is_late = id(artifact.root) in prompt and (position > begun or had_task)
            if is_late:
                yield Finding(
                    f"a {artifact.kind} artifact follows a message of lower authority", f"artifacts[{position}]"
                )


def _system_prompt(draft: Draft) -> set[int]:
    """Return the `id()` of the root of each system artifact before the first message of the history."""
    found: set[int] = set()
    for artifact in draft.history:
        if artifact.kind not in AUTHORITY:
            break
        if artifact.kind is Kind.SYSTEM:
            found.add(id(artifact.root))
    return found
