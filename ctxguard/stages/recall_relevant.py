"""Recall evicted exchanges that matter for the current question.

Exchanges are ranked by BM25 and, if there is an embedding, by meaning; the two rankings are fused by reciprocal ranks.
Neighboring exchanges share their scores, replies of the model weigh less than user messages and tool outputs, and of
equal matches the shorter one comes first. Measured by `benchmarks/memory.py` on conversations with questions about
them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Ask, Change, Draft, Follower, LeftOut, StageResult
from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.history import RECALLED, TRAIL, History, is_asked, record_title, write_record
from ctxguard.history.records import leading_records
from ctxguard.stages.bound_tool_output import bounded_text
from ctxguard.stages.embeddings import Embed, Embedding, SemanticIndex
from ctxguard.stages.followed import FollowedStage
from ctxguard.stages.lexical import PASSAGE, Document, LexicalIndex, passages_of
from ctxguard.stages.ranking import by_ranks, per_token, with_neighbors
from ctxguard.stages.traces import observed

if TYPE_CHECKING:
    from ctxguard.stores import Store

_NEIGHBOR: Final = 0.5
"""Weight of the score of the exchange before and after."""
_REPLY: Final = 2 / 3
"""Weight of the score of a reply, which mostly repeats the model's input."""
_LEAST_ROOM: Final = 64
"""Tokens below which nothing is recalled: the first line and a sentence."""
_EXCERPT: Final = 4
"""An exchange that does not fit as a whole may take a quarter of the available tokens."""
_MOST_SEARCHED: Final = 200_000
"""Characters of a text that are searched for passages."""
_THRESHOLD: Final = 0.6
"""Share of the scores of the best matches; of 0.5 to 0.9, see docs/measurements.md."""
_JUDGED: Final = 10
"""Best matches of a question that decide whether it is about evicted exchanges."""
_MOST_TRIED: Final = 200
"""Best exchanges that are tried for the block."""
_MENDING: Final = ("RepairExchanges", "ExpireLifetimes")
"""Stages whose dropped artifacts must not be recalled."""


class RecallRelevant(FollowedStage):
    """Insert evicted exchanges again if they share rare words with a question.

    They are inserted as one block, in their order and dated by turn, right before the user message that asks.

    With `StableWindow(recall=…)` before it, the window decides once, at the beginning of each turn and from the history
    alone. It looks at the ten best matches among the exchanges that share the question's rarest words: if evicted ones
    have at least `threshold` of their scores, something is recalled. The task never triggers recall. Only then are
    tokens made available, if necessary by a cut, and the block keeps its position until the next cut or the next
    recall. After other stages, whatever matches the last user message is recalled, within the tokens that they left
    unused.

    Args:
        share: the largest share of the available tokens (the budget minus system prompt, task and pins) that the block
            may take; None means 0.5, or 0.7 with `embed`.
        threshold: see above, from 0 to 1; 0 recalls in every turn.
        embed: compares texts by meaning, in addition to words: any callable, sync or async, from a list of texts to
            their vectors; an `Embeddings` of `langchain_core`; or `static` for the extra `semantic`, which needs no
            network. None ranks by words alone. If it fails, words alone rank, and `report.details` says so.
        store: where the vectors are saved if `embed` has a name of its own.

    Raises:
        ConfigError: a setting is out of range.
        ImportError: `embed` is given and the extra is not installed.
    """

    name = "RecallRelevant"

    def __init__(
        self,
        share: float | None = None,
        *,
        threshold: float = _THRESHOLD,
        embed: Embed | None = None,
        store: Store | None = None,
    ) -> None:
        if share is None:
            share = 0.5 if embed is None else 0.7
        if not 0 < share < 1:
            raise ConfigError(f"share is a share of the budget above 0 and below 1, not {share}", setting="share")
        if not 0 <= threshold <= 1:
            raise ConfigError(f"threshold is a share from 0 to 1, not {threshold}", setting="threshold")
        self.share = share
        self.threshold = threshold
        self.embedding = None if embed is None else Embedding(embed, store)

    def begin(self, draft: Draft, /) -> Follower:  # noqa: ARG002 - what is ranked is not in the draft but was cut from it
        """Return the follower that recalls in one conversation."""
        return _Recalling(self.share, self.embedding)

    def gate(self, history: History) -> RecallGate:
        """Return the gate by which the window of one conversation decides whether to recall."""
        return RecallGate(history, self.share, self.threshold)


class RecallGate:
    """Decide at the beginning of each turn whether to recall, from the history before it alone.

    Texts are only read once something has been evicted and a user message arrives, so agents do not pay for it.

    Attributes:
        share: share of the available tokens that the block may take at most.
    """

    def __init__(self, history: History, share: float, threshold: float) -> None:
        self.share, self._history, self._threshold = share, history, threshold
        self._index = LexicalIndex()

    def opens(self, question: int, kept: Sequence[int], end: int) -> bool:
        """Return whether to recall for a question.

        Args:
            question: number of its exchange.
            kept: numbers of the kept exchanges among the first `end`, in order.
            end: see `kept`; all later exchanges are in the context.
        """
        if len(kept) == end or not self._threshold:
            return len(kept) < end
        if observed(self._history, question, question):
            return False
        _take(self._index, self._history, question)
        scores = self._index.matches(self._history.members(question)[0].text)
        best = sorted(scores, key=lambda n: (-scores[n], -n))[:_JUDGED]
        gone = sum(scores[n] for n in best if n < end and n not in kept)
        return bool(best) and gone >= self._threshold * sum(scores[n] for n in best)


