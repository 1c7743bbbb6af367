"""Write a brief: what another agent, or a new conversation, should know about a conversation. No model is called.

It consists of the task, messages from people, sentences that match these messages or the next task, the files with
their last use, and the trail. The trail is the summary of tool calls that a cut would leave.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, cast

from ctxguard.adapting.registry import require_adapter
from ctxguard.artifacts import Artifact, Kind
from ctxguard.compaction.transcript import uses_of
from ctxguard.draft import Ask
from ctxguard.errors import BudgetExceededError, ConfigError, HistoryError
from ctxguard.history import History
from ctxguard.history.conversation import is_greeting
from ctxguard.history.records import is_standing
from ctxguard.settings import whole_number
from ctxguard.stages import StableWindow
from ctxguard.stages.bound_tool_output import NAMESPACE, handle_of
from ctxguard.stages.lexical import LexicalIndex
from ctxguard.stages.short_views import holds_observation
from ctxguard.stages.trail import Facts, facts_of, spoken_text, write_note

if TYPE_CHECKING:
    from ctxguard.session import Stabilized
    from ctxguard.tokens import ArtifactCounter

_LEAST: Final = 100
"""Minimum budget in tokens: a shorter brief says nothing useful."""
_STORED: Final = 120
"""Tool outputs with more tokens than this are stored in full, as at a cut."""
_SHARES: Final = (0.4, 1.0)
"""Share of the available tokens that each kind of line may use: in the first round, and in the second."""
_TASK: Final = 0.25  # share of the budget for the task
_TRAIL: Final = 0.2  # share of the rest for the trail
_OFTEN: Final = 3
"""A sentence that occurs in this many messages is a repeated phrase, which says little."""
_LONGEST: Final = 400
"""Maximum number of characters of a sentence that are quoted."""
_MOST: Final = 64
"""Maximum number of people's sentences for which matching sentences are searched, and of matches for each."""
_FOR_NEXT: Final = 4
"""Matching sentences are listed in rounds: in each, this many that match the next task, and one for each sentence from
people."""
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_BLANK_LINES: Final = re.compile(r"[^\S\n]*\n(?:[^\S\n]*\n)*")
_TITLES: Final = {
    "task": "The task:",
    "said": "What people said since, in order:",
    "matching": "What else is about these things:",
    "files": "Files and their last use:",
    "open": "Current state:",
}
_Line = tuple[str, tuple[int, int]]
"""A string with its place: the index of an exchange in the history, and a position in that exchange."""


@dataclass(frozen=True, slots=True)
class Brief:
    """What another agent should know about a conversation.

    Attributes:
        text: The masked text of the brief, in sections with headings.
        tokens: Number of tokens in `text`.
        handles: Handles in `text` under which full tool outputs can be read back; empty if the chain has no store.
    """

    text: str
    tokens: int
    handles: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


def brief_flow(
    history: Sequence[object],
    masking: Callable[[Sequence[Artifact]], Generator[Ask, object, Stabilized]],
    counter: ArtifactCounter,
    window: StableWindow,
    *,
    for_: str,
    budget: int,
) -> Generator[Ask, object, Brief]:
    """Return a brief: a text from which another agent can continue. `Stabilizer.brief` runs this generator.

    Args:
        history: Artifacts, or messages that an installed adapter knows.
        masking: Generator function that masks the history.
        counter: The token counter for the brief.
        window: The window of the chain, which has the store for full outputs.
        for_: What the brief is for, in words.
        budget: Maximum number of tokens in the brief.

    Raises:
        ConfigError: If `for_` is not a string or `budget` is below 100 tokens.
        HistoryError: If the history has nothing but system messages.
        BudgetExceededError: If the brief does not fit into the budget.
    """
    if not isinstance(for_, str):
        raise ConfigError(f"for_ must be a string that says the purpose, not {type(for_).__name__}", setting="for_")
    whole_number(budget, "budget", unit="tokens", least=_LEAST)
    if history and not isinstance(history[0], Artifact):
        history = require_adapter(history).read(history)
    masked = yield from masking(cast("Sequence[Artifact]", history))
    if all(artifact.kind is Kind.SYSTEM for artifact in masked.artifacts):
        raise HistoryError("a history of only system messages has nothing for a brief")
    writer = _BriefWriter(counter, masked.artifacts, window, for_)
    text, tokens, limit = "", budget + 1, budget
    while tokens > budget and limit > 0:
        text = writer.write(limit)
        for mask in masked.report.masks:  # joined parts may form a value that none of them contains
            text = mask(text)
        tokens = writer.count(text)
        limit -= max(tokens - budget, 1)
    if tokens > budget:
        raise BudgetExceededError(tokens, budget, {"brief": tokens})
    named = {handle: whole for whole, handle in writer.handles.items() if handle in text}
    if window.store is not None:
        for handle, whole in named.items():
            yield Ask(window.store.put_new, (NAMESPACE, handle, whole.encode("utf-8", "surrogatepass")))
    return Brief(text, tokens, tuple(named))


