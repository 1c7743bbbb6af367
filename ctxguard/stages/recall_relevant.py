"""Recall evicted exchanges that matter for the current question.

Recalled exchanges are repeated in a block: one message, right before the user message that asks the question. Exchanges
are ranked by the words that they share with the question (BM25) and, with an embedding, also by meaning; the two
rankings are combined by reciprocal rank fusion. Exchanges close to a match get a share of its score. Replies of the
model weigh less than user messages and tool outputs. Of equal matches, the shorter one ranks first. The constants were
measured with `benchmarks/memory.py` on conversations with questions about them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Ask, Change, Draft, LeftOut, StageResult
from ctxguard.errors import CtxguardError, SummarizerError
from ctxguard.history import RECALLED, TRAIL, History, is_asked, record_title, write_record
from ctxguard.history.records import leading_records
from ctxguard.settings import valid_share
from ctxguard.stages.bound_tool_output import bound_text
from ctxguard.stages.embeddings import Embed, Embedding, SemanticIndex
from ctxguard.stages.fold import State
from ctxguard.stages.lexical import (
    PASSAGE,
    Document,
    LexicalIndex,
    by_ranks,
    passages_for,
    passages_of,
    per_token,
    with_neighbors,
)
from ctxguard.stages.short_views import holds_observation

if TYPE_CHECKING:
    from ctxguard.stores import Store

_NEIGHBOR: Final = 0.5
"""Share of its score that an exchange passes on to the exchanges directly before and after it."""
_REPLY: Final = 2 / 3
"""Weight of the score of a reply. A reply mostly repeats what the model was told."""
_LEAST_TOKENS: Final = 64
"""Minimum number of tokens for a block, enough for its heading and a sentence. With fewer, nothing is recalled."""
_EXCERPT: Final = 4
"""An exchange that does not fit in full is quoted in at most a quarter of the tokens of the block."""
_MOST_SEARCHED: Final = 200_000
"""Number of characters at the start of an exchange that are searched for passages."""

_THRESHOLD: Final = 0.4
"""Default of `threshold`, chosen by measurements with other values, see docs/measurements.md."""
_JUDGED: Final = 10
"""Number of best matches of a question that decide whether the question is about evicted exchanges."""
_COVERED: Final = 0.1
"""The best evicted match must have at least this share of the highest score that the question can reach. Therefore, a
question that consists of a long pasted text recalls nothing."""
_MOST_TRIED: Final = 200
"""Maximum number of best matches that are considered for a question, and of exchanges that are tried for a block."""
_LEAST_WINDOW: Final = 500
"""With fewer available tokens, nothing is recalled by itself: a block would take what the turn needs."""
_EMPTY_BLOCK: Final = Artifact(Kind.USER, write_record(RECALLED, ""))
_INVALID: Final = ("fault", "lifetime")
"""Causes for which artifacts are dropped because they are invalid or expired. Such artifacts must not be recalled."""


class RecallRelevant:
    """Repeats evicted exchanges in the context if they share rare words with the current question.

    The exchanges are inserted as one message, the block, right before the user message that asks the question. They
    appear in the order of the conversation, and each message is preceded by the number of its turn.

    With `StableWindow(recall=…)` before it in the chain, the window decides at the beginning of each turn whether to
    recall anything. It considers the ten exchanges that match the question best. Something is recalled under two
    conditions. The evicted exchanges among the ten have at least the share `threshold` of the sum of the ten scores.
    And the best evicted exchange has at least a tenth of the highest score that the question can reach. The window then
    reserves tokens for the block, if necessary by a cut. The block stays in its place until the next cut, or until a
    later question needs its tokens for another block. While the block is there, its exchanges are not recalled again.
    The task never triggers recall.

    In a chain with another evicting stage in place of the window, whatever matches the last user message is recalled,
    in the tokens that are left of the budget.

    Args:
        share: The largest share of the available tokens that a block may take. After `StableWindow`, the available
            tokens are the budget minus tool schemas, system prompt, task, and pins. None means 0.5, or 0.7 with
            `embed`.
        threshold: See above, from 0 to 1. With 0, every turn recalls whatever matches.
        embed: Compares texts by meaning, in addition to words: a sync or async callable that returns one vector for
            each of a list of texts; an `Embeddings` object of `langchain_core`; or `"static"` for the embeddings of the
            extra `semantic`, which work offline. None ranks by words alone. If `embed` fails, exchanges are ranked by
            words alone, and `report.details` says so. `Stabilizer.plan` does not call `embed`, so it ranks by words
            alone as well.
        store: Where vectors are saved, if `embed` has a name under which they can be found again. With None, vectors
            are only cached in memory.

    Raises:
        ConfigError: If a setting is out of range.
        ImportError: If `embed` is given and the extra `semantic` is not installed. With embeddings of your own, the
            error is not raised before the first question.
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
        self.share = valid_share(share, "share", one=False)
        self.threshold = valid_share(threshold, "threshold", zero=True)
        self.embedding = None if embed is None else Embedding(embed, store)

    def __call__(self, draft: Draft, /) -> StageResult:
        """Return the draft with a block before each question that recalls something; the draft itself if none does."""
        return draft.memory.of((self, draft.masking.masks), lambda: _Recalling(self)).recalled(draft)

    def gate(self, history: History, draft: Draft) -> RecallGate:
        """Return the object by which the window of one conversation decides what to recall.

        Args:
            history: The exchanges of the conversation, as the window updates them.
            draft: The first draft of the conversation that the window got.
        """
        return RecallGate(history, self, draft)


