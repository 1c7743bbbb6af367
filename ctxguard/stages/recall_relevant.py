"""Bring back what was cut and matters now.

Lexical ranking by BM25, a message counted together with its neighbours, and what the model said for less than what
people said and tools found: on recorded conversations with questions about them, that keeps the evidence of most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Change, Draft, Follower, StageResult, follow
from ctxguard.errors import ConfigError
from ctxguard.history import (
    AUTHORITY,
    RECALLED,
    History,
    is_asked,
    leading_records,
    record_title,
    write_record,
)
from ctxguard.stages.bound_tool_output import bounded_text
from ctxguard.stages.lexical import Document, LexicalIndex

__all__ = ["RecallRelevant"]

_NEIGHBOUR: Final = 0.5
"""Weight of the score of the exchange before and after."""
_REPLY: Final = 2 / 3
"""Weight of the score of a reply: what the model said it can say again, and as a rule it repeats what it was told."""
_LEAST_ROOM: Final = 64
"""Tokens below which nothing is recalled: the first line and a sentence."""
_MOST_IN_VAIN: Final = 100
"""Exchanges in a row that do not fit into what is left, after which no more are tried."""
_MENDING: Final = ("RepairExchanges", "ExpireLifetimes")
"""Stages that drop what must not come back."""


class RecallRelevant:
    """Bring exchanges that were cut back where they share rare words with the last user message.

    They stand as one block, in their order and dated by turn, right before that message. The block is a function of
    the history up to that message: it is the same for the whole turn, and what stands before it stays as it was. Place
    the stage after the one that cuts; `StableWindow(reserve=share)` keeps room for it, after other stages it takes
    only what they leave.

    Args:
        share: most of what system, task and pins leave of the budget that the block may take.

    Raises:
        ConfigError: `share` is out of range.
    """

    name = "RecallRelevant"

    def __init__(self, share: float = 0.5) -> None:
        if not 0 < share < 1:
            raise ConfigError(f"share is a share of the budget above 0 and below 1, not {share}", setting="share")
        self.share = share

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the new draft."""
        return follow(self, draft)

    def begin(self, draft: Draft, /) -> Follower:  # noqa: ARG002 - what is ranked is not in the draft but was cut from it
        """Return what recalls in one conversation."""
        return _Recalling(self.share)


class _Recalling:
    """Recall in one conversation: what was cut is indexed once, and the block holds for its turn."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._past = _Past()
        self._block: tuple[object, Artifact | None] = (None, None)

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Take in nothing: what a stage left out is not in its drafts."""

    def result(self, draft: Draft) -> Draft:
        """Return the draft with the block, or as it was where nothing that was cut matters."""
        place = next((p for p in range(len(draft.artifacts) - 1, -1, -1) if is_asked(draft.artifacts[p])), None)
        if place is None or _has_block(draft.artifacts, place):
            return draft
        found = self._left_out(draft, place)
        if found is None:
            return draft
        history, asked, gone, room = found
        block = self._made(draft, history, asked, gone, room)
        if block is None or draft.tokens + draft.counter.artifact(block) > draft.budget:
            return draft
        artifacts = (*draft.artifacts[:place], block, *draft.artifacts[place:])
        return draft.revise(artifacts, action="recalled", reason="shares rare words with the last user message")

    def _left_out(self, draft: Draft, place: int) -> tuple[History, int, frozenset[int], int] | None:
        """Return the history that was cut from, the number of the question in it, what was gone, and the room."""
        left, question = draft.left_out, draft.artifacts[place]
        if left is not None:
            asked = _number_of(left.history, question)
            if asked is None:
                return None
            gone = frozenset(range(min(asked, left.end))).difference(left.kept, left.history.pinned)
            return left.history, asked, gone, left.reserved
        change = next((c for c in draft.changes if c.stage not in _MENDING and _drops(c)), None)
        if change is None:
            return None
        history = History(draft.counter.artifact, change.before)
        asked = _number_of(history, question)
        if asked is None:
            return None
        there = {id(artifact.root) for artifact in draft.artifacts}
        gone = frozenset(n for n in range(asked) if id(history.members(n)[0].root) not in there)
        return history, asked, gone, _room(draft, place, self._share)

    def _made(self, draft: Draft, history: History, asked: int, gone: frozenset[int], room: int) -> Artifact | None:
        """Return the block; the same object for the whole turn."""
        if not gone or room < _LEAST_ROOM:
            return None
        made_from = (id(history.members(asked)[0].root), gone, room, draft.masks)
        if self._block[0] != made_from:
            self._past.read(history, asked)
            self._block = (made_from, _block(draft, self._past, history, asked, gone, room))
        return self._block[1]


