"""Recall evicted exchanges that matter for the current question.

Exchanges are ranked by BM25 and, if there is an embedding, by meaning; the two rankings are fused by reciprocal ranks.
Neighboring exchanges share their scores, replies of the model weigh less than user messages and tool outputs, and of
equal matches the shorter one comes first. Measured by `benchmarks/memory.py` on conversations with questions about
them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Ask, Change, Draft, FollowedStage, Follower, LeftOut, StageResult
from ctxguard.errors import ConfigError, CtxguardError
from ctxguard.history import RECALLED, TRAIL, History, is_asked, record_title, write_record
from ctxguard.history.records import leading_records
from ctxguard.stages.bound_tool_output import bounded_text
from ctxguard.stages.embeddings import Embed, Embedding, SemanticIndex
from ctxguard.stages.lexical import PASSAGE, Document, LexicalIndex, passages_for, passages_of
from ctxguard.stages.ranking import by_ranks, per_token, with_neighbors
from ctxguard.stages.traces import observed
from ctxguard.stages.window_settings import SMALL
from ctxguard.stages.window_state import WindowState

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

_THRESHOLD: Final = 0.4
"""Share of the scores of the best matches; of 0.5 to 0.9, see docs/measurements.md."""
_JUDGED: Final = 10
"""Best matches of a question that decide whether it is about evicted exchanges."""
_COVERED: Final = 0.1
"""Share of what a question itself would score that the best evicted match must have: a long text recalls nothing."""
_MOST_TRIED: Final = 200
"""Best matches of a question, and best exchanges that are tried for the block."""
_MENDING: Final = ("RepairExchanges", "ExpireLifetimes")
"""Stages whose dropped artifacts must not be recalled."""


class RecallRelevant(FollowedStage):
    """Insert evicted exchanges again if they share rare words with a question.

    They are inserted as one block, in their order and dated by turn, right before the user message that asks.

    With `StableWindow(recall=…)` before it, the window decides once, at the beginning of each turn and from the history
    alone. It looks at the ten best matches among the exchanges that share the question's rarest words: if evicted ones
    have at least `threshold` of their scores, and the best of them a tenth of what the question itself would score,
    something is recalled. The task never triggers recall. Only then are tokens made available, if necessary by a cut.
    The block keeps its position until the next cut, or until a later block has no room beside it; until then its
    exchanges are not recalled again. After other stages, whatever matches the last user message is recalled, within the
    tokens that they left unused.

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
        return _Recalling(self)

    def gate(self, history: History, draft: Draft) -> RecallGate:
        """Return the gate by which the window of one conversation, begun with a draft, decides what to recall."""
        return RecallGate(history, self, draft)


class RecallGate:
    """Decide at the beginning of each turn what to recall, from the history before it alone.

    Texts are only read once something has been evicted and a user message arrives, so agents do not pay for it.
    """

    def __init__(self, history: History, stage: RecallRelevant, draft: Draft) -> None:
        self._history, self._stage, self._draft = history, stage, draft
        self._index = LexicalIndex()

    def wanted(self, question: int, state: WindowState, available: int, *, always: bool = False) -> LeftOut | None:
        """Return what a question finds in earlier exchanges, and the tokens that this is worth; None if none.

        Args:
            question: number of its exchange.
            state: of the window. What its blocks show counts neither as evicted nor as kept.
            available: tokens of which a block may take a share.
            always: recall whatever matches, as with a threshold of 0.
        """
        history, index, shown = self._history, self._index, state.shown
        threshold = 0.0 if always else self._stage.threshold
        if threshold and (available <= SMALL or observed(history, question, question)):
            return None
        if len(state.kept) == state.judged:
            return None
        for number in range(len(index.documents), question):
            index.add(_searched(history.members(number)))
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
        near = _weighted(history, {number: score for score, number in best}, question)
        return LeftOut(history, int(self._stage.share * available), question, scores=near)

    def rewind(self, count: int) -> None:
        """Forget the texts of all but the first `count` exchanges."""
        self._index.rewind(count)

    def within(self, wanted: LeftOut, tokens: int, state: WindowState) -> LeftOut:
        """Return what is recalled of the exchanges that are evicted now, in at most so many tokens.

        The block is written here already, so that a window reserves what it takes, and no more. What is recalled by
        meaning is known only later, so all the tokens are reserved for it.
        """
        left = replace(wanted, tokens=tokens, kept=state.kept, end=state.judged)
        block, found = _block(self._draft, left, _ranked(left, wanted.scores, state.shown))
        if self._stage.embedding is None:
            left = replace(left, tokens=0 if block is None else self._draft.counter.artifact(block))
        return replace(left, block=block, found=found)


