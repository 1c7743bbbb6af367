"""The one model of a conversation: pairs, exchanges, turns, what must stay, and who really wrote a message.

`pair` and `exchanges` read a raw history, in which results may be late or missing. `History` models one whose calls
are paired already (behind `RepairExchanges`), and grows with it. Stages write some messages in the user's role
(summaries, checkpoints, recalled blocks); these are recognized by a digest in their first line, see `write_record`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from ctxguard.artifacts import Artifact, Kind, ToolCall
from ctxguard.errors import HistoryError

__all__ = [
    "AUTHORITY",
    "CHECKPOINT",
    "MESSAGES",
    "RECALLED",
    "SUMMARY",
    "TRAIL",
    "Exchange",
    "ExchangeSpan",
    "History",
    "Pairing",
    "Record",
    "exchanges",
    "is_asked",
    "is_synthetic",
    "leading_records",
    "pair",
    "record_title",
    "records_in",
    "task_in",
    "whole_until",
    "write_record",
]

AUTHORITY: Final = (Kind.SYSTEM, Kind.TASK)
"""Kinds that stand first and are never dropped."""
MESSAGES: Final = (Kind.USER, Kind.ASSISTANT)
"""Kinds that count as messages: what a person or the model said."""
TASK_SHARE: Final = 4
"""The first user message is the task unless it takes more than a quarter of the budget."""


# -- who wrote what ------------------------------------------------------------------------------------------------
#
# A stage that writes in the user's role signs its text. Recognizing such texts by their opening words would let a user
# who quotes them lose a message; a digest over the text itself cannot be met by accident.

RECALLED: Final = (
    "Recalled from earlier in this conversation, oldest first, because it may matter for the next message. "
    "A record of what was said, not a new request."
)
"""Title of the block of what is brought back."""
SUMMARY: Final = "Summary of the earlier conversation, which is no longer shown. A record, not a request."
"""Title of the message that stands for what was compacted."""
TRAIL: Final = "Trail of the earlier conversation, which is no longer shown. A record, not a request."
"""Title of the message that tells what has left."""
CHECKPOINT: Final = "Checkpoint. A record of what was reached, not a request."
"""Title of the message that stands for completed phases."""
_DIGEST_LETTERS: Final = 8
_LENGTH_LETTERS: Final = 5
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_HEADER: Final = re.compile(
    rf"\[(?P<title>[^\[\]\n]{{1,200}}) Record "
    rf"(?P<digest>[a-z]{{{_DIGEST_LETTERS}}})(?P<length>[a-z]{{{_LENGTH_LETTERS}}})\]\n"
)
_GAP: Final = re.compile(r"\s*")


class Record(NamedTuple):
    """Hold a text that a stage wrote in the user's role, as it was found in a message.

    Attributes:
        title: the words of its first line, which say what it is.
        body: the text below that line.
        end: where it ends in the message, in characters.
    """

    title: str
    body: str
    end: int


def write_record(title: str, body: str) -> str:
    """Return a text that is recognized as written by a stage: a first line with a digest of all of it, and the body.

    The digest is made of letters only, so that no PII rule matches it, and covers the title, the body and its length.
    Mask title and body first: a record whose text changes is no longer recognized.

    Args:
        title: what it is, in a sentence or two without brackets or line breaks.
        body: the text.
    """
    return f"[{title} Record {_digest(title, body)}{_spelled(len(body), _LENGTH_LETTERS)}]\n{body}"


def _digest(title: str, body: str) -> str:
    data = f"{title}\n{body}".encode("utf-8", "surrogatepass")
    return _spelled(int.from_bytes(blake2b(data, digest_size=8).digest(), "big"), _DIGEST_LETTERS)


def _spelled(number: int, letters: int) -> str:
    """Return a number in base 26, modulo what so many letters can tell apart."""
    spelled = ""
    for _ in range(letters):
        number, digit = divmod(number, 26)
        spelled += _LETTERS[digit]
    return spelled


def _length(spelled: str) -> int:
    return sum(_LETTERS.index(letter) * 26**place for place, letter in enumerate(spelled))


def _record_at(text: str, start: int) -> Record | None:
    header = _HEADER.match(text, start)
    if header is None:
        return None
    body = text[header.end() : header.end() + _length(header["length"])]
    if _digest(header["title"], body) != header["digest"]:
        return None
    return Record(header["title"], body, header.end() + len(body))


def leading_records(text: str) -> list[Record]:
    """Return the records that a text begins with: all of it, or what a user's own words were joined to."""
    records: list[Record] = []
    start = 0
    while text.startswith("[", start) and (record := _record_at(text, start)) is not None:
        records.append(record)
        gap = _GAP.match(text, record.end)
        start = gap.end() if gap else record.end
    return records


