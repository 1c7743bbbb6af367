"""The context stabilizer pattern in one function, as its document describes it."""

from __future__ import annotations

from collections.abc import Iterable

from ctxguard.artifacts import Artifact
from ctxguard.stabilizer import Stabilizer


def stabilize_context(history: Iterable[Artifact], budget: int | None = None) -> list[Artifact]:
    """Return the stabilized context of a history, as the context stabilizer pattern describes it.

    The system prompt and the newest message are always kept; personal data is masked everywhere; tool outputs above 256
    tokens are dropped; the others are added from the oldest on while they fit.

    Args:
        history: the artifacts, oldest first; those without a `token_count` are counted.
        budget: tokens that the result may take; it must be given.

    Raises:
        ConfigError: no budget is given.
        BudgetExceededError: the system prompt and the newest message do not fit.
    """
    return Stabilizer.from_policy("pattern", budget=budget).stabilize(history).artifacts