class RecallGate:
    """Decides at the beginning of each turn what to recall. The decision depends only on the history up to that turn.

    Messages are only indexed once something has been evicted and another user message arrives, so an agent that works
    on a single request spends no time on it.
    """

    def __init__(self, history: History, stage: RecallRelevant, draft: Draft) -> None:
        self._history, self._stage, self._draft = history, stage, draft
        self._index: LexicalIndex | None = None

    def find(self, question: int, state: State, available: int, *, always: bool = False) -> LeftOut | None:
        """Return the scores of earlier exchanges and the tokens that a block may take; None if nothing is recalled.

        Args:
            question: Index in the history of the exchange with the question.
            state: The state of the window. Exchanges that blocks already repeat do not influence the decision.
            available: Number of tokens of which the block may take a share.
            always: Whether to recall whatever matches, as with a threshold of 0.
        """
        history, shown = self._history, state.shown
        threshold = 0.0 if always else self._stage.threshold
        if threshold and (available <= _LEAST_WINDOW or holds_observation(history, question)):
            return None
        if len(state.kept) == state.judged:
            return None
        index = self._index_until(question)
        text = history.members(question)[0].text
        scores = index.matches(text)
        if threshold:
            found = nlargest(_JUDGED + len(shown), zip(scores.values(), scores, strict=True))
            judged = [(score, number) for score, number in found if number not in shown][:_JUDGED]
            gone = [score for score, number in judged if number < state.judged and number not in state.kept]
            if max(gone, default=0) < _COVERED * index.worth(text):
                return None
            if sum(gone) < threshold * sum(score for score, _ in judged):
                return None
        best = sorted(zip(scores.values(), scores, strict=True))[-_MOST_TRIED:]
        near = _weigh(history, {number: score for score, number in best}, question)
        return LeftOut(history, int(self._stage.share * available), question, scores=near)

    def _index_until(self, end: int) -> LexicalIndex:
        """Return the index of the first `end` exchanges of the history."""
        index = self._index = self._index or LexicalIndex()
        index.shorten(end)
        known = len(index.documents)
        if known < end:
            self._history.undo(index.shorten, known)
        for number in range(known, end):
            index.add(_indexed_texts(self._history.members(number)))
        return index

    def fit(self, recall: LeftOut, tokens: int, state: State) -> LeftOut:
        """Return `recall` with a block: a message of at most `tokens` tokens that repeats exchanges evicted in `state`.

        The block is written here, so that the window reserves exactly the tokens that the block takes. With an
        embedding, the final block is only known later (`_Recalling`), so all of `tokens` are reserved.
        """
        left = replace(recall, tokens=tokens, kept=state.kept, end=state.judged)
        block, found = _write_block(self._draft, left, _rank(left, recall.scores, state.shown))
        if self._stage.embedding is None:
            left = replace(left, tokens=0 if block is None else self._draft.counter.artifact(block))
        return replace(left, block=block, found=found)


