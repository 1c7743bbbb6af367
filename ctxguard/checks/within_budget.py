"""The check that the result fits the budget."""

from __future__ import annotations

from collections.abc import Iterator

from ctxguard.draft import Draft
from ctxguard.report import Finding


class WithinBudget:
    """Holds if the number of tokens in the whole request, by the counter in use, is within the budget.

    Every provider rejects or silently truncates a prompt that exceeds the model's window.
    """

    name = "WithinBudget"

    def __call__(self, draft: Draft, /) -> Iterator[Finding]:
        """Yield a finding for each violation."""
        tokens = draft.tokens
        if tokens > draft.budget:
            yield Finding(f"{tokens} tokens exceed the budget of {draft.budget}", "artifacts")
