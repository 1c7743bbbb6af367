"""Shorten plain text to its start and its end, if possible in whole lines, and code to whole definitions."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ctxguard.views.views import Limits, Source, TruncationInfo, View, count_lines

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


_OPENS = re.compile(
    r"(?:@\w|(?:export |public |private |protected |static |final |abstract |async |pub(?:\(\w+\))? |unsafe |default )*"
    r"(?:def|class|function|fn|func|impl|struct|enum|trait|interface|type|module|namespace|const|let|var|package)\b)"
    r"|[A-Za-z_][\w<>\[\],*& ]* [*&]?\w+\([^;]*$"
)
_WHOLE = 300_000  # longer code, in characters, is shown as plain text


@dataclass(frozen=True, slots=True)
class _CodeBlock:
    """A definition with its decorators, or the lines between two definitions. `size` is the number of characters."""

    lines: list[str]
    size: int

    @property
    def title(self) -> str:
        """The first line that is not a decorator or a comment, which shows the name of a definition."""
        return next((line for line in self.lines if line.strip() and line[0] not in "@#"), self.lines[0])


class CodeProcessor(TextProcessor):
    """Shows source code. Of the `Limits`, only `lines` and `line_length` apply.

    A block is a definition or the lines between two definitions. Code is shown as text if it has fewer than three
    blocks, or if not even the first lines of all blocks fit.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self._limits = limits
        whole = source.gap is None and len(source.text) <= _WHOLE
        self._blocks = _blocks(source.text) if whole else []

    def view(self, available: int) -> View:
        """Return the blocks that fit in full, and the first lines of the others."""
        text, limit = self._source.text, self._limits.lines
        if len(self._blocks) < 3 or (len(text) <= available and (limit is None or self._total <= limit)):
            return super().view(available)
        marker = self._marker(f"{self._total} of {self._total} lines shown")
        free = available - len(marker) - 1
        chosen = self._whole_blocks(free, limit)
        return super().view(available) if chosen is None else self._draw(chosen)

    def _whole_blocks(self, available: int, lines: int | None) -> set[int] | None:
        """Return the indexes of the blocks to show in full; None if not even the first lines of all blocks fit."""
        available -= sum(min(len(block.title), 200) + 24 for block in self._blocks)
        left = (1 << 40 if lines is None else lines) - 1 - 2 * len(self._blocks)
        if available < 0 or left < 0:
            return None
        whole: set[int] = set()
        for index, block in enumerate(self._blocks):
            cost = block.size - min(len(block.title), 200) - 24
            if cost <= available and len(block.lines) - 2 <= left:
                whole.add(index)
                available -= cost
                left -= len(block.lines) - 2
        return whole

    def _draw(self, whole: set[int]) -> View:
        out: list[str] = []
        shown = 0
        length = self._limits.line_length or 1 << 30
        for index, block in enumerate(self._blocks):
            if index in whole or len(block.lines) == 1:
                out.extend(shorten(line, length) for line in block.lines)
                shown += len(block.lines)
                continue
            out.append(shorten(block.title, min(200, length)))
            out.append(f"    [… {len(block.lines) - 1} lines]")
            shown += 1
        out.append(self._marker(f"{shown} of {self._total} lines shown"))
        return View("\n".join(out), cut=True, info=self._info(shown))


def _blocks(text: str) -> list[_CodeBlock]:
    """Split a text before every definition that is not indented."""
    blocks: list[list[str]] = [[]]
    decorated = False
    for line in text.rstrip("\n").split("\n"):
        opens = bool(line[:1].strip()) and _OPENS.match(line) is not None
        if opens and not decorated and blocks[-1]:
            blocks.append([])
        decorated = opens and line.startswith("@")
        blocks[-1].append(line)
    return [_CodeBlock(lines, sum(map(len, lines)) + len(lines)) for lines in blocks if lines]
