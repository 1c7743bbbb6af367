"""Search a model's answers and tool arguments for values that the model wrote itself.

The model never gets the values of a request, so a value in its answer, as it comes from the provider, is one that the
answer introduces: an address that the model made up or remembers, or a secret in the arguments of a tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from ctxguard.errors import WireError
from ctxguard.pii.detect.echo import Names
from ctxguard.pii.detect.tables import run_at
from ctxguard.pii.mask.pseudonyms import MemoryPseudonyms
from ctxguard.pii.mask.session import Masker, TextMasking
from ctxguard.pii.spans import Detector, Span

OnNewValues: TypeAlias = Literal["pass", "report", "mask", "refuse"]
"""What to do with values that an answer introduces: `pass` does not look for them, `report` counts them, `mask` redacts
them, and `refuse` ends the answer with an error."""
Note: TypeAlias = Callable[[str], object]
"""Function that is called with the label of a value that an answer introduces."""

MOST_HELD: Final = 512
"""Maximum number of characters of a text that are held back, except for a run without spaces."""
LONGEST_RUN: Final = 20_000
"""Maximum number of characters that are held back of a run without spaces, which may be a token: no rule finds half of
a token, and no token of a provider is longer."""
_AHEAD: Final = 64
"""Number of characters after a line or a sentence that are searched with it, because values may continue there."""
_CONTEXT: Final = 256
"""Number of characters before a piece that are searched with it, as context."""
_HEADINGS: Final = 1_024
"""Maximum number of characters at the beginning of a table that are searched with its rows, as context."""
_LONGEST_VALUE: Final = 65_536
"""Maximum number of characters of a value that continues from piece to piece, such as the lines of a private key."""
_ENDS: Final = re.compile(r"\n|[.!?…。！？؟]++(?:[\"'”’»)\]]*+\s)?")
"""Matches the end of a line or of a sentence, or marks within a sentence, which have no white space after them."""
_LAST_SPACE: Final = re.compile(r".*[^!-~]", re.DOTALL)
_SPACE: Final = re.compile(r"[^!-~]")
"""Matches what is in no token: white space, and all characters beyond ASCII."""


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

    @property
    def hides(self) -> bool:
        """Whether the values are kept from the client, rather than only counted."""
        return self._action in ("mask", "refuse")

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
        return AnswerPieces(self, self._masker, in_full=in_full)

    def judged(
        self, spans: Sequence[Span], text: str, start: int, stop: int, begun: int | None
    ) -> tuple[str, int, int | None]:
        """Decide a part of a text.

        Args:
            spans: The findings in the text.
            text: The text.
            start: The offset at which the part begins. The text before it is context.
            stop: The offset at which the part ends. The text after it is only searched for the ends of values.
            begun: The offset of a value that is shown already, and may go on in the part. None if there is none.

        Returns:
            The part after the search, the offset at which it ends (`stop`, or later if a value ends later), and the
            offset of a value that may go on after the text; None if there is none.
        """
        done, parts, goes_on = start, list[str](), None
        for span in spans:
            if span.start >= stop:
                break
            goes_on = None if text[span.end :].strip() else span.start
            if span.end <= done:
                continue
            first = max(span.start, done)
            value = text[first : span.end]
            is_shown = span.start == begun and self._action == "mask"
            shown = "" if is_shown else value if span.start == begun else self._judge(span.label, value)
            parts += (text[done:first], shown)
            done = span.end
        end = max(done, stop)
        return "".join((*parts, text[done:end])), end, goes_on

    def _judge(self, label: str, value: str) -> str:
        """Note a value, and return what is shown in its place."""
        if (label, value) not in self._seen:
            self._seen.add((label, value))
            self._note(label)
        if self._action == "refuse":
            message = (
                f"the answer introduces a value ({label}) that was in no message; new_values='refuse' ends it here"
            )
            raise WireError(message, status=502)
        return self._masker.redaction(label) if self._action == "mask" else value


class AnswerPieces:
    """Searches one text that arrives in pieces. The result does not depend on where the pieces begin and end."""

    def __init__(self, scan: AnswerScan, masker: Masker, *, in_full: bool) -> None:
        self._scan = scan
        self._masker = masker
        self._names = Names()
        self._masking = TextMasking(masker, self._names, MemoryPseudonyms())
        self._in_full = in_full
        self._before = ""
        self._begun: int | None = None
        self._held = ""
        self._all: list[str] = []

    def feed(self, piece: str) -> str:
        """Add a piece, and return the text that is decided now.

        Raises:
            WireError: See `AnswerScan.text`.
        """
        if self._in_full:
            self._all.append(piece)
            return ""
        self._held += piece
        decided: list[str] = []
        at = 0
        while (end := self._next_end(at)) is not None:
            shown, at = self._release(at, *end)
            decided.append(shown)
        self._held = self._held[at:]
        return "".join(decided)

    def close(self) -> str:
        """End the text, and return what was held back.

        Raises:
            WireError: See `AnswerScan.text`.
        """
        if self._in_full:
            return self._scan.arguments("".join(self._all)) if self._all else ""
        size = len(self._held)
        return self._release(0, size, size)[0] if size else ""

    def _next_end(self, at: int) -> tuple[int, int] | None:
        """Return the offsets to which the held text can be decided, and to which it is searched.

        Return None if more text is needed.

        Args:
            at: The offset of the first character that is not decided.
        """
        last, known = at + MOST_HELD, len(self._held)
        for found in _ENDS.finditer(self._held, at, min(last, known) - _AHEAD):
            if found[0][-1].isspace():
                return found.end(), found.end() + _AHEAD
        if known < last:
            return None
        spaced = _LAST_SPACE.match(self._held, at, at + _CONTEXT)
        if spaced is not None:
            return spaced.end(), last
        space = _SPACE.search(self._held, at + _CONTEXT, at + LONGEST_RUN)
        end = at + LONGEST_RUN if space is None else space.end()
        return None if known < end + _CONTEXT else (end, end + _CONTEXT)

    def _release(self, at: int, stop: int, searched: int) -> tuple[str, int]:
        """Return a part of the held text after the search, and the offset at which it ends."""
        start = len(self._before)
        text = self._before + self._held[at:searched]
        spans = self._masking.find_in_rounds(text, self._masker.redaction)
        decided, end, begun = self._scan.judged(spans, text, start, start + stop - at, self._begun)
        if begun is not None and end - begun > _LONGEST_VALUE:
            begun = None
        self._names.learn(self._masker.names(text[:end]))  # a name that is introduced is searched for from now on
        if begun is None:
            self._before, self._begun = _context(text[:end]), None
        else:
            first = max(0, begun - _CONTEXT)
            self._before, self._begun = text[first:end], begun - first
        return decided, at + end - start


def _context(text: str) -> str:
    """Return what of a text is searched with the text that follows: its end, and the headings if it ends in a table."""
    first = max(0, len(text) - _CONTEXT)
    begin, _ = run_at(text, max(0, len(text) - 2))
    if begin >= first:
        return text[first:]
    headings = text[begin : text.rfind("\n", begin, begin + _HEADINGS) + 1]
    row = text.rfind("\n", begin, first) + 1
    return (
        text[first:] if not headings or first - row > _HEADINGS else headings + text[max(row, begin + len(headings)) :]
    )


def scan_masker(detectors: Sequence[Detector]) -> Masker:
    """Return the masker for `AnswerScan`: placeholders in answers are those of the request, and stay."""
    return Masker(tuple(detectors), escape=False)
