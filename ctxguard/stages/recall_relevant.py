"""Bring back what was cut and matters now.

Lexical ranking by BM25, a message counted together with its neighbours: on recorded conversations with questions about
them, windows of neighbours keep the evidence of more questions than single messages do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Change, Cut, Draft, Stage
from ctxguard.errors import ConfigError
from ctxguard.protection import AUTHORITY, RECALLED, Unit, units
from ctxguard.stages.bound_tool_output import bounded_text
from ctxguard.stages.lexical import Document, LexicalIndex
from ctxguard.stages.stable_window import StableWindow
from ctxguard.tokens import CALL_TOKENS, MESSAGE_TOKENS, NAME_TOKENS

__all__ = ["RECALLED", "RecallRelevant", "is_recalled", "recall_stages"]

_NEIGHBOUR: Final = 0.5
"""Weight of the score of the exchange before and after."""
_LEAST_ROOM: Final = 64
"""Tokens below which nothing is recalled: the first line and a sentence."""
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

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with the block, or as it was where nothing that was cut matters."""
        place = next((p for p in range(len(draft.artifacts) - 1, -1, -1) if _asks(draft.artifacts[p])), None)
        if place is None or (place and is_recalled(draft.artifacts[place - 1])):
            return draft
        block = self._block(draft, draft.artifacts[place])
        if block is not None and draft.tokens + draft.counter.artifact(block) <= draft.budget:
            artifacts = (*draft.artifacts[:place], block, *draft.artifacts[place:])
            draft = draft.revise(artifacts, action="recalled", reason="shares rare words with the last user message")
            place += 1
        return replace(draft, cut=_moved(draft, place))

    def _block(self, draft: Draft, question: Artifact) -> Artifact | None:
        past = _past(draft, question, self.share)
        if past is None or not past.gone or past.room < _LEAST_ROOM:
            return None
        own = self.index.scores([unit.document for unit in past.units], question.text)
        scores = _with_neighbours(own)
        order = sorted((n for n in past.gone if scores[n] > 0), key=lambda n: (-scores[n], -n))
        chosen: dict[int, str] = {}
        room = past.room - draft.counter.artifact(Artifact(Kind.USER, RECALLED))
        for number in order:
            piece = _piece(draft, past.units[number], room, excerpt=number == order[0])
            if piece is not None:
                chosen[number] = piece
                room -= draft.counter.text(piece) + 1
            if room < _LEAST_ROOM // 4:
                break
        return _fitted(draft, past.room, chosen)


def _asks(artifact: Artifact) -> bool:
    return artifact.kind is Kind.USER and not is_recalled(artifact)


def is_recalled(artifact: Artifact) -> bool:
    """Tell a block that this stage made, also where it comes back as a message of the history."""
    return artifact.kind is Kind.USER and artifact.text.startswith(RECALLED)


@dataclass(frozen=True, slots=True)
class _PastUnit:
    """Hold an exchange of the past: what is ranked, how it reads in the block, what its texts cost at least."""

    document: Document
    artifacts: tuple[Artifact, ...]
    turn: int
    tokens: int

    @property
    def rendered(self) -> str:
        return "\n".join(_lines(self.artifacts, self.turn))


@dataclass(frozen=True, slots=True)
class _Past:
    """Hold what came before the last user message.

    Attributes:
        units: the exchanges, what has authority and earlier blocks left out.
        gone: numbers of those that had been cut when the message came.
        room: tokens that the block may take.
    """

    units: list[_PastUnit]
    gone: list[int]
    room: int


def _past(draft: Draft, question: Artifact, share: float) -> _Past | None:
    """Look at the exchanges before the question as the cutting stage found them: masked and bounded."""
    noted = draft.details.get(StableWindow.name)
    note = noted if isinstance(noted, Mapping) else None
    change = _cutting_change(draft, StableWindow.name if note else None)
    if change is None:
        return None
    before = replace(draft, artifacts=change.before)
    end = next((p for p, a in enumerate(change.before) if a.root is question.root), None)
    if end is None:
        return None
    found = [u for u in units(before) if u.start < end and not is_recalled(change.before[u.start])]
    gone = _gone_by_note(found, note) if note else _gone_by_now(found, draft, change.before)
    room = note["reserved"] if note else _room(draft, share)
    return _Past(_past_units(found, change.before), gone, room)


def _cutting_change(draft: Draft, stage: str | None) -> Change | None:
    """Return the change of that stage, or the first one that cut anything from a sound history."""
    for change in draft.changes:
        if change.stage == stage or (stage is None and change.stage not in _MENDING and _drops(change)):
            return change
    return None


