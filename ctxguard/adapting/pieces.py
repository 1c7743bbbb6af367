"""Messages of several pieces that can be kept or dropped alone: each is an artifact, and they are joined again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ctxguard.adapting.message_view import are_same
from ctxguard.artifacts import Artifact

__all__ = ["Piece", "pieces", "rejoined"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Say which message an artifact was read from, and which members of it are its own.

    Attributes:
        message: the native message.
        reading: stands for one occurrence of the message: what stands in a history twice is read twice.
        numbers: of its members in the message.
        is_whole: whether they are all that the message holds.
    """

    message: object
    reading: object
    numbers: tuple[int, ...]
    is_whole: bool


def pieces(message: object, numbers: Sequence[tuple[int, ...]]) -> list[Piece]:
    """Return the pieces of a message.

    Args:
        message: the native message.
        numbers: the members that each of them has; together they are all.
    """
    reading = object()
    return [Piece(message, reading, own, len(numbers) == 1) for own in numbers]


def rejoined(
    artifacts: Sequence[Artifact], members: Sequence[object], write: Callable[[Artifact], Iterable[object]]
) -> list[object] | None:
    """Return the members of a message anew; None where they are those that it has.

    Args:
        artifacts: what stands in it now, a piece of it first.
        members: what it holds.
        write: gives the members of an artifact, the same objects where nothing was changed.
    """
    first = artifacts[0]
    if len(artifacts) == 1 and first.origin is None and first.source.is_whole:  # type: ignore[attr-defined]
        return None
    written = [member for artifact in artifacts for member in write(artifact)]
    return None if are_same(written, members) else written
