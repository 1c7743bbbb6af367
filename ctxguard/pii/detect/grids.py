"""Read tables whose rows are in brackets or tags: lists of lists in JSON, `INSERT INTO … VALUES`, `<table>`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple

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


class _Form(NamedTuple):
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
    _Form((("[",),), re.compile(rf"\[\s*+\[{_heading_list(_QUOTED)}\]\s*+,(?=\s*+\[)"), _LIST, _VALUES),
    _Form(
        (("[",),),
        re.compile(
            rf"\"(?:columns|fields|headers?|headings|cols|names)\"\s*+:\s*+\[{_heading_list(_QUOTED)}\]"
            r"(?:\s*+,\s*+\"[^\"\\]{1,40}\"\s*+:\s*+(?:\[[^\[\]]*+\]|[^\[\]{},\"]{1,20}|\"[^\"\\]{0,40}\")){0,3}"
            r"\s*+,\s*+\"[^\"\\]{1,40}\"\s*+:\s*+\[(?=\s*+\[)"
        ),
        _LIST,
        _VALUES,
    ),
    _Form(
        (("INSERT", "insert", "Insert"), (" INTO ", " into ", " Into ")),
        re.compile(
            rf"\binsert\s++(?:\w{{1,20}}\s++){{0,2}}into\s++[^\s()]{{1,80}}\s*+\({_heading_list(_BARE)}\)\s*+values\s*+(?=\()",
            re.IGNORECASE,
        ),
        re.compile(rf"\s*+\(({_INSIDE})\)\s*+,?"),
        _VALUES,
    ),
    _Form(
        ((" stdin", " STDIN"),),
        re.compile(
            rf"^copy\s++[^\s()]{{1,80}}\s*+\({_heading_list(_BARE)}\) from stdin[^\n]*+\n", re.IGNORECASE | re.MULTILINE
        ),
        re.compile(r"(?!\\\.)([^\n]++\n?)"),
        _FIELDS,
    ),
    _Form(
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
        return _cells(self.pattern, text, self.begin, self.end)


@lru_cache(maxsize=2)  # several rules read the same text, one after the other
def grid_rows(text: str) -> Sequence[Row]:
    """Return all table rows in a text that are in brackets or tags, sorted by offset."""
    return sorted((row for form in _FORMS for row in _rows(form, text)), key=attrgetter("begin"))


def _rows(form: _Form, text: str) -> Iterator[Row]:
    if not all(any(literal in text for literal in group) for group in form.literals):
        return
    if form.row is _LIST and not _NESTED.search(text):
        return
    place = 0
    while (head := form.head.search(text, place)) is not None:
        headings = _cells(_VALUES if form.cells is _FIELDS else form.cells, text, *head.span("head"))
        place = head.end()
        while (row := form.row.match(text, place)) is not None and row.end() > place:
            yield Row(*row.span(1), headings, form.cells)
            place = row.end()


def _cells(pattern: re.Pattern[str], text: str, begin: int, end: int) -> list[Place]:
    return [within(text, *match.span(1), " \t\r\n\"'`") for match in pattern.finditer(text, begin, end)]


def within(text: str, begin: int, end: int, frame: str) -> Place:
    """Return the offsets of a cell without the characters of `frame` (such as spaces and quotes) around it."""
    while end > begin and text[end - 1] in frame:
        end -= 1
    while begin < end and text[begin] in frame:
        begin += 1
    return begin, end