def _take(index: LexicalIndex, history: History, end: int) -> None:
    for number in range(len(index.documents), end):
        index.add(_searched(history.members(number)))


class _Recalling:
    """Recall in one conversation: evicted exchanges are indexed once, and a block is written once."""

    def __init__(self, share: float, embedding: Embedding | None) -> None:
        self._share, self._embedding = share, embedding
        self._past: _Past | None = None
        self._block: tuple[object, Artifact | None] = (None, None)

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Do nothing: evicted artifacts are not in the drafts of this stage."""

    def result(self, draft: Draft) -> StageResult:
        """Return the draft with the block, or unchanged if nothing evicted matters for the question."""
        left = draft.left_out or self._dropped(draft)
        if left is None or left.tokens < _LEAST_ROOM:
            return draft
        root = left.history.members(left.asked)[0].root
        place = next((p for p in range(len(draft.artifacts) - 1, -1, -1) if draft.artifacts[p].root is root), None)
        # the history may be an earlier result, which has its block already
        if place is None or _has_block(draft.artifacts, place):
            return draft
        return self._recalled(draft, place, left)

    def _recalled(self, draft: Draft, place: int, left: LeftOut) -> Generator[Ask, object, Draft]:
        """Return the draft with the block, the same object until the next recall or until a cut masks it anew."""
        asked = left.history.members(left.asked)[0]
        at = _known_by(draft, asked)
        if self._past is None or self._past.history is not left.history:
            self._past = _Past(left.history, self._embedding)
        made_from = (id(asked.root), left.kept, left.end, left.tokens, draft.masks, id(at.root))
        if self._block[0] != made_from:
            scores = yield from self._past.scores(left.asked, draft, left.tokens // _EXCERPT)
            self._block = (made_from, _block(draft, self._past, scores, left, at))
        block = self._block[1]
        if self._past.failure:
            draft = replace(draft, details={**draft.details, "RecallRelevant": {"embed": self._past.failure}})
        # after other stages than the window, messages since the question may have used up the tokens
        if block is None or draft.tokens + draft.counter.artifact(block) > draft.budget:
            return draft
        artifacts = (*draft.artifacts[:place], block, *draft.artifacts[place:])
        return draft.revise(artifacts, action="recalled", reason="matches the question")

    def _dropped(self, draft: Draft) -> LeftOut | None:
        """Return what other stages than the window dropped, and the tokens unused at the last user message."""
        change = next((c for c in draft.changes if c.stage not in _MENDING and _drops(c)), None)
        place = next((p for p in range(len(draft.artifacts) - 1, -1, -1) if is_asked(draft.artifacts[p])), None)
        if change is None or place is None:
            return None
        history, root = History(draft.counter.artifact, change.before), draft.artifacts[place].root
        asked = next((n for n in reversed(history.asked) if history.members(n)[0].root is root), None)
        if asked is None:
            return None
        there = {id(artifact.root) for artifact in draft.artifacts}
        kept = tuple(n for n in range(asked) if id(history.members(n)[0].root) in there)
        # Later messages do not change what the block may take.
        free = draft.budget - draft.overhead - draft.counter.artifacts(draft.artifacts[: place + 1])
        return LeftOut(history, min(free, int(self._share * draft.budget)), asked, kept, asked)


class _Past:
    """Rank the exchanges of one history by a question.

    Attributes:
        history: the history; its beginning never changes.
        failure: why the embedding failed at the latest question; empty if it did not.
        question: the latest question.
    """

    def __init__(self, history: History, embedding: Embedding | None) -> None:
        self.history, self.index = history, LexicalIndex()
        self._embedding, self._meanings = embedding, None if embedding is None else SemanticIndex()
        self.failure = self.question = ""

    def scores(self, asked: int, draft: Draft, most: int) -> Generator[Ask, object, dict[int, float]]:
        """Return the relevance per token of each exchange before a question; sizes above `most` count as `most`."""
        _take(self.index, self.history, asked)
        self.failure, self.question = "", self.history.members(asked)[0].text
        tokens = [min(span.tokens, most) for span in self.history.spans[:asked]]
        by_words = self._weighted(self.index.matches(self.question), asked)
        if self._embedding is None or self._meanings is None:
            return per_token(by_words, tokens)
        try:
            new = ["\n".join(document) for document in self.index.documents[len(self._meanings) :]]
            vector, *vectors = yield from self._embedding.vectors([self.question, *new], dry=draft.dry)
            self._meanings.extend(vectors)
        except CtxguardError:
            raise
        except Exception as error:  # noqa: BLE001 - a service that is down must not end a run
            self.failure = f"failed ({type(error).__name__}); ranked by words alone"
            return per_token(by_words, tokens)
        found = {n: score for n, score in self._meanings.matches(vector).items() if self.index.documents[n]}
        return per_token(by_ranks(by_words, self._weighted(found, asked)), tokens)

    def _weighted(self, scores: Mapping[int, float], end: int) -> dict[int, float]:
        """Return the scores of the exchanges before a question, with their neighbors' share; replies weigh less."""
        near = with_neighbors(scores, _NEIGHBOR)
        return {n: score * (_REPLY if _replies(self.history, n) else 1.0) for n, score in near.items() if n < end}


