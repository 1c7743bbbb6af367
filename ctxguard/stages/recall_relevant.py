"""Bring back what was cut and matters now.

Lexical ranking by BM25, a message counted together with its neighbours, and what the model said for less than what
people said and tools found: on recorded conversations with questions about them, that keeps the evidence of most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Change, Cut, Draft, Stage
from ctxguard.errors import ConfigError
from ctxguard.history import AUTHORITY, RECALLED, Unit, asked_by_user, stands_in
from ctxguard.stages.bound_tool_output import bounded_text
from ctxguard.stages.growing import Followed, GrowingHistory
from ctxguard.stages.lexical import Document, LexicalIndex
from ctxguard.stages.stable_window import StableWindow

__all__ = ["RECALLED", "RecallRelevant", "is_recalled", "recall_stages"]

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
        index: ranks the exchanges; None means one of its own.

    Raises:
        ConfigError: `share` is out of range.
    """

    name = "RecallRelevant"

    def __init__(self, share: float = 0.15, *, index: LexicalIndex | None = None) -> None:
        if not 0 < share < 1:
            raise ConfigError(f"share is a share of the budget above 0 and below 1, not {share}", setting="share")
        self.share = share
        self.index = LexicalIndex() if index is None else index
        self._histories = Followed(_Past)

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with the block, or as it was where nothing that was cut matters."""
        place = next((p for p in range(len(draft.artifacts) - 1, -1, -1) if asked_by_user(draft.artifacts[p])), None)
        if place is None or (place and is_recalled(draft.artifacts[place - 1])):
            return draft
        noted = draft.details.get(StableWindow.name)
        note = noted if isinstance(noted, Mapping) else None
        change = _cutting_change(draft, StableWindow.name if note else None)
        if change is None:
            return draft
        block = self._block(draft, place, change, note)
        if block is None:
            return replace(draft, cut=_moved(draft, place))
        if draft.tokens + draft.counter.artifact(block) > draft.budget:
            return replace(draft, cut=_gone_again(draft, place, block) or _moved(draft, place))
        artifacts = (*draft.artifacts[:place], block, *draft.artifacts[place:])
        draft = draft.revise(artifacts, action="recalled", reason="shares rare words with the last user message")
        return replace(draft, cut=_moved(draft, place + 1))

    def _block(self, draft: Draft, place: int, change: Change, note: Mapping[str, int] | None) -> Artifact | None:
        """Return the block, looking at the exchanges as the cutting stage found them: masked and bounded."""
        with self._histories.following(replace(draft, artifacts=change.before)) as past:
            asked = past.number_of(draft.artifacts[place])
            if asked is None:
                return None
            past.read()
            gone = _gone_by_note(past, note, asked) if note else _gone_by_now(past, draft, asked)
            room = note["reserved"] if note else _room(draft, place, self.share)
            if not gone or room < _LEAST_ROOM:
                return None
            made_from = (asked, gone, room, draft.masks)
            if made_from not in past.blocks:
                past.blocks = {made_from: self._made(draft, past, asked, gone, room)}
            return past.blocks[made_from]

    def _made(self, draft: Draft, past: _Past, asked: int, gone: frozenset[int], room: int) -> Artifact | None:
        question = past.members(asked)[0].text
        scores = past.weighed(_with_neighbours(self.index.matches(past.documents[:asked], question)))
        order = sorted((n for n in scores if n in gone and past.documents[n]), key=lambda n: (-scores[n], -n))
        chosen: dict[int, str] = {}
        left, in_vain = room - draft.counter.artifact(Artifact(Kind.USER, RECALLED)), 0
        for number in order:
            piece = _piece(draft, past, number, left, excerpt=number == order[0])
            in_vain += 1
            if piece is not None:
                chosen[number] = piece
                left -= draft.counter.text(piece) + 1
                in_vain = 0
            if left < _LEAST_ROOM // 4 or in_vain == _MOST_IN_VAIN:
                break
        return _fitted(draft, room, chosen)


def is_recalled(artifact: Artifact) -> bool:
    """Tell a block that this stage made, also where it comes back as a message of the history."""
    return stands_in(artifact) and artifact.text.startswith(RECALLED)


@dataclass(slots=True)
class _Past(GrowingHistory):
    """Hold a history: what is ranked of each exchange but the last, and the block of the turn.

    Attributes:
        documents: the texts of each exchange; nothing for an earlier block.
        turns: the turn each stands in, counted from 1.
        blocks: the block made last, by what it was made from; None where there is none.
    """

    documents: list[Document] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    blocks: dict[object, Artifact | None] = field(default_factory=dict)

    def read(self) -> None:
        for number in range(len(self.documents), len(self.units) - 1):
            members = self.members(number)
            block = is_recalled(members[0])
            self.documents.append(() if block else _document(members))
            self.turns.append((self.turns[-1] if self.turns else 0) + self.units[number].asks)

    def number_of(self, question: Artifact) -> int | None:
        """Return the number of a user message, by the artifact it was read as."""
        root = question.root
        return next((n for n in reversed(self.users) if self.members(n)[0].root is root), None)

    def weighed(self, scores: Mapping[int, float]) -> dict[int, float]:
        """Return the scores, those of replies lowered."""
        return {n: score * (_REPLY if self._replies(n) else 1.0) for n, score in scores.items()}

    def _replies(self, number: int) -> bool:
        first = self.artifacts[self.start(number)]
        return first.kind is Kind.ASSISTANT and not first.calls

    def rendered(self, number: int) -> str:
        """Return an exchange as it reads in the block."""
        return "\n".join(_lines(self.members(number), self.turns[number]))


def _cutting_change(draft: Draft, stage: str | None) -> Change | None:
    """Return the change of that stage, or the first one that cut anything from a sound history."""
    for change in draft.changes:
        if change.stage == stage or (stage is None and change.stage not in _MENDING and _drops(change)):
            return change
    return None


def _drops(change: Change) -> bool:
    left = {id(a.root) for a in change.after}
    return any(id(a.root) not in left for a in change.before)


def _gone_by_note(past: _Past, note: Mapping[str, int], asked: int) -> frozenset[int]:
    """Return what had left the window when the question came, as the window says."""
    end = min(asked, bisect_left(past.units, note["gone_before"], key=_start))
    kept = (note[name] for name in ("kept_opening", "kept_record") if note[name] is not None)
    return frozenset(range(end)).difference(past.pinned, (bisect_left(past.units, p, key=_start) for p in kept))


def _gone_by_now(past: _Past, draft: Draft, asked: int) -> frozenset[int]:
    """Return what an earlier stage has dropped."""
    there = {id(artifact.root) for artifact in draft.artifacts}
    return frozenset(n for n in range(asked) if id(past.members(n)[0].root) not in there)


def _start(unit: Unit) -> int:
    return unit.start


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


def _piece(draft: Draft, past: _Past, number: int, room: int, *, excerpt: bool) -> str | None:
    """Return an exchange as it stands in the block, within `room` tokens, or in part where an excerpt will do."""
    fits = sum(map(draft.counter.text, past.documents[number])) <= room  # what stands around the texts comes on top
    if not fits and not excerpt:
        return None
    text = past.rendered(number)
    if fits and draft.counter.text(text) < room:
        return text
    return bounded_text(text, room // 2, draft) or None if excerpt else None


def _fitted(draft: Draft, room: int, chosen: dict[int, str]) -> Artifact | None:
    """Return the block of the chosen pieces; the least ones go where masking the whole has made it longer."""
    numbers = list(chosen)
    while numbers:
        block = Artifact(Kind.USER, draft.mask("\n".join((RECALLED, *(chosen[n] for n in sorted(numbers))))))
        if draft.counter.artifact(block) <= room:
            return block
        numbers.pop()
    return None


def _gone_again(draft: Draft, place: int, block: Artifact) -> Cut | None:
    """Note that the block leaves in the middle of its turn: it still fitted when the last reply was asked for."""
    artifacts = draft.artifacts
    reply = max((p for p, a in enumerate(artifacts) if a.kind is Kind.ASSISTANT), default=0)
    before = draft.overhead + draft.counter.artifacts((block, *artifacts[:reply]))
    if reply <= place or before > draft.budget:
        return None
    position = min(place, draft.cut.position) if draft.cut is not None and draft.cut.fresh else place
    at = position if draft.cut is None else draft.cut.at
    return Cut(at=at, position=position, fresh=True, rebilled=draft.counter.artifacts(artifacts[position:]))


def _moved(draft: Draft, question: int) -> Cut | None:
    """Note where the prompt changes as a turn begins: where the block of the turn before stood, if it had one."""
    cut, artifacts = draft.cut, draft.artifacts
    block = question and is_recalled(artifacts[question - 1])
    if any(a.kind is not Kind.USER for a in artifacts[question + 1 :]):
        shift = bool(block) and cut is not None and cut.position >= question
        return replace(cut, position=cut.position + 1) if cut is not None and shift else cut
    reply = next((p for p in range(question - 1, -1, -1) if artifacts[p].kind is Kind.ASSISTANT), None)
    if reply is None:
        return cut
    asked = next((p for p in range(reply, -1, -1) if asked_by_user(artifacts[p])), reply)
    position = min(asked, cut.position) if cut is not None and cut.fresh else asked
    at = cut.at if cut is not None else position
    return Cut(at=at, position=position, fresh=True, rebilled=draft.counter.artifacts(artifacts[position:]))


def recall_stages(
    *,
    share: float = 0.15,
    target: float = 0.6,
    before: Sequence[Stage] = (),
) -> list[Stage]:
    """Return the fitting part of a chain that recalls: the window with a reserve, then the block in it.

    Args:
        share: see `RecallRelevant`.
        target: see `StableWindow`.
        before: stages that come first: repair, masking, bounding.
    """
    return [*before, StableWindow(target=target, reserve=share), RecallRelevant(share)]
