"""The context stabilizer pattern as one function, as its requirements document describes it."""

from __future__ import annotations

from collections.abc import Iterable

from ctxguard.artifacts import Artifact
from ctxguard.stabilizer import Stabilizer


def stabilize_context(history: Iterable[Artifact], budget: int | None = None) -> list[Artifact]:
    """Return the stabilized context of a history, following the context stabilizer pattern.

    The system prompt and the newest message are always kept. Personal data is masked everywhere. Tool outputs of more
    than 256 tokens are dropped. The other messages are added, from oldest to newest, as long as they fit.

    Args:
        history: The artifacts, oldest first. Tokens are counted for artifacts without a `token_count`.
        budget: Number of tokens that the result may take. It is required.

    Raises:
        ConfigError: If no budget is given.
        BudgetExceededError: If the system prompt and the newest message do not fit.
    """
    return Stabilizer.from_policy("pattern", budget=budget).stabilize(history).artifacts