def _drops(change: Change) -> bool:
    left = {id(a.root) for a in change.after}
    return any(id(a.root) not in left for a in change.before)


def _gone_by_note(found: Sequence[Unit], note: Mapping[str, int]) -> list[int]:
    return [
        n
        for n, u in enumerate(found)
        if u.start < note["gone_before"] and not u.pinned and u.start != note["kept_opening"]
    ]


def _gone_by_now(found: Sequence[Unit], draft: Draft, before: Sequence[Artifact]) -> list[int]:
    there = {id(artifact.root) for artifact in draft.artifacts}
    return [n for n, u in enumerate(found) if id(before[u.start].root) not in there]


def _room(draft: Draft, share: float) -> int:
    kept = (a for a in draft.artifacts if a.kind in AUTHORITY or a.pinned)
    fixed = draft.overhead + draft.counter.artifacts(kept)
    return min(int(share * max(0, draft.budget - fixed)), draft.budget - draft.tokens)


def _past_units(found: Sequence[Unit], artifacts: Sequence[Artifact]) -> list[_PastUnit]:
    past, turn = [], 0
    for unit in found:
        turn += unit.user
        members = tuple(artifacts[unit.start : unit.end])
        framing = (MESSAGE_TOKENS + NAME_TOKENS) * len(members) + CALL_TOKENS * len(members[0].calls)
        past.append(_PastUnit(_document(members), members, turn, unit.tokens - framing))
    return past


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


def _with_neighbours(own: Sequence[float]) -> list[float]:
    padded = [0.0, *own, 0.0]
    return [padded[n] + _NEIGHBOUR * (padded[n - 1] + padded[n + 1]) for n in range(1, len(own) + 1)]


def _lines(artifacts: Sequence[Artifact], turn: int) -> Iterator[str]:
    for artifact in artifacts:
        who = artifact.kind.value if artifact.name is None else f"{artifact.kind.value} {artifact.name}"
        if artifact.text:
            yield f"[turn {turn}] {who}: {artifact.text}"
        for call in artifact.calls:
            yield f"[turn {turn}] {who} calls {call.name}({call.arguments})"


def _piece(draft: Draft, unit: _PastUnit, room: int, *, excerpt: bool) -> str | None:
    """Return an exchange as it stands in the block, within `room` tokens, or in part where an excerpt will do."""
    if unit.tokens <= room and draft.counter.text(unit.rendered) < room:
        return unit.rendered
    return bounded_text(unit.rendered, room // 2, draft) or None if excerpt else None


def _fitted(draft: Draft, room: int, chosen: dict[int, str]) -> Artifact | None:
    """Return the block of the chosen pieces; the least ones go where masking the whole has made it longer."""
    numbers = list(chosen)
    while numbers:
        block = Artifact(Kind.USER, draft.mask("\n".join((RECALLED, *(chosen[n] for n in sorted(numbers))))))
        if draft.counter.artifact(block) <= room:
            return block
        numbers.pop()
    return None


def _moved(draft: Draft, question: int) -> Cut | None:
    """Note where the prompt changes as a turn begins: where the block of the turn before stood, if it had one."""
    cut, artifacts = draft.cut, draft.artifacts
    block = question and is_recalled(artifacts[question - 1])
    if cut is None or any(a.kind is not Kind.USER for a in artifacts[question + 1 :]):
        shift = bool(block) and cut is not None and cut.position >= question
        return replace(cut, position=cut.position + 1) if cut is not None and shift else cut
    reply = next((p for p in range(question - 1, -1, -1) if artifacts[p].kind is Kind.ASSISTANT), None)
    if reply is None:
        return cut
    asked = next((p for p in range(reply, -1, -1) if artifacts[p].kind is Kind.USER), reply)
    position = min(asked, cut.position) if cut.fresh else asked
    return replace(cut, position=position, fresh=True, rebilled=draft.counter.artifacts(artifacts[position:]))


def recall_stages(
    *,
    share: float = 0.15,
    target: float = 0.5,
    before: Sequence[Stage] = (),
) -> list[Stage]:
    """Return the fitting part of a chain that recalls: the window with a reserve, then the block in it.

    Args:
        share: see `RecallRelevant`.
        target: see `StableWindow`.
        before: stages that come first: repair, masking, bounding.
    """
    return [*before, StableWindow(target=target, reserve=share), RecallRelevant(share)]
