"""Shorten a table to its header and rows from both ends; wide cells are shortened and columns left out if necessary.

The view has the same separator as the table, and all its rows have the same number of cells.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ctxguard.views.processors.text import shorten
from ctxguard.views.views import Limits, Source, TruncationInfo, View

_WHOLE = 600_000  # longer tables, in characters, are read only in part
_WINDOW = 131_072  # characters that are read from each end of a longer table
_DELIMITERS = ",\t;|"
_CELLS = (500, 200, 80, 40, 20, 10)  # lengths of cells that are tried, in characters


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One record of a table: its text as written, without the line break, and its cells."""

    raw: str
    cells: list[str]


@dataclass(frozen=True, slots=True)
class _Frame:
    """The number of columns in a view, and the maximum length of its cells in characters (None means no limit)."""

    columns: int
    cell: int | None


@dataclass(frozen=True, slots=True)
class Table:
    """The records of a table.

    Attributes:
        header: The first record.
        head: The records after the header; only those from the start if the middle was not read.
        tail: The records from the end if the middle was not read; else empty.
        total: Number of records without the header.
        delimiter: The character that separates cells.
        end: The line break that separates records.
        exact: False if `total` is an estimate.
        first: If these are rows from a larger table, the number of the first of them in that table; otherwise None.
    """

    header: TableRecord
    head: list[TableRecord]
    tail: list[TableRecord]
    total: int
    delimiter: str = ","
    end: str = "\n"
    exact: bool = True
    first: int | None = None


