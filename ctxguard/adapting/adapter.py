"""The `Adapter` protocol, and the one path on which every adapter stabilizes a native history."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from ctxguard.artifacts import Artifact
from ctxguard.errors import ConfigError
from ctxguard.report import Report
from ctxguard.stabilizer import Stabilizer
from ctxguard.tokens import MESSAGE_TOKENS, REPLY_TOKENS

if TYPE_CHECKING:
    from ctxguard.draft import Stage

__all__ = ["Adapter", "astabilize_native", "require_stabilizer", "stabilize_native", "with_adapter_stages"]

Native = TypeVar("Native")


@runtime_checkable
class Adapter(Protocol[Native]):
    """Look at native messages as artifacts, and write changed artifacts back. Messages are never rebuilt.

    An adapter may also have a `last_stage`, for a provider that refuses what a chain may leave (an empty message). It
    runs behind every chain, so that what it changes is counted and reported.

    Attributes:
        name: The name that `--adapter` and reports use.
    """

    name: str

    def read(self, native: Native) -> list[Artifact]:
        """Return the artifacts of a history without changing it.

        Args:
            native: The history in the framework's own messages.

        Returns:
            The artifacts; the adapter notes in `source` where each came from. A message that was read before gives the
            very same artifact, by which a stabilizer finds what it worked out in earlier calls.

        Raises:
            HistoryError: The history is not of the adapter's format; the error names the message at fault.
        """
        ...

    def write(self, native: Native, artifacts: Iterable[Artifact]) -> Native:
        """Return the history of these artifacts: the same message objects, except for those changed or added."""
        ...

    def detects(self, native: object) -> bool:
        """Tell whether a history looks like one of this adapter's format."""
        ...


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
    overhead = REPLY_TOKENS + (MESSAGE_TOKENS + stabilizer.counter.text(instructions) if instructions else 0)
    return with_adapter_stages(stabilizer, adapter, artifacts, keep_thinking=keep_thinking), artifacts, overhead


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
    stabilizer: Stabilizer,
    adapter: Adapter[Native] | None,
    artifacts: Sequence[Artifact],
    *,
    keep_thinking: bool = False,
) -> Stabilizer:
    """Return a stabilizer that also runs what a native history needs behind the chain. It shares all caches.

    That is `DropStaleThinking` where the history holds signed thinking, and the adapter's own `last_stage`.

    Args:
        stabilizer: The stabilizer with the chain.
        adapter: The adapter that read the history, or None where it came as artifacts.
        artifacts: The history.
        keep_thinking: Keep signed thinking from before a cut.
    """
    last: Stage | None = getattr(adapter, "last_stage", None)
    behind = [] if last is None else [last]
    if not keep_thinking and any(map(_holds_signed_thinking, artifacts)):
        from ctxguard.stages import DropStaleThinking

        behind.insert(0, DropStaleThinking())
    if not behind:
        return stabilizer
    chain = copy.copy(stabilizer)
    chain.stages = (*stabilizer.stages, *behind)
    return chain


def _holds_signed_thinking(artifact: Artifact) -> bool:
    # most contents are plain strings, and this is asked of every artifact of every call
    return type(artifact.content) is tuple and any(part.signed for part in artifact.content)
