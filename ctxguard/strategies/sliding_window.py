"""Keep the latest messages, and the older messages that match a preservation rule."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.history import RECALLED, History, record_title
from ctxguard.settings import listed, whole_number
from ctxguard.stages.short_views import reports_error
from ctxguard.strategies.keep import Choice, Keep, Past


@dataclass(frozen=True, slots=True)
class PreservationRule:
    """A rule that keeps artifacts although they are older than the window.

    Attributes:
        name: Name of the rule.
        keeps: Function that takes an artifact and its index among the messages (system and task artifacts do not
            count), and returns whether the artifact is kept.
    """

    name: str
    keeps: Callable[[Artifact, int], bool]


_SAVED_SCREENSHOT: Final = re.compile(
    r"screen[ _-]?shot[^\n]{0,120}?[\w/\\.-]\.(?:png|jpe?g|webp)\b|\.(?:png|jpe?g|webp)\b[^\n]{0,120}?screen[ _-]?shot",
    re.IGNORECASE,
)


def _reports_error(artifact: Artifact, _number: int) -> bool:
    return reports_error(artifact)


@lru_cache(maxsize=2)
def _folded(text: str) -> str:
    """Return a text with its case folded, for search. Cached, because several rules search the same text."""
    return text.casefold()


class Mentions:
    """A predicate that is true if an artifact's text contains one of several phrases, as whole words in any case."""

    def __init__(self, *phrases: str) -> None:
        self._phrases = [phrase.casefold() for phrase in phrases]
        self._pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, self._phrases)) + r")(?!\w)")

    def __call__(self, artifact: Artifact, _number: int = 0) -> bool:
        """Return whether the artifact's text contains one of the phrases."""
        text = _folded(artifact.text)
        # substrings first: that is far cheaper than the pattern, and nearly always enough
        return any(phrase in text for phrase in self._phrases) and bool(self._pattern.search(text))


def _is_first_instruction(artifact: Artifact, number: int) -> bool:
    return number == 0 and artifact.kind is Kind.USER


def _holds_screenshot(artifact: Artifact, _number: int) -> bool:
    """Return whether an artifact contains an image, or names the file in which a screenshot was saved."""
    if not isinstance(artifact.content, str) and any(part.kind == "image" for part in artifact.content):
        return True
    # "screenshot" may occur only in the name of the tool, whose output is just the name of the file.
    text = f"{artifact.name or ''} {artifact.text}" if artifact.kind is Kind.TOOL else artifact.text
    return _SAVED_SCREENSHOT.search(text) is not None


def _is_record(artifact: Artifact, _number: int) -> bool:
    return record_title(artifact) not in (None, RECALLED)


FIRST_INSTRUCTIONS: Final = PreservationRule("first instructions", _is_first_instruction)
ERRORS: Final = PreservationRule("errors", _reports_error)
STATE_CHANGES: Final = PreservationRule("state changes", Mentions("logged in", "cart updated", "order completed"))
SCREENSHOTS: Final = PreservationRule("screenshots", _holds_screenshot)
RECORDS: Final = PreservationRule("records", _is_record)
"""The rule for summaries and checkpoints that stages wrote. The context contains their information nowhere else."""
DEFAULT_RULES: Final[tuple[PreservationRule, ...]] = (FIRST_INSTRUCTIONS, ERRORS, STATE_CHANGES, SCREENSHOTS, RECORDS)
"""The rules by which a window keeps older messages by default."""


def is_preserved(rules: Sequence[PreservationRule], history: History, number: int) -> bool:
    """Return whether an exchange contains an artifact that one of the rules keeps."""
    ahead = bisect_left(history.authority, history.start(number))
    members = enumerate(history.members(number), history.start(number) - ahead)
    return any(rule.keeps(artifact, place) for place, artifact in members for rule in rules)