class TableProcessor:
    """Shows a table. Of the `Limits`, only `columns`, `cell`, `rows_head`, and `rows_tail` apply.

    The marker, which says how much is shown, is a row that starts with `#` and has as many cells as the others. If
    nothing is missing, the view is `text`, the table as it was written.
    """

    def __init__(self, table: Table, limits: Limits, *, text: str, handle: str | None = None) -> None:
        self._table, self._limits, self._text, self._handle = table, limits, text, handle
        self._header, self._rows, self._total = table.header, table.head, table.total
        self._delimiter, self._end = table.delimiter, table.end
        self._columns = max(len(self._header.cells), *(len(row.cells) for row in self._rows[:50]), 1)

    def view(self, available: int) -> View:
        """Return the header and as many rows as fit, two from the head for each one from the tail."""
        everything = _Frame(self._columns, None)
        if self._is_allowed() and len(self._text) <= available:
            return View(self._text, cut=False, info=self._info(self._total, everything, 0))
        marker = self._marker(0, 0, _Frame(1, None)) + "9" * 24
        frame = self._frame(available - len(marker))
        free = available - len(marker) - frame.columns - len(self._head_line(frame)) - 1
        head, tail = self._fill(free, frame)
        shown = len(head) + len(tail)
        missing = shown < self._total
        cells = self._count_shortened([*head, *tail], frame)
        if not missing and not cells and self._head_line(frame) == self._header.raw:
            return View(self._text, cut=False, info=self._info(shown, frame, 0))
        lines = [self._head_line(frame), *(self._line(row, frame) for row in head)]
        lines.append(self._marker(len(head), len(tail), frame))
        lines.extend(self._line(row, frame) for row in tail)
        return View(self._end.join(lines) + self._end, cut=True, info=self._info(shown, frame, cells))

    def fallbacks(self) -> tuple[str, ...]:
        """Return the name of the first column with a marker (a note on what is shown), then shorter markers."""
        name = shorten(self._header.cells[0] if self._header.cells else "", 20)
        first = write_row([name], self._delimiter)
        rows = f"# 0 of {self._total} rows"
        handle = self._handle
        long = f"{rows} - handle {handle}" if handle else rows
        return f"{first}\n{long}\n", f"{first}\n# {handle or f'{self._total} rows'}\n", rows, "#"

    def _frame(self, available: int) -> _Frame:
        """Return the size of cells and the number of columns with which the header and two rows fit.

        Cells are shortened first, then columns are left out. Column names stay whole unless only one column is left.
        """
        limit = self._limits.columns
        frame = _Frame(self._columns if limit is None else min(self._columns, limit), self._limits.cell)
        sample = [*self._rows[:1], *(self._table.tail or self._rows)[-1:]]
        while True:
            free = available - len(self._head_line(frame)) - frame.columns
            for cell in (frame.cell, *(size for size in _CELLS if frame.cell is None or size < frame.cell)):
                narrow = _Frame(frame.columns, cell)
                if sum(len(self._line(row, narrow)) + 1 for row in sample) <= free:
                    return narrow
            if frame.columns == 1:
                return _Frame(1, _CELLS[-1])
            frame = replace(frame, columns=min(frame.columns - 1, frame.columns * 4 // 5))

    def _head_line(self, frame: _Frame) -> str:
        return self._line(self._header, replace(frame, cell=self._limits.cell if frame.columns > 1 else frame.cell))

    def _fill(self, available: int, frame: _Frame) -> tuple[list[TableRecord], list[TableRecord]]:
        limits, ends = self._limits, self._table.tail or self._rows
        most_head, most_tail = limits.rows_head, limits.rows_tail
        if most_head is None or most_tail is None or self._total <= most_head + most_tail:
            most_head = most_tail = self._total
        head: list[TableRecord] = []
        tail: list[TableRecord] = []
        while len(head) + len(tail) < self._total:
            from_tail = len(tail) < min(most_tail, len(ends)) and (len(head) > 2 * len(tail) or len(head) >= most_head)
            if not from_tail and (len(head) >= most_head or len(head) >= len(self._rows)):
                break
            row = ends[-1 - len(tail)] if from_tail else self._rows[len(head)]
            available -= len(self._line(row, frame)) + len(self._end)
            if available < 0:
                break
            (tail if from_tail else head).append(row)
        return head, tail[::-1]

    def _is_allowed(self) -> bool:
        """Return whether the table was read in full and is within the limits."""
        limits = self._limits
        if self._total > len(self._rows) or self._columns > (limits.columns or self._columns):
            return False
        if limits.rows_head is not None and self._total > limits.rows_head + (limits.rows_tail or 0):
            return False
        return not self._count_shortened([self._header, *self._rows], _Frame(self._columns, limits.cell))

    def _line(self, row: TableRecord, frame: _Frame) -> str:
        if frame.columns >= len(row.cells) and not self._count_shortened([row], frame):
            return row.raw
        cells = row.cells[: frame.columns]
        return write_row([c if frame.cell is None else shorten(c, frame.cell) for c in cells], self._delimiter)

    def _count_shortened(self, rows: Sequence[TableRecord], frame: _Frame) -> int:
        """Return how many cells of the rows are longer than the maximum length in `frame`."""
        if frame.cell is None:
            return 0
        return sum(len(cell) > frame.cell for row in rows for cell in row.cells[: frame.columns])

    def _marker(self, head: int, tail: int, frame: _Frame) -> str:
        exact, first = self._table.exact, self._table.first or 1
        end = first + self._total - 1
        total = f"{self._total}" if self._table.first is None else f"{first}-{end}"
        start = _rows(first, head) if head else ""
        last = f"the last {tail}" if tail else ""
        if tail and exact:
            last = _rows(end - tail + 1, tail)
        shown = " and ".join(part for part in (start, last) if part) or "none"
        text = f"# rows {shown} of {'' if exact else 'about '}{total} shown"
        if frame.columns < self._columns:
            text += f" - columns 1-{frame.columns} of {self._columns}"
        if self._handle:
            text += f" - full text: handle {self._handle}"
        return text + self._delimiter * (frame.columns - 1)

    def _info(self, shown: int, frame: _Frame, cells: int) -> TruncationInfo:
        return TruncationInfo(
            rows_shown=shown,
            rows_total=self._total,
            columns_shown=frame.columns,
            columns_total=self._columns,
            cells_truncated=cells,
            totals_exact=self._table.exact,
        )


def _rows(first: int, count: int) -> str:
    return f"{first}" if count == 1 else f"{first}-{first + count - 1}"


def read_table(source: Source, limits: Limits) -> TableProcessor:
    """Return the processor for a CSV or TSV text. If the text exceeds 600,000 characters, only its ends are read.

    Raises:
        ValueError: If the text cannot be read as a table.
    """
    plain = _with_line_feeds(source)
    delimiter = find_delimiter(plain.text[:65_536])
    try:
        records, tail = _read(plain, delimiter)
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if not records:
        raise ValueError("no rows")
    windowed = plain.gap is not None or len(plain.text) > _WHOLE
    total = _count(plain, records) if windowed else len(records) - 1
    end = "\r\n" if "\r\n" in plain.text[:_WINDOW] else "\n"
    table = Table(records[0], records[1:], tail, total, delimiter, end, plain.exact, source.first_row)
    return TableProcessor(table, limits, text=source.text, handle=source.handle)


def _read(source: Source, delimiter: str) -> tuple[list[TableRecord], list[TableRecord]]:
    """Return all records of a table and an empty list; for a long table, the first records and the last records."""
    text = source.text
    if source.gap is None and len(text) <= _WHOLE:
        return [*_records(text, delimiter)], []
    end = text.rfind("\n", 0, min(_WINDOW, source.head_end))
    if end < 0:
        raise ValueError("the first row is longer than the part of a large table that is read")
    head = [*_records(text[: end + 1], delimiter)]
    head = head[:-1] if len(head) > 1 else head
    start = max(len(text) - _WINDOW, source.tail_start, end + 1)
    return head, _read_aligned(text[start:], delimiter, len(head[0].cells)) if head else []


def _count(source: Source, head: Sequence[TableRecord]) -> int:
    """Return the number of rows without the header. If a part of the table was not read, it may be an estimate."""
    if source.gap is not None:
        if source.lines is not None:
            return source.lines - 1
        return max(1, round(len(head) * source.total / sum(len(row.raw.encode()) + 1 for row in head))) - 1
    return _line_breaks(source.text.rstrip("\r\n"))


_OTHERS = bytes(code for code in range(256) if code not in b'"\n')


def _line_breaks(text: str) -> int:
    """Return the number of line breaks outside quotes.

    To be fast, it removes all characters but quotes and line breaks first, then doubled quotes.
    """
    if '"' not in text:
        return text.count("\n")
    signs = text.encode("utf-8", "replace").translate(None, _OTHERS).replace(b'""', b"")
    return sum(part.count(b"\n") for part in signs.split(b'"')[::2])


def find_delimiter(text: str) -> str:
    """Return the most likely separator, which splits most of the first rows into many and equally many cells."""
    best, score = ",", 0.0
    lines = text.splitlines(keepends=True)[:60]
    for delimiter in _DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:
            continue
        usual = max(set(widths), key=widths.count, default=1)
        points = widths.count(usual) / max(1, len(widths)) * (1 + min(usual, 10) / 20) if usual > 1 else 0
        if points > score:
            best, score = delimiter, points
    return best


def _records(text: str, delimiter: str) -> Iterator[TableRecord]:
    """Yield the records of a table with their original text; empty lines are left out."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter)
    start = 0
    for cells in reader:
        raw = "\n".join(lines[start : reader.line_num]).removesuffix("\r")
        start = reader.line_num
        if cells:
            yield TableRecord(raw, cells)


def _read_aligned(text: str, delimiter: str, columns: int) -> list[TableRecord]:
    """Return the records of a text that may start inside a record.

    The incomplete record at the start is left out. The records begin at the first of 40 lines from which on all records
    have the right number of columns.
    """
    at = text.find("\n")
    for _ in range(40):
        if at < 0:
            return []
        try:
            records = [*islice(_records(text[at + 1 : at + 65_536], delimiter), 9)]
            if records and all(len(record.cells) == columns for record in records[:-1]):
                return [*_records(text[at + 1 :], delimiter)]
        except csv.Error:
            pass
        at = text.find("\n", at + 1)
    return []


def _with_line_feeds(source: Source) -> Source:
    """Replace the line breaks of old Macs, which are carriage returns alone, because `csv` does not read them."""
    text = source.text
    is_old = "\r" in text[:_WINDOW] and "\n" not in text[:_WINDOW]
    return replace(source, text=text.replace("\r", "\n")) if is_old else source


def write_row(cells: Sequence[str], delimiter: str = ",") -> str:
    """Return one record as CSV, without a line break at its end."""
    out = io.StringIO()
    # A writer quotes only the line breaks that its own line end has.
    csv.writer(out, delimiter=delimiter, lineterminator="\r\n").writerow(cells)
    return out.getvalue().removesuffix("\r\n")
