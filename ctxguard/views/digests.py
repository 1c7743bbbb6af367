"""Describe a text in a few tokens: its size, how it ended, and its most distinctive names and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from ctxguard.views.detection import detect
from ctxguard.views.names import Labeled, ends_of, labeled, labeled_names, names_under, tree_of, walk
from ctxguard.views.outcomes import clipped, last_error, summary_of_tests
from ctxguard.views.views import Count, FileType, Source

_NAMES: Final = 64
"""Number of names in a text that a digest chooses from."""
_PIECES: Final = 1 / 3
"""Share of a digest that test results and errors, or else the beginning of the text, may take; the rest is for
names."""
_LEAST_BEGINNING: Final = 16
"""Minimum number of characters at which the beginning of a text is informative."""
_LARGE: Final = 16_384
"""Length in characters above which only the beginning of YAML is read."""
_LINE: Final = 120  # maximum characters of a line in a digest
_SHORT: Final = 60  # maximum characters of a value in a digest
_LOGS: Final = (FileType.CONSOLE, FileType.LOG, FileType.TEXT)
_FAILING: Final = re.compile(r"^(?:FAILED|ERROR|FAIL:?|not ok)\s+(\S.*)", re.MULTILINE)


def digest(text: str, max_tokens: int, *, count: Count, file_type: FileType | None = None) -> str:
    """Return the most distinctive parts of a text within `max_tokens`.

    For JSON and YAML, these are values with their keys. For a log, they are failing tests and errors, and for other
    texts the beginning, followed by the rarest names and numbers. If there are no names, only the beginning is
    returned. The limit is hard, the time is linear in the length of the text, and no text makes it raise an error.
    """
    kind = file_type or detect(text)
    tree = _tree(text, kind)
    if tree is not None:
        pieces = _of_tree(tree, max_tokens, count)
    else:
        most = int(_PIECES * max_tokens)
        pieces, used = _fitting(_of_log(ends_of(text)) if kind in _LOGS else (), most, count)
        # The beginning says what a text is about: the title of an issue, the subject of a mail.
        begins = "" if pieces else _beginning(text, most, count)
        names = _names_for(text, begins or "; ".join(pieces), max_tokens - used - count(begins) - 2, count)
        pieces = [piece for piece in (*pieces, begins, names) if piece] if names else pieces
    return _held_to(max_tokens, pieces or [_beginning(text, max_tokens, count)], count)


def _tree(text: str, file_type: FileType) -> object:
    """Return the tree parsed from JSON or YAML; None for other texts. Only the beginning of a long text is parsed."""
    if file_type is not FileType.YAML:
        return tree_of(text) if file_type is FileType.JSON else None
    from ctxguard.views.processors.tree import parse_yaml

    with suppress(ValueError, RecursionError):
        return parse_yaml(text, whole=len(text) <= _LARGE)[0]
    return None


def _of_tree(tree: object, max_tokens: int, count: Count) -> list[str]:
    """Return the size of a list, if the tree is one, and the most distinctive values of the tree with their keys.

    The values are in their original order, so that those of one record stay together. Ids and other names are chosen
    before other values, such as a city. A value that a key has repeatedly is listed once.
    """
    size = _size_of(tree)
    left = max_tokens - count(f"{size}; ")
    values = list(dict.fromkeys(islice(_values(tree), 16 * _NAMES)))
    chosen: list[int] = []
    for are_names in (True, False):
        last = ""
        for place, (key, value, is_name) in enumerate(values):
            tokens = count(f" {value}") + (count(f" {key};") if key != last else 0)
            if is_name is are_names and tokens <= left:
                chosen.append(place)
                left -= tokens
                last = key
    names = labeled(values[place][:2] for place in sorted(chosen))
    return [piece for piece in (size, names) if piece]


def _size_of(tree: object) -> str:
    """Return the number of items in a list as text; empty for other trees."""
    from ctxguard.views.processors.tree import MARK

    if not isinstance(tree, list):
        return ""
    # In a bounded view, the mark names the number of items in the original.
    marks = [item for item in tree if isinstance(item, str) and item.startswith(MARK)]
    return marks[0].strip(f"{MARK} ") if marks else f"{len(tree)} items"


def _values(tree: object) -> Iterator[tuple[str, str, bool]]:
    """Yield each key, its value, and whether the value is a name. A long string yields its names or its beginning."""
    for pair in walk(tree):
        key, node = pair
        names = list(names_under([pair]))
        text = str(node).lower() if isinstance(node, bool) else str(node)
        if isinstance(node, (dict, list)) or node is None or (names and len(text) > _SHORT):
            yield from ((label, name, True) for label, name in names)
        elif text.strip() and not text.startswith("…"):
            yield key, clipped(text, _SHORT), bool(names)


def _beginning(text: str, available: int, count: Count) -> str:
    """Return as much of the beginning of a text as fits into `available` tokens, on one line."""
    length = 4 * available
    while length >= _LEAST_BEGINNING:
        begins = clipped(text, length)
        if count(begins) <= available:
            return begins
        length = length * 3 // 4
    return ""


def _fitting(pieces: Iterable[str], available: int, count: Count) -> tuple[list[str], int]:
    """Return the pieces that fit into `available` tokens, and the number of tokens that they take."""
    chosen: list[str] = []
    left = available
    for piece in pieces if available > 0 else ():
        tokens = count(f"; {piece}")
        if piece and tokens <= left:
            chosen.append(piece)
            left -= tokens
    return chosen, available - left


def _names_for(text: str, shown: str, available: int, count: Count) -> str:
    """Return those of the rarest names in a text that are not in `shown` and fit into `available` tokens."""
    chosen: list[Labeled] = []
    last, left = "", available
    for label, name in labeled_names(text, _NAMES):
        tokens = count(f" {name}") + (count(f" {label}") if label and label != last else 0)
        if tokens <= left and name not in shown:
            chosen.append((label, name))
            left -= tokens
            last = label
    return labeled(chosen)


def _held_to(max_tokens: int, pieces: list[str], count: Count) -> str:
    """Join as many pieces as the limit allows. A joined text may have more tokens than its parts, so it is counted."""
    while pieces:
        text = "; ".join(pieces)
        if count(text) <= max_tokens:
            return text
        head, _, last = pieces[-1].rpartition(" ")
        pieces = [*pieces[:-1], head] if last and head else pieces[:-1]
    return ""


def _of_log(text: str) -> Iterator[str]:
    yield from filter(None, (summary_of_tests(text), last_error(text)))
    for match in _FAILING.finditer(text):
        yield clipped(match[1], _LINE)


def digest_view(
    text: str,
    max_tokens: int,
    *,
    count: Count,
    file_type: FileType | None = None,
    handle: str | None = None,
    by: str = "",
) -> str:
    """Return a digest of a text, after a note on what it is. Use it for limits so low that an excerpt says less.

    A text that fits is returned unchanged. The parameters are those of `ctxguard.content.bound`.
    """
    total = count(text)
    if total <= max_tokens:
        return text
    head = f"[{Source(text, handle=handle, by=by).note(f'digest of {total} tokens')}]"
    available = max_tokens - count(f"{head} ")
    body = digest(text, available, count=count, file_type=file_type)
    return f"{head} {body}" if body else _held_to(max_tokens, [head], count)
