"""Find the lines of a text that report an error: every different one, at little more than the speed of memory.

Digits are folded to zeros, so that the lines of a log that differ in numbers alone become few; only those few are
searched for words, and only those with a word are judged by patterns.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Finding", "Findings", "Span", "error_rank", "find_errors", "line_template"]

_WORDS = ("error", "fail", "exception", "fatal", "critical", "traceback", "panic", "severe", "emerg")
_WEAK_WORDS = ("warn", "exit code", "exit status", "return code", "[crit]", "[alert]")
_LOUD_WORDS = ("ERROR", "FATAL", "FAIL", "CRIT", "Error", "xception", "Traceback", "=error", "[error", "error:")
_FOLD = bytes.maketrans(b"123456789", b"000000000")
_LOWER = bytes(range(256)).lower()
_IN_NO_WORD = bytes(code for code in range(256) if chr(code).lower() not in "".join(_WORDS))
"""What is left without them is half as long, and has every word that the text has."""
_PIECE = 1 << 19
_MANY = 2_000
"""Different lines that mention an error, from which on only those that also speak up are taken: twice as many."""
_LATEST = 1_000
_LATEST_OF_PIECE = 100
_REMEMBERED = 50_000
_CROWD = 500
_LINE = 2_000

# Each pattern starts with a letter or a set, by which the engine skips; a leading `\b` would be tried everywhere.
_STRONG = (
    re.compile(r"[EFCSPT](?<!\w.)(?:RROR|ATAL|RITICAL|EVERE|MERG(?:ENCY)?|ANIC|AILED|AILURE|raceback)\b"),
    re.compile(r"""level"?\s{0,9}[=:]\s{0,9}"?(?:error|fatal|crit|panic|emerg)"""),
    re.compile(r"\[(?:error|crit|alert|emerg|E)\]"),
    re.compile(r"[er](?<!\w.)(?:xit|eturn)\s{1,9}(?:code|status)"),
)
_OPENS = re.compile(r"\s*(?:E\s+)?(?:[A-Za-z_.]{0,200}(?:Error|Exception)\b\s*(?::|$)|(?:error|fatal|panic)\s*[:\[(])")
_NAMED = re.compile(r"E(?<=[a-z]E)(?:rror|xception)\b")
_MENTIONED = ("error", "fail", "exception", "fatal", "critical", "panic", "severe", "emerg")
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


class Span(NamedTuple):
    """A line of a text: where it starts and ends (its break not counted), and its number, from 0."""

    start: int
    end: int
    number: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A line that reports something.

    Attributes:
        span: where it stands.
        rank: how much it matters, as `error_rank` says.
    """

    span: Span
    rank: int


@dataclass(slots=True)
class Findings:
    """Hold what was found in a text.

    Attributes:
        lines: lines of the text.
        firsts: the first of each kind of line, in the order of the text; lines that differ in numbers are of a kind.
        repeats: the latest of the others.
    """

    lines: int
    firsts: list[Finding] = field(default_factory=list)
    repeats: list[Finding] = field(default_factory=list)


def error_rank(line: str) -> int:
    """Return 4 for a line that reports an error, 3 names one, 2 mentions it, 1 for a warning, 0 for any other."""
    if any(pattern.search(line) for pattern in _STRONG) or _OPENS.match(line):
        return 4
    if _NAMED.search(line) or (line[:1] == "E" and line[1:2].isspace()):
        return 3
    low = line.lower()
    if any(word in low for word in _MENTIONED):
        return 2
    return 1 if "warn" in low else 0


def line_template(line: str) -> str:
    """Return what a line has in common with those that differ from it in numbers alone."""
    return _NUMBERS.sub("0", line[:400]).strip()


def find_errors(text: str) -> Findings:
    """Find the lines that report something, in memory that does not grow with the text.

    All of a text is searched. Of more than 2,000 different lines that mention an error, later ones count only where
    they look like reports (2,000 more) or stand near the end. Where most lines differ, warnings and exit codes are
    looked for in the first half megabyte alone.
    """
    search = _Search()
    start = 0
    while start < len(text):
        end = text.rfind("\n", start, start + _PIECE) + 1 or text.find("\n", start + _PIECE) + 1 or len(text)
        search.read(text[start:end], start)
        start = end
    return _judged(text, search)