class _Recalling:
    """Recall in one conversation: texts are embedded once, and a block is written once."""

    def __init__(self, stage: RecallRelevant) -> None:
        self._stage = stage
        self._meanings: SemanticIndex | None = None
        self._latest: tuple[object, LeftOut] | None = None
        self._written: dict[object, tuple[LeftOut, LeftOut, str]] = {}

    def take(self, artifacts: Sequence[Artifact], draft: Draft) -> None:
        """Do nothing: evicted artifacts are not in the drafts of this stage."""

    def rewind(self, count: int) -> bool:  # noqa: ARG002 - what was embedded is numbered by exchange, not by artifact
        """Forget the texts that were embedded; their vectors are still known."""
        self._meanings = self._latest = None
        return True

    def result(self, draft: Draft) -> StageResult:
        """Return the draft with its blocks, or unchanged if nothing evicted matters for a question."""
        left_out = self._dropped(draft) if draft.left_out is None else draft.left_out
        return self._recalled(draft, left_out) if left_out else draft

    def _recalled(self, draft: Draft, left_out: Sequence[LeftOut]) -> Generator[Ask, object, Draft]:
        """Return the draft with a block before each question, the same object until a cut removes it."""
        blocks: dict[int, Artifact] = {}
        written, self._written, shown = self._written, {}, set[int]()
        for wanted in left_out:
            left, failure = wanted, ""
            if (embedding := self._stage.embedding) is not None:
                made_from = (id(wanted), draft.masks)
                written_before = written.get(made_from)
                _, left, failure = written_before or (yield from self._by_meaning_too(embedding, wanted, draft, shown))
                self._written[made_from] = wanted, left, failure
            shown |= left.found
            if left.block is not None:
                blocks[id(left.history.members(left.asked)[0].root)] = left.block
            if failure:
                draft = replace(draft, details={**draft.details, "RecallRelevant": {"embed": failure}})
        return draft.revise(_with_blocks(draft, blocks), action="recalled", reason="matches the question")

    def _by_meaning_too(
        self, embedding: Embedding, wanted: LeftOut, draft: Draft, shown: set[int]
    ) -> Generator[Ask, object, tuple[LeftOut, LeftOut, str]]:
        """Return what is wanted, the same with its block ranked by meaning as well, and why that failed if it did."""
        history, asked, scores, failure = wanted.history, wanted.asked, wanted.scores, ""
        if self._meanings is None or self._latest is not None:  # after other stages than the window, a new history
            self._meanings = SemanticIndex()
        meanings = self._meanings
        try:
            new = ["\n".join(_searched(history.members(n))) for n in range(len(meanings), asked)]
            vector, *vectors = yield from embedding.vectors([history.members(asked)[0].text, *new], dry=draft.dry)
            meanings.extend(vectors)
        except CtxguardError:
            raise
        except Exception as error:  # noqa: BLE001 - a service that is down must not end a run
            failure = f"failed ({type(error).__name__}); ranked by words alone"
        else:
            found = {n: score for n, score in meanings.matches(vector).items() if n < asked}
            scores = by_ranks(scores, _weighted(history, found, asked))
        block, numbers = _block(draft, wanted, _ranked(wanted, scores, shown))
        return wanted, replace(wanted, block=block, found=numbers), failure

    def _dropped(self, draft: Draft) -> tuple[LeftOut, ...]:
        """Return what other stages than the window dropped, and the tokens unused at the last user message."""
        change = next((c for c in draft.changes if c.stage not in _MENDING and _drops(c)), None)
        place = next((p for p in range(len(draft.artifacts) - 1, -1, -1) if is_asked(draft.artifacts[p])), None)
        if change is None or place is None:
            return ()
        history, root = History(draft.counter.artifact, change.before), draft.artifacts[place].root
        asked = next((n for n in reversed(history.asked) if history.members(n)[0].root is root), None)
        if asked is None:
            return ()
        there = {id(artifact.root) for artifact in draft.artifacts}
        kept = tuple(n for n in range(asked) if id(history.members(n)[0].root) in there)
        # Later messages do not change what the block may take.
        free = draft.budget - draft.overhead - draft.counter.artifacts(draft.artifacts[: place + 1])
        tokens = min(free, int(self._stage.share * draft.budget))
        made_from = (id(root), kept, tokens, draft.cut_at, draft.masks)
        if self._latest is None or self._latest[0] != made_from:
            gate, state = RecallGate(history, self._stage, draft), WindowState(kept=kept, cuts=(asked - 1,))
            wanted = gate.wanted(asked, state, tokens, always=True)
            left = LeftOut(history) if wanted is None else gate.within(wanted, tokens, state)
            self._latest = made_from, left
        left = self._latest[1]
        return (left,) if left.tokens else ()


