"""Find the values of fields that the user names, in JSON, tables, forms, tags, and `key: value` text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from ctxguard.pii.detect.normalize import PlainText, plain_text
from ctxguard.pii.detect.people import Place
from ctxguard.pii.detect.prefilter import anchor_of
from ctxguard.pii.detect.tables import columns, grid_rows, may_be_headings, within

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+|\*")
_JOINT: Final = re.compile(
    r"(?P<quote>\\{0,3}[\"'])?[*`_)\].]{0,4}(?:</\w{1,10}>)?"
    r"[ \t]{0,4}(?P<sign>[\"'][ \t]value=|:|[-=]?>|=|(?<=[ \t])is(?=[ \t]))[*_]{0,2}[ \t]{0,12}"
)
_IN_LIST: Final = re.compile(r"(?:\[|,)\s{0,40}(?=[^\s\[{])")
_QUOTED: Final = re.compile(r"(\\{0,3}[\"'`])(?P<value>(?:(?!\1)[^\n]){1,400})\1")
_TAGGED: Final = re.compile(r"(?P<value>[^<>\n]{1,200})(?=</)")
_REST: Final = r"[^\s\"'<>{}\[\]|,;&\\`*()]"
# A word, followed by words that contain a digit or begin with a capital and are not names of other fields.
_FEW: Final = re.compile(rf"(?P<value>{_REST}{{1,200}}(?:[ ](?=\S?[A-Z\d]){_REST}{{1,60}}(?<![:=])(?![\w:=]))*)")
# The rest of a line, up to the next field, two spaces, or punctuation that ends a value.
_LINE: Final = re.compile(r"(?P<value>(?:(?![ ,;]{1,4}[^\W\d][\w-]{0,40}[ \t]?[:=])(?!  )[^\n\t\"<>{}\[\]|;&]){1,200})")
_LINE_BEGINS: Final = re.compile(r"[\s>*#_-]{0,12}\Z")
_HEADS: Final = re.compile(r"[\"'*_`)]{0,3}[ \t]{0,20}(?:[|,;\t\n\r]|(?<=  )|\Z)")
_MARKUP: Final = " \t\"'*_`"
_NO_VALUE: Final = re.compile(
    r"(?i:null|none|nil|true|false|undefined|n/?a|str(?:ing)?|int(?:eger)?|number|float|bool(?:ean)?|text)\Z|[\W_]*\Z"
)


def name_expression(name: str) -> str:
    """Return an expression for a field name in any common spelling.

    `customer_no` also matches `Customer No`, `customerNo`, and `customer-no`. `*` matches letters, digits, and
    underscores.
    """
    words = [r"\w{1,40}" if word == "*" else re.escape(word) for word in _WORD.findall(name)]
    return rf"(?i:(?<![^\W_])(?<![^\W_][_.-]){'[ _-]?'.join(words)}(?![^\W_]|[_.-][^\W_]))"


@lru_cache(maxsize=1024)
def _compiled(name: str) -> re.Pattern[str]:
    return re.compile(name_expression(name))


class _Ending(NamedTuple):
    """How a heading ends.

    Attributes:
        pattern: Matches the end of a heading.
        literals: Strings of which each match contains at least one, in the form of `table`.
        table: See `anchors.Form`.
        starts: Yields the offsets in a text at which a match may begin.
    """

    pattern: re.Pattern[str]
    literals: Sequence[str]
    table: bytes
    starts: Callable[[PlainText], Iterator[int]]


@lru_cache(maxsize=64)
def _ending(heading: str) -> _Ending:
    # many words in any case are searched for by their literals, which takes a fiftieth of the time
    anchor = anchor_of(f"(?i:{heading})")
    pattern = re.compile(rf"(?i:{heading})(?![^\W_])")
    return _Ending(pattern, anchor.literals, anchor.form.table, anchor.searcher())


@dataclass(frozen=True, slots=True)
class FieldValues:
    """Yields the values of a field in a text. It is a class rather than a closure, so that rules can be pickled.

    Attributes:
        name: The name of the field, see `name_expression`.
    """

    name: str

    def __call__(self, text: str) -> Iterator[Place]:
        """Yield the start and end offset of each value of the field, including values in table columns."""
        name, tables = _compiled(self.name), [0]
        yield from _grid_cells(text, name.fullmatch)
        for match in name.finditer(text):
            joint = _JOINT.match(text, match.end())
            if joint is not None:
                yield from _values_after(text, match.start(), joint)
            elif match.start() >= tables[-1] and _HEADS.match(text, match.end()):
                yield from (place for _, place in columns(text, match.start(), tables, self._heading))

    def _heading(self, cell: str, line: str) -> tuple[str, Callable[[str], Place | None]] | None:
        del line
        is_named = _compiled(self.name).fullmatch(cell.strip(_MARKUP))
        return (self.name, _whole) if is_named else None


def cells_under(text: str, heading: str) -> Iterator[Place]:
    """Yield the start and end offset of each cell in the table columns whose heading ends with a match of `heading`.

    `heading` is a regular expression.
    """
    ending, tables = _ending(heading), [0]

    def is_named(cell: str) -> bool:
        # an assignment is a line of a program
        return "=" not in cell and any(match.end() == len(cell) for match in ending.pattern.finditer(cell))

    def headed(cell: str, _: str) -> tuple[str, Callable[[str], Place | None]] | None:
        return ("", _whole) if is_named(cell.strip(_MARKUP)) else None

    yield from _grid_cells(text, is_named)
    for begin, end in _lines_with(ending.literals, plain_text(text).form(ending.table)):
        # most lines with such a word are no headings
        if end <= tables[-1] or not may_be_headings(text, begin):
            continue
        for start in ending.starts(PlainText(text[begin:end])):
            match = ending.pattern.match(text, begin + start) if begin + start >= tables[-1] else None
            if match is not None and _HEADS.match(text, match.end()):
                yield from (place for _, place in columns(text, begin + start, tables, headed))


def _lines_with(literals: Iterable[str], text: str) -> Sequence[Place]:
    """Return the start and end offset of each line with one of these strings, sorted by offset."""
    lines: set[Place] = set()
    for literal in literals:
        place = text.find(literal)
        while place >= 0:
            end = text.find("\n", place)
            end = end if end >= 0 else len(text)
            lines.add((text.rfind("\n", 0, place) + 1, end))
            place = text.find(literal, end)
    return sorted(lines)


def _grid_cells(text: str, is_named: Callable[[str], object]) -> Iterator[Place]:
    for row in grid_rows(text):
        wanted = [number for number, (begin, end) in enumerate(row.headings) if is_named(text[begin:end])]
        cells = row.cells(text) if wanted else []
        yield from (cells[number] for number in wanted if number < len(cells) and _is_value(text, *cells[number]))


def _whole(cell: str) -> Place | None:
    return (0, len(cell)) if _is_value(cell, 0, len(cell)) else None


def _values_after(text: str, start: int, joint: re.Match[str]) -> Iterator[Place]:
    """Yield the offsets of the value after a field name, or of each value if a list follows the name.

    Args:
        text: The text.
        start: Offset of the field name.
        joint: The match of the characters between the name and the value.
    """
    place = joint.end()
    listed = _IN_LIST.match(text, place) if text[place : place + 1] == "[" else None
    forms = (_QUOTED, _FEW if listed or joint["quote"] or joint["sign"] == "is" else _form(text, start, joint["sign"]))
    while True:
        place = place if listed is None else listed.end()
        value = next(filter(None, (form.match(text, place) for form in forms)), None)
        if value is None:
            return
        found = within(text, *value.span("value"), " \t.,:\r")
        if _is_value(text, *found):
            yield found
        listed = _IN_LIST.match(text, value.end()) if listed else None
        if listed is None:
            return


def _form(text: str, start: int, sign: str) -> re.Pattern[str]:
    """Return the expression for an unquoted value.

    The value is the text up to a closing tag, the rest of a line, or a few words.
    """
    if sign.endswith(">"):
        return _TAGGED
    line = text.rfind("\n", 0, start) + 1
    return _LINE if start - line <= 12 and _LINE_BEGINS.match(text, line, start) else _FEW


def _is_value(text: str, begin: int, end: int) -> bool:
    return begin < end and _NO_VALUE.match(text, begin, end) is None