class _BriefWriter:
    """Collects the lines of a brief by kind, the most important ones first, and writes those that fit."""

    def __init__(
        self, counter: ArtifactCounter, artifacts: Sequence[Artifact], window: StableWindow, for_: str
    ) -> None:
        self.count = counter.text
        self.history = history = History(counter.artifact, artifacts)
        self.exchanges = [history.members(number) for number in range(len(history))]
        large = (
            a.text for one in self.exchanges for a in one[1:] if window.store is not None and history.count(a) > _STORED
        )
        self.handles = {text: handle_of(text) for text in large}
        self.task = history.request()
        asked = [n for n in history.asked if n != self.task and not holds_observation(history, n)]
        questions = {*asked, self.task}
        said = _sentences((n, spoken_text(self.exchanges[n][0])) for n in asked)
        # standing instructions first, then the newest
        said.sort(key=lambda line: (is_standing(line[0]), line[1]), reverse=True)
        others = _sentences(
            (n, spoken_text(a)) for n, one in enumerate(self.exchanges) if n not in questions for a in one
        )
        self.lines: dict[str, list[_Line]] = {
            "open": list(self._open(asked)),
            "said": said,
            "matching": _matching(for_, [text for text, _ in said[:_MOST]], others),
            "files": list(self._files())[::-1],
        }
        self.calls = self._calls()

    def write(self, max_tokens: int) -> str:
        """Return the brief with about `max_tokens` tokens."""
        task = [a.text for a in self.history.artifacts if a.kind is Kind.TASK]
        task += [] if self.task is None else [spoken_text(self.exchanges[self.task][0])]
        parts = {"task": "\n".join(shorten(text, int(4 * _TASK * max_tokens)) for text in task)}
        left = max_tokens - sum(map(self.count, (*_TITLES.values(), parts["task"])))
        kept_free = int(_TRAIL * left) if self.calls else 0
        chosen: dict[str, dict[tuple[int, int], str]] = {kind: {} for kind in self.lines}
        for share in _SHARES:
            for kind, lines in self.lines.items():
                available = share * (left - kept_free)
                for text, place in lines:
                    tokens = self.count(text) + 2
                    if place not in chosen[kind] and tokens <= available:
                        chosen[kind][place] = text
                        available, left = available - tokens, left - tokens
        parts |= {kind: "\n".join(_join_lines(found)) for kind, found in chosen.items()}
        sections = [f"{title}\n{parts[kind]}" for kind, title in _TITLES.items() if parts[kind]]
        return "\n".join([*sections, self._trail(left)] if self.calls and left > _LEAST // 2 else sections)

    def _files(self) -> Iterator[_Line]:
        """Yield a line for each file, in the order in which the files were last used."""
        known: dict[str, _Line] = {}
        for number, members in enumerate(self.exchanges):
            for call, uses in zip(members[0].calls, uses_of(members), strict=True):
                handle = self.handles.get(next((a.text for a in members[1:] if a.answers == call.id), ""))
                for use in uses:
                    known.pop(use.path, None)
                    text = f"{use.path}: {'edited' if use.role == 'edit' else 'read'}{f' [{handle}]' if handle else ''}"
                    known[use.path] = (text, (number, len(known)))
        yield from known.values()

    def _open(self, asked: Sequence[int]) -> Iterator[_Line]:
        """Yield the last message from people, the last message from the model, and the tool calls without a result."""
        replies = [n for n in self.history.replies if spoken_text(self.exchanges[n][0])]
        for number in (*asked[-1:], *replies[-1:]):
            first = self.exchanges[number][0]
            yield f"{first.kind.value} said last: {shorten(spoken_text(first), _LONGEST)}", (number, -1)
        first, *results = self.exchanges[-1] if self.exchanges else [Artifact(Kind.USER)]
        for place, call in enumerate(first.calls[len(results) :]):
            yield f"not answered: {call.name} {shorten(call.arguments, _LONGEST)}", (len(self.history), place)

    def _calls(self) -> list[Facts]:
        """Return the exchanges with tool calls. Where calls were repeated, only the latest are listed."""
        latest: dict[tuple[tuple[str, str], ...], Facts] = {}
        for members in self.exchanges:
            if members[0].calls:
                key = tuple((call.name, call.arguments) for call in members[0].calls)
                latest.pop(key, None)
                latest[key] = facts_of(members)
        return list(latest.values())

    def _trail(self, max_tokens: int) -> str:
        """Return the trail of the tool calls: what a cut would leave of them."""
        handle = self.handles.__getitem__ if self.handles else None
        is_large = lambda artifact: artifact.text in self.handles  # noqa: E731
        return write_note(self.calls, None, max_tokens, 0, count=self.count, handle=handle, large=is_large).text


def shorten(text: str, length: int) -> str:
    """Return a text in at most `length` characters and without blank lines. If it is shortened, it ends in `…`."""
    text = _BLANK_LINES.sub("\n", text[: 4 * length].strip())
    if len(text) <= length:
        return text
    end = max(text.rfind(" ", length // 2, length), text.rfind("\n", length // 2, length))
    return text[: end if end > 0 else length - 1].rstrip() + "…"


def _sentences(texts: Iterable[tuple[int, str]]) -> list[_Line]:
    """Return the sentences that occur in at most two texts, and standing instructions, each where it occurred last."""
    found: dict[str, list[tuple[int, int]]] = {}
    for number, text in texts:
        if not is_greeting(text):
            sentences = (shorten(one, _LONGEST) for one in _SENTENCE.split(text))
            for position, sentence in enumerate(dict.fromkeys(filter(None, sentences))):
                found.setdefault(sentence, []).append((number, position))
    return [(text, places[-1]) for text, places in found.items() if len(places) < _OFTEN or is_standing(text)]


def _matching(for_: str, said: Sequence[str], others: Sequence[_Line]) -> list[_Line]:
    """Return the sentences in `others` that match `for_` or a sentence in `said`, with the best match of each first."""
    index = LexicalIndex()
    for text, _ in others:
        index.add((text,))
    ranks: dict[int, tuple[int, int]] = {}
    for number, query in enumerate((for_, *said)):
        found = index.matches(query)
        for rank, place in enumerate(sorted(found, key=lambda place: (-found[place], -place))[:_MOST]):
            key = (rank // (1 if number else _FOR_NEXT), number)
            ranks[place] = min(key, ranks.get(place, key))
    return [others[place] for place in sorted(ranks, key=lambda place: (ranks[place], place))]


def _join_lines(chosen: Mapping[tuple[int, int], str]) -> Iterator[str]:
    """Yield one line for each exchange from which a sentence was chosen, in order."""
    for _, places in groupby(sorted(chosen), key=lambda place: place[0]):
        yield "- " + " ".join(chosen[place] for place in places)