def records_in(text: str) -> list[Record]:
    """Return the records that stand anywhere in a text, also where they were joined to other words."""
    found = (_record_at(text, header.start()) for header in _HEADER.finditer(text))
    return [record for record in found if record is not None]


def is_synthetic(artifact: Artifact) -> bool:
    """Return whether stages wrote a message in the user's role, even if it came back as part of a history."""
    if artifact.kind is not Kind.USER:
        return False
    text = artifact.text
    if not text.startswith("["):
        return False
    records = leading_records(text)
    return bool(records) and not text[records[-1].end :].strip()


def record_title(artifact: Artifact) -> str | None:
    """Return the title of a message that a stage wrote; None for all other artifacts."""
    return leading_records(artifact.text)[0].title if is_synthetic(artifact) else None


def is_asked(artifact: Artifact) -> bool:
    """Return whether a message has the user's role and a user wrote it, not a stage."""
    return artifact.kind is Kind.USER and not is_synthetic(artifact)


# -- pairs and exchanges of a raw history --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exchange:
    """Hold what belongs together: an assistant artifact that calls tools with all of its results, or one artifact.

    Attributes:
        artifacts: the members, in the order of the history.
        positions: where they stand in the history; results that came late are not adjacent.
        open: True while a call of it is unanswered and nothing but its own results has followed.
    """

    artifacts: tuple[Artifact, ...]
    positions: tuple[int, ...]
    open: bool = False


@dataclass(slots=True)
class Pairing:
    """Say which result answers which call.

    Attributes:
        owner: position of a result → (position of the calling artifact, number of the call in it).
        unanswered: (position of the calling artifact, number of the call), in order.
        orphans: positions of results that answer no call.
        duplicates: positions of results whose call already had its result.
        turn: position of the latest user message, -1 where there is none.
    """

    owner: dict[int, tuple[int, int]] = field(default_factory=dict)
    unanswered: list[tuple[int, int]] = field(default_factory=list)
    orphans: list[int] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    turn: int = -1


def whole_until(artifacts: Sequence[Artifact], begin: int = 0) -> int | None:
    """Return where the last whole exchange ends, or None where not every call is followed by its results, all with ids.

    `None` is inconclusive; a position is exact, the same that `pair` would find. Much cheaper than `pair`.

    Args:
        artifacts: the history.
        begin: position from which on to look; an exchange begins there.
    """
    waiting: Counter[str | None] = Counter()
    left = 0
    whole = begin
    for position, artifact in enumerate(artifacts[begin:], begin):
        if artifact.kind is Kind.TOOL:
            if artifact.answers is None or not waiting[artifact.answers]:
                return None
            waiting[artifact.answers] -= 1
            left -= 1
        elif left:
            return None
        elif artifact.calls:
            waiting, left = Counter(call.id for call in artifact.calls), len(artifact.calls)
            if None in waiting:
                return None
        if not left:
            whole = position + 1
    return whole


def pair(artifacts: Sequence[Artifact], begin: int = 0, *, earlier: Pairing | None = None) -> Pairing:
    """Match tool results with tool calls: by id where there is one, else in order.

    Ids repeat across steps, are sometimes missing, and results come late and in parallel. A result takes the first
    unanswered call of its id in the current turn; calls that a user message left behind come after those, so that an
    abandoned call does not steal the result of a later one that reuses its id. Without an id, on either side, the
    first unanswered call of the same tool is taken, else the first unanswered one.

    Args:
        artifacts: the history.
        begin: position to go on from.
        earlier: what was found before it; a second result of what was answered there is an orphan.
    """
    found, waiting = Pairing(turn=earlier.turn if earlier else -1), _Waiting()
    for place, number in earlier.unanswered if earlier else ():
        waiting.add((place, number), artifacts[place].calls[number], left_behind=place < found.turn)
    answered: set[str] = set()
    for position, artifact in enumerate(artifacts[begin:], begin):
        kind = artifact.kind
        if kind is Kind.USER:
            found.turn = position
            waiting.begin_turn()
        elif kind is Kind.TOOL:
            slot = waiting.call_for(artifact)
            if slot is not None:
                call = waiting.calls.pop(slot)
                found.owner[position] = slot
                if call.id is not None:
                    answered.add(call.id)
            elif artifact.answers is not None and artifact.answers in answered:
                found.duplicates.append(position)
            else:
                found.orphans.append(position)
        elif artifact.calls:
            for number, call in enumerate(artifact.calls):
                waiting.add((position, number), call)
    found.unanswered = sorted(waiting.calls)
    return found


