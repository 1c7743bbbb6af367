"""Read the columns of a table (CSV, TSV, Markdown) whose heading says what their cells hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from ctxguard.pii.detect.people import Place

__all__ = ["columns"]

Judge: TypeAlias = Callable[[str], Place | None]
_SEPARATORS: Final = "|\t;,"
_CELLS: Final = {
    separator: re.compile(rf'[ \t]*("(?:[^"\n]|"")*"|[^{re.escape(separator)}\n]*)(?:{re.escape(separator)}|(?=\n)|\Z)')
    for separator in _SEPARATORS
}
_RULE: Final = re.compile(r"[\s|:=+-]*\Z")
_MOST_COLUMNS: Final = 200
_LONGEST: Final = 4_000


def columns(
    text: str, start: int, done: list[int], heading: Callable[[str, str], tuple[str, Judge] | None]
) -> Iterator[tuple[str, Place]]:
    """Walk the cells of a table that are found, with their labels.

    Args:
        text: the text.
        start: where a heading stands.
        done: ends with where the last table that was read ended; the end of this one is put there.
        heading: returns the label of a column, by its heading and the line of all headings, and what judges its cells;
            None where they are not looked at.
    """
    begin = text.rfind("\n", 0, start) + 1
    end = _line_end(text, begin)
    line = text[begin:end]
    separator = next((one for one in _SEPARATORS if one in line), None)
    done.append(end)
    if separator is None or end - begin > _LONGEST:
        return
    cells = _cells(text, begin, separator)
    headed = {number: found for number, (a, b) in enumerate(cells) if (found := heading(text[a:b], line)) is not None}
    if len(cells) < 2 or not headed or not _are_headings(text, cells):
        return
    begin = end + 1
    while begin < len(text):
        end = _line_end(text, begin)
        if end - begin > _LONGEST or not text[begin:end].strip():
            break
        if _RULE.match(text[begin:end]) is None:
            row = _cells(text, begin, separator)
            if len(row) != len(cells):
                break
            for number, (label, judge) in headed.items():
                a, b = row[number]
                if (place := judge(text[a:b])) is not None:
                    yield label, (a + place[0], a + place[1])
        done.append(end)
        begin = end + 1


def _line_end(text: str, begin: int) -> int:
    end = text.find("\n", begin)
    return len(text) if end < 0 else end


def _cells(text: str, begin: int, separator: str) -> list[Place]:
    """Return where the cells of a line stand, without blanks and quotes."""
    cells: list[Place] = []
    place = begin
    while len(cells) < _MOST_COLUMNS:
        match = _CELLS[separator].match(text, place)
        if match is None:
            return []
        a, b = match.span(1)
        while b > a and text[b - 1] in ' \t"\r':
            b -= 1
        while a < b and text[a] in ' \t"':
            a += 1
        cells.append((a, b))
        place = match.end()
        if place >= len(text) or text[place - 1] != separator:
            break
    return cells


def _are_headings(text: str, cells: list[Place]) -> bool:
    """Tell whether a line heads a table: short cells, without digits and sentences."""
    shown = [text[a:b] for a, b in cells if a < b]
    return all(len(cell) < 40 and not cell[0].isdigit() and ". " not in cell for cell in shown)
