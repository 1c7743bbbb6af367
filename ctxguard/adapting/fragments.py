"""Split a message into fragments that can be kept or dropped alone, and join them again.

Anthropic puts all results of a turn into one message, and a PydanticAI request holds several prompts. Each is an
artifact of its own, so it must remember which message, and which members of it, it was read from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from ctxguard.adapting.editing import are_same_objects
from ctxguard.adapting.fields import NULL_TEXT
from ctxguard.artifacts import Artifact, Kind, Part

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


def fill_nulls(draft: Draft, text: str = "") -> Draft:
    """Write a text where it is null: the `last_stage` of adapters whose API refuses that, as all do."""
    artifacts = [
        a.revised(content=tuple(Part("text", text) if part is NULL_TEXT else part for part in a.content))
        if not isinstance(a.content, str) and any(part is NULL_TEXT for part in a.content)
        else a
        for a in draft.artifacts
    ]
    return draft.revise(artifacts, action="repaired", reason="the API refuses a text that is null")


def fill_emptied(draft: Draft) -> Draft:
    """Let "…" stand where nothing is left of a message: the `last_stage` of adapters whose API refuses empty ones."""
    draft = fill_nulls(draft, LEFT_OUT)
    artifacts = [a.revised(content=LEFT_OUT) if _is_emptied(a) else a for a in draft.artifacts]
    return draft.revise(artifacts, action="bounded", reason="nothing is left of it, and the API refuses that")


def fill_blank(draft: Draft) -> Draft:
    """Leave out texts of white space, and let "…" stand for a message that says nothing else.

    The `last_stage` of adapters whose API refuses such texts, in what the caller gave, too: Anthropic ("text content
    blocks must contain non-whitespace text") and Bedrock ("The text field in the ContentBlock object is blank").
    """
    artifacts = list(map(_without_blanks, draft.artifacts))
    reason = "the API refuses texts of white space"
    return fill_emptied(draft.revise(artifacts, action="repaired", reason=reason))


def _without_blanks(artifact: Artifact) -> Artifact:
    """Return an artifact without blank texts; a message or result of which nothing is left says "…"."""
    content = artifact.content
    if artifact.kind is Kind.SYSTEM:  # it is the caller's to the letter
        return artifact
    texts = (content,) if isinstance(content, str) else tuple(p.text if p.kind == "text" else None for p in content)
    blank = [text is not None and not text.strip() for text in texts]
    # an empty result or call is no blank text, and what a stage emptied is told as that
    may_be_empty = artifact.kind is Kind.TOOL or bool(artifact.calls) or _is_emptied(artifact)
    if not any(blank) or (may_be_empty and not any(texts)):
        return artifact
    if all(blank) and not artifact.calls:
        return artifact.revised(content=LEFT_OUT)
    return artifact.revised(content="" if isinstance(content, str) else tuple(map(_emptied, content, blank)))


def _emptied(part: Part, is_blank: bool) -> Part:  # noqa: FBT001 - for `map`
    return replace(part, text="") if is_blank else part


def _is_emptied(artifact: Artifact) -> bool:
    """Tell an artifact that is all of a message and of which a stage left nothing."""
    fragment, content = artifact.source, artifact.content
    if artifact.kind is Kind.TOOL or artifact.calls or (artifact.origin is None and fragment is not None):
        return False
    nothing = not content if isinstance(content, str) else all(part.text == "" for part in content)
    return nothing and (fragment is None or (isinstance(fragment, Fragment) and fragment.is_whole))
