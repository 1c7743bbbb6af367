"""Shorten plain text to its start and its end, if possible in whole lines. Long lines are shortened."""

from __future__ import annotations

import re
from dataclasses import replace

from ctxguard.content.views import Limits, Source, TruncationInfo, View, count_lines

_HEAD_SHARE = 0.5  # half of a view is the head, half the tail
_MIN_LINE = 24  # characters below which a shortened line is not informative
_COUNTED = 60
"""Minimum number of available characters at which a shortened string also states its original length."""


def shorten(text: str, available: int) -> str:
    """Shorten a string to `available` characters: to `start…`, or to `start… [1234 characters]` if 60 are available."""
    if len(text) <= available:
        return text
    sign = f"… [{len(text)} characters]"
    if available < _COUNTED:
        return text[: max(0, available - 1)] + "…" if available > 0 else ""
    return text[: available - len(sign)] + sign


def shorten_lines(text: str, length: int | None) -> str:
    """Shorten every line of more than `length` characters; None means no limit."""
    if length is None or len(text) <= length:
        return text
    return re.sub(rf"[^\n]{{{length + 1},}}", lambda match: shorten(match[0], length), text)


class TextProcessor:
    """Shows the start and the end of a text. Of the `Limits`, only those on lines apply."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = _with_short_lines(source, limits.line_length)
        self._shortened = self._source.text != source.text
        self._lines, self._first, self._last = _lines_shown(limits)
        self._total = source.line_count()

    def view(self, available: int) -> View:
        """Return the start and the end with a marker between them that says what is shown; the text if it fits."""
        text = self._source.text
        whole = self._source.gap is None and len(text) <= available
        if whole and (self._lines is None or self._total <= self._lines):
            return View(text, cut=self._shortened, info=self._info(self._total))
        spare = len(self._marker("lines 1-99999 and 99999-999999 of 999999 shown")) + 2
        free = max(0, available - spare)
        head = self._head(int(free * _HEAD_SHARE))
        tail = self._tail(min(free - len(head), len(text) - len(head)))
        return self._join(head, tail)

    def fallbacks(self) -> tuple[str, ...]:
        """Return the marker (a note on what is shown), then only the handle or the number of lines, then `…`."""
        return resorts(self._source, f"{self._total} lines")

    def _head(self, available: int) -> str:
        head = self._source.text[: min(available, self._source.head_end)]
        if self._first is not None:
            head = _first_lines(head, self._first)
        end = head.rfind("\n") + 1
        return head[:end] if end > len(head) // 2 else head

    def _tail(self, available: int) -> str:
        text = self._source.text
        tail = text[max(len(text) - available, self._source.tail_start) :] if available > 0 else ""
        if self._last is not None:
            tail = _last_lines(tail, self._last)
        start = tail.find("\n") + 1
        at_line = len(tail) < len(text) and text[-len(tail) - 1] == "\n"
        return tail[start:] if not at_line and 0 < start < len(tail) // 2 else tail

    def _join(self, head: str, tail: str) -> View:
        first, last = count_lines(head), count_lines(tail)
        text = self._source.text
        clean = (not head or head.endswith("\n")) and (
            len(tail) == len(text) or text[len(text) - len(tail) - 1] == "\n"
        )
        if clean:
            shown = _ranges(first, last, self._total, exact=self._source.exact)
        else:
            shown = f"first {len(head)} and last {len(tail)} of {self._source.total} characters shown"
        marker = self._marker(shown)
        body = head + ("" if not head or head.endswith("\n") else "\n") + marker
        return View(body + ("\n" + tail if tail else ""), cut=True, info=self._info(first + last))

    def _marker(self, shown: str) -> str:
        return f"[{self._source.note(shown)}]"

    def _info(self, shown: int) -> TruncationInfo:
        return TruncationInfo(lines_shown=shown, lines_total=self._total, totals_exact=self._source.exact)


def _lines_shown(limits: Limits) -> tuple[int | None, int | None, int | None]:
    """Return the maximum number of lines: in a view with its marker, from the text's start, and from its end."""
    lines, first, last = limits.lines, limits.lines_head, limits.lines_tail
    if lines is None:
        return None, first, last
    first = min(max(1, int((lines - 1) * _HEAD_SHARE)) if first is None else first, lines - 1)
    last = min(lines - 1 - first if last is None else last, lines - 1 - first)
    return min(lines, first + last + 1), first, last


def _with_short_lines(source: Source, length: int | None) -> Source:
    if length is None:
        return source
    length = max(length, _MIN_LINE)
    head = shorten_lines(source.text[: source.head_end], length)
    tail = shorten_lines(source.text[source.head_end :], length)
    gap = None if source.gap is None else len(head)
    return replace(source, text=head + tail, gap=gap, size=source.total, lines=source.line_count())


def resorts(source: Source, total: str) -> tuple[str, ...]:
    """Return the fallbacks of a processor: a marker in brackets, then only the handle or `total`, then `…`.

    `total` says how much there is, such as `12 lines`.
    """
    return (f"[{source.note('0 of ' + total)}]", f"[{source.handle or total}]", "…")


def _ranges(first: int, last: int, total: int, *, exact: bool) -> str:
    about = "" if exact else "about "
    if not first and not last:
        return f"none of {about}{total} lines shown"
    head = f"1-{first}" if first else ""
    tail = (f"{total - last + 1}-{total}" if exact else f"the last {last}") if last else ""
    return f"lines {' and '.join(part for part in (head, tail) if part)} of {about}{total} shown"


def _first_lines(text: str, lines: int) -> str:
    rest = text.split("\n", lines)[lines:]
    return text.removesuffix(rest[0]) if rest else text


def _last_lines(text: str, lines: int) -> str:
    if lines <= 0:
        return ""
    parts = text.removesuffix("\n").rsplit("\n", lines)
    return text[len(parts[0]) + 1 :] if len(parts) > lines else text
