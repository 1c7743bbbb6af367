"""A growing conversation whose calls are paired: exchanges, turns, and mandatory messages.

Greetings and standing rules are recognized by word lists of each language, rather than by a model: the same words lead
to the same decision everywhere. They only order user messages; a message that they miss is kept by its age.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.history.records import is_synthetic

_PHRASES: Final = tomllib.loads(files("ctxguard").joinpath("data/phrases.toml").read_text(encoding="utf-8"))
_GREETING_WORDS: Final = frozenset(word for words in _PHRASES["greetings"].values() for word in words.split())
_MOST_WORDS: Final = 6
"""Words that a greeting may have."""


def _any_of(table: str) -> str:
    return "|".join(sorted({re.escape(phrase) for phrases in _PHRASES[table].values() for phrase in phrases}))


_RULE: Final = re.compile(rf"(?<!\w)(?:{_any_of('standing')})(?!\w)|{_any_of('unspaced')}")
_WORD: Final = re.compile(r"[\w'’-]+")


def is_greeting(text: str) -> bool:
    """Return whether a text is only a greeting: at most six words, all of them of greetings."""
    if len(text) > 20 * _MOST_WORDS:
        return False
    words = _WORD.findall(text.casefold().replace("’", "'"))
    return 0 < len(words) <= _MOST_WORDS and all(word in _GREETING_WORDS for word in words)


@lru_cache(maxsize=4_096)
def is_standing(text: str) -> bool:
    """Return whether a text is phrased as a standing instruction ("never", "must", "from now on")."""
    return _RULE.search(text.casefold().replace("’", "'")) is not None


AUTHORITY: Final = (Kind.SYSTEM, Kind.TASK)
"""Kinds that come first and are never dropped."""
MESSAGES: Final = (Kind.USER, Kind.ASSISTANT)
"""Kinds that count as messages, of a person or the model."""
TASK_SHARE: Final = 4
"""The first request is the task unless it takes more than a quarter of the budget; a larger one is pasted text."""


@dataclass(slots=True)
class ExchangeSpan:
    """The position of one exchange in a history whose calls are paired, and its token cost.

    Attributes:
        start: position of its first artifact.
        end: position after its last one.
        tokens: its token cost.
        has_user_role: whether its first artifact has the user's role.
        is_asked: whether a user wrote it, rather than a stage that writes in the user's role.
        is_message: whether it contains a message of the user or the model.
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
    """A conversation whose calls are paired, and which grows at its end.

    Positions refer to artifacts, numbers to exchanges; system and task artifacts belong to no exchange. Only the last
    exchange can still change, when its results arrive.

    Args:
        count: returns the tokens of an artifact.

    Attributes:
        artifacts: all artifacts, in order.
        costs: tokens of each artifact.
        spans: the exchanges.
        authority: positions of system and task artifacts.
        users: numbers of the messages in the user's role.
        asked: numbers of those that a user wrote.
        messages: numbers of the exchanges that hold a message.
        replies: numbers of the exchanges that begin with the assistant.
        pinned: numbers of the pinned exchanges.
    """

    __slots__ = ("artifacts", "asked", "authority", "costs", "count", "messages", "pinned", "replies", "spans", "users")

    def __init__(self, count: Callable[[Artifact], int], artifacts: Iterable[Artifact] = ()) -> None:
        self.count = count
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
            self._append(artifact)

    def _append(self, artifact: Artifact) -> None:
        position, kind, tokens = len(self.artifacts), artifact.kind, self.count(artifact)
        self.artifacts.append(artifact)
        self.costs.append(tokens)
        # system and task artifacts precede every prompt, wherever they came, so they belong to no exchange
        if kind in AUTHORITY:
            self.authority.append(position)
        elif kind is Kind.TOOL and self._continues(position):
            self._join(self.spans[-1], artifact, tokens)
        else:
            self._begin(position, artifact, tokens)

    def rewind(self, count: int) -> int:
        """Forget all but the first `count` artifacts; return how many exchanges can no longer have changed."""
        while self.spans and self.spans[-1].end > count:
            self.spans.pop()
        begin = self.spans[-1].end if self.spans else 0
        for numbers in (self.users, self.asked, self.messages, self.replies, self.pinned):
            del numbers[bisect_left(numbers, len(self.spans)) :]
        del self.authority[bisect_left(self.authority, begin) :]
        closed, rest = max(0, len(self.spans) - 1), self.artifacts[begin:count]
        del self.artifacts[begin:], self.costs[begin:]
        self.extend(rest)
        return closed

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
            (has_user_role, self.users),
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
        """Return the position where an exchange begins; for the number after the last one, the end of the history."""
        return self.spans[number].start if number < len(self.spans) else len(self.artifacts)

    def members(self, number: int) -> tuple[Artifact, ...]:
        """Return the artifacts of an exchange."""
        span = self.spans[number]
        return tuple(self.artifacts[span.start : span.end])

    def opener(self, number: int) -> int | None:
        """Return the user message that opened the exchange's turn; None if it is the exchange itself, or missing."""
        return None if self.spans[number].is_asked else self.last_asked(number)

    def last_asked(self, end: int) -> int | None:
        """Return the number of the last message that a user wrote among the first `end` exchanges."""
        place = bisect_left(self.asked, end)
        return self.asked[place - 1] if place else None

    def last_user(self, end: int) -> int | None:
        """Return the last message in the user's role among the first `end` exchanges, whoever wrote it."""
        place = bisect_left(self.users, end)
        return self.users[place - 1] if place else None

    def latest_messages(self, keep: int, end: int) -> list[int]:
        """Return the numbers of the latest `keep` messages among the first `end` exchanges, oldest first."""
        come = bisect_left(self.messages, end)
        return self.messages[max(0, come - keep) : come]

    def request(self) -> int | None:
        """Return the number of the message that states the task: the first user message that asks for something.

        A greeting asks for nothing. If a message of a stage comes first, the first request was already evicted.
        """
        if self.users[:1] != self.asked[:1]:
            return None
        return next((n for n in self.asked if not is_greeting(self.artifacts[self.spans[n].start].text)), None)

    def task(self, budget: int) -> int | None:
        """Return the number of the request if it is kept as the task: it takes at most a quarter of the budget."""
        number = self.request()
        return None if number is None or self.spans[number].tokens * TASK_SHARE > budget else number

    def must_stay(self, keep_recent: int, task: int | None, end: int) -> list[int]:
        """Return the mandatory ones of the first `end` exchanges, which every strategy has to keep, in order.

        Pins, the task, the last user message, the latest messages and the last exchange. A message that a stage wrote
        is not mandatory, unless it is the last message in the user's role.

        Args:
            keep_recent: number of latest messages to keep.
            task: number of the message that is kept as the task.
            end: the number after the last exchange so far.
        """
        kept = set(self.pinned[: bisect_left(self.pinned, end)])
        kept.update(n for n in (task, self.last_asked(end), self.last_user(end)) if n is not None and n < end)
        kept.update(self.latest_messages(keep_recent, end))
        # the last exchange may still be open, and providers refuse results without their call
        kept.update(range(max(0, end - 1), end))
        return sorted(kept)
