"""The one path on which every adapter stabilizes a native history."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TypeVar

from ctxguard.adapting.protocol import Adapter, chain_for
from ctxguard.artifacts import Artifact
from ctxguard.errors import ConfigError
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer

__all__ = ["astabilize_native", "require_stabilizer", "stabilize_native", "with_adapter_stages"]

Native = TypeVar("Native")


def stabilize_native(
    stabilizer: Stabilizer,
    adapter: Adapter[Native],
    native: Native,
    *,
    tools: Sequence[Mapping[str, object]] | None = None,
    instructions: str | None = None,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[Native, Report]:
    """Return the stabilized native history and the report. The history is not changed.

    Args:
        stabilizer: Does the work.
        adapter: The adapter of the history's format.
        native: The history.
        tools: The tool schemas that are sent along, to be counted.
        instructions: A system prompt that is sent beside the history, to be counted.
        window: The model's context window in tokens, where the budget is a share of it.
        keep_thinking: Keep signed thinking from before a cut, see `DropStaleThinking`.

    Raises:
        HistoryError: A message cannot be read.
        BudgetExceededError: What must stay does not fit.
    """
    chain, artifacts, overhead = _prepare(stabilizer, adapter, native, instructions, keep_thinking=keep_thinking)
    result = chain.stabilize(artifacts, tools=tools, overhead=overhead, window=window)
    return adapter.write(native, result.artifacts), result.report


async def astabilize_native(
    stabilizer: Stabilizer,
    adapter: Adapter[Native],
    native: Native,
    *,
    tools: Sequence[Mapping[str, object]] | None = None,
    instructions: str | None = None,
    window: int | None = None,
    keep_thinking: bool = False,
) -> tuple[Native, Report]:
    """Do what `stabilize_native` does, where summarizers or stores are async."""
    chain, artifacts, overhead = _prepare(stabilizer, adapter, native, instructions, keep_thinking=keep_thinking)
    result = await chain.astabilize(artifacts, tools=tools, overhead=overhead, window=window)
    return adapter.write(native, result.artifacts), result.report


def _prepare(
    stabilizer: Stabilizer, adapter: Adapter[Native], native: Native, instructions: str | None, *, keep_thinking: bool
) -> tuple[Stabilizer, list[Artifact], int]:
    """Return the chain for a history, the artifacts of the history, and the tokens of what is sent beside it."""
    require_stabilizer(stabilizer)
    if not isinstance(instructions, str | None):
        raise ConfigError(f"instructions must be a text, not {type(instructions).__name__}", setting="instructions")
    artifacts = adapter.read(native)
    overhead = stabilizer.counter.beside(instructions)
    return with_adapter_stages(stabilizer, adapter, keep_thinking=keep_thinking), artifacts, overhead


def require_stabilizer(given: object) -> Stabilizer:
    """Return a stabilizer that was handed over.

    Raises:
        ConfigError: The value is something else, such as a budget.
    """
    if not isinstance(given, Stabilizer):
        # a number is quoted because it is most likely the budget; a history never is
        shown = repr(given) if isinstance(given, int | float) else type(given).__name__
        raise ConfigError(f"expected a Stabilizer, got {shown}; write Stabilizer(budget=…)", setting="stabilizer")
    return given


def with_adapter_stages(
    stabilizer: Stabilizer, adapter: Adapter[Native] | None, *, keep_thinking: bool = False
) -> Stabilizer:
    """Return a stabilizer that also runs what a native history needs behind the chain. It shares all memory.

    Args:
        stabilizer: The stabilizer with the chain.
        adapter: The adapter that read the history, or None where it came as artifacts.
        keep_thinking: Keep signed thinking from before a cut.
    """
    chain = copy.copy(stabilizer)
    chain.stages = chain_for(adapter, stabilizer.stages, keep_thinking=keep_thinking)
    return chain