class _Recalling:
    """Inserts the blocks of recalled exchanges into one conversation, for `RecallRelevant`.

    Each exchange is embedded once, and each block is written once.
    """

    def __init__(self, stage: RecallRelevant) -> None:
        self._stage = stage
        self._meanings: SemanticIndex | None = None
        self._embedded: list[tuple[Artifact, ...]] = []
        self._latest: tuple[object, LeftOut] | None = None
        self._blocks: dict[object, tuple[LeftOut, LeftOut, str]] = {}

    def recalled(self, draft: Draft) -> StageResult:
        """Return the draft with a block before each question, see `RecallRelevant`. Later calls insert the same."""
        found = draft.decisions.left_out
        left_out = self._find_dropped(draft) if found is None else found
        return self._insert_blocks(draft, left_out) if left_out else draft

    def _insert_blocks(self, draft: Draft, left_out: Sequence[LeftOut]) -> Generator[Ask, object, Draft]:
        """Return the draft with a block before each question in `left_out`. Later calls insert the same objects."""
        blocks: dict[int, Artifact] = {}
        written, self._blocks, shown = self._blocks, {}, set[int]()
        for recall in left_out:
            left, failure = recall, ""
            if (embedding := self._stage.embedding) is not None:
                made_from = (id(recall), draft.masking.masks)
                written_before = written.get(made_from)
                _, left, failure = written_before or (yield from self._rank_by_meaning(embedding, recall, draft, shown))
                self._blocks[made_from] = recall, left, failure
            shown |= left.found
            if left.block is not None:
                blocks[id(left.history.members(left.asked)[0].root)] = left.block
            if failure:
                draft = draft.noted({self._stage.name: {"embed": failure}})
        return draft.revise(_with_blocks(draft, blocks), action="recalled", reason="matches the question")

    def _rank_by_meaning(
        self, embedding: Embedding, recall: LeftOut, draft: Draft, shown: set[int]
    ) -> Generator[Ask, object, tuple[LeftOut, LeftOut, str]]:
        """Write the block of a question again, with exchanges ranked by words and by meaning.

        Returns:
            `recall` itself, a copy of it with the new block, and the reason why embedding failed (empty if it did not).
        """
        history, asked, scores, failure = recall.history, recall.asked, recall.scores, ""
        # A history whose end was replaced has other exchanges, and after other stages than the window it is a new one.
        known = self._embedded
        if len(known) > len(history) or any(history.members(n) != one for n, one in enumerate(known)):
            self._meanings = None
        if self._meanings is None:
            self._meanings, self._embedded = SemanticIndex(), []
        meanings = self._meanings
        try:
            new = ["\n".join(_indexed_texts(history.members(n))) for n in range(len(meanings), asked)]
            vector, *vectors = yield from embedding.vectors([history.members(asked)[0].text, *new], dry=draft.dry)
            meanings.extend(vectors)
            self._embedded = [history.members(n) for n in range(len(meanings))]
        except Exception as error:  # the call must succeed even if an embedding service is down
            is_refused = draft.dry and isinstance(error, SummarizerError)
            if isinstance(error, CtxguardError) and not is_refused:
                raise
            reason = "not called in a dry run" if is_refused else f"failed ({type(error).__name__})"
            failure = f"{reason}; ranked by words alone"
        else:
            found = {n: score for n, score in meanings.matches(vector).items() if n < asked}
            scores = by_ranks(scores, _weigh(history, found, asked))
        block, numbers = _write_block(draft, recall, _rank(recall, scores, shown))
        return recall, replace(recall, block=block, found=numbers), failure

    def _find_dropped(self, draft: Draft) -> tuple[LeftOut, ...]:
        """Return what the last user message recalls from the artifacts that stages other than the window have dropped.

        The block may take the tokens that were unused when that message arrived.
        """
        change = next((c for c in draft.changes if c.cause not in _INVALID and _drops(c)), None)
        place = next((p for p in range(len(draft.artifacts) - 1, -1, -1) if is_asked(draft.artifacts[p])), None)
        if change is None or place is None:
            return ()
        history, root = History(draft.counter.artifact, change.before), draft.artifacts[place].root
        asked = next((n for n in reversed(history.asked) if history.members(n)[0].root is root), None)
        if asked is None:
            return ()
        there = {id(artifact.root) for artifact in draft.artifacts}
        kept = tuple(n for n in range(asked) if id(history.members(n)[0].root) in there)
        # Messages after the question do not count, so that the block stays the same in each call of the turn.
        free = draft.budget - draft.overhead - draft.counter.artifacts(draft.artifacts[: place + 1])
        tokens = min(free, int(self._stage.share * draft.budget))
        before = change.before[: history.start(asked + 1)]
        made_from = (id(root), before, kept, tokens, draft.cut_at, draft.masking.masks)
        if self._latest is None or self._latest[0] != made_from:
            gate, state = RecallGate(history, self._stage, draft), State(kept=kept, cuts=(asked - 1,))
            recall = gate.find(asked, state, tokens, always=True)
            left = LeftOut(history) if recall is None else gate.fit(recall, tokens, state)
            self._latest = made_from, left
        left = self._latest[1]
        return (left,) if left.tokens else ()


