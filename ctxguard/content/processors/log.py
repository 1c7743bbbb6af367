"""Shorten a log or a program's output: errors with their traces first, then the last and the first lines.

A line that differs from an earlier one only in numbers is a repeat. Repeats are chosen last. Between the chosen lines,
a note in brackets, here called a sign, says how many are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from ctxguard.content.processors.error_lines import LineSpan, find_errors, line_template
from ctxguard.content.processors.text import shorten
from ctxguard.content.views import Limits, Source, TruncationInfo, View

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
