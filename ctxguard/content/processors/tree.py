"""Shrink a tree of objects, arrays, and values to a number of characters, for JSON and YAML; XML uses parts of this.

Each value gets an equal share of the characters. What a small value does not need is left to the others. Objects keep
their first keys, arrays their head and tail, strings their start and end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ctxguard.content.processors.text import shorten

if TYPE_CHECKING:
    from ctxguard.content.views import Limits

MARK = "…"
"""The key under which an object says how much of it is missing, and the start of the item in which an array says so.
See `mark_key`."""
_MAX_DEPTH = 64  # levels that are shown: each takes a few frames of Python's stack
_COLLECTION = 24  # objects with more keys than this may be collections rather than records
_MARKER_SIZE = 30  # characters that are reserved for the note on missing entries
_ENDS = 160  # characters of a long string at which its end is shown, too


class Number(str):
    """A number as it was spelled in the text, so that it can be written again without a change."""

    __slots__ = ()


Tree = dict[str, "Tree"] | list["Tree"] | str | float | bool | None


@dataclass(slots=True)
class Cuts:
    """What was left out while a tree was shrunk.

    Attributes:
        values: Number of strings and numbers that were shortened.
        nodes: Number of items and keys that were left out.
        top_shown: Number of items or keys shown from the outermost array or object.
        top_total: Number of items or keys in the outermost array or object.
    """

    values: int = 0
    nodes: int = 0
    top_shown: int = 0
    top_total: int = 0

    @property
    def any(self) -> bool:
        """Whether anything was left out."""
        return bool(self.values or self.nodes)


class Sizes:
    """Measures trees, and caches the sizes of objects and arrays by identity. The trees must not be freed meanwhile."""

    __slots__ = ("_measured",)

    def __init__(self) -> None:
        self._measured: dict[int, tuple[int, bool]] = {}

    def of(self, node: Tree, cap: int) -> int:
        """Return the approximate length of a tree as compact JSON; if it exceeds `cap`, any number above `cap`."""
        known = self._cached(node, cap)
        if known is not None:
            return known
        size, stack = 0, [node]
        while stack and size <= cap:
            part = stack.pop()
            known = self._cached(part, cap - size)
            if known is not None:
                size += known
            elif isinstance(part, dict):
                size += 2 + 4 * len(part)
                if size <= cap:
                    size += sum(map(len, part))
                    stack.extend(part.values())
            elif isinstance(part, list):
                size += 2 + len(part)
                if size <= cap:
                    stack.extend(part)
            else:
                size += _scalar_size(part)
        if isinstance(node, dict | list):
            self._measured[id(node)] = size, size <= cap
        return size

    def _cached(self, node: Tree, cap: int) -> int | None:
        size, is_exact = self._measured.get(id(node), (0, False))
        return size if is_exact or size > cap else None


@dataclass(frozen=True, slots=True)
class _Job:
    limits: Limits
    sizes: Sizes
    cuts: Cuts = field(default_factory=Cuts)


def _scalar_size(node: Tree) -> int:
    if isinstance(node, Number):
        return len(node)
    if isinstance(node, str):
        return len(node) + 2 + (node.count("\n") + node.count('"') + node.count("\\") if len(node) < 10_000 else 0)
    return 5


def render(node: Tree) -> str:
    """Return a tree as compact JSON, with numbers as they were spelled and lone surrogates escaped."""
    if isinstance(node, Number):
        return str(node)
    if isinstance(node, dict):
        return "{" + ",".join(f"{_quote(key)}:{render(value)}" for key, value in node.items()) + "}"
    if isinstance(node, list):
        return "[" + ",".join(map(render, node)) + "]"
    return _quote(node) if isinstance(node, str) else json.dumps(node)


def _quote(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


def shrink(
    node: Tree, available: int, limits: Limits, *, sizes: Sizes | None = None, reserve: int = 0
) -> tuple[Tree, Cuts]:
    """Return a copy of a tree that takes about `available` characters as compact JSON, and a record of what is missing.

    Args:
        node: The tree.
        available: Number of characters that the copy may have.
        limits: Further limits, of which `depth`, `keys`, `string`, and those on items apply.
        sizes: Cache of sizes, for a tree that is shrunk more than once.
        reserve: Number of characters to keep free for a note on the outermost level if the tree does not fit.
    """
    job = _Job(limits, sizes or Sizes())
    if isinstance(node, dict | list):
        job.cuts.top_total = len(node)
    shrunk = _shrink(node, available - (reserve if job.sizes.of(node, available) > available else 0), 0, job)
    return shrunk, job.cuts


def _shrink(node: Tree, available: int, depth: int, job: _Job) -> Tree:
    if isinstance(node, dict):
        return _shrink_object(node, available, depth, job)
    if isinstance(node, list):
        return _shrink_array(node, available, depth, job)
    if isinstance(node, str):
        return _shrink_string(node, available, job)
    return node


def _shrink_string(node: str, available: int, job: _Job) -> str:
    limit = job.limits.string
    available = max(0, available - 2) if limit is None else min(max(0, available - 2), limit)
    if (
        _scalar_size(node) - 2 <= available
        or len(node) <= 8
        or (limit is not None and len(node) <= limit and available >= limit)
    ):
        return node
    if isinstance(node, Number):
        if len(node) <= max(available, 40):
            return node
        job.cuts.values += 1
        return f"{node[:16]}… [{len(node)} digits]"
    job.cuts.values += 1
    sign = f"… [{len(node)} characters]"
    free = available - len(sign)
    if free < _ENDS:
        return shorten(node, max(1, min(available, len(node) - 1)))
    return node[: free * 2 // 3] + sign + node[len(node) - (free - free * 2 // 3) + 1 :]


def _shrink_array(node: list[Tree], available: int, depth: int, job: _Job) -> Tree:
    if node and depth >= (_MAX_DEPTH if job.limits.depth is None else job.limits.depth):
        job.cuts.nodes += len(node)
        return f"{MARK} array of {len(node)} items"
    head, tail = _choose_items(node, available, job)
    skipped = len(node) - head - tail
    kept = [*node[:head], *node[len(node) - tail :]]
    shares = _shares(kept, available - 2 - len(kept) - (_MARKER_SIZE if skipped else 0), job.sizes)
    items = [_shrink(item, share, depth + 1, job) for item, share in zip(kept, shares, strict=True)]
    if skipped:
        job.cuts.nodes += skipped
        items.insert(head, f"{MARK} {skipped} of {len(node)} items not shown")
    if depth == 0:
        job.cuts.top_shown = head + tail
    return items


def _choose_items(node: list[Tree], available: int, job: _Job) -> tuple[int, int]:
    """Return how many items to show from the head and from the tail."""
    most = most_entries(len(node) - sum(map(_is_mark, node)), job.limits)
    if sum(most) + sum(map(_is_mark, node)) >= len(node) and job.sizes.of(node, available) <= available:
        return len(node), 0
    return head_and_tail(len(node), available - 2, most, lambda index: job.sizes.of(node[index], max(8, available)))


def _is_mark(entry: Tree) -> bool:
    """Return whether an entry is the mark by which an earlier view says how much is missing.

    Such an entry does not count toward any limit, so that a view of a view is the same view.
    """
    return isinstance(entry, str) and entry.startswith(MARK)


def most_entries(count: int, limits: Limits) -> tuple[int, int]:
    """Return how many items the limits allow from the head and from the tail of an array with `count` items."""
    head, tail = limits.items_head, limits.items_tail
    if head is not None and tail is not None and head + tail < count:
        return head, tail
    return split_limit(count, limits.items)


def split_limit(count: int, limit: int | None) -> tuple[int, int]:
    """Split a limit on the number of entries between head and tail in the ratio of two to one."""
    if limit is None or limit >= count:
        return count, 0
    return limit - limit // 3, limit // 3


def head_and_tail(count: int, available: int, most: tuple[int, int], size: Callable[[int], int]) -> tuple[int, int]:
    """Return how many entries to show from the head and from the tail, in the ratio of two to one.

    Args:
        count: Number of entries.
        available: Number of characters for all entries. An entry is assumed to take a third of them at most, because
            large entries are shrunk.
        most: Maximum number of entries from the head and from the tail. If the first number is `count` or more, neither
            end is limited.
        size: Function that returns the length of the entry at an index, in characters.
    """
    widest = max(24, available // 3)
    most_head, most_tail = (count, count) if most[0] >= count else most
    head, tail, left = 0, 0, available - _MARKER_SIZE
    while head + tail < min(count, most_head + most_tail):
        from_tail = head >= most_head or (tail < most_tail and tail < head // 2)
        left -= min(size(count - 1 - tail if from_tail else head), widest) + 1
        if left < 0:
            break
        head, tail = (head, tail + 1) if from_tail else (head + 1, tail)
    return (count, 0) if head + tail == count else (head, tail)


def _shrink_object(node: dict[str, Tree], available: int, depth: int, job: _Job) -> Tree:
    if node and depth >= (_MAX_DEPTH if job.limits.depth is None else job.limits.depth):
        job.cuts.nodes += len(node)
        return f"{MARK} object of {len(node)} keys"
    keys = _choose_keys(node, available, job)
    skipped = len(node) - len(keys)
    values = [node[key] for key in keys]
    free = available - 2 - sum(len(key) + 4 for key in keys) - (_MARKER_SIZE if skipped else 0)
    pairs = zip(keys, values, _shares(values, free, job.sizes), strict=True)
    shown = {key: _shrink(value, share, depth + 1, job) for key, value, share in pairs}
    if skipped:
        job.cuts.nodes += skipped
        shown[mark_key(node)] = f"{skipped} of {len(node)} keys not shown"
    if depth == 0:
        job.cuts.top_shown = len(keys)
    return shown


def _choose_keys(node: dict[str, Tree], available: int, job: _Job) -> list[str]:
    """Return the keys to show: the first that fit, or from a large object with nested values, those at both ends."""
    keys = list(node)
    marks = sum(map(_is_mark, keys))
    most = split_limit(len(keys) - marks, job.limits.keys)
    if sum(most) + marks >= len(keys) and job.sizes.of(node, available) <= available:
        return keys
    available -= 2
    sample = [*keys[:6], *keys[-3:]]
    if len(keys) > _COLLECTION and any(isinstance(node[key], dict | list) for key in sample):
        head, tail = head_and_tail(
            len(keys),
            available,
            most,
            lambda index: len(keys[index]) + 4 + job.sizes.of(node[keys[index]], max(8, available)),
        )
        return [*keys[:head], *keys[len(keys) - tail :]]
    return _keys_that_fit(node, keys[: sum(most)], available, job.sizes)


def _keys_that_fit(node: dict[str, Tree], keys: list[str], available: int, sizes: Sizes) -> list[str]:
    least = 24 if available > 200 else 10
    costs = [len(key) + 4 + min(sizes.of(node[key], least), least) for key in keys]
    if sum(costs) <= available and len(keys) == len(node):
        return keys
    available, shown = available - _MARKER_SIZE, 0
    for cost in costs:
        available -= cost
        if available < 0:
            break
        shown += 1
    return keys[:shown]


def mark_key(node: Mapping[str, object]) -> str:
    """Return the key `…`, with the sign repeated as often as needed to differ from all keys of the object."""
    key = MARK
    while key in node:
        key += MARK
    return key


def _shares(nodes: Sequence[Tree], available: int, sizes: Sizes) -> list[int]:
    cap = max(8, available)
    return share_out([sizes.of(node, cap) for node in nodes], available)


def share_out(sizes: Sequence[int], available: int) -> list[int]:
    """Return how many characters each entry may take.

    Entries below an equal share get their size; the others share the rest.
    """
    shares, left = [0] * len(sizes), max(0, available)
    for place, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        shares[index] = min(sizes[index], left // (len(sizes) - place))
        left -= shares[index]
    return shares