def _weigh(history: History, scores: Mapping[int, float], end: int) -> dict[int, float]:
    """Return the scores of the exchanges before the question, with neighbors considered and replies weighted less.

    Args:
        history: The exchanges of the conversation.
        scores: Scores of the best matches.
        end: Index in the history of the exchange with the question.
    """
    near = with_neighbors(scores, _NEIGHBOR).items()
    return {n: score * weight for n, score in near if n < end and (weight := _weight(history, n))}


def _rank(left: LeftOut, scores: Mapping[int, float], shown: Collection[int]) -> list[tuple[int, int]]:
    """Return the evicted exchanges that are tried for a block, the best ones for their size first.

    Args:
        left: What was evicted, and the tokens that the block may take.
        scores: Scores of exchanges.
        shown: Exchanges that other blocks already repeat.

    Returns:
        Pairs: the index of an exchange in the history, and the number of tokens that it may take.
    """
    there, most = {*left.kept, *shown}, left.tokens // _EXCERPT
    gone = {n: score for n, score in scores.items() if n < left.end and n not in there}
    sizes = {n: min(left.history.spans[n].tokens, most) for n in gone}
    each = per_token(gone, sizes)
    return [(n, sizes[n]) for _, n in nlargest(_MOST_TRIED, zip(each.values(), each, strict=True))]


def _masking_point(draft: Draft, asked: Artifact) -> Artifact:
    """Return the artifact whose arrival decides which names are masked in a block: those known at that time.

    That is the question `asked`. If a later cut of the same turn masked all older texts again, it is the artifact that
    caused this cut.
    """
    if draft.cut_at is None or not draft.masking.remasks:
        return asked
    behind = draft.history[draft.cut_at + 1 :]
    return asked if any(artifact.root is asked.root for artifact in behind) else draft.history[draft.cut_at]


def _write_block(
    draft: Draft, left: LeftOut, order: Iterable[tuple[int, int]]
) -> tuple[Artifact | None, frozenset[int]]:
    """Return a block of the most relevant exchanges in at most `left.tokens` tokens, and the indexes of the exchanges.

    Args:
        draft: Provides the counter and the maskers.
        left: What was evicted, and the tokens that the block may take.
        order: The exchanges in the order in which they are tried, see `_rank`.
    """
    chosen: dict[int, str] = {}
    available = left.tokens - draft.counter.artifact(_EMPTY_BLOCK)
    for number, _ in order if left.tokens >= _LEAST_TOKENS else ():
        piece = _write_piece(draft, left, number, available)
        if piece is not None:
            chosen[number] = piece
            available -= draft.counter.text(piece) + 1
        if available < _LEAST_TOKENS // 4:
            break
    at = _masking_point(draft, left.history.members(left.asked)[0])
    # Exchanges were counted one by one and before masking. If the block is too long, the least relevant are removed.
    while chosen:
        block = draft.written(RECALLED, "\n".join(chosen[n] for n in sorted(chosen)), at=at)
        if draft.counter.artifact(block) <= left.tokens:
            return block, frozenset(chosen)
        chosen.popitem()
    return None, frozenset()


