"""The budget holds."""

from __future__ import annotations

from collections.abc import Iterator

from ctxguard.draft import Draft
from ctxguard.report import Finding


class WithinBudget:
    """Hold if everything that is sent fits the budget, by the counter in use.

    Every provider refuses or silently cuts a prompt that exceeds the model's window.
    """

    name = "WithinBudget"

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield everything that is wrong."""
        tokens = draft.tokens
        if tokens > draft.budget:
            yield Finding(f"{tokens} tokens exceed the budget of {draft.budget}", "artifacts")
