"""The `Adapter` protocol, and the stages that its histories need after every chain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Stage
from ctxguard.errors import HistoryError

Native = TypeVar("Native")


@runtime_checkable
class Adapter(Protocol[Native]):
    """Read native messages as artifacts, and write changed artifacts back. Messages are never rebuilt.

    An adapter may also have a `last_stage`, for a provider that refuses something a chain may produce (an empty
    message). It runs after every chain, so that its changes are counted and reported. If its `starts_with_user` is
    True, the provider refuses histories that begin with the assistant.

    Attributes:
        name: The adapter's name for `--adapter` and in reports.
    """

    name: str

    def read(self, native: Native) -> list[Artifact]:
        """Return the artifacts of a history without changing it.

        Args:
            native: The history in the framework's own messages.

        Returns:
            The artifacts; the adapter stores their origin in `source`. A message that was read before gives the very
            same artifact, by which a stabilizer finds earlier results.

        Raises:
            HistoryError: The history is not in the adapter's format; the error names the faulty message.
        """
        ...

    def write(self, native: Native, artifacts: Iterable[Artifact]) -> Native:
        """Return the history of these artifacts: the same message objects, except for those changed or added."""
        ...

    def detects(self, native: object) -> bool:
        """Return whether a history looks like one of this adapter's format."""
        ...


def chain_for(
    adapter: Adapter[Native] | None, stages: Sequence[Stage], *, keep_thinking: bool = False
) -> tuple[Stage, ...]:
    """Return a chain with the stages added that a native history needs after it.

    These are `StartWithUser`, if the provider requires it, `DropStaleThinking`, for signed thinking, and the adapter's
    own `last_stage`.
    """
    from ctxguard.stages.drop_stale_thinking import DropStaleThinking
    from ctxguard.stages.start_with_user import StartWithUser

    last: Stage | None = getattr(adapter, "last_stage", None)
    starts = _starts_with_user(adapter) and not any(isinstance(stage, StartWithUser) for stage in stages)
    first: list[Stage] = [StartWithUser()] if starts else []
    return (*stages, *first, *([] if keep_thinking else [DropStaleThinking()]), *([] if last is None else [last]))


def require_messages(adapter: Adapter[Native], given: Sequence[Artifact], left: Sequence[Artifact]) -> None:
    """Refuse to send a history without messages: every provider refuses it, without a helpful reason.

    Raises:
        HistoryError: No message is left, for example because the only one was a result without its call.
    """
    unsaid = (Kind.SYSTEM,) if _starts_with_user(adapter) else ()
    if any(a.kind not in unsaid for a in given) and all(a.kind in unsaid for a in left):
        raise HistoryError("nothing is left of the history: its results answer no call; send the calls, too")


def _starts_with_user(adapter: object) -> bool:
    return getattr(adapter, "starts_with_user", False) is True
