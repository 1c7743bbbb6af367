"""Make user and assistant messages alternate, by joining messages of one role; split joined messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from ctxguard.artifacts import Artifact, Kind, Part
from ctxguard.draft import Draft
from ctxguard.history import MESSAGES, is_synthetic
from ctxguard.history.records import JOINT, pieces_of

_REASON: Final = "the message behind it holds its text: roles take turns"
_FILLER: Final = "…"
"""The text of an inserted message. Templates and providers do not accept an empty one."""
_SPLIT: Final = "a record was joined to it in an earlier result"


class MergeMessageRuns:
    """Joins adjacent messages of the same role: the last of them gets the texts of all, and the others are dropped.

    Chat templates of local models refuse two user messages in a row. A cut produces these: the task is followed by the
    trail, or by the next user message that was kept. This is the last stage of every chain with `provider="strict"`.

    Templates also refuse a user message after a tool result ("Unexpected role 'user' after role 'tool'"), and a system
    message anywhere but at the beginning. System messages at the beginning are joined, and a later one becomes a user
    message. Where messages cannot be joined, or a user message follows a tool result, a message "…" of the other role
    is inserted.

    A message is only joined to the next one if it consists of text alone, and if both have the same author name and
    native role. If a new message has the same role as the last one, the two are joined. The last message then differs
    from the previous call, so a prompt cache does not cover it.
    """

    name = "MergeMessageRuns"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with adjacent messages joined."""
        merged: list[Artifact] = []
        for artifact in draft.artifacts:
            is_late = artifact.kind is Kind.SYSTEM and bool(merged) and merged[-1].kind is not Kind.SYSTEM
            placed = Artifact(Kind.USER, artifact.text) if is_late else artifact
            joined = _join(merged[-1], placed) if merged else None
            if joined is None:
                merged.append(placed)
            else:
                merged[-1] = joined
        alternating = _alternating(map(_restorer(draft), merged))
        return draft.revise(alternating, action="repaired", reason=_REASON, cause="merge")


class SplitMergedRecords:
    """Splits messages that `MergeMessageRuns` joined with a record in an earlier call.

    A record is a text that a stage wrote in the user's role, such as the trail. If a stabilized context is continued as
    a history, this stage restores the task, trail, and question as separate messages, so that other stages recognize
    them. It is the first stage of every chain with `provider="strict"`. If no stage changes the pieces,
    `MergeMessageRuns` returns the original message. A record that a user quotes between blank lines is also split off.

    Templates refuse a user message after a tool result, so the message "…" is inserted between them already here: then
    it is counted before anything is evicted.
    """

    name = "SplitMergedRecords"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with joined messages split."""
        artifacts: list[Artifact] = []
        for artifact in draft.artifacts:
            if artifact.kind is Kind.USER and artifacts and artifacts[-1].kind is Kind.TOOL:
                artifacts.append(_filler_after(artifacts[-1]))
            artifacts += _pieces(artifact)
        return draft.revise(artifacts, action="repaired", reason=_SPLIT, cause="merge")


def _filler_after(result: Artifact) -> Artifact:
    """Return the message "…" that follows a tool result: the same object in each call, so that it is no new message."""
    known = result.memo.get(_FILLER)
    if not isinstance(known, Artifact):
        known = Artifact(Kind.ASSISTANT, _FILLER)
        result.memo.keep(_FILLER, known)
    return known


def _pieces(artifact: Artifact) -> tuple[Artifact, ...]:
    """Return the messages that were joined into `artifact`; only `artifact` itself if no record was joined to it.

    Each call returns the same objects for an artifact. Otherwise, later stages would take the pieces for changed
    messages.
    """
    if artifact.kind is not Kind.USER or JOINT not in artifact.text:
        return (artifact,)
    known = artifact.memo.get(SplitMergedRecords)
    if not isinstance(known, tuple):
        known = _split_records(artifact)
        # An artifact that referred to itself would only be freed by the garbage collector, so it is not stored.
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
    """Return the index of the first part whose text may be changed; None if no part has such a text."""
    return next((n for n, part in enumerate(parts) if part.text is not None and part.editable), None)


def _restorer(draft: Draft) -> Callable[[Artifact], Artifact]:
    """Return a function that replaces a joined message with the message that was split, if its pieces are unchanged."""
    split = next((change for change in draft.changes if change.cause == "merge"), None)
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


def _alternating(artifacts: Iterable[Artifact]) -> Iterator[Artifact]:
    """Yield the artifacts, with a message "…" between two in a row whose roles must not follow each other."""
    last: Kind | None = None
    for artifact in artifacts:
        role: Kind | None = Kind.USER if artifact.kind is Kind.TASK else artifact.kind
        if artifact.role is not None:  # a role that nobody knows may stand anywhere
            role = None
        elif role is Kind.USER and last in (Kind.USER, Kind.TOOL):
            yield Artifact(Kind.ASSISTANT, _FILLER)
        elif role is last is Kind.ASSISTANT:
            yield Artifact(Kind.USER, _FILLER)
        yield artifact
        last = role


def _join(first: Artifact, last: Artifact) -> Artifact | None:
    """Return a copy of the second of two adjacent messages with the text of both; None if they must not be joined."""
    if first.kind is not last.kind or first.kind not in (*MESSAGES, Kind.SYSTEM) or first.calls:
        return None
    # Messages of different participants stay separate, and so do messages with an unknown native role, and the texts
    # of a request outside its history, which are an artifact of their own (see `ctxguard.adapting.request`).
    is_beside = first.kind is Kind.SYSTEM and type(first.source) is not type(last.source)
    if is_beside or (first.name, first.role) != (last.name, last.role):
        return None
    text = _text_alone(first)
    if text is None:
        return None
    if is_synthetic(last):
        last = replace(last, pinned=first.pinned)  # the joined message contains the text of `first`, and so its pin
    if isinstance(last.content, str):
        return last.revised(content=JOINT.join(filter(None, (text, last.content))))
    number = _place_of_text(last.content)
    if number is None:
        return None
    parts = list(last.content)
    parts[number] = replace(parts[number], text=JOINT.join(filter(None, (text, parts[number].text))))
    return last.revised(content=tuple(parts))


def _text_alone(artifact: Artifact) -> str | None:
    """Return the whole text of a message; None if the message contains anything else."""
    if isinstance(artifact.content, str):
        return artifact.content
    texts = [_plain(part) for part in artifact.content]
    return None if None in texts else JOINT.join(text for text in texts if text)


def _plain(part: Part) -> str | None:
    return part.text if part.kind == "text" else None
