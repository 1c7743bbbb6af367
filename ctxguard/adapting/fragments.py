"""Split a message into fragments that can be kept or dropped alone, and join them again.

Anthropic puts all results of a turn into one message, and a PydanticAI request holds several prompts. Each is an
artifact of its own, so it must remember which message, and which members of it, it was read from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from ctxguard.adapting.editing import are_same_objects
from ctxguard.artifacts import Artifact, Kind

if TYPE_CHECKING:
    from ctxguard.draft import Draft

LEFT_OUT: Final = "…"
"""Stands where nothing is left of a message: APIs refuse empty ones."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """Say which members of which message an artifact was read from; its adapter keeps it as the artifact's `source`.

    Attributes:
        message: The native message.
        occurrence: Stands for one reading of the message: a message that stands in a history twice is read twice, and
            the fragments of the two must not be joined with each other.
        indexes: The indexes of the members.
        is_whole: Whether they are all members of the message.
        holds_all_results: Says to `RepairExchanges` that a message with results holds all that there are.
    """

    holds_all_results: ClassVar[bool] = True
    message: object
    occurrence: object
    indexes: tuple[int, ...]
    is_whole: bool


def split_message(message: object, groups: Sequence[tuple[int, ...]]) -> list[Fragment]:
    """Return the fragments of a message, by the indexes of the members that each has; together they are all."""
    occurrence = object()
    return [Fragment(message, occurrence, indexes, len(groups) == 1) for indexes in groups]


def join_fragments(
    artifacts: Sequence[Artifact], members: Sequence[object], write: Callable[[Artifact], Iterable[object]]
) -> list[object] | None:
    """Return the new members of a message, or None where they are the very ones it has.

    Args:
        artifacts: The artifacts that stand in the message now; the first is a fragment of it.
        members: The members that the message has.
        write: Returns the members of an artifact, the same objects where nothing was changed.
    """
    first = artifacts[0]
    # the common case, told without writing anything: one fragment, all of the message, unchanged
    if len(artifacts) == 1 and first.origin is None and first.source.is_whole:  # type: ignore[attr-defined]
        return None
    written = [member for artifact in artifacts for member in write(artifact)]
    return None if are_same_objects(written, members) else written


def fill_emptied(draft: Draft) -> Draft:
    """Let "…" stand where nothing is left of a message: the `last_stage` of adapters whose API refuses empty ones."""
    artifacts = [a.revised(content=LEFT_OUT) if _is_emptied(a) else a for a in draft.artifacts]
    return draft.revise(artifacts, action="bounded", reason="nothing is left of it, and the API refuses that")


def _is_emptied(artifact: Artifact) -> bool:
    """Tell an artifact that is all of a message and of which a stage left nothing."""
    fragment, content = artifact.source, artifact.content
    if artifact.kind is Kind.TOOL or artifact.calls or (artifact.origin is None and fragment is not None):
        return False
    nothing = not content if isinstance(content, str) else all(part.text == "" for part in content)
    return nothing and (fragment is None or (isinstance(fragment, Fragment) and fragment.is_whole))
