"""Let user and assistant take turns: one message in place of several of the same role in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from ctxguard.artifacts import Artifact, Part
from ctxguard.draft import Cut, Draft
from ctxguard.history import ASKED_BEHIND, MESSAGES, asked_by_user, stands_in
from ctxguard.stages.cuts import moved_cut

__all__ = ["MergeMessageRuns"]

_BETWEEN: Final = "\n\n"
_REASON: Final = "the message behind it holds its text: roles take turns"


class MergeMessageRuns:
    """Join messages of the same role that stand next to each other: the last of them gets the texts of all.

    Chat templates of local models refuse two user messages in a row, and cuts make some: the kept task stands before a
    window that begins with a user message. The last stage of every chain with `provider="strict"`. Messages stay apart
    where there is more than text in all but the last, and where their names or unknown roles differ. A message that
    comes right behind one of its role changes that one, so that no prompt cache serves it again.
    """

    name = "MergeMessageRuns"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        merged: list[Artifact] = []
        places: list[int] = []
        for artifact in draft.artifacts:
            joined = _joined(merged[-1], artifact) if merged else None
            if joined is None:
                merged.append(artifact)
            else:
                merged[-1] = joined
            places.append(len(merged) - 1)
        joins = len(merged) < len(draft.artifacts)
        result = draft.revise(merged, action="repaired", reason=_REASON) if joins else draft
        if draft.cut is None:
            return result
        place = _place(draft, draft.cut, [*places, len(merged)])
        return moved_cut(result, place) if joins or place < draft.cut.position else result


def _place(draft: Draft, cut: Cut, places: list[int]) -> int:
    """Return where the prompt changes: a message from which one that was joined to it is gone changes with it."""
    position = min(cut.position, len(draft.artifacts))
    last = draft.artifacts[position - 1] if position else None
    lost = last is not None and any(_was_joined(last, change.before) for change in draft.changes)
    return places[position - lost]


def _was_joined(artifact: Artifact, before: Sequence[Artifact]) -> bool:
    behind = next((b for a, b in pairwise(before) if a.root is artifact.root), None)
    return behind is not None and _joined(artifact, behind) is not None


def _joined(first: Artifact, last: Artifact) -> Artifact | None:
    """Return the second of two messages with the text of both; None where they stay apart."""
    if first.kind is not last.kind or first.kind not in MESSAGES or first.calls:
        return None
    if (first.name, first.role) != (last.name, last.role):
        return None
    text = _text_alone(first)
    if text is None:
        return None
    between = ASKED_BEHIND if stands_in(first) and asked_by_user(last) else _BETWEEN
    if stands_in(last):
        last = replace(last, pinned=first.pinned)  # the message is now the user's, and stays as long as that
    if isinstance(last.content, str):
        return last.revised(content=between.join(filter(None, (text, last.content))))
    number = next((n for n, part in enumerate(last.content) if part.text is not None and part.editable), None)
    if number is None:
        return None
    parts = list(last.content)
    parts[number] = replace(parts[number], text=between.join(filter(None, (text, parts[number].text))))
    return last.revised(content=tuple(parts))


def _text_alone(artifact: Artifact) -> str | None:
    """Return all that a message says; None where it holds more than text."""
    if isinstance(artifact.content, str):
        return artifact.content
    texts = [_plain(part) for part in artifact.content]
    return None if None in texts else _BETWEEN.join(text for text in texts if text)


def _plain(part: Part) -> str | None:
    return part.text if part.kind == "text" else None
