"""Show plain text: head and tail, cut at line breaks if possible, long lines shortened."""

from __future__ import annotations

import re
from dataclasses import replace

from ctxguard.content.views import Limits, Source, TruncationInfo, View, note

_HEAD_SHARE = 0.5
_MIN_LINE = 24
_COUNTED = 60
"""Least room in which a shortened text also says how long it was."""


def shorten(text: str, room: int) -> str:
    """Return the text within `room` characters: `start…`, with more room `start… [1234 characters]`."""
    if len(text) <= room:
        return text
    sign = f"… [{len(text)} characters]"
    if room < _COUNTED:
        return text[: max(0, room - 1)] + "…" if room > 0 else ""
    return text[: room - len(sign)] + sign


def shorten_lines(text: str, length: int | None) -> str:
    """Shorten every line above `length` characters."""
    if length is None or len(text) <= length:
        return text
    return re.sub(rf"[^\n]{{{length + 1},}}", lambda match: shorten(match[0], length), text)


class TextProcessor:
    """Show the head and the tail of a text; of the limits, `lines` and `line_length` count."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = _with_short_lines(source, limits.line_length)
        self._shortened = self._source.text is not source.text
        self._lines = limits.lines
        self._total = source.line_count()

    def view(self, room: int) -> View:
        """Return head and tail with a marker between."""
        text = self._source.text
        whole = self._source.gap is None and len(text) <= room
        if whole and (self._lines is None or self._total <= self._lines):
            return View(text, cut=self._shortened, info=self._info(self._total))
        spare = len(self._marker("lines 1-99999 and 99999-999999 of 999999 shown")) + 2
        free = max(0, room - spare)
        head = self._head(int(free * _HEAD_SHARE))
        tail = self._tail(min(free - len(head), len(text) - len(head)))
        return self._joined(head, tail)

    def fallbacks(self) -> tuple[str, ...]:
        """Return the marker with the handle, then without."""
        return resorts(self._source, f"{self._total} lines")

    def _head(self, room: int) -> str:
        head = self._source.text[: min(room, self._source.head_end)]
        if self._lines is not None:
            head = _first_lines(head, max(1, int((self._lines - 1) * _HEAD_SHARE)))
        end = head.rfind("\n") + 1
        return head[:end] if end > len(head) // 2 else head

    def _tail(self, room: int) -> str:
        text = self._source.text
        tail = text[max(len(text) - room, self._source.tail_start) :] if room > 0 else ""
        if self._lines is not None:
            tail = _last_lines(tail, self._lines - 1 - max(1, int((self._lines - 1) * _HEAD_SHARE)))
        start = tail.find("\n") + 1
        at_line = len(tail) < len(text) and text[-len(tail) - 1] == "\n"
        return tail[start:] if not at_line and 0 < start < len(tail) // 2 else tail

    def _joined(self, head: str, tail: str) -> View:
        first, last = _lines_of(head), _lines_of(tail)
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
        return f"[{note(shown, self._source.handle)}]"

    def _info(self, shown: int) -> TruncationInfo:
        return TruncationInfo(lines_shown=shown, lines_total=self._total, totals_exact=self._source.exact)


def _with_short_lines(source: Source, length: int | None) -> Source:
    if length is None:
        return source
    length = max(length, _MIN_LINE)
    if source.gap is None:
        text = shorten_lines(source.text, length)
        return (
            source if text == source.text else replace(source, text=text, size=source.total, lines=source.line_count())
        )
    head = shorten_lines(source.text[: source.gap], length)
    tail = shorten_lines(source.text[source.gap :], length)
    return replace(source, text=head + tail, gap=len(head), lines=source.lines or source.line_count())


def resorts(source: Source, total: str) -> tuple[str, ...]:
    """Return what is said of a source of which nothing can be shown: the marker, then only the handle or the total."""
    return (f"[{note('0 of ' + total, source.handle)}]", f"[{source.handle or total}]", "…")


def _ranges(first: int, last: int, total: int, *, exact: bool) -> str:
    about = "" if exact else "about "
    if not first and not last:
        return f"none of {about}{total} lines shown"
    head = f"1-{first}" if first else ""
    tail = (f"{total - last + 1}-{total}" if exact else f"the last {last}") if last else ""
    return f"lines {' and '.join(part for part in (head, tail) if part)} of {about}{total} shown"


def _lines_of(text: str) -> int:
    return text.count("\n") + (text != "" and not text.endswith("\n"))


def _first_lines(text: str, lines: int) -> str:
    rest = text.split("\n", lines)[lines:]
    return text.removesuffix(rest[0]) if rest else text


def _last_lines(text: str, lines: int) -> str:
    if lines <= 0:
        return ""
    parts = text.removesuffix("\n").rsplit("\n", lines)
    return text[len(parts[0]) + 1 :] if len(parts) > lines else text