class _Search:
    """Read a text by pieces, and remember which of its lines, their digits folded, mention something.

    Lines that repeat are searched once each; where most of them differ, the words are searched for in the whole piece.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.kinds: dict[str, Span] = {}
        self.latest: deque[tuple[str, Span]] = deque(maxlen=_LATEST)
        self._quiet: set[str] = set()
        self._differ = False

    def read(self, piece: str, start: int) -> None:
        """Look at one piece of the text.

        Args:
            piece: whole lines.
            start: offset of the piece in the text.
        """
        folded = piece.encode("utf-8", "surrogatepass").translate(_FOLD).decode("latin-1")
        offsets = self._by_words(folded) if self._differ else self._by_lines(folded)
        for line, span in _located(folded, offsets, start, self.lines, is_ascii=piece.isascii()):
            self._keep(line, span)
        self.lines += folded.count("\n") + (not folded.endswith("\n"))

    def _by_words(self, folded: str) -> list[int]:
        """Return where lines start that mention something; once there are many, only those that look like reports."""
        if len(self.kinds) >= _MANY:
            return _lines_with(_LOUD_WORDS, folded)
        letters = folded.encode("latin-1").translate(_LOWER, _IN_NO_WORD).decode("latin-1")
        words = [word for word in _WORDS if word in letters]
        offsets = _lines_with(words, folded.lower()) if words else []
        return self._by_lines(folded) if len(offsets) >= _CROWD else offsets

    def _by_lines(self, folded: str) -> list[int]:
        """Return where the first line of every new kind that mentions something starts, and the latest of all kinds."""
        lines = folded.split("\n")
        last = len(lines) - 1
        firsts = dict(zip(reversed(lines), range(last, -1, -1), strict=True))
        fresh = firsts.keys() - self._quiet - self.kinds.keys()
        found = set(filter(_mentions, fresh))
        self._differ = 2 * len(fresh) > last
        self._quiet = (fresh - found) | (self._quiet if len(self._quiet) < _REMEMBERED else set())
        known = found | (self.kinds.keys() & firsts.keys())
        latest = islice((index for index in range(last, -1, -1) if lines[index] in known), _LATEST_OF_PIECE)
        new = found if len(self.kinds) < 2 * _MANY else ()
        indexes = {*map(firsts.__getitem__, new), *latest} if known else set()
        starts = [*accumulate((len(line) + 1 for line in lines), initial=0)] if indexes else []
        return [starts[index] for index in sorted(indexes)]

    def _keep(self, line: str, span: Span) -> None:
        """Remember the first line of a kind: any while there are few, later those that look like reports."""
        count = len(self.kinds)
        if line not in self.kinds and (count < _MANY or (count < 2 * _MANY and _has_any(line, _LOUD_WORDS))):
            self.kinds[line] = span
        else:
            self.latest.append((line, span))


def _lines_with(words: Sequence[str], text: str) -> list[int]:
    """Return where lines start that have one of the words, up to 500 of them."""
    offsets: set[int] = set()
    for word in words:
        at = text.find(word)
        while at >= 0 and len(offsets) < _CROWD:
            offsets.add(text.rfind("\n", 0, at) + 1)
            at = text.find(word, _line_end(text, at))
    return sorted(offsets)


def _located(folded: str, offsets: list[int], start: int, number: int, *, is_ascii: bool) -> Iterator[tuple[str, Span]]:
    """Walk lines of a piece with their places in the text, whose characters may be fewer than its bytes."""
    at = 0
    for offset in offsets:
        between = folded[at:offset]
        number += between.count("\n")
        start += len(between if is_ascii else _decoded(between))
        line = folded[offset : _line_end(folded, offset)]
        yield line, Span(start, start + len(line if is_ascii else _decoded(line)), number)
        at = offset


def _decoded(folded: str) -> str:
    return folded.encode("latin-1").decode("utf-8", "surrogatepass")


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _mentions(line: str) -> bool:
    low = line.lower()
    return _has_any(low, _WORDS) or _has_any(low, _WEAK_WORDS) or line.startswith("E ")


def _has_any(line: str, words: Sequence[str]) -> bool:
    for word in words:  # noqa: SIM110 - a generator would take twice the time
        if word in line:
            return True
    return False


def _judged(text: str, search: _Search) -> Findings:
    """Rank the lines that were found; those that differ only in what the fold of digits cannot see are repeats too."""
    found = Findings(search.lines)
    ranks: dict[str, int] = {}
    seen: set[str] = set()
    for line, span in sorted({*search.kinds.items(), *search.latest}, key=lambda item: item[1].start):
        is_first = False
        if line not in ranks:
            written = text[span.start : min(span.end, span.start + _LINE)]
            ranks[line], template = error_rank(written), line_template(written)
            is_first = template not in seen
            seen.add(template)
        if ranks[line]:
            (found.firsts if is_first else found.repeats).append(Finding(span, ranks[line]))
    return found