def _weighted(history: History, scores: Mapping[int, float], end: int) -> dict[int, float]:
    """Return the scores of the exchanges before a question, with their neighbors' share; replies weigh less."""
    near = with_neighbors(scores, _NEIGHBOR).items()
    return {n: score * weight for n, score in near if n < end and (weight := _weight(history, n))}


def _ranked(left: LeftOut, scores: Mapping[int, float], shown: Collection[int]) -> list[tuple[int, int]]:
    """Return the evicted exchanges that are tried for a block, the most relevant per token first, with their sizes."""
    there, most = {*left.kept, *shown}, left.tokens // _EXCERPT
    gone = {n: score for n, score in scores.items() if n < left.end and n not in there}
    sizes = {n: min(left.history.spans[n].tokens, most) for n in gone}
    each = per_token(gone, sizes)
    return [(n, sizes[n]) for _, n in nlargest(_MOST_TRIED, zip(each.values(), each, strict=True))]


def _known_by(draft: Draft, asked: Artifact) -> Artifact:
    """Return the artifact up to which names are known for masking the block: the question, or a later cut.

    A cut within the turn masks everything older than it, by the names that are known then.
    """
    if draft.cut_at is None or not draft.remasks:
        return asked
    behind = draft.history[draft.cut_at + 1 :]
    return asked if any(artifact.root is asked.root for artifact in behind) else draft.history[draft.cut_at]


def _block(draft: Draft, left: LeftOut, order: Iterable[tuple[int, int]]) -> tuple[Artifact | None, frozenset[int]]:
    """Return the block of the most relevant exchanges within the available tokens, and their numbers."""
    chosen: dict[int, str] = {}
    room = left.tokens - draft.counter.artifact(Artifact(Kind.USER, write_record(RECALLED, "")))
    for number, _ in order if left.tokens >= _LEAST_ROOM else ():
        piece = _piece(draft, left, number, room)
        if piece is not None:
            chosen[number] = piece
            room -= draft.counter.text(piece) + 1
        if room < _LEAST_ROOM // 4:
            break
    at = _known_by(draft, left.history.members(left.asked)[0])
    # The pieces were counted unmasked, and separately; the least relevant leave if the block is too long.
    while chosen:
        body = draft.mask("\n".join(chosen[n] for n in sorted(chosen)), at=at)
        block = Artifact(Kind.USER, write_record(RECALLED, body))
        if draft.counter.artifact(block) <= left.tokens:
            return block, frozenset(chosen)
        chosen.popitem()
    return None, frozenset()


