"""Bring back what was cut and matters now.

Exchanges are ranked by BM25 and, where there is an embedding, by meaning, fused by reciprocal ranks. An exchange counts
together with those around it, replies of the model count for less than what people said and tools found, and of equal
matches the shorter one comes first. Measured by `benchmarks/memory.py` on conversations with questions about them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Ask, Change, Draft, Follower, StageResult
from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.history import (
    AUTHORITY,
    RECALLED,
    TRAIL,
    History,
    is_asked,
    leading_records,
    record_title,
    write_record,
)
from ctxguard.stages.bound_tool_output import bounded_text
from ctxguard.stages.embeddings import Embed, Embedding, SemanticIndex
from ctxguard.stages.followed import FollowedStage
from ctxguard.stages.lexical import Document, LexicalIndex
from ctxguard.stages.ranking import by_ranks, per_token, with_neighbors

if TYPE_CHECKING:
    from ctxguard.stores import Store

_NEIGHBOR: Final = 0.5
"""Weight of the score of the exchange before and after, by words."""
_NEAR_IN_MEANING: Final = 0.25
"""The same by meaning, which spreads over more of a conversation anyway."""
_REPLY: Final = 2 / 3
"""Weight of the score of a reply, which mostly repeats what the model was told."""
_LEAST_ROOM: Final = 64
"""Tokens below which nothing is recalled: the first line and a sentence."""
_EXCERPT: Final = 4
"""A quarter of the room: what an exchange that does not fit as a whole may take."""
_PASSAGE: Final = 400
"""Characters of a passage of a long text, about."""
_MOST_SEARCHED: Final = 200_000
"""Characters of a text that are searched for passages."""
_MOST_IN_VAIN: Final = 100
"""How many exchanges in a row may fail to fit before the search stops."""
_MENDING: Final = ("RepairExchanges", "ExpireLifetimes")
"""Stages that drop what must not come back."""


class RecallRelevant(FollowedStage):
    """Bring exchanges that were cut back where they share rare words with the last user message.

    They stand as one block, in their order and dated by turn, right before that message. The block is a function of
    the history up to that message: it is the same for the whole turn, and what stands before it stays as it was. Place
    the stage after the one that cuts; `StableWindow(reserve=share)` keeps room for it, after other stages it takes
    only what they leave.

    Args:
        share: most of what system, task and pins leave of the budget that the block may take.
        embed: what compares by meaning, beside words: any callable, sync or async, from a list of texts to their
            vectors; an `Embeddings` of `langchain_core`; or `static` for the extra `semantic`, which needs no network.
            None means by words alone. Where it fails, words alone rank, and `report.details` says so.
        store: where the vectors of an `embed` with a name of its own are kept.

    Raises:
        ConfigError: a setting is out of range.
        ImportError: `embed` is given and the extra is not installed.
    """

    name = "RecallRelevant"

    def __init__(self, share: float = 0.5, *, embed: Embed | None = None, store: Store | None = None) -> None:
        if not 0 < share < 1:
            raise ConfigError(f"share is a share of the budget above 0 and below 1, not {share}", setting="share")
        self.share = share
        self.embedding = None if embed is None else Embedding(embed, store)

    def begin(self, draft: Draft, /) -> Follower:  # noqa: ARG002 - what is ranked is not in the draft but was cut from it
        """Return what recalls in one conversation."""
        return _Recalling(self.share, self.embedding)


class _Recalling:
    """Recall in one conversation: what was cut is indexed once, and the block holds for its turn."""

    def __init__(self, share: float, embedding: Embedding | None) -> None:
        self._share = share
        self._past = _Past(embedding)
        self._block: tuple[object, Artifact | None] = (None, None)

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Take in nothing: what a stage left out is not in its drafts."""

    def result(self, draft: Draft) -> StageResult:
        """Return the draft with the block, or as it was where nothing that was cut matters."""
        place = next((p for p in range(len(draft.artifacts) - 1, -1, -1) if is_asked(draft.artifacts[p])), None)
        # a result that is stabilized again has its block already
        if place is None or _has_block(draft.artifacts, place):
            return draft
        found = self._left_out(draft, place)
        if found is None or not found[2] or found[3] < _LEAST_ROOM:
            return draft
        return self._recalled(draft, place, *found)

    def _recalled(
        self, draft: Draft, place: int, history: History, asked: int, gone: frozenset[int], room: int
    ) -> Generator[Ask, object, Draft]:
        """Return the draft with the block, the same object until the next turn, or until a cut makes names known."""
        at = _known_by(draft, history.members(asked)[0])
        made_from = (id(history.members(asked)[0].root), gone, room, draft.masks, id(at.root))
        if self._block[0] != made_from:
            scores = yield from self._past.scores(history, asked, draft, room // _EXCERPT)
            self._block = (made_from, _block(draft, self._past, history, scores, gone, room, at))
        block = self._block[1]
        if self._past.failure:
            draft = replace(draft, details={**draft.details, "RecallRelevant": {"embed": self._past.failure}})
        # what came since the question may have used up the room
        if block is None or draft.tokens + draft.counter.artifact(block) > draft.budget:
            return draft
        artifacts = (*draft.artifacts[:place], block, *draft.artifacts[place:])
        why = (
            "shares rare words with the last user message" if self._past.is_lexical else "matches the last user message"
        )
        return draft.revise(artifacts, action="recalled", reason=why)

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


class _Past:
    """Rank the exchanges of one history, and know in which turn each stands.

    Attributes:
        failure: why the embedding could not be used when last asked; empty where it could.
        question: what was asked last.
    """

    def __init__(self, embedding: Embedding | None) -> None:
        self._embedding = embedding
        self.failure = ""
        self.question = ""
        self._begin()

    def _begin(self) -> None:
        self.index = LexicalIndex()
        self.turns: list[int] = []
        self.tokens: list[int] = []
        self._meanings = None if self._embedding is None else SemanticIndex()
        self._read: list[Artifact] = []

    @property
    def is_lexical(self) -> bool:
        """Whether words alone rank."""
        return self._embedding is None or bool(self.failure)

    def scores(self, history: History, asked: int, draft: Draft, most: int) -> Generator[Ask, object, dict[int, float]]:
        """Return how much each exchange before a question matters for it, for its tokens, counted up to `most`."""
        self._take(history, asked)
        question = self.question = history.members(asked)[0].text
        tokens = [min(each, most) for each in self.tokens]
        by_words = _discounted(with_neighbors(self.index.matches(question), _NEIGHBOR), history, asked)
        if self._embedding is None:
            return per_token(by_words, tokens)
        self.failure = ""
        try:
            found = yield from self._meant(question, self._embedding, draft)
        except CtxguardError:
            raise
        except Exception as error:  # noqa: BLE001 - a service that is down must not end a run
            self.failure = f"failed ({type(error).__name__}); ranked by words alone"
            return per_token(by_words, tokens)
        by_meaning = _discounted(with_neighbors(found, _NEAR_IN_MEANING), history, asked)
        return per_token(by_ranks(by_words, by_meaning), tokens)

    def _take(self, history: History, end: int) -> None:
        """Take in the exchanges before the question; those that were taken in already must be the very same."""
        # an edited history would otherwise be ranked by texts that are gone
        if len(self._read) > end or any(a is not history.artifacts[history.start(n)] for n, a in enumerate(self._read)):
            self._begin()
        for number in range(len(self._read), end):
            members = history.members(number)
            self._read.append(members[0])
            self.index.add(() if record_title(members[0]) in (RECALLED, TRAIL) else _document(members))
            self.tokens.append(history.spans[number].tokens)
            self.turns.append((self.turns[-1] if self.turns else 0) + history.spans[number].is_asked)

    def _meant(self, question: str, embedding: Embedding, draft: Draft) -> Generator[Ask, object, dict[int, float]]:
        if self._meanings is None:
            return {}
        new = ["\n".join(document) for document in self.index.documents[len(self._meanings) :]]
        asked, *vectors = yield from embedding.vectors([question, *new], dry=draft.dry)
        self._meanings.extend(vectors)
        return {n: score for n, score in self._meanings.matches(asked).items() if self.index.documents[n]}


def _discounted(scores: Mapping[int, float], history: History, end: int) -> dict[int, float]:
    """Return the scores of the exchanges before a question, replies of the model for less."""
    return {n: score * (_REPLY if _replies(history, n) else 1.0) for n, score in scores.items() if n < end}


def _known_by(draft: Draft, asked: Artifact) -> Artifact:
    """Return the artifact by whose coming all names in the block are masked: the question, or a later cut.

    A cut within the turn masks all that is older than it by the names that are known then.
    """
    if draft.cut_at is None or not draft.remasks:
        return asked
    behind = draft.history[draft.cut_at + 1 :]
    return asked if any(artifact.root is asked.root for artifact in behind) else draft.history[draft.cut_at]


def _block(
    draft: Draft,
    past: _Past,
    history: History,
    scores: Mapping[int, float],
    gone: frozenset[int],
    room: int,
    at: Artifact,
) -> Artifact | None:
    """Return the block of what matters most for a question, within `room` tokens; None where nothing does."""
    order = sorted((n for n in scores if n in gone and past.index.documents[n]), key=lambda n: (-scores[n], -n))
    chosen: dict[int, str] = {}
    left, in_vain = room - draft.counter.artifact(Artifact(Kind.USER, write_record(RECALLED, ""))), 0
    for number in order:
        piece = _piece(draft, past, history, number, left, room // _EXCERPT)
        in_vain += 1
        if piece is not None:
            chosen[number] = piece
            left -= draft.counter.text(piece) + 1
            in_vain = 0
        if left < _LEAST_ROOM // 4 or in_vain == _MOST_IN_VAIN:
            break
    return _fitted(draft, room, chosen, at)


def _has_block(artifacts: Sequence[Artifact], place: int) -> bool:
    """Return whether a block stands before a question already, also where the two were joined."""
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


def _lines(artifacts: Sequence[Artifact], turn: int) -> Iterator[str]:
    for artifact in artifacts:
        who = artifact.kind.value if artifact.name is None else f"{artifact.kind.value} {artifact.name}"
        if artifact.text:
            yield f"[turn {turn}] {who}: {artifact.text}"
        for call in artifact.calls:
            yield f"[turn {turn}] {who} calls {call.name}({call.arguments})"


def _piece(draft: Draft, past: _Past, history: History, number: int, left: int, most: int) -> str | None:
    """Return an exchange as it stands in the block, within `left` tokens; where it takes more than `most`, in part."""
    # What stands around the texts comes on top, so texts that do not fit need not be rendered.
    texts = sum(map(draft.counter.text, past.index.documents[number]))
    if texts > left and (texts <= most or left < _LEAST_ROOM):
        return None
    text = "\n".join(_lines(history.members(number), past.turns[number]))
    if texts <= left and draft.counter.text(text) < left:
        return text
    return _excerpt(draft, text, past.question, min(most, left - 1)) if texts > most else None


def _excerpt(draft: Draft, text: str, question: str, max_tokens: int) -> str | None:
    """Return the passages of a text that match a question best, in their order; its beginning where none does."""
    passages = _passages(text[:_MOST_SEARCHED], min(_PASSAGE, 2 * max_tokens))
    index = LexicalIndex()
    for passage in passages:
        index.add((passage,))
    found = index.matches(question)
    taken: dict[int, str] = {}
    left = max_tokens
    for number in sorted(found, key=lambda n: (-found[n], n)):
        tokens = draft.counter.text(passages[number]) + 2  # with the mark of what is left out before it
        if tokens <= left:
            taken[number] = passages[number]
            left -= tokens
    if not taken:
        return bounded_text(text, max_tokens, draft) or None
    return "\n".join(f"{'' if n == 0 or n - 1 in taken else '… '}{taken[n]}" for n in sorted(taken))


def _passages(text: str, size: int) -> list[str]:
    """Return a text in passages of whole lines, of at most about `size` characters; longer lines are divided."""
    passages = [""]
    for line in text.splitlines():
        for begin in range(0, max(len(line), 1), size):
            part = line[begin : begin + size]
            if passages[-1] and len(passages[-1]) + len(part) > size:
                passages.append("")
            passages[-1] += f"\n{part}" if passages[-1] else part
    return passages


def _fitted(draft: Draft, room: int, chosen: dict[int, str], at: Artifact) -> Artifact | None:
    """Return the block of the chosen pieces; the least ones go where masking the whole has made it longer."""
    numbers = list(chosen)
    # the pieces were counted unmasked, and each by itself
    while numbers:
        body = draft.mask("\n".join(chosen[n] for n in sorted(numbers)), at=at)
        block = Artifact(Kind.USER, write_record(RECALLED, body))
        if draft.counter.artifact(block) <= room:
            return block
        numbers.pop()
    return None