class _Past:
    """Rank the exchanges of one history, and know in which turn each stands."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.index = LexicalIndex()
        self.turns: list[int] = []
        self._read: list[Artifact] = []

    def read(self, history: History, end: int) -> None:
        """Take in the exchanges before the question; those that were taken in already must be the very same."""
        if len(self._read) > end or any(a is not history.artifacts[history.start(n)] for n, a in enumerate(self._read)):
            self._begin()
        for number in range(len(self._read), end):
            members = history.members(number)
            self._read.append(members[0])
            self.index.add(() if record_title(members[0]) == RECALLED else _document(members))
            self.turns.append((self.turns[-1] if self.turns else 0) + history.spans[number].is_asked)


def _block(draft: Draft, past: _Past, history: History, asked: int, gone: frozenset[int], room: int) -> Artifact | None:
    """Return the block of what matters most for a question, within `room` tokens; None where nothing does."""
    scores = _with_neighbours(past.index.matches(history.members(asked)[0].text))
    scores = {n: score * (_REPLY if _replies(history, n) else 1.0) for n, score in scores.items()}
    order = sorted((n for n in scores if n in gone and past.index.documents[n]), key=lambda n: (-scores[n], -n))
    chosen: dict[int, str] = {}
    left, in_vain = room - draft.counter.artifact(Artifact(Kind.USER, write_record(RECALLED, ""))), 0
    for number in order:
        piece = _piece(draft, past, history, number, left, excerpt=number == order[0])
        in_vain += 1
        if piece is not None:
            chosen[number] = piece
            left -= draft.counter.text(piece) + 1
            in_vain = 0
        if left < _LEAST_ROOM // 4 or in_vain == _MOST_IN_VAIN:
            break
    return _fitted(draft, room, chosen)


def _has_block(artifacts: Sequence[Artifact], place: int) -> bool:
    """Tell whether a block stands before a question already, also where the two were joined."""
    if place and record_title(artifacts[place - 1]) == RECALLED:
        return True
    return any(record.title == RECALLED for record in leading_records(artifacts[place].text))


def _number_of(history: History, question: Artifact) -> int | None:
    """Return the number of a user message, by the artifact it was read as."""
    root = question.root
    return next((n for n in reversed(history.asked) if history.artifacts[history.start(n)].root is root), None)


def _replies(history: History, number: int) -> bool:
    first = history.artifacts[history.start(number)]
    return first.kind is Kind.ASSISTANT and not first.calls


def _drops(change: Change) -> bool:
    left = {id(a.root) for a in change.after}
    return any(id(a.root) not in left for a in change.before)


def _room(draft: Draft, place: int, share: float) -> int:
    """Return the tokens that the block may take; what came since the question does not change them."""
    asked = draft.artifacts[: place + 1]
    kept = (a for a in draft.artifacts if a.kind in AUTHORITY or a.pinned)
    fixed = draft.overhead + draft.counter.artifacts(kept)
    left = draft.budget - draft.overhead - draft.counter.artifacts(asked)
    return min(int(share * max(0, draft.budget - fixed)), left)


def _document(artifacts: Sequence[Artifact]) -> Document:
    first = artifacts[0]
    plain = isinstance(first.content, str) and not first.calls and len(artifacts) == 1
    return (first.text,) if plain else tuple(_texts(artifacts))


def _texts(artifacts: Sequence[Artifact]) -> Iterator[str]:
    for artifact in artifacts:
        if isinstance(artifact.content, str):
            yield artifact.content
        else:
            yield from (part.text for part in artifact.content if part.text is not None)
        yield from (text for call in artifact.calls for text in (call.name, call.arguments))


def _with_neighbours(own: Mapping[int, float]) -> dict[int, float]:
    """Return the scores with half of that of the exchange before and after; those far from any match are left out."""
    near = {number + step for number in own for step in (-1, 0, 1)}
    return {n: own.get(n, 0.0) + _NEIGHBOUR * (own.get(n - 1, 0.0) + own.get(n + 1, 0.0)) for n in near if n >= 0}


def _lines(artifacts: Sequence[Artifact], turn: int) -> Iterator[str]:
    for artifact in artifacts:
        who = artifact.kind.value if artifact.name is None else f"{artifact.kind.value} {artifact.name}"
        if artifact.text:
            yield f"[turn {turn}] {who}: {artifact.text}"
        for call in artifact.calls:
            yield f"[turn {turn}] {who} calls {call.name}({call.arguments})"


def _piece(draft: Draft, past: _Past, history: History, number: int, room: int, *, excerpt: bool) -> str | None:
    """Return an exchange as it stands in the block, within `room` tokens, or in part where an excerpt will do."""
    # What stands around the texts comes on top, so texts that do not fit need not be rendered.
    fits = sum(map(draft.counter.text, past.index.documents[number])) <= room
    if not fits and not excerpt:
        return None
    text = "\n".join(_lines(history.members(number), past.turns[number]))
    if fits and draft.counter.text(text) < room:
        return text
    return bounded_text(text, room // 2, draft) or None if excerpt else None


def _fitted(draft: Draft, room: int, chosen: dict[int, str]) -> Artifact | None:
    """Return the block of the chosen pieces; the least ones go where masking the whole has made it longer."""
    numbers = list(chosen)
    while numbers:
        body = draft.mask("\n".join(chosen[n] for n in sorted(numbers)))
        block = Artifact(Kind.USER, write_record(RECALLED, body))
        if draft.counter.artifact(block) <= room:
            return block
        numbers.pop()
    return None
