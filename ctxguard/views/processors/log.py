"""Shorten a log or a program's output: errors with their traces first, then the last and the first lines.

A line that differs from an earlier one only in numbers is a repeat. Repeats are chosen last. Between the chosen lines,
a note in brackets, here called a sign, says how many are missing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from ctxguard.views.processors.text import shorten
from ctxguard.views.views import Limits, Source, TruncationInfo, View

_LEVEL = re.compile(
    r"^\s*(?:- )?(?:\S{0,40}\d\d:\d\d:\d\d\S{0,20}\s+)?"
    r"(?:\[(?P<boxed>[A-Za-z]+)\]|console\.(?P<call>[a-z]+)\b|(?P<plain>LOG|ERROR|WARN|WARNING"
    r"|INFO|DEBUG)\b)\s*:?\s*(?P<text>.*)",
    re.IGNORECASE,
)
_NAMES = {
    **dict.fromkeys(("assert", "pageerror", "severe"), "error"),
    **dict.fromkeys(("trace", "verbose"), "debug"),
    "warn": "warning",
}
_ORDER = {"error": 0, "warning": 1, "log": 2, "info": 3, "debug": 4}
_COUNTS = re.compile(r"\d+")


def compress_console(text: str, *, max_line: int = 200, max_messages: int = 5) -> str:
    """Return console messages grouped by type, or the text itself if that is not shorter.

    All distinct errors are quoted in full. Of every other type, the first `max_messages` distinct messages are shown,
    each shortened to `max_line` characters. Messages of these types that differ only in numbers count as the same.
    """
    out: list[str] = []
    for kind, messages in sorted(_by_kind(text).items(), key=lambda item: (_ORDER.get(item[0], 9), item[0])):
        is_error = kind == "error"
        distinct: dict[str, list[str]] = {}
        for message in messages:
            distinct.setdefault(message if is_error else _COUNTS.sub("0", message), []).append(message)
        out.append(f"{kind} ({len(messages)}):")
        for same in list(distinct.values())[: None if is_error else max_messages]:
            line = same[0] if is_error else shorten(same[0], max_line)
            out.append(f"  {line}" + (f" (×{len(same)})" if len(same) > 1 else ""))
        if not is_error and len(distinct) > max_messages:
            out.append(f"  [… {len(distinct) - max_messages} more]")
    compressed = "\n".join(out)
    return compressed if len(compressed) < len(text) else text


def _by_kind(text: str) -> dict[str, list[str]]:
    """Return the messages of each type; a line without a type continues the message above it."""
    kinds: dict[str, list[str]] = {}
    above: list[str] | None = None
    for line in text.splitlines():
        if match := _LEVEL.match(line):
            name = (match["boxed"] or match["call"] or match["plain"]).lower()
            above = kinds.setdefault(_NAMES.get(name, name), [])
            above.append(match["text"])
        elif line.strip() and above:
            above[-1] += "\n" + line
        elif line.strip():
            above = kinds.setdefault("log", [])
            above.append(line)
    return kinds


_MENTIONED: Final = ("error", "fail", "exception", "fatal", "critical", "panic", "severe", "emerg")
_WORDS: Final = (*_MENTIONED, "traceback", "warn", "exit code", "exit status", "return code", "[crit]", "[alert]")
"""A line that contains none of these words, in upper or lower case, has rank 0. The patterns are tried only on other
lines."""
REPORTED: Final = 4
"""The rank of a line that reports an error."""
_MANY: Final = 5_000  # kinds of lines that are recorded; of further kinds, only those with errors
_LATEST: Final = 1_000  # repeated lines that are recorded, from the end of the text
_LINE: Final = 2_000
"""Number of characters at the start of a line on which its rank is based."""

# Each pattern starts with a character or a set, so the engine can skip ahead; a leading `\b` would be tried everywhere.
_STRONG: Final = (
    re.compile(r"[EFCSPT](?<!\w.)(?:RROR|ATAL|RITICAL|EVERE|MERG(?:ENCY)?|ANIC|AILED|AILURE|raceback)\b"),
    re.compile(r"""level"?\s{0,9}[=:]\s{0,9}"?(?:error|fatal|crit|panic|emerg)"""),
    re.compile(r"\[(?:error|crit|alert|emerg|E)\]"),
    re.compile(r"[er](?<!\w.)(?:xit|eturn)\s{1,9}(?:code|status)"),
    # after the place in a file, as compilers write it
    re.compile(r"[ef](?<=[\d)]: .)(?:atal e)?rror(?: \w{1,16})?:"),
)
_OPENS: Final = re.compile(
    r"\s*(?:E\s+)?(?:[A-Za-z_.]{0,200}(?:Error|Exception)\b\s*(?::|$)|(?:error|fatal|panic)\s*[:\[(])"
)
_NAMED: Final = re.compile(r"E(?<=[a-z]E)(?:rror|xception)\b")
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


class LineSpan(NamedTuple):
    """The offsets in a text at which a line starts and ends, without its line break, and its number, counted from 0."""

    start: int
    end: int
    number: int


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """A line that reports an error or a warning.

    Attributes:
        span: Where the line is.
        rank: How clearly the line reports an error, as returned by `error_rank`.
    """

    span: LineSpan
    rank: int


@dataclass(frozen=True, slots=True)
class Findings:
    """The lines in a text that report errors and warnings.

    Attributes:
        lines: Number of lines in the text.
        firsts: The first line of each kind, in order. After 5,000 kinds, only lines of rank 4 are added.
        repeats: The last 1,000 of the lines that are not in `firsts`.
    """

    lines: int
    firsts: Sequence[ErrorLine]
    repeats: Sequence[ErrorLine]


def error_rank(line: str) -> int:
    """Return how clearly a line reports an error.

    The rank is 4 for a line that reports an error, 3 for one that names an exception, 2 for one that contains a word
    such as "fail", 1 for a warning, and 0 for any other line.
    """
    if any(pattern.search(line) for pattern in _STRONG) or _OPENS.match(line):
        return REPORTED
    if _NAMED.search(line) or (line[:1] == "E" and line[1:2].isspace()):
        return 3
    low = line.lower()
    if any(word in low for word in _MENTIONED):
        return 2
    return 1 if "warn" in low else 0


def line_template(line: str) -> str:
    """Replace the numbers in a line by zeros, so that lines of one kind have the same template."""
    return _NUMBERS.sub("0", line[:400]).strip()


def find_errors(text: str) -> Findings:
    """Find the lines that report an error or a warning. The time is linear in the length of the text."""
    firsts: list[ErrorLine] = []
    repeats: deque[ErrorLine] = deque(maxlen=_LATEST)
    ranks: dict[str, int] = {}
    templates: set[str] = set()
    start = number = 0
    for number, zeroed in enumerate(_zero_digits(text).split("\n")):
        end = start + len(zeroed)
        rank, is_first = ranks.get(zeroed), False
        if rank is None:
            line = text[start : min(end, start + _LINE)]
            rank = ranks[zeroed] = error_rank(line) if _mentions(line) else 0
            is_new = rank == REPORTED or (rank > 0 and len(firsts) < _MANY)
            is_first = is_new and line_template(line) not in templates
            templates.update([line_template(line)] if is_first else ())
        if rank:
            (firsts if is_first else repeats).append(ErrorLine(LineSpan(start, end, number), rank))
        start = end + 1
    return Findings(number + bool(text) - text.endswith("\n"), firsts, list(repeats))


def _zero_digits(text: str) -> str:
    for digit in "123456789":  # replacing one character by another is many times faster than `translate`
        text = text.replace(digit, "0")
    return text


def _mentions(line: str) -> bool:
    low = line.lower()
    for word in _WORDS:
        if word in low:
            return True
    return line.startswith("E ")


_TRACE = re.compile(
    r"(?:\s+\S|\t|Caused by:|\.\.\. \d+ more|#\d+ |at |During handling|The above exception|\[stacktrace\])"
)
_MAX_TRACE = 60  # lines of a trace that are shown with its error
_GAP = 18
"""Usual length of a note that says how many lines are missing, in characters."""


class LogProcessor:
    """Shows a log. Of the `Limits`, only `lines` and `line_length` apply."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source, self._limits, self._text = source, limits, source.text
        self._found = find_errors(source.text)
        self._total = self._found.lines if source.gap is None else source.line_count()

    def view(self, available: int) -> View:
        """Return the most informative lines in their order. Notes between them say how many lines are missing."""
        text, limits = self._text, self._limits
        fits = self._source.gap is None and len(text) <= available
        if fits and (limits.lines is None or self._total <= limits.lines):
            length = limits.line_length
            shown = text if length is None else "\n".join(self._short(line, length) for line in text.split("\n"))
            return View(shown, cut=shown != text, info=self._info(self._total))
        marker = self._marker(self._total)
        chosen = self._choose(max(0, available - len(marker) - 1))
        return self._join(chosen, _length(available, limits))

    def fallbacks(self) -> tuple[str, ...]:
        """Return the marker (a note on what is shown), then only the handle or the number of lines, then `…`."""
        return self._marker(0), f"[{self._source.handle or f'{self._total} lines'}]", "…"

    def _choose(self, available: int) -> list[LineSpan]:
        """Return the lines to show, in order. The most important ones are picked first, others as far as they fit."""
        picker = _Picker(available, self._limits)
        firsts, repeats = self._found.firsts, self._found.repeats
        errors = [hit.span for hit in firsts if hit.rank == 4]
        tight = sum(map(picker.cost, errors)) > available
        picker.take(self._ends(available // (6 if tight else 100)))
        picker.take(errors)
        picker.take(span for error in errors for span in self._trace(error))
        picker.take(self._ends(available // 8))
        picker.take(hit.span for rank in (3, 2, 1) for hit in firsts if hit.rank == rank)
        picker.take(self._ends(available // 2))
        picker.take(hit.span for hit in repeats if hit.rank == 4)
        picker.take(self._ends(available))
        picker.fill()
        return picker.spans()

    def _ends(self, available: int) -> Iterator[LineSpan]:
        """Yield lines from both ends of the log in turn, two from the end and one from the start."""
        tail = _backward(self._text, self._source.tail_start, self._found.lines)
        head = _forward(self._text, self._source.head_end)
        while available > 0:
            spans = [span for span in (next(tail, None), next(tail, None), next(head, None)) if span]
            if not spans or spans[-1].start > spans[0].start:
                return
            for span in spans:
                available -= span.end - span.start + 1
                yield span

    def _trace(self, error: LineSpan) -> Iterator[LineSpan]:
        """Yield the lines of the trace that follows an error, including the last one, which names the exception."""
        start, inside = error.end + 1, False
        for number in range(error.number + 1, error.number + 1 + _MAX_TRACE):
            if start >= len(self._text):
                return
            end = _line_end(self._text, start)
            belongs = _TRACE.match(self._text, start, end)
            if belongs or inside:
                yield LineSpan(start, end, number)
            if not belongs:
                return
            inside, start = True, end + 1

    def _join(self, spans: list[LineSpan], length: int) -> View:
        lines: list[str] = []
        before = LineSpan(-1, -1, -1)
        for span in spans:
            if span.number > before.number + 1 or self._has_gap(before.end, span.start):
                lines.append(self._gap(before, span))
            lines.append(self._short(self._text[span.start : span.end], length))
            before = span
        if before.number < self._found.lines - 1:
            lines.append(self._gap(before, LineSpan(len(self._text), len(self._text), self._found.lines)))
        lines.append(self._marker(len(spans)))
        return View("\n".join(lines), cut=True, info=self._info(len(spans)))

    def _has_gap(self, end: int, start: int) -> bool:
        gap = self._source.gap
        return gap is not None and end < gap <= start

    def _gap(self, before: LineSpan, after: LineSpan) -> str:
        if self._has_gap(before.end, after.start):
            return self._sign("… lines not read")
        missing = after.number - before.number - 1
        alike = " like the one above" if self._is_repeated(before, after) else ""
        return self._sign(f"… {missing} line{'s' if missing != 1 else ''}{alike}")

    def _is_repeated(self, before: LineSpan, after: LineSpan) -> bool:
        """Return whether all lines between two shown lines differ only in numbers from the first of the two."""
        if before.end < 0 or after.start - before.end > 20_000:
            return False
        template = line_template(self._text[before.start : before.end])
        missing = self._text[before.end + 1 : after.start].rstrip("\n").split("\n")
        return all(line_template(line) == template for line in missing)

    def _marker(self, shown: int) -> str:
        about = "" if self._source.exact else "about "
        return self._sign(self._source.note(f"{shown} of {about}{self._total} lines shown"))

    def _short(self, line: str, length: int) -> str:
        return shorten(line, length)

    def _sign(self, text: str) -> str:
        return f"[{text}]"

    def _info(self, shown: int) -> TruncationInfo:
        return TruncationInfo(lines_shown=shown, lines_total=self._total, totals_exact=self._source.exact)


class _Picker:
    """Picks lines while they fit, together with the notes that say how many lines are missing between them."""

    def __init__(self, available: int, limits: Limits) -> None:
        self._taken: dict[int, LineSpan] = {}
        self._available = available
        self._length = _length(available, limits)
        self._lines = 1 << 40 if limits.lines is None else limits.lines - 2

    def spans(self) -> list[LineSpan]:
        return sorted(self._taken.values())

    def cost(self, span: LineSpan) -> int:
        return min(span.end - span.start, self._length) + 1

    def take(self, spans: Iterable[LineSpan]) -> None:
        for span in spans:
            if self._available <= 0:
                return
            if span.number in self._taken:
                continue
            joined = (span.number - 1 in self._taken) + (span.number + 1 in self._taken)
            cost = self.cost(span) + _GAP * (1 - joined)
            lines = 2 - joined
            if cost <= self._available and lines <= self._lines:
                self._taken[span.number] = span
                self._available -= cost
                self._lines -= lines

    def fill(self) -> None:
        """Take each single missing line if it is no longer than the note that would stand in its place."""
        for before, after in pairwise(self.spans()):
            number = before.number + 1
            if after.number == number + 1 and after.start - before.end < 2 * _GAP:
                self._taken[number] = LineSpan(before.end + 1, after.start - 1, number)


def _length(available: int, limits: Limits) -> int:
    length = max(80, available // 4)
    return length if limits.line_length is None else min(length, limits.line_length)


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _forward(text: str, stop: int) -> Iterator[LineSpan]:
    start = number = 0
    while start < stop:
        end = _line_end(text, start)
        yield LineSpan(start, end, number)
        start, number = end + 1, number + 1


def _backward(text: str, stop: int, lines: int) -> Iterator[LineSpan]:
    end = len(text) - text.endswith("\n")
    for number in range(lines - 1, -1, -1):
        start = text.rfind("\n", 0, max(end, 0)) + 1
        if start < stop:
            return
        yield LineSpan(start, end, number)
        end = start - 1