def _known_by(draft: Draft, asked: Artifact) -> Artifact:
    """Return the artifact up to which names are known for masking the block: the question, or a later cut.

    A cut within the turn masks everything older than it, by the names that are known then.
    """
    if draft.cut_at is None or not draft.remasks:
        return asked
    behind = draft.history[draft.cut_at + 1 :]
    return asked if any(artifact.root is asked.root for artifact in behind) else draft.history[draft.cut_at]


def _block(draft: Draft, past: _Past, scores: Mapping[int, float], left_out: LeftOut, at: Artifact) -> Artifact | None:
    """Return the block of the most relevant exchanges within the available tokens; None if there are none."""
    room, history = left_out.tokens, left_out.history
    gone = frozenset(range(min(left_out.asked, left_out.end))).difference(left_out.kept, history.pinned)
    order = sorted((n for n in scores if n in gone and past.index.documents[n]), key=lambda n: (-scores[n], -n))
    chosen: dict[int, str] = {}
    left = room - draft.counter.artifact(Artifact(Kind.USER, write_record(RECALLED, "")))
    for number in order[:_MOST_TRIED]:
        piece = _piece(draft, past, number, left, room // _EXCERPT)
        if piece is not None:
            chosen[number] = piece
            left -= draft.counter.text(piece) + 1
        if left < _LEAST_ROOM // 4:
            break
    return _fitted(draft, room, chosen, at)


def _has_block(artifacts: Sequence[Artifact], place: int) -> bool:
    """Return whether a question already has a block before it, or joined to it."""
    if place and record_title(artifacts[place - 1]) == RECALLED:
        return True
    return any(record.title == RECALLED for record in leading_records(artifacts[place].text))


def _replies(history: History, number: int) -> bool:
    first = history.artifacts[history.start(number)]
    return first.kind is Kind.ASSISTANT and not first.calls


def _drops(change: Change) -> bool:
    left = {id(a.root) for a in change.after}
    return any(id(a.root) not in left for a in change.before)


def _searched(artifacts: Sequence[Artifact]) -> Document:
    """Return the texts of an exchange that are indexed; none of the texts that stages wrote about other exchanges."""
    first = artifacts[0]
    if record_title(first) in (RECALLED, TRAIL):
        return ()
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


def _piece(draft: Draft, past: _Past, number: int, left: int, most: int) -> str | None:
    """Return an exchange as it appears in the block, within `left` tokens; an excerpt if it takes more than `most`."""
    # Role and date come on top, so if the texts alone do not fit, they need not be rendered.
    texts = sum(map(draft.counter.text, past.index.documents[number]))
    if texts > left and (texts <= most or left < _LEAST_ROOM):
        return None
    turn = bisect_right(past.history.asked, number)
    text = "\n".join(_lines(past.history.members(number), turn))
    if texts <= left and draft.counter.text(text) < left:
        return text
    return _excerpt(draft, text, past.question, min(most, left - 1)) if texts > most else None


def _excerpt(draft: Draft, text: str, question: str, max_tokens: int) -> str | None:
    """Return the passages of a text that match a question best, in their order; its beginning if none does."""
    passages = passages_of(text[:_MOST_SEARCHED], min(PASSAGE, 2 * max_tokens))
    index = LexicalIndex()
    for passage in passages:
        index.add((passage,))
    found = index.matches(question)
    taken: dict[int, str] = {}
    left = max_tokens
    for number in sorted(found, key=lambda n: (-found[n], n)):
        tokens = draft.counter.text(passages[number]) + 2  # including the mark for omitted passages before it
        if tokens <= left:
            taken[number] = passages[number]
            left -= tokens
    if not taken:
        return bounded_text(text, max_tokens, draft) or None
    return "\n".join(f"{'' if n == 0 or n - 1 in taken else '… '}{taken[n]}" for n in sorted(taken))


def _fitted(draft: Draft, room: int, chosen: dict[int, str], at: Artifact) -> Artifact | None:
    """Return the block of the chosen pieces; the least relevant are dropped if masking made the block too long."""
    numbers = list(chosen)
    # the pieces were counted unmasked, and separately
    while numbers:
        body = draft.mask("\n".join(chosen[n] for n in sorted(numbers)), at=at)
        block = Artifact(Kind.USER, write_record(RECALLED, body))
        if draft.counter.artifact(block) <= room:
            return block
        numbers.pop()
    return None