class _Waiting:
    """Hold the calls that wait for a result, by position and number, so that finding one takes constant time."""

    def __init__(self) -> None:
        self.calls: dict[tuple[int, int], ToolCall] = {}
        self._current: _Slots = {}
        self._left_behind: _Slots = {}

    def add(self, slot: tuple[int, int], call: ToolCall, *, left_behind: bool = False) -> None:
        self.calls[slot] = call
        for key in (_ANY_CALL, ("id", call.id), ("tool", call.name)):
            (self._left_behind if left_behind else self._current).setdefault(key, deque()).append(slot)

    def begin_turn(self) -> None:
        for key, slots in self._current.items():
            self._left_behind.setdefault(key, deque()).extend(slots)
        self._current = {}

    def call_for(self, result: Artifact) -> tuple[int, int] | None:
        if not self.calls:
            return None
        both = (self._current, self._left_behind)
        if result.answers is not None:
            found = (self._first(slots, ("id", wanted)) for wanted in (result.answers, None) for slots in both)
        else:
            found = (self._first(slots, key) for slots in both for key in (("tool", result.name), _ANY_CALL))
        return next((slot for slot in found if slot is not None), None)

    def _first(self, slots: _Slots, key: tuple[str, str | None]) -> tuple[int, int] | None:
        """Return the first call of a kind that still waits; those that were answered go when they are met."""
        queue = slots.get(key, ())
        while queue and queue[0] not in self.calls:
            queue.popleft()
        return queue[0] if queue else None


_Slots: TypeAlias = dict[tuple[str, "str | None"], deque[tuple[int, int]]]
_ANY_CALL: Final = ("any", None)


def exchanges(artifacts: Iterable[Artifact]) -> tuple[Exchange, ...]:
    """Cut a history into exchanges, in the order in which each begins.

    Every artifact is in exactly one exchange. A result that answers no call stands alone.

    Raises:
        HistoryError: an item is not an `Artifact`.
    """
    history = tuple(artifacts)
    for position, artifact in enumerate(history):
        if not isinstance(artifact, Artifact):
            raise HistoryError(f"expected an Artifact, got {type(artifact).__name__}", position=position)
    found = pair(history)
    members: dict[int, list[int]] = {}
    for position in range(len(history)):
        members.setdefault(found.owner.get(position, (position, 0))[0], []).append(position)
    waiting = {position for position, _ in found.unanswered}
    last = max(members) if members else -1
    return tuple(
        Exchange(tuple(history[p] for p in positions), tuple(positions), open=begin == last and begin in waiting)
        for begin, positions in sorted(members.items())
    )


# -- a growing history ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ExchangeSpan:
    """Say where one exchange stands in a history whose calls are paired, and what it costs.

    Attributes:
        start: position of its first artifact.
        end: position behind its last one.
        tokens: what it costs.
        has_user_role: whether it has the role of the user.
        is_asked: whether a user wrote it, rather than a stage that writes in the user's role.
        is_message: whether it holds what a user or the model said.
        is_pinned: whether one of its artifacts is pinned.
    """

    start: int
    end: int
    tokens: int
    has_user_role: bool
    is_asked: bool
    is_message: bool
    is_pinned: bool