@dataclass(frozen=True, slots=True)
class _WindowNote:
    """What a sliding window records about one exchange.

    Exchanges older than the window wait until `every` of them can be dropped at once. The opener of a turn, its user
    message, is dropped after all other exchanges of the turn, so it starts to wait when the next turn begins.

    Attributes:
        stays: Whether the exchange is kept when it is older than the window.
        counts: Whether the exchange counts as one that waits. Exchanges that stay, messages that stages wrote, and the
            conversation's first user message do not count.
        end: Number of messages in the conversation up to the end of the exchange, without those that stages wrote.
        opener: Index of the exchange that opened the turn; None if that exchange does not count (see `counts`).
        opened: Number of exchanges that had started to wait when the turn began.
        leaving: Index of the exchange that starts to wait with this one: of this exchange itself or, at the start of a
            turn, of the opener of the previous turn. None if there is none.
        total: Number of exchanges that have started to wait up to this one.
    """

    stays: bool = False
    counts: bool = False
    end: int = 0
    opener: int | None = None
    opened: int = 0
    leaving: int | None = None
    total: int = 0


class SlidingWindow(Keep[_WindowNote]):
    """Keeps the latest messages, and the older exchanges that match a rule.

    An exchange that begins before the window and extends into it is kept whole. As a stage, the window lets older
    exchanges wait and drops `every` of them at once, so that the prompt's prefix stays the same in between. `apply`
    lets nothing wait.

    Args:
        window_size: Number of messages in the window, including tool results. Never fewer are kept.
        rules: Rules for older messages to keep.
        every: Number of exchanges that are dropped at once. None means a third of `window_size`.

    Raises:
        ConfigError: If `window_size` or `every` is not a whole number of at least 1.
    """

    def __init__(
        self, window_size: int = 15, *, rules: Sequence[PreservationRule] = DEFAULT_RULES, every: int | None = None
    ) -> None:
        self.window_size = whole_number(window_size, "window_size", unit="messages", least=1)
        self.rules = listed(rules, PreservationRule, "rules")
        every = max(1, window_size // 3) if every is None else every
        super().__init__(self._choose, self._note_on, every=every, name="SlidingWindow")

    def apply(self, messages: Iterable[Artifact]) -> list[Artifact]:
        """Return the messages in the window, and the older ones to keep. The input is not changed."""
        return Keep.apply(SlidingWindow(self.window_size, rules=self.rules, every=1), messages)

    def _note_on(self, past: Past[_WindowNote], number: int) -> _WindowNote:
        history, span = past.history, past.history.spans[number]
        before = past.notes[number - 1] if number else _WindowNote()
        is_written = span.has_user_role and not span.is_asked
        stays = span.is_pinned or number == past.task or is_preserved(self.rules, history, number)
        counts = not (stays or is_written or number in history.asked[:1])
        itself = number if counts else None
        opener, leaving = before.opener, itself
        if span.is_asked:
            opener, leaving = itself, self._opener_to_release(before)
        end = before.end if is_written else before.end + span.end - span.start
        total = before.total + (leaving is not None)
        return _WindowNote(stays, counts, end, opener, total if span.is_asked else before.opened, leaving, total)

    def _opener_to_release(self, last: _WindowNote) -> int | None:
        """Return the opener of the turn that ends with the exchange of `last`; None if it was already dropped."""
        return last.opener if last.total - last.opened <= last.total % self.every else None

    def _choose(self, past: Past[_WindowNote], _end: int) -> Choice | None:
        """Choose the older exchanges to keep: those that stay, and those that still wait to be dropped."""
        history, notes = past.history, past.notes
        if not notes:
            return None
        last = notes[-1] if len(notes) == len(history) else self._note_on(past, len(notes))
        outside = bisect_right(notes, last.end - self.window_size, key=attrgetter("end"))
        if not outside:
            return None
        newest = notes[outside - 1]
        released = self._opener_to_release(newest) if history.spans[outside].is_asked else None
        waiting = (newest.total + (released is not None)) % self.every
        newest_first = chain([released], (notes[n].leaving for n in range(outside - 1, -1, -1)))
        waits = list(islice((n for n in newest_first if n is not None), waiting + 1))
        # The last exchange that was dropped. Older exchanges that do not count were dropped with it.
        edge = waits.pop() if len(waits) > waiting else -1
        chosen = (
            n
            for n, note in enumerate(notes[:outside])
            if note.stays or n in waits or (n > edge and (not note.counts or n == newest.opener))
        )
        return Choice(chosen, outside, f"older than the latest {self.window_size} messages")
