"""Let user and assistant take turns: one message in place of several of the same role in a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ctxguard.artifacts import Artifact, Part
from ctxguard.draft import Draft
from ctxguard.history import MESSAGES, is_synthetic

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
        for artifact in draft.artifacts:
            joined = _joined(merged[-1], artifact) if merged else None
            if joined is None:
                merged.append(artifact)
            else:
                merged[-1] = joined
        return draft.revise(merged, action="repaired", reason=_REASON)


def _joined(first: Artifact, last: Artifact) -> Artifact | None:
    """Return the second of two messages with the text of both; None where they stay apart."""
    if first.kind is not last.kind or first.kind not in MESSAGES or first.calls:
        return None
    # two participants stay two, and a role that is not known may mean anything
    if (first.name, first.role) != (last.name, last.role):
        return None
    text = _text_alone(first)
    if text is None:
        return None
    if is_synthetic(last):
        last = replace(last, pinned=first.pinned)  # the message is now the user's, and stays as long as that
    if isinstance(last.content, str):
        return last.revised(content=_BETWEEN.join(filter(None, (text, last.content))))
    number = next((n for n, part in enumerate(last.content) if part.text is not None and part.editable), None)
    if number is None:
        return None
    parts = list(last.content)
    parts[number] = replace(parts[number], text=_BETWEEN.join(filter(None, (text, parts[number].text))))
    return last.revised(content=tuple(parts))


def _text_alone(artifact: Artifact) -> str | None:
    """Return all that a message says; None where it holds more than text."""
    if isinstance(artifact.content, str):
        return artifact.content
    texts = [_plain(part) for part in artifact.content]
    return None if None in texts else _BETWEEN.join(text for text in texts if text)


def _plain(part: Part) -> str | None:
    return part.text if part.kind == "text" else None