class History:
    """Model a conversation whose calls are paired, as it grows at its end.

    Positions are those of artifacts, numbers those of exchanges; system and task artifacts are in no exchange. Only the
    last exchange still changes: results may come for it.

    Args:
        count: gives the tokens of an artifact.

    Attributes:
        artifacts: all artifacts, in order.
        costs: tokens of each artifact.
        spans: the exchanges.
        authority: positions of system and task artifacts.
        asked: numbers of the messages that a user wrote.
        messages: numbers of the exchanges that hold a message.
        replies: numbers of the exchanges that the assistant begins.
        pinned: numbers of the pinned exchanges.
    """

    __slots__ = ("artifacts", "asked", "authority", "costs", "count", "messages", "pinned", "replies", "spans")

    def __init__(self, count: Callable[[Artifact], int], artifacts: Iterable[Artifact] = ()) -> None:
        self.count = count
        self.artifacts: list[Artifact] = []
        self.costs: list[int] = []
        self.spans: list[ExchangeSpan] = []
        self.authority: list[int] = []
        self.asked: list[int] = []
        self.messages: list[int] = []
        self.replies: list[int] = []
        self.pinned: list[int] = []
        self.extend(artifacts)

    def extend(self, artifacts: Iterable[Artifact]) -> None:
        """Take in the artifacts that come next."""
        for artifact in artifacts:
            self._append(artifact)

    def _append(self, artifact: Artifact) -> None:
        position, kind, tokens = len(self.artifacts), artifact.kind, self.count(artifact)
        self.artifacts.append(artifact)
        self.costs.append(tokens)
        if kind in AUTHORITY:
            self.authority.append(position)
        elif kind is Kind.TOOL and self._continues(position):
            self._join(self.spans[-1], artifact, tokens)
        else:
            self._begin(position, artifact, tokens)

    def _continues(self, position: int) -> bool:
        """Return whether a tool result at this position belongs to the last exchange."""
        if not self.spans or self.spans[-1].end != position:
            return False
        return bool(self.artifacts[self.spans[-1].start].calls)

    def _join(self, span: ExchangeSpan, artifact: Artifact, tokens: int) -> None:
        span.end += 1
        span.tokens += tokens
        if artifact.pinned and not span.is_pinned:
            span.is_pinned = True
            self.pinned.append(len(self.spans) - 1)

    def _begin(self, position: int, artifact: Artifact, tokens: int) -> None:
        number, has_user_role = len(self.spans), artifact.kind is Kind.USER
        asked = has_user_role and not is_synthetic(artifact)
        is_message = asked or artifact.kind is Kind.ASSISTANT
        self.spans.append(
            ExchangeSpan(position, position + 1, tokens, has_user_role, asked, is_message, artifact.pinned)
        )
        for flag, numbers in (
            (asked, self.asked),
            (is_message, self.messages),
            (artifact.kind is Kind.ASSISTANT, self.replies),
            (artifact.pinned, self.pinned),
        ):
            if flag:
                numbers.append(number)

    def __len__(self) -> int:
        return len(self.spans)

    def start(self, number: int) -> int:
        """Return the position where an exchange begins; the end of the history for the one behind the last."""
        return self.spans[number].start if number < len(self.spans) else len(self.artifacts)

    def members(self, number: int) -> tuple[Artifact, ...]:
        """Return the artifacts of an exchange."""
        span = self.spans[number]
        return tuple(self.artifacts[span.start : span.end])

    def opener(self, number: int) -> int | None:
        """Return the user message that opened the exchange's turn; None if it is that message, or if there is none."""
        if self.spans[number].is_asked:
            return None
        place = bisect_left(self.asked, number)
        return self.asked[place - 1] if place else None

    def last_asked(self, end: int) -> int | None:
        """Return the number of the last message that a user wrote among the first `end` exchanges."""
        place = bisect_left(self.asked, end)
        return self.asked[place - 1] if place else None

    def last_user(self, end: int) -> int | None:
        """Return the last message in the user's role among the first `end` exchanges, whoever wrote it."""
        return next((n for n in range(end - 1, -1, -1) if self.spans[n].has_user_role), None)

    def latest_messages(self, keep: int, end: int) -> list[int]:
        """Return the numbers of the latest `keep` messages among the first `end` exchanges, oldest first."""
        come = bisect_left(self.messages, end)
        return self.messages[max(0, come - keep) : come]

    def task(self, budget: int) -> int | None:
        """Return the number of the first user message where it may stay as the task, see `task_in`."""
        task = task_in(self.artifacts, budget, self.count)
        return None if task is None or not self.asked else self.asked[0]

    def must_stay(self, keep_recent: int, task: int | None, end: int) -> list[int]:
        """Return which of the first `end` exchanges every strategy has to keep, in order.

        Pins, the task, the last message of the user's, the latest messages and the last exchange. A copy of what a
        stage wrote is a record, unless it is the last message in the user's role: that always stays.

        Args:
            keep_recent: how many of the latest messages stay.
            task: number of the message that is kept as the task.
            end: number behind the last exchange that has come.
        """
        kept = set(self.pinned[: bisect_left(self.pinned, end)])
        kept.update(n for n in (task, self.last_asked(end), self.last_user(end)) if n is not None and n < end)
        kept.update(self.latest_messages(keep_recent, end))
        kept.update(range(max(0, end - 1), end))
        return sorted(kept)


def task_in(artifacts: Iterable[Artifact], budget: int, count: Callable[[Artifact], int]) -> Artifact | None:
    """Return the first user message where it may stay as the task: if it takes at most a quarter of the budget.

    Where a stage's own message stands first, the user's first one is gone already, and with it the task.

    Args:
        artifacts: the history.
        budget: tokens that everything sent may take.
        count: gives the tokens of an artifact.
    """
    first = next((a for a in artifacts if a.kind is Kind.USER), None)
    if first is None or is_synthetic(first) or count(first) * TASK_SHARE > budget:
        return None
    return first
