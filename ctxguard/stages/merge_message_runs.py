"""Let user and assistant alternate: join several messages of the same role in a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.draft import Draft
from ctxguard.history import MESSAGES, is_synthetic
from ctxguard.history.records import JOINT, pieces_of

_REASON: Final = "the message behind it holds its text: roles take turns"
_SPLIT: Final = "a record was joined to it in an earlier result"


class MergeMessageRuns:
    """Join adjacent messages of the same role: the last of them gets the texts of all.

    Chat templates of local models refuse two user messages in a row, and cuts produce them: the kept task precedes a
    window that begins with a user message. The last stage of every chain with `provider="strict"`. Messages are not
    joined if any but the last holds more than text, or if their names or unknown roles differ. A message that follows
    directly on one of its role changes that one, so the prompt cache misses it.
    """

    name = "MergeMessageRuns"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        merged: list[Artifact] = []
        for artifact in draft.artifacts:
            joined = _join(merged[-1], artifact) if merged else None
            if joined is None:
                merged.append(artifact)
            else:
                merged[-1] = joined
        return draft.revise(map(_restorer(draft), merged), action="repaired", reason=_REASON)


class SplitMergedRecords:
    """Split messages that `MergeMessageRuns` joined with a record, when its result comes back as a history.

    The first stage of every chain with `provider="strict"`: the other stages then see the same task, trail and question
    as before they became one message. If nothing changed, joining them again gives the very same message. A record that
    a user quotes between blank lines is also split off.
    """

    name = "SplitMergedRecords"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the new draft."""
        artifacts = [piece for artifact in draft.artifacts for piece in _pieces(artifact)]
        return draft.revise(artifacts, action="repaired", reason=_SPLIT)


def _pieces(artifact: Artifact) -> tuple[Artifact, ...]:
    """Return a message in pieces, the same objects in each call; the message itself if no record was joined to it."""
    if artifact.kind is not Kind.USER or JOINT not in artifact.text:
        return (artifact,)
    known = artifact.memo.get(SplitMergedRecords)
    if not isinstance(known, tuple):
        known = _split_records(artifact)
        # An artifact must not refer to itself: it would never be freed.
        artifact.memo.keep(SplitMergedRecords, known if len(known) > 1 else ())
    return known or (artifact,)


def _split_records(artifact: Artifact) -> tuple[Artifact, ...]:
    content = artifact.content
    if isinstance(content, str):
        return tuple(artifact.revised(content=text) for text in pieces_of(content))
    number = _place_of_text(content)
    text = None if number is None else content[number].text
    if number is None or text is None:
        return ()
    *texts, last = pieces_of(text)
    rest = list(content)
    rest[number] = replace(rest[number], text=last)
    return (*(artifact.revised(content=text) for text in texts), artifact.revised(content=tuple(rest)))


def _place_of_text(parts: Sequence[Part]) -> int | None:
    """Return the number of the part that takes the text of the messages joined to it."""
    return next((n for n, part in enumerate(parts) if part.text is not None and part.editable), None)


def _restorer(draft: Draft) -> Callable[[Artifact], Artifact]:
    """Return a function that gives the original message for one that is joined from all of its pieces."""
    split = next((change for change in draft.changes if change.stage == SplitMergedRecords.name), None)
    if split is None:
        return lambda artifact: artifact
    pieces = set(map(id, split.after))
    apart = {artifact.content: artifact for artifact in split.before if id(artifact) not in pieces}

    def whole(artifact: Artifact) -> Artifact:
        known = apart.get(artifact.content)
        return (
            known if known is not None and known.root is artifact.root and known.fields == artifact.fields else artifact
        )

    return whole


def _join(first: Artifact, last: Artifact) -> Artifact | None:
    """Return the second of two messages with the text of both; None if they are not to be joined."""
    if first.kind is not last.kind or first.kind not in MESSAGES or first.calls:
        return None
    # two participants stay separate, and an unknown role may mean anything
    if (first.name, first.role) != (last.name, last.role):
        return None
    text = _text_alone(first)
    if text is None:
        return None
    if is_synthetic(last):
        last = replace(last, pinned=first.pinned)  # it contains the user's text now
    if isinstance(last.content, str):
        return last.revised(content=JOINT.join(filter(None, (text, last.content))))
    number = _place_of_text(last.content)
    if number is None:
        return None
    parts = list(last.content)
    parts[number] = replace(parts[number], text=JOINT.join(filter(None, (text, parts[number].text))))
    return last.revised(content=tuple(parts))


def _text_alone(artifact: Artifact) -> str | None:
    """Return the whole text of a message; None if it holds more than text."""
    if isinstance(artifact.content, str):
        return artifact.content
    texts = [_plain(part) for part in artifact.content]
    return None if None in texts else JOINT.join(text for text in texts if text)


def _plain(part: Part) -> str | None:
    return part.text if part.kind == "text" else None
