"""Search a model's answers and tool arguments for values that the model wrote itself.

The model never gets the values of a request, so a value in its answer, as it comes from the provider, is one that the
answer introduces: an address that the model made up or remembers, or a secret in the arguments of a tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from ctxguard.errors import WireError
from ctxguard.pii.mask.session import Masker
from ctxguard.pii.spans import Detector

OnNewValues: TypeAlias = Literal["pass", "report", "mask", "refuse"]
"""What to do with values that an answer introduces: `pass` does not look for them, `report` counts them, `mask` redacts
them, and `refuse` ends the answer with an error."""
Note: TypeAlias = Callable[[str], object]
"""Function that is called with the label of a value that an answer introduces."""

MOST_HELD: Final = 512
"""Maximum number of characters of a text that are held back: a text is searched up to the end of each line or sentence,
and if neither ends within this number of characters, in pieces of half of it."""
_CONTEXT: Final = 256
"""Number of characters before a piece that are searched with it, as context."""
_END: Final = re.compile(r"\n|[.!?…。！？؟]+[\"'”’»)\]]*\s")
"""Matches the end of a line or of a sentence."""


class AnswerScan:
    """Searches the texts of one response. Each distinct value is noted once, although a response may repeat its texts.

    Args:
        masker: The rules. It must redact, and keep text that looks like a placeholder.
        action: What to do with a value, see `OnNewValues`.
        note: Called with the label of each new value.
    """

    def __init__(self, masker: Masker, action: OnNewValues, note: Note) -> None:
        self._masker = masker
        self._action = action
        self._note = note
        self._seen: set[tuple[str, str]] = set()

    def text(self, text: str) -> str:
        """Return a text after the search.

        Raises:
            WireError: If the text introduces a value, and the action is `refuse`.
        """
        pieces = self.pieces(in_full=False)
        return pieces.feed(text) + pieces.close()

    def arguments(self, text: str) -> str:
        """Return the arguments of a call, or an answer in JSON, after the search; JSON stays valid.

        Raises:
            WireError: See `text`.
        """
        masked = self._masker.mask(text)
        if masked == text:
            return text
        spans = self._masker.find(text)
        for span in spans:
            self._judge(span.label, text[span.start : span.end])
        if not spans:  # found only behind its key, or in a text that is escaped
            self._judge("UNKNOWN", text)
        return masked if self._action == "mask" else text

    def pieces(self, *, in_full: bool) -> AnswerPieces:
        """Return an object that searches a text which arrives in pieces.

        Args:
            in_full: Whether the text is held back to its end, because it is JSON or the arguments of a call.
        """
        return AnswerPieces(self, in_full=in_full)

    def judged(self, text: str, start: int, stop: int) -> tuple[str, int]:
        """Search a part of a text.

        Args:
            text: The text.
            start: The offset at which the part begins. The text before it is context.
            stop: The offset at which the part ends. The text after it is only searched for the ends of values.

        Returns:
            The part after the search, and the offset at which it ends: `stop`, or later if a value ends later.
        """
        done, parts = start, list[str]()
        for span in self._masker.find(text):
            if span.end <= done or span.start >= stop:
                continue
            first = max(span.start, done)
            parts += (text[done:first], self._judge(span.label, text[first : span.end]))
            done = span.end
        end = max(done, stop)
        return "".join((*parts, text[done:end])), end

    def _judge(self, label: str, value: str) -> str:
        """Note a value, and return what is shown in its place."""
        if (label, value) not in self._seen:
            self._seen.add((label, value))
            self._note(label)
        if self._action == "refuse":
            told = f"the answer introduces a value ({label}) that was in no message; new_values='refuse' ends it here"
            raise WireError(told, status=502)
        return self._masker.redaction(label) if self._action == "mask" else value


class AnswerPieces:
    """Searches one text that arrives in pieces. The result does not depend on where the pieces begin and end."""

    def __init__(self, scan: AnswerScan, *, in_full: bool) -> None:
        self._scan = scan
        self._in_full = in_full
        self._before = ""
        self._held = ""

    def feed(self, piece: str) -> str:
        """Add a piece, and return the text that is decided now.

        Raises:
            WireError: See `AnswerScan.text`.
        """
        self._held += piece
        if self._in_full:
            return ""
        decided: list[str] = []
        while (end := self._next_end()) is not None:
            decided.append(self._release(*end))
        return "".join(decided)

    def close(self) -> str:
        """End the text, and return what was held back.

        Raises:
            WireError: See `AnswerScan.text`.
        """
        if self._in_full:
            return self._scan.arguments(self._held) if self._held else ""
        return self._release(len(self._held), len(self._held)) if self._held else ""

    def _next_end(self) -> tuple[int, int] | None:
        """Return the number of characters that can be decided, and how many are searched; None if more are needed."""
        found = _END.search(self._held, 0, MOST_HELD)
        if found is not None:
            return found.end(), found.end()
        if len(self._held) < MOST_HELD:
            return None
        half = self._held[: MOST_HELD // 2]
        return (max(half.rfind(" "), half.rfind("\t")) + 1 or len(half)), MOST_HELD

    def _release(self, size: int, searched: int) -> str:
        start = len(self._before)
        text = self._before + self._held[:searched]
        decided, end = self._scan.judged(text, start, start + size)
        self._before = text[max(0, end - _CONTEXT) : end]
        self._held = self._held[end - start :]
        return decided


def scan_masker(detectors: Sequence[Detector]) -> Masker:
    """Return the masker for `AnswerScan`: placeholders in answers are those of the request, and stay."""
    return Masker(tuple(detectors), escape=False)
