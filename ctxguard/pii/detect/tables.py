"""Read tables (CSV, TSV, Markdown, aligned columns, JSON, SQL, HTML), and give each value in a text its context."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ctxguard.pii.detect.people import Place

# Strings such as `'O''Neil'`, and `'D’Angelo'`, whose apostrophe has been normalized to the ASCII quote.
_STRING: Final = r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.|''|(?<=[^\W\d_])'(?=[^\W\d_]))*+'"
_VALUES: Final = re.compile(rf"\s*+((?:{_STRING}|\([^()]*+\)|[^\"'(),\[\]]|[\"'(])*?)\s*+(?:,|[\])]?\Z)")
_FIELDS: Final = re.compile(r"([^\t\n]*)(?:\t|\n|\Z)")
_TAGGED: Final = re.compile(r"<t[dh]\b[^<>]*+>((?:[^<]|<(?!/?t[dhr]\b))*+)", re.IGNORECASE)
_QUOTED: Final = r"\s*+\"[^\"\\\d][^\"\\]{0,39}\"\s*+"
_BARE: Final = r"\s*+[\"'`]?[^\W\d][^\"'`()\[\]{},]{0,39}[\"'`]?\s*+"
_INSIDE: Final = rf"(?:{_STRING}|\([^()]*+\)|[^\"'()\[\]])*+"
_NESTED: Final = re.compile(r"\[\s*+\[")
_LIST: Final = re.compile(rf"\s*+\[({_INSIDE})\]\s*+,?")


class _Grid(NamedTuple):
    """The syntax of one kind of table.

    Attributes:
        literals: Groups of strings; every text with such a table contains at least one string of each group.
        head: Matches the headings (group `head`) and everything between them and the first row.
        row: Matches a row directly after the previous one; its first group contains the cells.
        cells: Matches the cells of a row one after the other; its first group is the cell.
    """

    literals: tuple[tuple[str, ...], ...]
    head: re.Pattern[str]
    row: re.Pattern[str]
    cells: re.Pattern[str]


def _heading_list(name: str) -> str:
    return rf"(?P<head>{name}(?:,{name}){{1,199}})"


_FORMS: Final = (
    _Grid((("[",),), re.compile(rf"\[\s*+\[{_heading_list(_QUOTED)}\]\s*+,(?=\s*+\[)"), _LIST, _VALUES),
    _Grid(
        (("[",),),
        re.compile(
            rf"\"(?:columns|fields|headers?|headings|cols|names)\"\s*+:\s*+\[{_heading_list(_QUOTED)}\]"
            r"(?:\s*+,\s*+\"[^\"\\]{1,40}\"\s*+:\s*+(?:\[[^\[\]]*+\]|[^\[\]{},\"]{1,20}|\"[^\"\\]{0,40}\")){0,3}"
            r"\s*+,\s*+\"[^\"\\]{1,40}\"\s*+:\s*+\[(?=\s*+\[)"
        ),
        _LIST,
        _VALUES,
    ),
    _Grid(
        (("INSERT", "insert", "Insert"), (" INTO ", " into ", " Into ")),
        re.compile(
            rf"\binsert\s++(?:\w{{1,20}}\s++){{0,2}}into\s++[^\s()]{{1,80}}\s*+\({_heading_list(_BARE)}\)\s*+values\s*+(?=\()",
            re.IGNORECASE,
        ),
        re.compile(rf"\s*+\(({_INSIDE})\)\s*+,?"),
        _VALUES,
    ),
    _Grid(
        ((" stdin", " STDIN"),),
        re.compile(
            rf"^copy\s++[^\s()]{{1,80}}\s*+\({_heading_list(_BARE)}\) from stdin[^\n]*+\n", re.IGNORECASE | re.MULTILINE
        ),
        re.compile(r"(?!\\\.)([^\n]++\n?)"),
        _FIELDS,
    ),
    _Grid(
        (("</th>", "</TH>"),),
        re.compile(
            r"<tr\b[^<>]*+>(?P<head>(?:\s*+<th\b[^<>]*+>(?:[^<]|<(?!/?t[dhr]\b)){0,200}+(?:</th>)?+){2,200})\s*+(?:</tr>)?+"
            r"\s*+(?:</thead>)?+\s*+(?:<tbody[^<>]*+>)?+",
            re.IGNORECASE,
        ),
        re.compile(r"\s*+<tr\b[^<>]*+>((?:[^<]|<(?!/?tr\b))*+)(?:</tr>)?+", re.IGNORECASE),
        _TAGGED,
    ),
)


class Row(NamedTuple):
    """The position of a table row.

    Attributes:
        begin: Offset of the first cell.
        end: Offset after the last cell.
        headings: Start and end offset of each column heading.
        pattern: Matches the cells one after the other.
    """

    begin: int
    end: int
    headings: list[Place]
    pattern: re.Pattern[str]

    def cells(self, text: str) -> list[Place]:
        """Return the start and end offset of each cell."""
        return _grid_cells(self.pattern, text, self.begin, self.end)


@lru_cache(maxsize=2)  # several rules read the same text, one after the other
def grid_rows(text: str) -> Sequence[Row]:
    """Return all table rows in a text that are in brackets or tags, sorted by offset."""
    return sorted((row for form in _FORMS for row in _rows(form, text)), key=attrgetter("begin"))


def _rows(form: _Grid, text: str) -> Iterator[Row]:
    if not all(any(literal in text for literal in group) for group in form.literals):
        return
    if form.row is _LIST and not _NESTED.search(text):
        return
    place = 0
    while (head := form.head.search(text, place)) is not None:
        headings = _grid_cells(_VALUES if form.cells is _FIELDS else form.cells, text, *head.span("head"))
        place = head.end()
        while (row := form.row.match(text, place)) is not None and row.end() > place:
            yield Row(*row.span(1), headings, form.cells)
            place = row.end()


def _grid_cells(pattern: re.Pattern[str], text: str, begin: int, end: int) -> list[Place]:
    return [within(text, *match.span(1), " \t\r\n\"'`") for match in pattern.finditer(text, begin, end)]


def within(text: str, begin: int, end: int, frame: str) -> Place:
    """Return the offsets of a cell without the characters of `frame` (such as spaces and quotes) around it."""
    while end > begin and text[end - 1] in frame:
        end -= 1
    while begin < end and text[begin] in frame:
        begin += 1
    return begin, end


WINDOW: Final = 40
"""Number of characters before a candidate that are searched for context words."""
Windows: TypeAlias = "Sequence[tuple[int, int]]"
"""Parts of a text, sorted and without overlaps, by their first and last offset."""
Judge: TypeAlias = Callable[[str], Place | None]
_ALIGNED: Final = "  "
"""The separator of aligned columns: two or more spaces."""
_SEPARATORS: Final = ("|", "\t", ";", ",", _ALIGNED)
_CELLS: Final = {
    separator: re.compile(rf'[ \t]*("(?:[^"\n]|"")*"|[^{re.escape(separator)}\n]*)(?:{re.escape(separator)}|(?=\n)|\Z)')
    for separator in _SEPARATORS[:-1]
} | {_ALIGNED: re.compile(r" *((?:[^ \n]| (?![ \n]))*)(?: {2,}+(?!\r?(?:\n|\Z))|(?= *+\r?(?:\n|\Z)))")}
_SEPARATES: Final = re.compile(r"[|\t;,]|  ")
_GAP: Final = re.compile(r"(?<=\S) {2,}(?=\S)")
_ALIGNED_CELL: Final = r"[^\s\d|;,:={}<>]++(?: [^\s\d|;,:={}<>]++)*+"
_RULE: Final = re.compile(r"[\s|:=+-]*\Z")
_HEADINGS: Final = re.compile(
    r"^[|\t ]*[^\s\d|;,][^\n\d|\t;,]{0,39}(?:[|\t;,][^\n\d|\t;,]{0,40}){1,200}$"
    rf"|^ {{0,8}}+(?=[^\W\d_]){_ALIGNED_CELL}(?: {{2,}}+{_ALIGNED_CELL})++ *$",
    re.MULTILINE,
)
"""A line that may contain the headings of a table: short cells without digits."""
_LETTER: Final = re.compile(r"[^\W\d_]")
_MOST_COLUMNS: Final = 200  # a line with more cells is not a heading line
_ROWS_BEFORE: Final = 3
"""So many lines before a line of headings that have as many cells make it a row. Two may be headings of its own."""
_LONGEST: Final = 4_000  # maximum length of a line, in characters


class _Table(NamedTuple):
    """The position of a table with one row per line.

    Attributes:
        separator: The separator of the cells.
        headings: Start and end offset of each column heading.
        begin: Offset of the first row.
        end: Offset after the last row.
        is_sure: False if the text could be prose: a sentence with a comma, followed by a line that also has one.
    """

    separator: str
    headings: list[Place]
    begin: int
    end: int
    is_sure: bool


_Lined = TypeVar("_Lined", _Table, Row)


class NearbyText:
    """What is beside each value of a text, which decides whether a rule with context words accepts it.

    It is the text before the value or, in a table, the heading of its column and the cells to its left.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._row: tuple[int, list[Place]] = (-1, [])
        # the tables of each run of lines that was looked at, with the offsets of the run
        self._runs: list[tuple[int, int, list[_Table]]] = []
        self._blocks: dict[int, Windows] = {}

    @cached_property
    def _grid_rows(self) -> Sequence[Row]:
        return grid_rows(self._text)

    def _table(self, offset: int) -> _Table | None:
        """Return the table whose headings or rows contain an offset; None if there is none."""
        number = bisect_right(self._runs, offset, key=itemgetter(0))
        run = self._runs[number - 1] if 0 < number <= len(self._runs) else None
        # threads that search the same text share this object, so what was found by its place may be another run
        if run is None or not run[0] <= offset <= run[1]:
            begin, end = run_at(self._text, offset)
            run = begin, end, [*_tables_in(self._text, begin, end)]
            self._runs.insert(number, run)
        tables = run[2]
        place = bisect_right(tables, offset, key=lambda table: table.headings[0][0]) - 1
        return tables[place] if place >= 0 and offset < tables[place].end else None

    def of(self, start: int) -> tuple[str, ...]:
        """Return the contexts of the value at an offset, at most 40 characters each. A context word may be in any.

        In a table row, the first context is the heading of the column. The second one consists of the first cell of the
        row and the cell before the value; it is left out if neither contains a letter. Both end with the part of the
        value's own cell before `start`. If the table may be prose, the second context is the text before the value.
        Outside of tables, that text is the only context.
        """
        contexts = self._in_row(start)
        if contexts is not None:
            return (*(one[-WINDOW:] for one in contexts),)
        # blank lines are removed, so that a text joined with others has the same context as alone
        return (self._text[start - WINDOW if start > WINDOW else 0 : start].lstrip("\n"),)

    def _in_row(self, start: int) -> Sequence[str] | None:
        if self._grid_rows and (grid := _containing(self._grid_rows, start)) is not None:
            return self._of_cell(start, grid.headings, self._cells(grid.begin, partial(grid.cells, self._text)))
        if (table := self._table(start)) is None or start < table.begin:
            return None
        row = self._text.rfind("\n", 0, start) + 1
        cells = self._cells(row, partial(_cells, self._text, row, table.separator))
        contexts = self._of_cell(start, table.headings, cells)
        if contexts is None or table.is_sure:
            return contexts
        return contexts[0], self._text[max(0, start - WINDOW) : start]

    def blocks(self, offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield the first and last offset of each table that contains one of these offsets, headings included."""
        for offset in offsets:
            blocks = self._blocks.get(offset)
            if blocks is None:
                blocks = self._blocks[offset] = self._blocks_at(offset)
            yield from blocks

    def _blocks_at(self, offset: int) -> Windows:
        table = self._table(offset)
        blocks = [(table.headings[0][0], table.end)] if table is not None else []
        if self._grids:
            number = bisect_right(self._grids, offset, key=itemgetter(0)) - 1
            blocks += self._grids[max(number, 0) : number + 1]
        return blocks

    @cached_property
    def _grids(self) -> Windows:
        # the rows of a table share the list of its headings
        tables = [(rows[0].headings, rows[-1].end) for rows in _grouped(self._grid_rows)]
        return merged((headings[0][0], end) for headings, end in tables if headings)

    def _cells(self, begin: int, read: Callable[[], list[Place]]) -> list[Place]:
        """Return the cells of the row at an offset. A row often contains several values, so its cells are cached."""
        known, cells = self._row
        if known != begin:
            cells = read()
            self._row = begin, cells  # one assignment, because threads that search the same text share this object
        return cells

    def headings_at(self, start: int) -> str:
        """Return the headings of all columns of the table row at an offset; empty if there is no table row."""
        table = _containing(self._grid_rows, start) or self._table(start)
        return "".join(f"{self._text[a:b]}: " for a, b in table.headings) if table is not None else ""

    def _of_cell(self, start: int, headings: list[Place], cells: list[Place]) -> Sequence[str] | None:
        """Return the contexts of a value in a row; None if the value is outside the columns."""
        column = bisect_right(cells, start, key=itemgetter(0)) - 1
        if not 0 <= column < len(headings):
            return None
        text, (a, b) = self._text, headings[column]
        cell = text[cells[column][0] : start]
        heading = f"{text[a:b]}: {cell}"
        beside = dict.fromkeys((cells[0], cells[column - 1])) if column else ()
        # most rows are numbers, which give no context
        if not any(_LETTER.search(text, *place) for place in beside):
            return (heading,)
        return heading, f"{' '.join(text[c:d] for c, d in beside)}: {cell}"


def run_at(text: str, offset: int) -> tuple[int, int]:
    """Return the start and end offset of the lines around an offset that may be rows of one table."""
    begin, end = text.rfind("\n", 0, offset) + 1, _line_end(text, offset)
    if not _may_be_row(text, begin, end):
        return begin, end
    while begin and _may_be_row(text, before := text.rfind("\n", 0, begin - 1) + 1, begin - 1):
        begin = before
    while _may_be_row(text, end + 1, after := _line_end(text, min(end + 1, len(text)))):
        end = after
    return begin, end


def _tables_in(text: str, begin: int, end: int) -> Iterator[_Table]:
    """Yield the tables in a part of a text that consists of whole lines."""
    if text.find("\n", begin, end) < 0:
        return
    last = begin
    for match in _HEADINGS.finditer(text, begin, end):
        if match.start() >= last and (table := _table_at(text, match.start())):
            last = table.end
            yield table


def _may_be_row(text: str, begin: int, end: int) -> bool:
    return begin < end and (
        _SEPARATES.search(text, begin, end) is not None or _RULE.match(text, begin, end) is not None
    )


def _grouped(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows of each table."""
    return (list(group) for _, group in groupby(rows, key=lambda row: id(row.headings)))


def merged(parts: Iterable[tuple[int, int]]) -> Windows:
    """Sort parts of a text, and merge those that overlap or touch."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(parts):
        if merged and begin <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def _containing(tables: Sequence[_Lined], start: int) -> _Lined | None:
    """Return the table or row that contains an offset; None if there is none."""
    number = bisect_right(tables, start, key=attrgetter("begin")) - 1
    return tables[number] if number >= 0 and start < tables[number].end else None


def _headings_at(text: str, begin: int) -> tuple[str, list[Place]] | None:
    """Return the separator and the cells of the line at an offset; None if the line cannot be a heading line."""
    end = _line_end(text, begin)
    separator = _separator_of(text[begin:end])
    if separator is None or end - begin > _LONGEST:
        return None
    headings = _cells(text, begin, separator)
    return (separator, headings) if len(headings) > 1 and _are_headings(text, headings) else None


def _separator_of(line: str) -> str | None:
    return next((one for one in _SEPARATORS if one in line), None)


def _table_at(text: str, begin: int) -> _Table | None:
    """Return the table whose headings are in the line at an offset; None if there is none."""
    head = text[begin : _line_end(text, begin)]
    # most lines that could be headings have no row after them, which is cheaper to see than whether they are headings
    if not may_be_headings(text, begin) or (headings := _headings_at(text, begin)) is None:
        return None
    separator, cells = headings
    many = _count(head, separator)
    end = rows = begin + len(head) + 1
    while last := _row_end(text, end, separator, many):
        end = last
    is_sure = separator != "," or ", " not in head
    return _Table(separator, cells, rows, min(end, len(text)), is_sure)


def may_be_headings(text: str, begin: int) -> bool:
    """Return whether the line at an offset may be the headings of a table: a row with as many cells follows it."""
    head = text[begin : _line_end(text, begin)]
    separator = _separator_of(head)
    # an indented line has spaces, but no second cell
    many = _count(head, separator) if separator is not None else 0
    return separator is not None and many > 0 and _row_end(text, begin + len(head) + 1, separator, many) > 0


def _row_end(text: str, begin: int, separator: str, many: int) -> int:
    """Return the offset after the row of a table that begins at an offset; 0 if no row with enough cells begins there.

    A quoted cell or a number may contain more separators; the cells before it are still in their columns.
    """
    last = _line_end(text, begin)
    if begin >= len(text) or last - begin > _LONGEST:
        return 0
    row = text[begin:last]
    return last + 1 if row.strip() and (_count(row, separator) >= many or _RULE.match(row)) else 0


def _count(line: str, separator: str) -> int:
    return len(_GAP.findall(line)) if separator == _ALIGNED else line.count(separator)


def columns(
    text: str, start: int, done: list[int], heading: Callable[[str, str], tuple[str, Judge] | None]
) -> Iterator[tuple[str, Place]]:
    """Yield the label and the start and end offset of each value in the recognized columns of a table.

    Args:
        text: The text.
        start: Offset of a column heading.
        done: A list to which the end offset of the heading line is appended, and then that of the table, if there is
            one. The last item tells the caller where to continue.
        heading: Takes a column heading and the line with all headings. Returns the label of the column's values and the
            function that judges its cells, or None to skip the column.
    """
    begin = text.rfind("\n", 0, start) + 1
    end = _line_end(text, begin)
    done.append(end)
    if (head := _headings_at(text, begin)) is None:
        return
    line = text[begin:end]
    found = {number: heading(text[a:b], line) for number, (a, b) in enumerate(head[1])}
    headed = {number: one for number, one in found.items() if one is not None}
    # rows are read only after a heading is recognized, because each row may also look like headings
    if not headed or (table := _table_at(text, begin)) is None or _is_amid_rows(text, begin, table):
        return
    done.append(table.end)
    begin = table.begin
    while begin < table.end:
        row = _cells(text, begin, table.separator)
        if _RULE.match(text[begin : _line_end(text, begin)]) is None and len(row) == len(table.headings):
            for number, (label, judge) in headed.items():
                a, b = row[number]
                if (place := judge(text[a:b])) is not None:
                    yield label, (a + place[0], a + place[1])
        begin = _line_end(text, begin) + 1


def _is_amid_rows(text: str, begin: int, table: _Table) -> bool:
    """Return whether the lines before a line of headings are rows as those after it: then it is one of a list."""
    for _ in range(_ROWS_BEFORE):
        before = text.rfind("\n", 0, max(0, begin - 1)) + 1
        if not begin or begin - before > _LONGEST or len(_cells(text, before, table.separator)) != len(table.headings):
            return False
        begin = before
    return True


def _line_end(text: str, begin: int) -> int:
    end = text.find("\n", begin)
    return len(text) if end < 0 else end


def _cells(text: str, begin: int, separator: str) -> list[Place]:
    """Return the start and end offset of each cell in a line, without surrounding spaces and quotes."""
    cells: list[Place] = []
    place = begin
    while len(cells) < _MOST_COLUMNS:
        match = _CELLS[separator].match(text, place)
        if match is None:
            return []
        cells.append(within(text, *match.span(1), ' \t"\r'))
        # an empty match: nothing follows the last separator of the line or of the text
        is_last = match.end() == place
        place = match.end()
        if is_last or text[place - 1] != separator[-1]:
            break
    return cells


def _are_headings(text: str, cells: list[Place]) -> bool:
    """Return whether the cells of a line can be column headings: short, and without sentences or leading digits."""
    shown = [text[a:b] for a, b in cells if a < b]
    return all(len(cell) < 40 and not cell[0].isdigit() and ". " not in cell for cell in shown)
