"""What an adapter is: the `Adapter` protocol, and what its histories need behind every chain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from ctxguard.artifacts import Artifact
from ctxguard.draft import Stage

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


def chain_for(
    adapter: Adapter[Native] | None, stages: Sequence[Stage], *, keep_thinking: bool = False
) -> tuple[Stage, ...]:
    """Return a chain with what a native history needs behind it.

    That is `DropStaleThinking`, for signed thinking, and the adapter's own `last_stage`.
    """
    from ctxguard.stages.drop_stale_thinking import DropStaleThinking

    last: Stage | None = getattr(adapter, "last_stage", None)
    return (*stages, *([] if keep_thinking else [DropStaleThinking()]), *([] if last is None else [last]))
