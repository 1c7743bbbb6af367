"""Keep the latest messages, and older ones that a rule wants kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ctxguard.artifacts import Artifact, Kind
from ctxguard.draft import Draft
from ctxguard.errors import ConfigError
from ctxguard.protection import units
from ctxguard.stages.alone import applied
from ctxguard.stages.selection import check_every, selected
from ctxguard.text_cache import TextCache

__all__ = [
    "DEFAULT_RULES",
    "ERRORS",
    "FIRST_INSTRUCTIONS",
    "SCREENSHOTS",
    "STATE_CHANGES",
    "PreservationRule",
    "SlidingWindow",
    "mentions",
    "preserved_by",
    "reports_error",
]


@dataclass(frozen=True, slots=True)
class PreservationRule:
    """Say which artifacts stay outside the window.

    Attributes:
        name: what the rule is called.
        keeps: takes an artifact and its number among the messages, counted from 0; tells whether it stays.
    """

    name: str
    keeps: Callable[[Artifact, int], bool]


_ERROR: Final = re.compile(
    r"^\s*(?:\[?(?:error|fatal|critical|exception|panic)\]?\s*[:\]]|Traceback \(most recent call last\)"
    r"|(?-i:(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b\s*(?::|$)|npm ERR!|E {3,}\S))"
    r"|(?-i:\b(?:ERROR|FATAL|CRITICAL)\b\s*[\]:\-|])"
    r"|\"(?:error|exception)\"\s*:\s*(?!null|false|\"\"|\[\]|\{\}|0\b)\S"
    r"|\"(?:is_error|isError)\"\s*:\s*true"
    r"|\b(?:exit(?:ed)?(?: with)?(?: code| status)?|returncode)[ :=]+[1-9]\d*\b"
    r"|\b(?:HTTP/\d(?:\.\d)?|status(?: code)?)[ :=]+[45]\d\d\b",
    re.MULTILINE | re.IGNORECASE,
)
_SHOUTED: Final = re.compile(
    r"error|fatal|critical|exception|panic|traceback|ERR!|exit|returncode|HTTP|status|^E {3}",
    re.IGNORECASE | re.MULTILINE,
)
_KNOWN: Final[TextCache[bool]] = TextCache(8_000_000)
_SPOKEN: Final = (Kind.TOOL, Kind.ASSISTANT, Kind.USER)


def reports_error(artifact: Artifact) -> bool:
    """Tell whether an artifact reports an error: by its shape (a traceback, a level, a status), not by the word."""
    return artifact.kind in _SPOKEN and _remembered(_KNOWN, artifact.text, _holds_error)


def _holds_error(text: str) -> bool:
    return bool(_SHOUTED.search(text)) and bool(_ERROR.search(text))


def _remembered(known: TextCache[bool], text: str, judge: Callable[[str], bool]) -> bool:
    verdict = known.get(text)
    if verdict is None:
        verdict = judge(text)
        known.put(text, verdict)
    return verdict


def mentions(*phrases: str) -> Callable[[Artifact, int], bool]:
    """Return a predicate: the artifact's text holds one of these phrases, as whole words in any case."""
    pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, phrases)) + r")(?!\w)", re.IGNORECASE)
    known: TextCache[bool] = TextCache(4_000_000)
    return lambda artifact, _number: _remembered(known, artifact.text, lambda text: bool(pattern.search(text)))


def _is_first_instruction(artifact: Artifact, number: int) -> bool:
    return number == 0 and artifact.kind is Kind.USER


def _holds_image(artifact: Artifact, _number: int) -> bool:
    return not isinstance(artifact.content, str) and any(part.kind == "image" for part in artifact.content)


FIRST_INSTRUCTIONS: Final = PreservationRule("first instructions", _is_first_instruction)
ERRORS: Final = PreservationRule("errors", lambda artifact, _number: reports_error(artifact))
STATE_CHANGES: Final = PreservationRule("state changes", mentions("logged in", "cart updated", "order completed"))
SCREENSHOTS: Final = PreservationRule("screenshots", _holds_image)
DEFAULT_RULES: Final = (FIRST_INSTRUCTIONS, ERRORS, STATE_CHANGES, SCREENSHOTS)
"""What stays outside the window unless told otherwise."""


def preserved_by(rules: Sequence[PreservationRule], artifacts: Sequence[Artifact]) -> set[int]:
    """Return the positions of the artifacts that some rule keeps."""
    messages = (p for p, a in enumerate(artifacts) if a.kind not in (Kind.SYSTEM, Kind.TASK))
    return {p for number, p in enumerate(messages) if any(rule.keeps(artifacts[p], number) for rule in rules)}


class SlidingWindow:
    """Keep the latest messages and, from before them, the exchanges that a rule keeps; in order, each once.

    An exchange that begins before the window and reaches into it stays whole. With `every=1` the window moves with each
    message, and so does the prompt's prefix; a larger step lets it grow by that many exchanges before it moves.

    Args:
        window_size: messages of the window, tool results counted.
        rules: what stays outside of it.
        every: exchanges by which the window moves at once.

    Raises:
        ConfigError: a setting is below 1.
    """

    name = "SlidingWindow"

    def __init__(
        self, window_size: int = 15, *, rules: Sequence[PreservationRule] = DEFAULT_RULES, every: int = 1
    ) -> None:
        if window_size < 1:
            raise ConfigError(f"window_size must be 1 message or more, not {window_size}", setting="window_size")
        self.window_size = window_size
        self.rules = tuple(rules)
        self.every = check_every(every)

    def apply(self, messages: Iterable[Artifact]) -> list[Artifact]:
        """Return the artifacts that stay. The input is not changed."""
        return applied(self, messages)

    def __call__(self, draft: Draft, /) -> Draft:
        """Return the draft with the window and what is kept outside of it."""
        found = units(draft)
        if not found or found[-1].end - found[0].start <= self.window_size:
            return draft
        preserved = preserved_by(self.rules, draft.artifacts)

        def choose(end: int) -> set[int]:
            edge = found[end - 1].end - self.window_size if end else 0
            return {
                n
                for n in range(end)
                if found[n].end > edge or any(p in preserved for p in range(found[n].start, found[n].end))
            }

        return selected(draft, found, choose, self.every, f"older than the latest {self.window_size} messages")
