"""Find the lines in a text that report an error, and rank them by how clearly they do.

Lines that differ only in numbers are of one kind. Each kind is ranked once, because even a log of a million lines has
few kinds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_MENTIONED: Final = ("error", "fail", "exception", "fatal", "critical", "panic", "severe", "emerg")
_WORDS: Final = (*_MENTIONED, "traceback", "warn", "exit code", "exit status", "return code", "[crit]", "[alert]")
"""A line that contains none of these words, in upper or lower case, has rank 0. The patterns are tried only on other
lines."""
REPORTED: Final = 4
"""The rank of a line that reports an error."""
_MANY: Final = 5_000  # kinds of lines that are recorded; of further kinds, only those with errors
_LATEST: Final = 1_000  # repeated lines that are recorded, from the end of the text
_LINE: Final = 2_000
"""Number of characters at the start of a line on which its rank is based."""

# Each pattern starts with a character or a set, so the engine can skip ahead; a leading `\b` would be tried everywhere.
_STRONG: Final = (
    re.compile(r"[EFCSPT](?<!\w.)(?:RROR|ATAL|RITICAL|EVERE|MERG(?:ENCY)?|ANIC|AILED|AILURE|raceback)\b"),
    re.compile(r"""level"?\s{0,9}[=:]\s{0,9}"?(?:error|fatal|crit|panic|emerg)"""),
    re.compile(r"\[(?:error|crit|alert|emerg|E)\]"),
    re.compile(r"[er](?<!\w.)(?:xit|eturn)\s{1,9}(?:code|status)"),
    # after the place in a file, as compilers write it
    re.compile(r"[ef](?<=[\d)]: .)(?:atal e)?rror(?: \w{1,16})?:"),
)
_OPENS: Final = re.compile(
    r"\s*(?:E\s+)?(?:[A-Za-z_.]{0,200}(?:Error|Exception)\b\s*(?::|$)|(?:error|fatal|panic)\s*[:\[(])"
)
_NAMED: Final = re.compile(r"E(?<=[a-z]E)(?:rror|xception)\b")
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


class LineSpan(NamedTuple):
    """The offsets in a text at which a line starts and ends, without its line break, and its number, counted from 0."""

    start: int
    end: int
    number: int


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """A line that reports an error or a warning.

    Attributes:
        span: Where the line is.
        rank: How clearly the line reports an error, as returned by `error_rank`.
    """

    span: LineSpan
    rank: int


@dataclass(frozen=True, slots=True)
class Findings:
    """The lines in a text that report errors and warnings.

    Attributes:
        lines: Number of lines in the text.
        firsts: The first line of each kind, in order. After 5,000 kinds, only lines of rank 4 are added.
        repeats: The last 1,000 of the lines that are not in `firsts`.
    """

    lines: int
    firsts: Sequence[ErrorLine]
    repeats: Sequence[ErrorLine]


def error_rank(line: str) -> int:
    """Return how clearly a line reports an error.

    The rank is 4 for a line that reports an error, 3 for one that names an exception, 2 for one that contains a word
    such as "fail", 1 for a warning, and 0 for any other line.
    """
    if any(pattern.search(line) for pattern in _STRONG) or _OPENS.match(line):
        return REPORTED
    if _NAMED.search(line) or (line[:1] == "E" and line[1:2].isspace()):
        return 3
    low = line.lower()
    if any(word in low for word in _MENTIONED):
        return 2
    return 1 if "warn" in low else 0


def line_template(line: str) -> str:
    """Replace the numbers in a line by zeros, so that lines of one kind have the same template."""
    return _NUMBERS.sub("0", line[:400]).strip()


def find_errors(text: str) -> Findings:
    """Find the lines that report an error or a warning. The time is linear in the length of the text."""
    firsts: list[ErrorLine] = []
    repeats: deque[ErrorLine] = deque(maxlen=_LATEST)
    ranks: dict[str, int] = {}
    templates: set[str] = set()
    start = number = 0
    for number, zeroed in enumerate(_zero_digits(text).split("\n")):
        end = start + len(zeroed)
        rank, is_first = ranks.get(zeroed), False
        if rank is None:
            line = text[start : min(end, start + _LINE)]
            rank = ranks[zeroed] = error_rank(line) if _mentions(line) else 0
            is_new = rank == REPORTED or (rank > 0 and len(firsts) < _MANY)
            is_first = is_new and line_template(line) not in templates
            templates.update([line_template(line)] if is_first else ())
        if rank:
            (firsts if is_first else repeats).append(ErrorLine(LineSpan(start, end, number), rank))
        start = end + 1
    return Findings(number + bool(text) - text.endswith("\n"), firsts, list(repeats))


def _zero_digits(text: str) -> str:
    for digit in "123456789":  # replacing one character by another is many times faster than `translate`
        text = text.replace(digit, "0")
    return text


def _mentions(line: str) -> bool:
    low = line.lower()
    for word in _WORDS:
        if word in low:
            return True
    return line.startswith("E ")
