"""Say in a few tokens what a text was: its type and size, how it ended, and its most telling names and numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from ctxguard.content.detection import detect
from ctxguard.content.names import Labeled, ends_of, fitting_names, labeled, labeled_names, names_in, walk
from ctxguard.content.views import NO_LIMITS, Count, FileType, Limits

if TYPE_CHECKING:
    from ctxguard.content.processors.tree import Tree

_NAMES: Final = 64
"""Names of a text that a digest may choose from."""
_PIECES: Final = 1 / 3
"""Share of a digest that goes to what its type tells; the rest goes to names."""
_TELLING: Final = 0.5
"""Share of a bounded view that goes to names of what it does not show."""
_ALL_DIGEST: Final = 200
"""Tokens below which a bounded view is a digest: a part of a text would say less."""
_LEAST_BEGINNING: Final = 16
"""Characters below which the beginning of a text says nothing."""
_LINE: Final = 120
_SHORT: Final = 60
_TESTS: Final = re.compile(
    # Neither the end of a version (`1.8.3 warning`) nor what stands before a path (`100644 test/app.py`) is a count.
    r"(?<![\d.])\d++ (?:passed|failed|failures?|errors?|tests?|skipped|passing|failing|warnings?)\b(?![/\\])",
    re.IGNORECASE,
)
_FAILING: Final = re.compile(r"^(?:FAILED|ERROR|FAIL:?|not ok)\s+(\S.*)", re.MULTILINE)
_DEFINITION: Final = re.compile(
    r"^[^\S\n]*(?:(?:export|default|public|private|protected|static|async|abstract|final|pub)\s+)*"
    r"(?:def|defp|defmodule|class|function|fn|func|struct|enum|trait|interface|type|module)\s+(\w[\w.:]*\w)",
    re.MULTILINE,
)
_HEADING: Final = re.compile(r"^#{1,6} +(\S.*)", re.MULTILINE)
_STRING_LENGTHS: Final = (200, 80, 40, 16)
_MOST_ITEMS: Final = 4
_DEEPEST: Final = 6


def outcome(text: str) -> str:
    """Return how a step ended, as far as its output says so, in at most 120 characters; empty if it does not.

    Counts of tests come first, then the last line that reports an error, then an output that is itself short.
    """
    text = ends_of(text).strip()
    tests = dict.fromkeys(match[0] for match in _TESTS.finditer(text))
    if tests:
        return clipped(", ".join(list(tests)[-4:]), _LINE)
    if len(text) <= _SHORT:
        return " ".join(text.split())
    # The names of JSON are told with their keys anyway.
    is_short = len(text) <= _LINE and not text.startswith(("{", "["))
    return _last_error(text) or (" ".join(text.split()) if is_short else "")


def _last_error(text: str) -> str:
    from ctxguard.content.processors.error_lines import find_errors

    errors = [finding.span for finding in find_errors(text).firsts if finding.rank == 4]
    return clipped(text[errors[-1].start : errors[-1].end], _LINE) if errors else ""


def digest(text: str, max_tokens: int, *, count: Count, file_type: FileType | None = None) -> str:
    """Return the most telling of a text within `max_tokens`.

    That is, by type: the failing tests and errors of a log, the columns and the size of a table, the definitions of
    source code, the headings of a page; then, of any text, its rarest names and numbers, those of JSON with their keys.
    What they leave of JSON's room goes to its other short values. Where there is none of all this, it is how the text
    begins. The limit is hard, the time is linear in the text, and no input raises.
    """
    kind = file_type or detect(text)
    pieces = _pieces(ends_of(text), kind)
    # The names of JSON have their keys with them, so they come first: ids tell more than a first name or a zip code.
    firsts = islice(pieces, 1) if kind is FileType.JSON else pieces
    chosen, used = _fitting(firsts, int(_PIECES * max_tokens), "", count)
    names, more = _names_for(text, "; ".join(chosen), max_tokens - used - 2, count)
    rest, _ = _fitting(pieces, max_tokens - used - more - 2, names, count)
    told = [*chosen, *([names] if names else []), *rest]
    return _held_to(max_tokens, told or [_beginning(text, max_tokens, count)], count)


def _beginning(text: str, room: int, count: Count) -> str:
    """Return as much of the beginning of a text as fits, on one line."""
    length = 4 * room
    while length >= _LEAST_BEGINNING:
        begins = clipped(text, length)
        if count(begins) <= room:
            return begins
        length = length * 3 // 4
    return ""


def _fitting(pieces: Iterable[str], room: int, told: str, count: Count) -> tuple[list[str], int]:
    """Return the pieces that fit and tell something new, and the tokens that they take."""
    chosen: list[str] = []
    left = room
    for piece in pieces if room > 0 else ():
        tokens = count(f"; {piece}")
        if piece and tokens <= left and piece not in told:
            chosen.append(piece)
            left -= tokens
    return chosen, room - left


def _names_for(text: str, told: str, room: int, count: Count) -> tuple[str, int]:
    """Return the names that fit and are not told yet, and the tokens that they take."""
    chosen: list[Labeled] = []
    last, left = "", room
    for label, name in labeled_names(text, _NAMES):
        tokens = count(f" {name}") + (count(f" {label}") if label and label != last else 0)
        if tokens <= left and name not in told:
            chosen.append((label, name))
            left -= tokens
            last = label
    return labeled(chosen), room - left


def _held_to(max_tokens: int, pieces: list[str], count: Count) -> str:
    """Return the pieces, as many of them as the limit allows: tokens of a whole are not always those of its parts."""
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
    ended = outcome(text)
    if ended:
        yield ended
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
    """Walk the size of a list (nothing for other trees), then the short values with their keys."""
    from ctxguard.content.processors.json_tree import parse_start
    from ctxguard.content.processors.tree import MARK

    try:
        tree = parse_start(text)
    except (ValueError, RecursionError):
        return
    if isinstance(tree, list):
        # A bounded view says itself of how many it shows some.
        marks = [item for item in tree if isinstance(item, str) and item.startswith(MARK)]
        yield marks[0].strip(f"{MARK} ") if marks else f"{len(tree)} items"
    else:
        yield ""
    for key, value in islice(_pairs(tree), 4 * _NAMES):
        yield f"{key} {value}" if key else value


def _pairs(tree: Tree) -> Iterator[tuple[str, str]]:
    """Walk the plain values of a tree with their keys, in order; long values are left out."""
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


def clipped(text: str, length: int) -> str:
    """Return a text on one line, in at most so many characters."""
    text = " ".join(text[: 4 * length].split())
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def telling_view(
    text: str,
    max_tokens: int,
    *,
    count: Count,
    file_type: FileType | None = None,
    handle: str | None = None,
    limits: Limits = NO_LIMITS,
) -> str:
    """Return a bounded view of a text that also names what it does not show, within `max_tokens`.

    Half of the room is the view by type, half the names of what that leaves out, on a last line, or in a last entry
    where the view is JSON. Below 200 tokens it is a digest. A text that fits is returned as it is.
    """
    from ctxguard.content.bounding import bound

    if max_tokens < _ALL_DIGEST:
        return _digest_alone(text, max_tokens, count, file_type, handle)
    room = int(max_tokens * (1 - _TELLING))
    shown = bound(text, room, count=count, file_type=file_type, handle=handle, limits=limits)
    if not shown.info.truncated and shown.content == text and count(text) <= max_tokens:
        return text
    view = shown.content
    told = set(names_in(view))
    names = [name for name in names_in(text) if name not in told]
    return _with_names(view, names, max_tokens, count)


def _digest_alone(text: str, max_tokens: int, count: Count, file_type: FileType | None, handle: str | None) -> str:
    total = count(text)
    if total <= max_tokens:
        return text
    head = f"[digest of {total} tokens; full text: handle {handle}]" if handle else f"[digest of {total} tokens]"
    room = max_tokens - count(f"{head} ")
    told = digest(text, room, count=count, file_type=file_type)
    return f"{head} {told}" if told else _held_to(max_tokens, [head], count)


def _with_names(view: str, names: Sequence[str], max_tokens: int, count: Count) -> str:
    """Return a view with as many of the names as fit."""
    room = max_tokens - count(_added(view, ""))
    while names and room > 0:
        told = fitting_names(names, room, count)
        added = _added(view, told)
        if told and count(added) <= max_tokens:
            return added
        room = room * 3 // 4 - 1
    return view


def _added(view: str, names: str) -> str:
    """Add names to a view: JSON stays JSON, since no character of a name needs quoting."""
    closer = _CLOSERS.get(view[:1])
    if closer is None or not view.endswith(closer) or not _is_json(view):
        return f"{view}\n[also in it: {names}]"
    entry = f'"… also in it":"{names}"' if closer == "}" else f'"… also in it: {names}"'
    return f"{view[:-1]}{',' if len(view) > 2 else ''}{entry}{closer}"


_CLOSERS: Final = {"{": "}", "[": "]"}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def digest_arguments(arguments: str, max_tokens: int, *, count: Count) -> str:
    """Return the arguments of a call within `max_tokens`: the same keys, with long values cut; maybe nothing.

    What is a JSON object stays one. Arguments that are not JSON are cut as text; those nested too deeply to be read
    become an object that says so.
    """
    if count(arguments) <= max_tokens:
        return arguments
    for candidate in _shorter_arguments(arguments):
        if count(candidate) <= max_tokens:
            return candidate
    return ""


def _shorter_arguments(arguments: str) -> Iterator[str]:
    from ctxguard.content.processors.json_tree import parse_json
    from ctxguard.content.processors.tree import render

    try:
        tree = parse_json(arguments)
    except (ValueError, RecursionError):
        if not arguments.lstrip().startswith(("{", "[")):
            yield from (clipped(arguments, length) for length in _STRING_LENGTHS)
        yield f'{{"…":"{len(arguments)} characters"}}'
        yield "{}"
        return
    for length in _STRING_LENGTHS:
        yield render(_shortened(tree, length, 0))
    yield f'{{"…":"{len(arguments)} characters"}}'
    yield "{}"


def _shortened(tree: Tree, length: int, depth: int) -> Tree:
    from ctxguard.content.processors.tree import Number

    if isinstance(tree, dict):
        if depth == _DEEPEST:
            return f"… {len(tree)} keys"
        kept = {key[:_LINE]: _shortened(value, length, depth + 1) for key, value in list(tree.items())[:_NAMES]}
        return cast("Tree", kept)
    if isinstance(tree, list):
        if depth == _DEEPEST:
            return f"… {len(tree)} items"
        kept_items = [_shortened(item, length, depth + 1) for item in tree[:_MOST_ITEMS]]
        return kept_items if len(tree) <= _MOST_ITEMS else [*kept_items, f"… {len(tree) - _MOST_ITEMS} more"]
    if isinstance(tree, Number):
        return tree if len(tree) <= 40 else clipped(tree, 40)
    return _clipped_value(tree, length) if isinstance(tree, str) else tree


def _clipped_value(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… [{len(text)} characters]"
