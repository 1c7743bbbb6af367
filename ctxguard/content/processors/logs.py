"""Show a log or a program's output: every error with its trace, the last lines, then the first, repeats folded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxguard.content.processors.texts import shorten, shorten_lines
from ctxguard.content.views import Limits, Source, TruncationInfo, View, note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["LogShape", "error_rank"]

_HINTS = ("error", "fatal", "critical", "exception", "traceback", "fail")
_WEAK_HINTS = ("panic", "severe", "emerg", "exit code", "exit status", "warn")
_LARGE = 2_000_000
_STRONG = re.compile(
    r"""\b(?:ERROR|FATAL|CRITICAL|SEVERE|EMERG(?:ENCY)?|PANIC|FAILED|FAILURE|Traceback)\b
    | ^\s*(?:E\s+)?[A-Za-z_.]*(?:Error|Exception)\b\s*(?::|$)
    | \blevel"?\s*[=:]\s*"?(?:error|fatal|crit|panic|emerg)
    | ^\s*(?:error|fatal|panic)\s*[:\[(] | \[(?:error|crit|alert|emerg|E)\] | \b(?:exit|return)\s+(?:code|status)
    """,
    re.VERBOSE,
)
_NAMED = re.compile(r"\b[A-Za-z_]{0,80}[a-z](?:Error|Exception)\b|^E\s")
_WEAK = re.compile(r"(?i)error|fatal|critical|exception|fail|panic|severe|emerg")
_WARNING = re.compile(r"(?i)warn")
_TRACE = re.compile(
    r"(?:\s+\S|\t|Caused by:|\.\.\. \d+ more|#\d+ |at |During handling|The above exception|\[stacktrace\])"
)
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_MAX_HITS = 4000
_MAX_TRACE = 60


def error_rank(line: str) -> int:
    """Return 4 for a line that reports an error, 3 names one, 2 mentions it, 1 for a warning, 0 for any other."""
    if _STRONG.search(line):
        return 4
    if _NAMED.search(line):
        return 3
    if _WEAK.search(line):
        return 2
    return 1 if _WARNING.search(line) else 0


@dataclass(frozen=True, slots=True)
class _Hit:
    """A line that matters: its offsets, how much, the text that is the same in its repeats."""

    start: int
    end: int
    rank: int
    template: str


class LogShape:
    """Show a log.

    Args:
        source: the text.
        limits: `lines` and `line_length` count.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source, self._limits = source, limits
        self._total = source.line_count()
        self._text = source.text
        self._hits = sorted(_hits(source), key=lambda hit: hit.start)

    def view(self, room: int) -> View:
        """Return the chosen lines in their order, with what is missing between them counted."""
        text, limits = self._text, self._limits
        fits = self._source.gap is None and len(text) <= room
        if fits and (limits.lines is None or self._total <= limits.lines):
            shown = self._with_short_lines(text, limits.line_length)
            return View(shown, cut=shown != text, info=self._info(self._total))
        marker = self._marker(self._total)
        chosen = self._chosen(max(0, room - len(marker) - 1))
        return self._written(sorted(chosen), _length(room, limits))

    def resorts(self) -> tuple[str, ...]:
        """Return the marker, then only the handle or the total."""
        return self._marker(0), f"[{self._source.handle or f'{self._total} lines'}]", "…"

    def _chosen(self, room: int) -> set[tuple[int, int]]:
        picker = _Picker(room, self._limits)
        firsts, repeats = _without_repeats(self._hits)
        errors = [hit for hit in firsts if hit.rank == 4]
        tight = sum(picker.cost(hit.start, hit.end) for hit in errors) > room
        picker.take(self._ends(room // (6 if tight else 100)))
        picker.take((hit.start, hit.end) for hit in errors)
        picker.take(span for hit in errors for span in self._trace(hit))
        picker.take(self._ends(room // 8))
        picker.take((hit.start, hit.end) for rank in (3, 2, 1) for hit in firsts if hit.rank == rank)
        picker.take(self._ends(room // 2))
        picker.take((hit.start, hit.end) for hit in repeats if hit.rank == 4)
        picker.take(self._ends(room))
        picker.fill(self._text)
        return picker.spans

    def _ends(self, room: int) -> Iterator[tuple[int, int]]:
        """Walk the lines from the end and from the start in turn, two of the end for one of the start."""
        tail = _backward(self._text, self._source.tail_start)
        head = _forward(self._text, self._source.head_end)
        while room > 0:
            spans = [span for span in (next(tail, None), next(tail, None), next(head, None)) if span]
            if not spans or spans[-1][0] > spans[0][0]:
                return
            for span in spans:
                room -= span[1] - span[0] + 1
                yield span

    def _trace(self, hit: _Hit) -> Iterator[tuple[int, int]]:
        """Walk the lines after an error that belong to it, and its last line, which names the exception."""
        start, inside = hit.end + 1, False
        for _ in range(_MAX_TRACE):
            if start >= len(self._text):
                return
            end = _line_end(self._text, start)
            if not _TRACE.match(self._text, start, end):
                if inside:
                    yield start, end
                return
            inside = True
            yield start, end
            start = end + 1

    def _written(self, spans: list[tuple[int, int]], length: int) -> View:
        lines, end, shown = [], 0, 0
        for start, stop in spans:
            if start > end or (self._source.gap is not None and end <= self._source.gap <= start and end):
                lines.append(self._gap(end, start))
            lines.append(self._short(self._text[start:stop], length))
            shown += 1
            end = stop + 1
        if end < len(self._text):
            lines.append(self._gap(end, len(self._text)))
        lines.append(self._marker(shown))
        return View("\n".join(lines), cut=True, info=self._info(shown))

    def _gap(self, start: int, end: int) -> str:
        gap = self._source.gap
        if gap is not None and start <= gap <= end:
            return self._sign("… lines not read")
        missing = self._text.count("\n", start, end) + (end == len(self._text) and not self._text.endswith("\n"))
        folded = self._folded(start, end, missing)
        return self._sign(f"… {missing} line{'s' if missing != 1 else ''}{folded}")

    def _folded(self, start: int, end: int, missing: int) -> str:
        """Say so where all missing lines are like the line before them."""
        if missing < 1 or start == 0 or end - start > 20_000:
            return ""
        before = self._text[self._text.rfind("\n", 0, start - 1) + 1 : start - 1]
        template = _template(before)
        alike = all(_template(line) == template for line in self._text[start:end].rstrip("\n").split("\n"))
        return " like the one above" if alike else ""

    def _marker(self, shown: int) -> str:
        about = "" if self._source.exact else "about "
        return self._sign(note(f"{shown} of {about}{self._total} lines shown", self._source.handle))

    def _with_short_lines(self, text: str, length: int | None) -> str:
        return shorten_lines(text, length)

    def _short(self, line: str, length: int) -> str:
        return shorten(line, length)

    def _sign(self, text: str) -> str:
        return f"[{text}]"

    def _info(self, shown: int) -> TruncationInfo:
        return TruncationInfo(lines_shown=shown, lines_total=self._total, totals_exact=self._source.exact)


class _Picker:
    """Take spans while there is room for them and for the gap signs between them."""

    def __init__(self, room: int, limits: Limits) -> None:
        self.spans: set[tuple[int, int]] = set()
        self._room = room
        self._length = _length(room, limits)
        self._lines = None if limits.lines is None else limits.lines - 2
        self._starts: set[int] = set()
        self._ends: set[int] = set()

    def cost(self, start: int, end: int) -> int:
        return min(end - start, self._length) + 1

    def take(self, spans: Iterable[tuple[int, int]]) -> None:
        for start, end in spans:
            if (start, end) in self.spans:
                continue
            joined = (start - 1 in self._ends) + (end + 1 in self._starts)
            cost = self.cost(start, end) + _GAP * (1 - joined)
            lines = 2 - joined
            if cost > self._room or (self._lines is not None and lines > self._lines):
                continue
            self._add(start, end, cost, lines)

    def fill(self, text: str) -> None:
        """Take the lines of gaps that cost no more than the sign that counts them."""
        ends = sorted(self._ends)
        for end in ends:
            following = text.find("\n", end + 1, end + 2 * _GAP)
            if following >= 0 and (end + 1) not in self._starts and (following + 1) in self._starts:
                self._add(end + 1, following, 0, 0)

    def _add(self, start: int, end: int, cost: int, lines: int) -> None:
        self.spans.add((start, end))
        self._starts.add(start)
        self._ends.add(end)
        self._room -= cost
        if self._lines is not None:
            self._lines -= lines


_GAP = 18


def _length(room: int, limits: Limits) -> int:
    length = max(80, room // 4)
    return length if limits.line_length is None else min(length, limits.line_length)


def _template(line: str) -> str:
    return _NUMBERS.sub("0", line[:400]).strip()


def _without_repeats(hits: Iterable[_Hit]) -> tuple[list[_Hit], list[_Hit]]:
    seen: set[str] = set()
    firsts: list[_Hit] = []
    repeats: list[_Hit] = []
    for hit in hits:
        (repeats if hit.template in seen else firsts).append(hit)
        seen.add(hit.template)
    return firsts, repeats


def _hits(source: Source) -> Iterator[_Hit]:
    """Find the lines that report something: literal searches over the lower-cased text, which run at memory speed."""
    text = source.text
    low = text.lower()
    if len(low) != len(text):
        low = text.translate(_ASCII_LOWER)
    seen: set[int] = set()
    # In a large text every further word costs milliseconds; the weaker ones are left out.
    for hint in _HINTS if len(text) > _LARGE else (*_HINTS, *_WEAK_HINTS):
        for at in _occurrences(low, hint):
            start = text.rfind("\n", 0, at) + 1
            if start in seen:
                continue
            seen.add(start)
            end = _line_end(text, start)
            line = text[start : min(end, start + 2000)]
            if rank := error_rank(line):
                yield _Hit(start, end, rank, _template(line))


_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def _occurrences(text: str, word: str) -> Iterator[int]:
    """Walk the lines in which a word occurs, first occurrence each: the first and the last few thousand."""
    at = text.find(word)
    for _ in range(_MAX_HITS // 2):
        if at < 0:
            return
        yield at
        at = text.find(word, _line_end(text, at))
    end = len(text)
    for _ in range(_MAX_HITS // 2):
        last = text.rfind(word, at, end)
        if last < at or at < 0:
            return
        yield last
        end = max(at, text.rfind("\n", 0, last))


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _forward(text: str, stop: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < stop:
        end = min(_line_end(text, start), len(text))
        yield start, end
        start = end + 1


def _backward(text: str, stop: int) -> Iterator[tuple[int, int]]:
    end = len(text) - text.endswith("\n")
    while end > stop or end == 0:
        start = text.rfind("\n", 0, end) + 1
        if start < stop:
            return
        yield start, end
        end = start - 1
        if end < 0:
            return