def _with_blocks(draft: Draft, blocks: Mapping[int, Artifact]) -> list[Artifact]:
    """Return the artifacts of a draft with each block right before its question, as far as they fit."""
    artifacts: list[Artifact] = []
    tokens = draft.tokens if blocks else 0
    for artifact in draft.artifacts:
        block = blocks.get(id(artifact.root))
        # The history may be an earlier result, which has its blocks already; and after other stages than the window,
        # messages since the question may have used up the tokens.
        if block is not None and not _has_block(artifacts, artifact):
            tokens += draft.counter.artifact(block)
            artifacts += [block] if tokens <= draft.budget else []
        artifacts.append(artifact)
    return artifacts


def _has_block(before: Sequence[Artifact], question: Artifact) -> bool:
    """Return whether a question already has a block before it, or joined to it."""
    if before and record_title(before[-1]) == RECALLED:
        return True
    return any(record.title == RECALLED for record in leading_records(question.text))


def _weight(history: History, number: int) -> float:
    span, first = history.spans[number], history.artifacts[history.start(number)]
    if first.kind is Kind.ASSISTANT:
        return 1.0 if first.calls else _REPLY
    return 1.0 if span.is_asked or not _is_about_others(first) else 0.0


def _is_about_others(artifact: Artifact) -> bool:
    """Return whether a stage wrote an artifact about other exchanges, which are recalled themselves."""
    return record_title(artifact) in (RECALLED, TRAIL)


def _drops(change: Change) -> bool:
    left = {id(a.root) for a in change.after}
    return any(id(a.root) not in left for a in change.before)


def _searched(artifacts: Sequence[Artifact]) -> Document:
    """Return the texts of an exchange that are indexed; none of the texts that stages wrote about other exchanges."""
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


def _lines(artifacts: Sequence[Artifact], turn: int) -> Iterator[str]:
    for artifact in artifacts:
        who = artifact.kind.value if artifact.name is None else f"{artifact.kind.value} {artifact.name}"
        if artifact.text:
            yield f"[turn {turn}] {who}: {artifact.text}"
        for call in artifact.calls:
            yield f"[turn {turn}] {who} calls {call.name}({call.arguments})"


def _piece(draft: Draft, left: LeftOut, number: int, room: int) -> str | None:
    """Return an exchange as it appears in the block, within `room` tokens; an excerpt if it is large."""
    history, most = left.history, left.tokens // _EXCERPT
    members = history.members(number)
    # Role and date come on top, so if the texts alone do not fit, they need not be rendered.
    texts = sum(map(draft.counter.text, _searched(members)))
    if texts > room and (texts <= most or room < _LEAST_ROOM):
        return None
    text = "\n".join(_lines(members, bisect_right(history.asked, number)))
    if texts <= room and draft.counter.text(text) < room:
        return text
    question = history.members(left.asked)[0].text
    return _excerpt(draft, text, question, min(most, room - 1)) if texts > most else None


def _excerpt(draft: Draft, text: str, question: str, max_tokens: int) -> str | None:
    """Return the passages of a text that match a question best, in their order; its beginning if none does."""
    passages = passages_of(text[:_MOST_SEARCHED], min(PASSAGE, 2 * max_tokens))
    taken: dict[int, str] = {}
    left = max_tokens
    for number, passage in passages_for(passages, question, most=len(passages)):
        tokens = draft.counter.text(passage) + 2  # including the mark for omitted passages before it
        if tokens <= left:
            taken[number] = passage
            left -= tokens
    if not taken:
        return bounded_text(text, max_tokens, draft) or None
    return "\n".join(f"{'' if n == 0 or n - 1 in taken else '… '}{taken[n]}" for n in sorted(taken))
