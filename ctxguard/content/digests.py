"""Describe a text in a few tokens: its type and size, how it ended, and its most distinctive names and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from ctxguard.content.detection import detect
from ctxguard.content.names import Labeled, ends_of, labeled, labeled_names, names_under, tree_of, walk
from ctxguard.content.outcomes import clipped, last_error, summary_of_tests
from ctxguard.content.views import Count, FileType, Source

_NAMES: Final = 64
"""Names of a text that a digest may choose from."""
_PIECES: Final = 1 / 3
"""Share of a digest for what is specific to the type; the rest is for names."""
_LEAST_BEGINNING: Final = 16
"""Fewer characters of the beginning of a text are not informative."""
_LARGE: Final = 16_384
"""Characters of YAML of which only the beginning is read."""
_LINE: Final = 120  # characters of a line in a digest
_SHORT: Final = 60  # characters of a value that a digest contains, from its beginning
_LOGS: Final = (FileType.CONSOLE, FileType.LOG, FileType.TEXT)
_FAILING: Final = re.compile(r"^(?:FAILED|ERROR|FAIL:?|not ok)\s+(\S.*)", re.MULTILINE)


def digest(text: str, max_tokens: int, *, count: Count, file_type: FileType | None = None) -> str:
    """Return the most distinctive content of a text within `max_tokens`.

    That is, of JSON and YAML, values with their keys; of other texts, the failing tests and errors of a log or else the
    beginning, and then the rarest names and numbers. A text without names is told by its beginning. The limit is hard,
    the time is linear in the text, and no input raises.
    """
    kind = file_type or detect(text)
    tree = _tree(text, kind)
    if tree is not None:
        told = _of_tree(tree, max_tokens, count)
    else:
        most = int(_PIECES * max_tokens)
        told, used = _fitting(_of_log(ends_of(text)) if kind in _LOGS else (), most, count)
        # The beginning says what a text is about: the title of an issue, the subject of a mail.
        begins = "" if told else _beginning(text, most, count)
        names = _names_for(text, begins or "; ".join(told), max_tokens - used - count(begins) - 2, count)
        told = [piece for piece in (*told, begins, names) if piece] if names else told
    return _held_to(max_tokens, told or [_beginning(text, max_tokens, count)], count)


def _tree(text: str, file_type: FileType) -> object:
    """Return the tree that a text of JSON or YAML holds, the beginning of a long one; None for other texts."""
    if file_type is not FileType.YAML:
        return tree_of(text) if file_type is FileType.JSON else None
    from ctxguard.content.processors.yaml_tree import parse_yaml

    with suppress(ValueError, RecursionError):
        return parse_yaml(text, whole=len(text) <= _LARGE)[0]
    return None


def _of_tree(tree: object, max_tokens: int, count: Count) -> list[str]:
    """Return the size of a list, and values with their keys, in their order, so that what belongs together stays so.

    Ids and other names are chosen before other values, such as a city; each value of a key is told once.
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
    told = labeled(values[place][:2] for place in sorted(chosen))
    return [piece for piece in (size, told) if piece]


def _size_of(tree: object) -> str:
    """Return of how many items a list is; empty for other trees."""
    from ctxguard.content.processors.tree import MARK

    if not isinstance(tree, list):
        return ""
    # A bounded view says itself of how many it shows some.
    marks = [item for item in tree if isinstance(item, str) and item.startswith(MARK)]
    return marks[0].strip(f"{MARK} ") if marks else f"{len(tree)} items"


def _values(tree: object) -> Iterator[tuple[str, str, bool]]:
    """Walk the values of a tree with their keys, and whether they are names; of long texts, names or the beginning."""
    for pair in walk(tree):
        key, node = pair
        names = list(names_under([pair]))
        text = str(node).lower() if isinstance(node, bool) else str(node)
        if isinstance(node, (dict, list)) or node is None or (names and len(text) > _SHORT):
            yield from ((label, name, True) for label, name in names)
        elif text.strip() and not text.startswith("…"):
            yield key, clipped(text, _SHORT), bool(names)


def _beginning(text: str, available: int, count: Count) -> str:
    """Return as much of the beginning of a text as fits, on one line."""
    length = 4 * available
    while length >= _LEAST_BEGINNING:
        begins = clipped(text, length)
        if count(begins) <= available:
            return begins
        length = length * 3 // 4
    return ""


def _fitting(pieces: Iterable[str], available: int, count: Count) -> tuple[list[str], int]:
    """Return the pieces that fit, and the tokens that they take."""
    chosen: list[str] = []
    left = available
    for piece in pieces if available > 0 else ():
        tokens = count(f"; {piece}")
        if piece and tokens <= left:
            chosen.append(piece)
            left -= tokens
    return chosen, available - left


def _names_for(text: str, told: str, available: int, count: Count) -> str:
    """Return the names that fit and are not in the digest yet."""
    chosen: list[Labeled] = []
    last, left = "", available
    for label, name in labeled_names(text, _NAMES):
        tokens = count(f" {name}") + (count(f" {label}") if label and label != last else 0)
        if tokens <= left and name not in told:
            chosen.append((label, name))
            left -= tokens
            last = label
    return labeled(chosen)


def _held_to(max_tokens: int, pieces: list[str], count: Count) -> str:
    """Return as many of the pieces as the limit allows: the tokens of a whole are not always the sum of its parts."""
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
