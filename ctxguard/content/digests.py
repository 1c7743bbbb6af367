"""Describe a text in a few tokens: its type and size, how it ended, and its most distinctive names and numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from ctxguard.content.detection import detect
from ctxguard.content.names import Labeled, ends_of, labeled, labeled_names, walk
from ctxguard.content.outcomes import clipped, last_error, summary_of_tests
from ctxguard.content.views import Count, FileType, Source

if TYPE_CHECKING:
    from ctxguard.content.processors.tree import Tree

_NAMES: Final = 64
"""Names of a text that a digest may choose from."""
_PIECES: Final = 1 / 3
"""Share of a digest for what is specific to the type; the rest is for names."""
_LEAST_BEGINNING: Final = 16
"""Fewer characters of the beginning of a text are not informative."""
_LINE: Final = 120  # characters of a line in a digest
_SHORT: Final = 60  # characters of a value that a digest may contain
_FAILING: Final = re.compile(r"^(?:FAILED|ERROR|FAIL:?|not ok)\s+(\S.*)", re.MULTILINE)
_DEFINITION: Final = re.compile(
    r"^[^\S\n]*(?:(?:export|default|public|private|protected|static|async|abstract|final|pub)\s+)*"
    r"(?:def|defp|defmodule|class|function|fn|func|struct|enum|trait|interface|type|module)\s+(\w[\w.:]*\w)",
    re.MULTILINE,
)
_HEADING: Final = re.compile(r"^#{1,6} +(\S.*)", re.MULTILINE)


def digest(text: str, max_tokens: int, *, count: Count, file_type: FileType | None = None) -> str:
    """Return the most distinctive content of a text within `max_tokens`.

    That is, by type: the failing tests and errors of a log, the columns and the size of a table, the definitions of
    source code, the headings of a page; then, of any text, its rarest names and numbers, those of JSON with their keys.
    In JSON, the remaining tokens go to other short values. If a text has none of these, the digest is its beginning.
    The limit is hard, the time is linear in the text, and no input raises.
    """
    kind = file_type or detect(text)
    pieces = _pieces(ends_of(text), kind)
    # The names of JSON have keys, so they come first: ids are more informative than a first name or a zip code.
    firsts = islice(pieces, 1) if kind is FileType.JSON else pieces
    chosen, used = _fitting(firsts, int(_PIECES * max_tokens), "", count)
    names, more = _names_for(text, "; ".join(chosen), max_tokens - used - 2, count)
    rest, _ = _fitting(pieces, max_tokens - used - more - 2, names, count)
    told = [*chosen, *([names] if names else []), *rest]
    return _held_to(max_tokens, told or [_beginning(text, max_tokens, count)], count)


def _beginning(text: str, available: int, count: Count) -> str:
    """Return as much of the beginning of a text as fits, on one line."""
    length = 4 * available
    while length >= _LEAST_BEGINNING:
        begins = clipped(text, length)
        if count(begins) <= available:
            return begins
        length = length * 3 // 4
    return ""


def _fitting(pieces: Iterable[str], available: int, told: str, count: Count) -> tuple[list[str], int]:
    """Return the pieces that fit and add something new, and the tokens that they take."""
    chosen: list[str] = []
    left = available
    for piece in pieces if available > 0 else ():
        tokens = count(f"; {piece}")
        if piece and tokens <= left and piece not in told:
            chosen.append(piece)
            left -= tokens
    return chosen, available - left


def _names_for(text: str, told: str, available: int, count: Count) -> tuple[str, int]:
    """Return the names that fit and are not in the digest yet, and the tokens that they take."""
    chosen: list[Labeled] = []
    last, left = "", available
    for label, name in labeled_names(text, _NAMES):
        tokens = count(f" {name}") + (count(f" {label}") if label and label != last else 0)
        if tokens <= left and name not in told:
            chosen.append((label, name))
            left -= tokens
            last = label
    return labeled(chosen), available - left


def _held_to(max_tokens: int, pieces: list[str], count: Count) -> str:
    """Return as many of the pieces as the limit allows: the tokens of a whole are not always the sum of its parts."""
    while pieces:
        text = "; ".join(pieces)
        if count(text) <= max_tokens:
            return text
        head, _, last = pieces[-1].rpartition(" ")
        pieces = [*pieces[:-1], head] if last and head else pieces[:-1]
    return ""


def _pieces(text: str, file_type: FileType) -> Iterator[str]:
    reader = _READERS.get(file_type)
    if reader is not None:
        yield from reader(text)


def _of_log(text: str) -> Iterator[str]:
    yield from filter(None, (summary_of_tests(text), last_error(text)))
    for match in _FAILING.finditer(text):
        yield clipped(match[1], _LINE)


def _of_code(text: str) -> Iterator[str]:
    names = dict.fromkeys(match[1] for match in _DEFINITION.finditer(text))
    if names:
        yield "defines " + ", ".join(list(names)[:12])


def _of_page(text: str) -> Iterator[str]:
    for match in _HEADING.finditer(text):
        yield clipped(match[1], _SHORT)


def _of_table(text: str) -> Iterator[str]:
    header = clipped(text.lstrip().partition("\n")[0], 2 * _LINE)
    yield f"columns {header}"


def _of_json(text: str) -> Iterator[str]:
    """Yield the size of a list (nothing for other trees), then the short values with their keys."""
    from ctxguard.content.processors.json_tree import parse_start
    from ctxguard.content.processors.tree import MARK

    try:
        tree = parse_start(text)
    except (ValueError, RecursionError):
        return
    if isinstance(tree, list):
        # A bounded view says itself that it shows only some items.
        marks = [item for item in tree if isinstance(item, str) and item.startswith(MARK)]
        yield marks[0].strip(f"{MARK} ") if marks else f"{len(tree)} items"
    else:
        yield ""
    for key, value in islice(_pairs(tree), 4 * _NAMES):
        yield f"{key} {value}" if key else value


def _pairs(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield the plain values of a tree with their keys, in order; long values are left out."""
    for key, node in walk(tree):
        if not isinstance(node, (dict, list, bool)) and node not in (None, "") and len(str(node)) <= _SHORT:
            yield key, str(node)


_READERS: Final[Mapping[FileType, Callable[[str], Iterator[str]]]] = {
    FileType.CODE: _of_code,
    FileType.CONSOLE: _of_log,
    FileType.CSV: _of_table,
    FileType.JSON: _of_json,
    FileType.LOG: _of_log,
    FileType.MARKDOWN: _of_page,
    FileType.TEXT: _of_log,
}


def digest_view(
    text: str,
    max_tokens: int,
    *,
    count: Count,
    file_type: FileType | None = None,
    handle: str | None = None,
    by: str = "",
) -> str:
    """Return a bounded view of a text for limits in which its names are more informative than an excerpt.

    A text that fits is returned as it is.
    """
    total = count(text)
    if total <= max_tokens:
        return text
    head = f"[{Source(text, handle=handle, by=by).note(f'digest of {total} tokens')}]"
    available = max_tokens - count(f"{head} ")
    told = digest(text, available, count=count, file_type=file_type)
    return f"{head} {told}" if told else _held_to(max_tokens, [head], count)
