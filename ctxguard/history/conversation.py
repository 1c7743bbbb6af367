"""A growing conversation whose calls are paired: its exchanges, turns, and mandatory messages.

Greetings and standing instructions are recognized by word lists for each language rather than by a model, so the same
words always lead to the same decision. The lists only decide which user messages are kept longest; a message that they
do not recognize is kept according to its age.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final, Generic, TypeVar, cast

from ctxguard.artifacts import Artifact, Kind
from ctxguard.history.memory import Memory
from ctxguard.history.records import is_synthetic, listed

State = TypeVar("State")
_GREETING_WORDS: Final = frozenset(listed("greetings"))
_MOST_WORDS: Final = 6
"""Maximum number of words of a greeting."""


_WORD: Final = re.compile(r"[\w'’-]+")


def is_greeting(text: str) -> bool:
    """Return whether a text is only a greeting: it has at most six words, all of them from the lists of greetings."""
    if len(text) > 20 * _MOST_WORDS:
        return False
    words = _WORD.findall(text.casefold().replace("’", "'"))
    return 0 < len(words) <= _MOST_WORDS and all(word in _GREETING_WORDS for word in words)


AUTHORITY: Final = (Kind.SYSTEM, Kind.TASK)
"""The kinds of artifacts that come first in every context and are never dropped."""
MESSAGES: Final = (Kind.USER, Kind.ASSISTANT)
"""The kinds of artifacts that count as messages."""
_PARTS: Final = 4
"""Maximum number of messages that count as one request."""
TASK_SHARE: Final = 4
"""The first request is kept as the task if it takes at most a quarter (1 / `TASK_SHARE`) of the budget. A larger one is
probably pasted text."""


@dataclass(slots=True)
class ExchangeSpan:
    """The position and size of one exchange in a history whose calls are paired.

    Attributes:
        start: Position of the first artifact of the exchange.
        end: Position after the last artifact of the exchange.
        tokens: Number of tokens of the exchange.
        has_user_role: Whether the first artifact has the user role.
        is_asked: Whether the first artifact has the user role and a user wrote it. Stages write messages in the user
            role, too.
        is_pinned: Whether one of the artifacts is pinned.
        is_notice: Whether it is a system message that arrived after the conversation had begun.
    """

    start: int
    end: int
    tokens: int
    has_user_role: bool
    is_asked: bool
    is_pinned: bool
    is_notice: bool = False


class History:
    """A conversation whose calls are paired, and which only grows at its end.

    Here and in the methods, a position is the index of an artifact, and a number is the index of an exchange. System
    and task artifacts belong to no exchange. Only the last exchange can still change, when its tool results arrive.

    Args:
        count: Function that returns the number of tokens of an artifact.
        artifacts: The first artifacts of the conversation.
        memory: Memory through which artifacts can be taken back; None if they never are.
        has_notices: Whether a system message that arrives after the first other message is an exchange of its own, so
            that it keeps its place. If False, it belongs to no exchange.

    Attributes:
        artifacts: All artifacts, in order.
        costs: Number of tokens of each artifact.
        spans: All exchanges, in order.
        authority: Positions of the system and task artifacts.
        users: Numbers of the messages in the user role.
        asked: Numbers of the messages that a user wrote. Stages write messages in the user role, too.
        messages: Numbers of the exchanges that contain a message of a user or the model.
        replies: Numbers of the exchanges that begin with an assistant message.
        pinned: Numbers of the exchanges with a pinned artifact.
    """

    def __init__(
        self,
        count: Callable[[Artifact], int],
        artifacts: Iterable[Artifact] = (),
        *,
        memory: Memory | None = None,
        has_notices: bool = False,
    ) -> None:
        self.count = count
        self._memory = memory
        self._has_notices = has_notices
        self.artifacts: list[Artifact] = []
        self.costs: list[int] = []
        self.spans: list[ExchangeSpan] = []
        self.authority: list[int] = []
        self.users: list[int] = []
        self.asked: list[int] = []
        self.messages: list[int] = []
        self.replies: list[int] = []
        self.pinned: list[int] = []
        self.extend(artifacts)

    def extend(self, artifacts: Iterable[Artifact]) -> None:
        """Add artifacts to the end."""
        for artifact in artifacts:
            self.append(artifact)

    def append(self, artifact: Artifact) -> None:
        """Add an artifact to the end."""
        position, kind, tokens = len(self.artifacts), artifact.kind, self.count(artifact)
        self.artifacts.append(artifact)
        self.costs.append(tokens)
        last = self.spans[-1] if self.spans else None
        # nothing evicts these, so they belong to no exchange
        if kind in AUTHORITY and not (self._has_notices and kind is Kind.SYSTEM and self.spans):
            self.authority.append(position)
            self.undo(self._take_back, self.authority)
        elif kind is Kind.TOOL and last and last.end == position and self.artifacts[last.start].calls:
            before = replace(last)
            last.end += 1
            last.tokens += tokens
            is_pin = artifact.pinned and not last.is_pinned
            if is_pin:
                last.is_pinned = True
                self.pinned.append(len(self.spans) - 1)
            self.undo(self._take_back_result, before, *([self.pinned] if is_pin else ()))
        else:
            self._begin(position, artifact, tokens)

    def undo(self, function: Callable[..., None], *arguments: object) -> None:
        """Note the call that takes back a change, for when the latest artifact is taken back (see `Memory.undo`)."""
        if self._memory is not None:
            self._memory.undo(function, *arguments)

    def _take_back(self, *grown: list[int]) -> None:
        """Remove the last artifact, and the last number of each list that grew with it."""
        del self.artifacts[-1], self.costs[-1]
        for numbers in grown:
            del numbers[-1]

    def _take_back_result(self, before: ExchangeSpan, *grown: list[int]) -> None:
        self._take_back(*grown)
        self.spans[-1] = before

    def _take_back_exchange(self, *grown: list[int]) -> None:
        self._take_back(*grown)
        del self.spans[-1]

    def _begin(self, position: int, artifact: Artifact, tokens: int) -> None:
        """Add an exchange that begins with an artifact."""
        number, has_user_role, is_reply = len(self.spans), artifact.kind is Kind.USER, artifact.kind is Kind.ASSISTANT
        is_asked = has_user_role and not is_synthetic(artifact)
        is_notice = artifact.kind is Kind.SYSTEM
        span = ExchangeSpan(position, position + 1, tokens, has_user_role, is_asked, artifact.pinned, is_notice)
        self.spans.append(span)
        grown = [
            numbers
            for flag, numbers in (
                (has_user_role, self.users),
                (is_asked, self.asked),
                (is_asked or is_reply, self.messages),
                (is_reply, self.replies),
                (artifact.pinned, self.pinned),
            )
            if flag
        ]
        for numbers in grown:
            numbers.append(number)
        self.undo(self._take_back_exchange, *grown)

    def __len__(self) -> int:
        return len(self.spans)

    def start(self, number: int) -> int:
        """Return the index of the first artifact of an exchange.

        For a number after the last exchange, return the number of artifacts in the history.
        """
        return self.spans[number].start if number < len(self.spans) else len(self.artifacts)

    def members(self, number: int) -> tuple[Artifact, ...]:
        """Return the artifacts of an exchange."""
        span = self.spans[number]
        return tuple(self.artifacts[span.start : span.end])

    def last(self, number: int) -> Artifact:
        """Return the last artifact of an exchange. It is another object once the exchange has grown."""
        return self.artifacts[self.spans[number].end - 1]

    def opener(self, number: int) -> int | None:
        """Find the user message that opened an exchange's turn.

        Returns:
            The index of the exchange that is this message. None if the given exchange is itself a user message, or no
            user message precedes it.
        """
        return None if self.spans[number].is_asked else self.last_asked(number)

    def last_asked(self, end: int) -> int | None:
        """Find the last message that a user wrote among the first `end` exchanges.

        Returns:
            The index of its exchange; None if there is no such message.
        """
        place = bisect_left(self.asked, end)
        return self.asked[place - 1] if place else None

    def asked_together(self, end: int, most: int) -> list[int]:
        """Return the last user message among the first `end` exchanges, and those that the user sent right before it.

        A user may send a picture or a letter first and then the question about it. The message right before the last
        one always counts, and two earlier ones as long as all together take at most `most` tokens. More messages in a
        row are no request in parts, but a history without replies.

        Returns:
            The indexes of their exchanges, the newest first; empty if there is no user message.
        """
        last = self.last_asked(end)
        if last is None:
            return []
        together, tokens = [last], self.spans[last].tokens
        for number in range(last - 1, -1, -1):
            span = self.spans[number]
            tokens += span.tokens
            if not span.is_asked or len(together) == _PARTS or (len(together) > 1 and tokens > most):
                break
            together.append(number)
        return together

    def last_user(self, end: int) -> int | None:
        """Find the last message in the user role among the first `end` exchanges.

        Returns:
            The index of its exchange; None if there is no such message.
        """
        place = bisect_left(self.users, end)
        return self.users[place - 1] if place else None

    def latest_messages(self, keep: int, end: int) -> list[int]:
        """Return the exchange indexes of the latest `keep` messages among the first `end` exchanges, oldest first."""
        come = bisect_left(self.messages, end)
        return self.messages[max(0, come - keep) : come]

    def request(self) -> int | None:
        """Find the message that states the task: the first user message that is not just a greeting.

        Returns:
            The index of its exchange. None if there is no such message, or if a stage wrote the first message in the
            user role, because the task was evicted earlier in this case.
        """
        if self.users[:1] != self.asked[:1]:
            return None
        return next((n for n in self.asked if not is_greeting(self.artifacts[self.spans[n].start].text)), None)

    def task(self, budget: int) -> int | None:
        """Return the exchange index of the request (see `request`) if it is kept as the task.

        The request is kept as the task if it takes at most a quarter of the budget. Return None if it takes more, or if
        there is no request.
        """
        number = self.request()
        return None if number is None or self.spans[number].tokens * TASK_SHARE > budget else number

    def must_stay(self, keep_recent: int, task: int | None, end: int, most: int) -> list[int]:
        """Return the indexes, in order, of the mandatory exchanges, which every strategy has to keep.

        Mandatory are pinned exchanges, the task, the last user message with those that the user sent right before it
        (see `asked_together`), the latest messages, and the last exchange. A message that a stage wrote is only
        mandatory if it is the last message in the user role.

        Args:
            keep_recent: Number of latest messages that are mandatory.
            task: Index of the exchange that is kept as the task; None if there is none.
            end: Number of exchanges to look at: only the first `end` are considered.
            most: Maximum number of tokens in the last user message and those right before it, see `asked_together`.
        """
        kept = set(self.pinned[: bisect_left(self.pinned, end)])
        kept.update(
            n for n in (task, *self.asked_together(end, most), self.last_user(end)) if n is not None and n < end
        )
        kept.update(self.latest_messages(keep_recent, end))
        # the last exchange may still wait for results, and providers refuse results without their call
        kept.update(range(max(0, end - 1), end))
        return sorted(kept)


class Fold(Generic[State]):
    """Folds a growing conversation: `step` returns the state after an exchange, given the state before it.

    The states are remembered, so that a call only processes the exchanges that are new. If the end of the conversation
    was replaced, the states after it are taken back.

    Args:
        count: Function that returns the number of tokens of an artifact.
        memory: The memory of the conversation.
        before: The state before the first exchange.
        has_notices: See `History`.

    Attributes:
        history: The conversation so far.
        states: The state after each exchange except the last one, which may still grow.
    """

    def __init__(
        self, count: Callable[[Artifact], int], memory: Memory, before: State, *, has_notices: bool = False
    ) -> None:
        self.history = History(count, memory=memory, has_notices=has_notices)
        self.states: list[State] = []
        self._before = before
        self._memory = memory
        self._last: tuple[State, Artifact, State] | None = None

    def step(self, state: State, number: int) -> State:
        """Return the state after an exchange.

        Args:
            state: The state after the exchange before it.
            number: Number of the exchange.
        """
        raise NotImplementedError

    def extend(self, artifacts: Sequence[Artifact]) -> None:
        """Continue with what is new in the conversation.

        Args:
            artifacts: The conversation so far, from its beginning.
        """
        for artifact in self._memory.new(artifacts):
            self.history.append(artifact)
            while len(self.states) < len(self.history) - 1:
                self._memory.append(self.states, self.current())

    def current(self) -> State:
        """Return the state after the last exchange, as far as it has arrived."""
        number, before = len(self.states), self.states[-1] if self.states else self._before
        if number == len(self.history):
            return before
        end = self.history.last(number)
        # What the previous call worked out about the last exchange is valid unless that exchange has grown.
        if self._last is None or self._last[0] is not before or self._last[1] is not end:
            self._memory.set(self, "_last", (before, end, self.step(before, number)))
        return cast("tuple[State, Artifact, State]", self._last)[2]


_MOST: Final = 4_096
"""Maximum number of conversations that are remembered."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """The token limits of a conversation whose prompt the provider refused.

    Attributes:
        at: Number of artifacts in the refused history, or in its part up to the latest reply. Reasoning in these
            artifacts was written under other prompts than those that are sent now.
        budget: Number of tokens that prompts may take after the refusal.
        before: Number of tokens that prompts could take before the refusal.
    """

    at: int
    budget: int
    before: int


class Overflows:
    """Remembers the conversations whose prompt was refused, by hashes of their histories. Thread-safe.

    Applications may add passages or notes after the latest reply for one prompt only. Later histories then do not begin
    with the whole refused history, but still begin with its part up to the latest reply. So a refusal is also
    remembered for this part. The least recently used conversations are forgotten first. Copies and pickles start empty.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], Overflow] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Overflows], tuple[()]]:
        return Overflows, ()

    def note(self, history: Iterable[Artifact], budget: int, *, before: int) -> None:
        """Remember that the prompt of a history was refused.

        Args:
            history: The whole history of the conversation.
            budget: Number of tokens that its prompts may take from now on.
            before: Number of tokens that its prompts could take until now.
        """
        keys = list(_own_keys(tuple(history)))
        with self._lock:
            for key in keys:
                self._known[key] = Overflow(key[0], budget, before)
                self._known.move_to_end(key)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)

    def forget(self, history: Iterable[Artifact]) -> None:
        """Forget the refusal of this history's own prompt; refusals of shorter histories stay in memory."""
        keys = list(_own_keys(tuple(history)))
        with self._lock:
            for key in keys:
                self._known.pop(key, None)

    def of(self, history: Iterable[Artifact]) -> Overflow | None:
        """Return the limits that the latest refusal in a conversation set; None if no refusal is remembered.

        Args:
            history: The history of the conversation, which may have grown since the refusal.
        """
        if not self._known:  # saves hashing the history
            return None
        keys = list(_keys(history))
        with self._lock:
            found = [key for key in keys if key in self._known]
            for key in found:
                self._known.move_to_end(key)
            return self._known[found[-1]] if found else None


def _own_keys(history: Sequence[Artifact]) -> Iterator[tuple[int, int]]:
    """Yield the keys of the history up to its latest reply, if there is one, and of the whole history."""
    keys = list(_keys(history))
    latest = next((at for at in range(len(keys), 0, -1) if history[at - 1].kind == "assistant"), 0)
    yield from dict.fromkeys(keys[at - 1] for at in (latest, len(keys)) if at)


def _keys(history: Iterable[Artifact]) -> Iterator[tuple[int, int]]:
    """Yield a key for each prefix of a history, from the first artifact alone to the whole history.

    Keys ignore fields that clients change when they send a message again, such as the breakpoints of prompt caches.
    """
    key = 0
    for at, one in enumerate(history, 1):
        key = hash((key, one.kind, one.content, tuple(one.calls), one.answers))
        yield at, key
