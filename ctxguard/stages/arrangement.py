"""The stages that compose what is kept as an API accepts it: the order of the roles, merged messages, ids of calls."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import takewhile
from typing import ClassVar, Final

from ctxguard.artifacts import BY_POSITION, Artifact, Kind, Part, ToolCall
from ctxguard.draft import Draft
from ctxguard.history import AUTHORITY, MESSAGES, is_synthetic
from ctxguard.history.pairing import CallIds, lone_halves
from ctxguard.history.records import JOINT, pieces_of


@dataclass(frozen=True, slots=True)
class OrderByAuthority:
    """Moves the system prompt to the front, followed by task artifacts. Otherwise the order stays the same.

    The system prompt is what the system says before anybody else does. A system message that arrives later keeps its
    place: clients send notices in the middle of a conversation, and moving one to the front would change the prompt
    before all messages, which no prompt cache survives.

    Attributes:
        moves_notices: Whether later system messages move to the front as well, as the documents of the policies
            `pattern` and `long_session` ask.
    """

    moves_notices: bool = False
    name: ClassVar[str] = "OrderByAuthority"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with the system prompt first, then task artifacts, then all others."""
        artifacts = draft.artifacts
        last = next((p for p in range(len(artifacts) - 1, -1, -1) if artifacts[p].kind in AUTHORITY), -1)
        ranks: list[int] = []
        has_begun = False
        for artifact in artifacts[: last + 1]:
            has_begun = has_begun or artifact.kind not in AUTHORITY
            is_notice = artifact.kind is Kind.SYSTEM and has_begun and not self.moves_notices
            ranks.append(2 if is_notice else _RANK.get(artifact.kind, 2))
        if ranks == sorted(ranks):
            return draft
        ranks += [2] * (len(artifacts) - len(ranks))
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        ordered = [artifacts[position] for position in order]
        return draft.revise(ordered, action="kept", reason="system prompt and task come first", cause="order")


_RANK = {Kind.SYSTEM: 0, Kind.TASK: 1}


_LED: Final = "the provider wants the user to speak first"
_STAND_IN: Final = "…"
"""The text of an inserted user message. Providers do not accept an empty one."""


class StartWithUser:
    """Drops everything except system messages before the first user message, such as the greeting of a chat bot.

    Anthropic, Gemini, and Bedrock refuse a history that begins with an assistant message, and so do strict chat
    templates ("first message must use the user role"). The adapters of these providers append this stage to every
    chain. A `Stabilizer` does so if its `provider` is one of them. If the history contains no user message, or if a
    pinned message comes before the first one, nothing is dropped, and a user message "…" is inserted at the beginning.
    The result is the same in every call, so prompts keep their prefix.
    """

    name = "StartWithUser"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft changed so that a user or task message comes first after the system messages."""
        artifacts = draft.artifacts
        leading = list(takewhile(lambda artifact: artifact.kind not in (Kind.USER, Kind.TASK), artifacts))
        early = [artifact for artifact in leading if artifact.kind is not Kind.SYSTEM]
        if not early:
            return draft
        if len(leading) == len(artifacts) or any(artifact.pinned for artifact in early):
            place = artifacts.index(early[0])
            stand_in = Artifact(Kind.USER, _STAND_IN)
            led = (*artifacts[:place], stand_in, *artifacts[place:])
            return draft.revise(led, action="repaired", reason=_LED, cause="order")
        gone = set(map(id, early))
        return draft.revise((a for a in artifacts if id(a) not in gone), reason=_LED, cause="order")


_REASON: Final = "merged into the following message, because roles must alternate"
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


_NOTHING: Final = Part("text", "")
_KEPT: Final = 40
"""Number of characters of an id that are kept if a number is added to it."""


@dataclass(frozen=True, slots=True)
class FitCalls:
    """Makes the calls of a context acceptable to its provider, whatever an earlier provider or a gateway wrote.

    * An id that the provider refuses is replaced in the call and in its result. So is an id that an earlier call
      already has, as gateways write that restart at `call_0` with each answer.
    * A call that the provider itself executes, such as a web search, and its result only stay together. A half alone is
      dropped, except for a call at the end, which the provider continues.

    New ids depend on the earlier part of the context alone, so the prompt keeps its prefix. All entry points of the
    adapters append this stage to the chain.

    Attributes:
        ids: The ids that the provider accepts.
    """

    ids: CallIds = field(default_factory=CallIds)
    name: ClassVar[str] = "FitCalls"

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with acceptable calls; the draft itself if nothing had to change."""
        lone = lone_halves(draft.artifacts)
        halved = [_without(a, lone[n]) if n in lone else a for n, a in enumerate(draft.artifacts)] if lone else None
        if halved is not None:
            draft = draft.revise(halved, action="repaired", reason="half of a call that the provider executes")
        return draft.revise(_Renaming(self.ids).all(draft), action="repaired", reason="the provider refuses its id")


def _without(artifact: Artifact, numbers: Collection[int]) -> Artifact:
    """Return a copy of an artifact in which the parts with these indexes are empty texts."""
    return artifact.revised(content=tuple(_NOTHING if n in numbers else p for n, p in enumerate(artifact.content)))  # type: ignore[misc]


class _Renaming:
    """Renames the calls of one context in order."""

    def __init__(self, ids: CallIds) -> None:
        self._ids = ids
        self._is_valid = re.compile(ids.pattern or r"(?s:.+)").fullmatch
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._open: dict[str | None, deque[str | None]] = {}

    def all(self, draft: Draft) -> list[Artifact]:
        return [self._caller(a) if a.calls else self._result(a) for a in draft.artifacts]

    def _caller(self, artifact: Artifact) -> Artifact:
        if not self._ids.are_unique:
            self._used.clear()
        self._open = {}
        # calls that only the provider's server has keep their ids, by which the server knows them
        is_fixed = artifact.source == ()
        calls = tuple([self._call(call, is_fixed=is_fixed) for call in artifact.calls])
        return artifact if calls == artifact.calls else artifact.revised(calls=calls)

    def _call(self, call: ToolCall, *, is_fixed: bool) -> ToolCall:
        is_kept = is_fixed or not call.id or call.id == BY_POSITION
        new = call.id if is_kept else self._new_id(str(call.id))
        if is_fixed and call.id:
            self._used.add(call.id)
        self._open.setdefault(call.id, deque()).append(new)
        return call if new == call.id else replace(call, id=new)

    def _new_id(self, given: str) -> str:
        new = given
        if not self._is_valid(given):
            new = f"call_{sha256(given.encode()).hexdigest()[:16]}"  # without its text, which may be anything
        if new in self._used:
            base = new[:_KEPT]
            number = self._numbers.get(base, 1)
            while new in self._used:
                number += 1
                new = f"{base}_{number}"
            self._numbers[base] = number
        self._used.add(new)
        return new

    def _result(self, artifact: Artifact) -> Artifact:
        if artifact.kind is not Kind.TOOL or not artifact.answers:
            return artifact
        waiting = self._open.get(artifact.answers)
        new = waiting.popleft() if waiting else artifact.answers
        return artifact if new == artifact.answers else artifact.revised(answers=new)