def _with_blocks(draft: Draft, blocks: Mapping[int, Artifact]) -> list[Artifact]:
    """Return the artifacts of a draft with each block inserted right before its question, as far as the budget allows.

    The keys of `blocks` are the `id()` of the root of each question.
    """
    artifacts: list[Artifact] = []
    tokens = draft.tokens if blocks else 0
    for artifact in draft.artifacts:
        block = blocks.get(id(artifact.root))
        # A history that is an earlier result already contains blocks. After other stages than the window, messages
        # since the question may have used up the tokens.
        if block is not None and not _has_block(artifacts, artifact):
            tokens += draft.counter.artifact(block)
            artifacts += [block] if tokens <= draft.budget else []
        artifacts.append(artifact)
    return artifacts


def _has_block(before: Sequence[Artifact], question: Artifact) -> bool:
    """Return whether a question already has a block: right before it, or joined to its text by `MergeMessageRuns`."""
    if before and record_title(before[-1]) == RECALLED:
        return True
    return any(record.title == RECALLED for record in leading_records(question.text))


def _weight(history: History, number: int) -> float:
    span, first = history.spans[number], history.artifacts[history.start(number)]
    if first.kind is Kind.ASSISTANT:
        return 1.0 if first.calls else _REPLY
    return 1.0 if span.is_asked or not _is_about_others(first) else 0.0


def _is_about_others(artifact: Artifact) -> bool:
    """Return whether an artifact is a trail or a block of recalled exchanges. Both only repeat other exchanges."""
    return record_title(artifact) in (RECALLED, TRAIL)


def _drops(change: Change) -> bool:
    left = {id(a.root) for a in change.after}
    return any(id(a.root) not in left for a in change.before)


def _indexed_texts(artifacts: Sequence[Artifact]) -> Document:
    """Return the texts of an exchange to be indexed: none for trails and blocks, which only repeat other exchanges."""
    first = artifacts[0]
    if _is_about_others(first):
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


def _write_lines(artifacts: Sequence[Artifact], turn: int) -> Iterator[str]:
    for artifact in artifacts:
        who = artifact.kind.value if artifact.name is None else f"{artifact.kind.value} {artifact.name}"
        if artifact.text:
            yield f"[turn {turn}] {who}: {artifact.text}"
        for call in artifact.calls:
            yield f"[turn {turn}] {who} calls {call.name}({call.arguments})"


def _write_piece(draft: Draft, left: LeftOut, number: int, available: int) -> str | None:
    """Return the text of an exchange for a block, in at most `available` tokens; None if it does not fit.

    Only the passages of a large exchange that match the question best are quoted.
    """
    history, most = left.history, left.tokens // _EXCERPT
    members = history.members(number)
    # Roles and turns take additional tokens, so if the texts alone do not fit, nothing needs to be written.
    texts = sum(map(draft.counter.text, _indexed_texts(members)))
    if texts > available and (texts <= most or available < _LEAST_TOKENS):
        return None
    text = "\n".join(_write_lines(members, bisect_right(history.asked, number)))
    if texts <= available and draft.counter.text(text) < available:
        return text
    question = history.members(left.asked)[0].text
    return _excerpt(draft, text, question, min(most, available - 1)) if texts > most else None


def _excerpt(draft: Draft, text: str, question: str, max_tokens: int) -> str | None:
    """Return the passages of a text that match a question best, in order; if none matches, a view of the text.

    Returns None if nothing fits into `max_tokens`.
    """
    passages = passages_of(text[:_MOST_SEARCHED], min(PASSAGE, 2 * max_tokens))
    taken: dict[int, str] = {}
    left = max_tokens
    for number, passage in passages_for(passages, question, most=len(passages)):
        tokens = draft.counter.text(passage) + 2  # including the mark for omitted passages before it
        if tokens <= left:
            taken[number] = passage
            left -= tokens
    if not taken:
        return bound_text(text, max_tokens, draft) or None
    return "\n".join(f"{'' if n == 0 or n - 1 in taken else '… '}{taken[n]}" for n in sorted(taken))
