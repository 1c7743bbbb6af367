"""Split a message into fragments that can be kept or dropped separately, and join them again.

Anthropic puts all results of a turn into one message, and a PydanticAI request contains several prompts. Each becomes
its own artifact, which must remember its message, and its members of that message.
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
"""The text of a message that became empty: APIs refuse empty messages."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The members of a message that an artifact was read from; its adapter stores it as the artifact's `source`.

    Attributes:
        message: The native message.
        occurrence: Identifies one reading of the message: a message that occurs twice in a history is read twice, and
            the fragments of the two must not be joined with each other.
        indexes: The indexes of the members.
        is_whole: Whether they are all members of the message.
        holds_all_results: Tells `RepairExchanges` that a message with results contains all results of its calls.
    """

    holds_all_results: ClassVar[bool] = True
    message: object
    occurrence: object
    indexes: tuple[int, ...]
    is_whole: bool


def split_message(message: object, groups: Sequence[tuple[int, ...]]) -> list[Fragment]:
    """Return the fragments of a message, by the indexes of the members of each; together they are all members."""
    occurrence = object()
    return [Fragment(message, occurrence, indexes, len(groups) == 1) for indexes in groups]


def join_fragments(
    artifacts: Sequence[Artifact], members: Sequence[object], write: Callable[[Artifact], Iterable[object]]
) -> list[object] | None:
    """Return the new members of a message, or None if they are unchanged.

    Args:
        artifacts: The artifacts that now belong to the message; the first is a fragment of it.
        members: The current members of the message.
        write: Returns the members for an artifact, the same objects if nothing was changed.
    """
    first = artifacts[0]
    # the common case, detected without writing anything: one fragment, all of the message, unchanged
    if len(artifacts) == 1 and first.origin is None and first.source.is_whole:  # type: ignore[attr-defined]
        return None
    written = [member for artifact in artifacts for member in write(artifact)]
    return None if are_same_objects(written, members) else written


def fill_nulls(draft: Draft, text: str = "") -> Draft:
    """Write an empty text for null: the `last_stage` of adapters whose API refuses null, as all do."""
    artifacts = [
        a.revised(content=tuple(Part("text", text) if part is NULL_TEXT else part for part in a.content))
        if not isinstance(a.content, str) and any(part is NULL_TEXT for part in a.content)
        else a
        for a in draft.artifacts
    ]
    return draft.revise(artifacts, action="repaired", reason="the API refuses a text that is null")


def fill_emptied(draft: Draft) -> Draft:
    """Write "…" into emptied messages: the `last_stage` of adapters whose API refuses empty ones."""
    draft = fill_nulls(draft, LEFT_OUT)
    artifacts = [a.revised(content=LEFT_OUT) if _is_emptied(a) else a for a in draft.artifacts]
    return draft.revise(artifacts, action="bounded", reason="nothing is left of it, and the API refuses that")


def fill_blank(draft: Draft) -> Draft:
    """Leave out texts of white space, and write "…" into messages without any other text.

    The `last_stage` of adapters whose API refuses such texts. It also applies to the caller's messages: Anthropic
    ("text content blocks must contain non-whitespace text") and Bedrock ("The text field in the ContentBlock object is
    blank").
    """
    artifacts = list(map(_without_blanks, draft.artifacts))
    reason = "the API refuses texts of white space"
    return fill_emptied(draft.revise(artifacts, action="repaired", reason=reason))


def _without_blanks(artifact: Artifact) -> Artifact:
    """Return an artifact without blank texts; a message or result without any other text says "…"."""
    content = artifact.content
    if artifact.kind is Kind.SYSTEM:  # system prompts are never changed
        return artifact
    texts = (content,) if isinstance(content, str) else tuple(p.text if p.kind == "text" else None for p in content)
    blank = [text is not None and not text.strip() for text in texts]
    # an empty result or call is not a blank text, and an artifact emptied by a stage is reported as such
    may_be_empty = artifact.kind is Kind.TOOL or bool(artifact.calls) or _is_emptied(artifact)
    if not any(blank) or (may_be_empty and not any(texts)):
        return artifact
    if all(blank) and not artifact.calls:
        return artifact.revised(content=LEFT_OUT)
    return artifact.revised(content="" if isinstance(content, str) else tuple(map(_emptied, content, blank)))


def _emptied(part: Part, is_blank: bool) -> Part:  # noqa: FBT001 - for `map`
    return replace(part, text="") if is_blank else part


def _is_emptied(artifact: Artifact) -> bool:
    """Return whether an artifact is a whole message that a stage has emptied."""
    fragment, content = artifact.source, artifact.content
    if artifact.kind is Kind.TOOL or artifact.calls or (artifact.origin is None and fragment is not None):
        return False
    nothing = not content if isinstance(content, str) else all(part.text == "" for part in content)
    return nothing and (fragment is None or (isinstance(fragment, Fragment) and fragment.is_whole))
