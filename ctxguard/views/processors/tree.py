"""Shrink JSON, JSON lines, YAML, and XML, as trees of objects, arrays, and values, to a number of characters.

Each value gets an equal share of the characters. What a small value does not need is left to the others. Objects keep
their first keys, arrays their head and tail, strings their start and end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import yaml

from ctxguard.views.processors.log import LogProcessor
from ctxguard.views.processors.text import shorten
from ctxguard.views.views import NO_LIMITS, Limits, Source, TruncationInfo, View

if TYPE_CHECKING:
    from ctxguard.views.views import Limits


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


_WHOLE = 600_000  # longer JSON, in characters, is parsed only in part
_SAMPLE = 131_072  # characters from the start of longer JSON that are parsed
_MAX_OPEN = 200  # open brackets that can be closed; of deeper JSON, only what comes before is read
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+|"', re.DOTALL)


def parse_json(text: str) -> Tree:
    """Parse JSON. Numbers keep their spelling.

    Raises:
        ValueError: If the text is not JSON, or is nested too deep.
    """
    try:
        return cast("Tree", json.loads(text, parse_int=Number, parse_float=Number))
    except RecursionError:
        raise ValueError("nested too deep to be read") from None


def parse_start(text: str) -> Tree:
    """Parse the complete part of a JSON text that was cut off. Brackets that are still open are closed.

    Raises:
        ValueError: If the text starts with no complete value, or is not JSON.
    """
    closers: list[str] = []
    safe: tuple[int, str] | None = None
    last = ""
    for match in _TOKEN.finditer(text):
        sign = match[0]
        if sign in "[{":
            closers.append("]" if sign == "[" else "}")
            if len(closers) > _MAX_OPEN:
                break
        elif sign in "]}":
            if not closers or closers.pop() != sign:
                break
        elif sign == '"':  # a string that was cut off
            break
        elif sign == "," and last:
            safe = (match.start(), "".join(reversed(closers)))
        last = sign
        if not closers:
            safe = (match.end(), "")
            break
    if safe is None:
        raise ValueError("no complete value within the part that was read")
    return parse_json(text[: safe[0]] + safe[1])


class JsonProcessor:
    """Shows a JSON text. Of the `Limits`, only `depth`, `keys`, `string`, and those on items apply."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source, self._limits, self._sizes = source, limits, Sizes()
        self._partial = source.gap is not None or len(source.text) > _WHOLE
        self._tree = self._read(source.text[: source.head_end].removeprefix("\ufeff"))

    def _read(self, text: str) -> Tree:
        return parse_start(text[:_SAMPLE]) if self._partial else parse_json(text)

    def view(self, available: int) -> View:
        """Return the tree in the available characters. If anything is missing, the outermost level contains a note."""
        longest = self._note(Cuts(top_total=99999, top_shown=99999))
        tree, cuts = shrink(self._tree, available, self._limits, sizes=self._sizes, reserve=len(longest) + 10)
        is_whole = self._is_whole(cuts, available)
        text = self._source.text if is_whole else self._write(tree, cuts)
        return View(text, cut=not is_whole, info=self._info(cuts))

    def _is_whole(self, cuts: Cuts, available: int) -> bool:  # noqa: ARG002 - the subclass for YAML needs it
        return not cuts.any and not self._partial

    def _write(self, tree: Tree, cuts: Cuts) -> str:
        return render(self._add_note(tree, cuts))

    def fallbacks(self) -> tuple[str, ...]:
        """Return an array, object, or value that contains only a short note, then an empty one."""
        short = f"{MARK} {self._source.handle or ''}".strip()
        if isinstance(self._tree, dict):
            return render({MARK: short}), "{}"
        if isinstance(self._tree, list):
            return render([short]), "[]"
        return render(short), '""', "0"

    def _kind(self) -> str:
        return "keys" if isinstance(self._tree, dict) else "items"

    def _note(self, cuts: Cuts) -> str:
        shown = f"{cuts.top_shown} {self._kind()} shown; the rest was not read; " if self._partial else ""
        if not self._partial and isinstance(self._tree, dict | list):
            shown = f"{cuts.top_shown} of {cuts.top_total} {self._kind()} shown; "
        return self._source.note(f"{shown}{self._source.total} characters in all")

    def _add_note(self, tree: Tree, cuts: Cuts) -> Tree:
        text = self._note(cuts)
        if isinstance(tree, dict):
            return {**tree, mark_key(cast("dict[str, Tree]", self._tree)): text}
        if isinstance(tree, list):  # the note replaces the mark that counts the missing items
            place = next((index for index, item in enumerate(tree) if _is_marked(item)), len(tree))
            return [*tree[:place], f"{MARK} {text}", *tree[place + 1 :]]
        return f"{tree} {MARK} {text}" if isinstance(tree, str) and not isinstance(tree, Number) else tree

    def _info(self, cuts: Cuts) -> TruncationInfo:
        top = isinstance(self._tree, dict | list)
        return TruncationInfo(
            items_shown=cuts.top_shown if top else None,
            items_total=cuts.top_total if top and not self._partial else None,
            cells_truncated=cuts.values,
            totals_exact=not self._partial,
        )


def _is_marked(item: Tree) -> bool:
    return isinstance(item, str) and item.startswith(MARK) and item.endswith("items not shown")


class JsonLinesProcessor(LogProcessor):
    """Shows JSON lines. Long lines are shortened as JSON trees. Notes on missing lines are objects with the key `…`."""

    def _short(self, line: str, length: int) -> str:
        if len(line) <= length:
            return line
        try:
            tree = parse_json(line)
        except ValueError:
            return json.dumps(shorten(line, max(8, length - 2)), ensure_ascii=False)
        sizes, short = Sizes(), line
        for available in (length, length * 3 // 4, length // 2):  # the size of a shrunk tree is known only roughly
            short = render(shrink(tree, available, NO_LIMITS, sizes=sizes)[0])
            if len(short) <= length:
                break
        return short

    def _sign(self, text: str) -> str:
        return json.dumps({MARK: text}, ensure_ascii=False)

    def fallbacks(self) -> tuple[str, ...]:
        """Return, each as JSON: the marker (a note on what is shown), only the number of lines, and an empty object."""
        return self._marker(0), self._sign(f"{self._total} lines"), "{}"


_YAML_SAMPLE = 65_536  # characters of a text that are parsed, because PyYAML is slow
_MAX_NESTING = 400  # deeper text is refused, because each level takes frames of Python's stack
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_REDACTION = re.compile(r"(?<=[-:] )(\[REDACTED_\w+\])(?=[^\S\n]*$)", re.MULTILINE)
"""A masked value, which YAML would read as a list with one item."""
_RESOLVERS = yaml.SafeLoader.yaml_implicit_resolvers
"""Patterns of unquoted scalars that are not strings, such as numbers, dates, and null, by their first character."""


class YamlProcessor(JsonProcessor):
    """Shows a YAML text without comments, anchors, and tags.

    Of the `Limits`, only `depth`, `keys`, `string`, and those on items apply.

    Raises:
        ValueError: If the text is not YAML, or neither a mapping nor a list.
    """

    def _read(self, text: str) -> Tree:
        self._partial = self._source.gap is not None or len(text) > _YAML_SAMPLE
        self._documents = parse_yaml(text, whole=not self._partial)
        tree: Tree = self._documents[0] if len(self._documents) == 1 else self._documents
        if not isinstance(tree, dict | list):
            raise ValueError("is neither a mapping nor a list")  # noqa: TRY004 - the text is at fault, not a type
        return tree

    def _kind(self) -> str:
        return "documents" if len(self._documents) > 1 else super()._kind()

    def _is_whole(self, cuts: Cuts, available: int) -> bool:
        # Aliases are expanded, so the text may fit although the tree does not.
        if self._limits == NO_LIMITS and not self._partial and len(self._source.text) <= available:
            return True
        return super()._is_whole(cuts, available) and self._sizes.of(self._tree, available) <= available

    def _write(self, tree: Tree, cuts: Cuts) -> str:
        several = len(self._documents) > 1
        documents = cast("list[Tree]", tree) if several else [tree]
        options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 10_000}
        text: str = yaml.dump_all(documents, Dumper=_Dumper, explicit_start=several, **options)
        return f"{text}# {self._note(cuts)}\n"

    def fallbacks(self) -> tuple[str, ...]:
        """Return an empty mapping or list with a note as a comment, then without it."""
        empty = "[]" if isinstance(self._tree, list) else "{}"
        return f"{empty} # {self._note(Cuts(top_total=len(cast('list[Tree]', self._tree))))}\n", empty


def parse_yaml(text: str, *, whole: bool = True) -> list[Tree]:
    """Parse all documents in a YAML text.

    Scalars keep their spelling, aliases refer to the same object as their anchor, and tags are ignored. A masked value
    such as `[REDACTED_EMAIL]` is read as a string.

    Args:
        text: The YAML text.
        whole: Whether the whole text is parsed. If not, only the outermost entries that end within the first 65,536
            characters are parsed.

    Raises:
        ValueError: If the text is not YAML, is nested deeper than 400 levels, or uses keys that are not scalars.
    """
    text = _REDACTION.sub(r"'\1'", text if whole else _first_entries(text[:_YAML_SAMPLE]))
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    try:
        documents = [
            _tree(next(events), events, {}, []) for event in events if isinstance(event, yaml.DocumentStartEvent)
        ]
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())[:160]) from None
    if not documents:
        raise ValueError("contains no document")
    return documents


def _tree(event: yaml.NodeEvent, events: Iterator[Any], anchors: dict[str | None, Tree], within: list[Tree]) -> Tree:
    """Build the tree that starts with an event. Unlike a YAML loader, it ignores tags that ask for special objects."""
    if isinstance(event, yaml.AliasEvent):
        return _resolve_alias(event.anchor, anchors, within)
    if isinstance(event, yaml.ScalarEvent):
        anchors[event.anchor] = _scalar(event)
        return anchors[event.anchor]
    if len(within) >= _MAX_NESTING:
        raise ValueError("nested too deep to be read")
    container: list[Tree] | dict[str, Tree] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
    anchors[event.anchor] = container
    within.append(container)
    for start in takewhile(lambda event: not isinstance(event, yaml.CollectionEndEvent), events):
        tree = _tree(start, events, anchors, within)
        if isinstance(container, list):
            container.append(tree)
        elif isinstance(tree, str):
            container[tree] = _tree(next(events), events, anchors, within)
        else:
            raise ValueError("uses a list or a mapping as a key")  # noqa: TRY004 - the text is at fault, not a type
    within.pop()
    return container


def _scalar(event: yaml.ScalarEvent) -> str:
    known = _RESOLVERS.get(event.value[:1], ()) if event.implicit[0] else ()
    return Number(event.value) if any(pattern.match(event.value) for _, pattern in known) else event.value


def _resolve_alias(anchor: str | None, anchors: dict[str | None, Tree], within: list[Tree]) -> Tree:
    if anchor not in anchors:
        raise ValueError(f"refers to an anchor that is not defined: {anchor}")
    tree = anchors[anchor]
    if any(tree is container for container in within):
        raise ValueError("contains an alias that refers to itself")
    return tree


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes numbers as they were spelled, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature of the base class
        return True

    def as_written(self, data: Number) -> yaml.Node:
        tag = self.resolve(yaml.ScalarNode, str(data), (True, False))
        return cast("yaml.Node", self.represent_scalar(tag, str(data)))


_Dumper.add_representer(Number, _Dumper.as_written)


def _first_entries(text: str) -> str:
    """Remove the last outermost entry of a text that was cut off, because that entry may be incomplete."""
    starts = [match.start() for match in re.finditer(r"^[^\s#]", text, re.MULTILINE)]
    return text[: starts[-1]] if len(starts) > 1 else text[: text.rfind("\n") + 1]


_XML_SAMPLE = 131_072  # characters from the start of a document that are read
_XML_DEPTH = 500  # levels of a document; a deeper one is shown as text
_MAX_DRAWN = 80  # levels that are shown: each takes a few frames of Python's stack
_COMMENT = 32  # characters that are reserved for a comment on missing elements


@dataclass(slots=True)
class _Element:
    """An element: its name, its attributes as written, its children in order, and its length in characters."""

    name: str
    attributes: list[str]
    children: list[_Element | str] = field(default_factory=list)
    size: int = 0


class XmlProcessor:
    """Shows an XML text without its comments and processing instructions.

    Of the `Limits`, `depth` and `string` apply. If two child elements have the same name, the limits on items apply to
    all child elements. Otherwise, `keys` applies to them, and also to attributes.

    Raises:
        ValueError: If the text is not well-formed, declares entities, or is nested deeper than 500 levels.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source, self._limits = source, limits
        builder = _Builder()
        text = source.text[: min(source.head_end, _XML_SAMPLE)]
        self._partial = len(text) < source.total
        self._root = builder.parse(text, partial=self._partial)
        self._cuts = 0

    def view(self, available: int) -> View:
        """Return the document within the available characters."""
        self._cuts = 0
        marker = f"<!-- {self._note()} -->"
        whole = self._root.size <= available and not self._partial
        drawn = self._draw(self._root, available - (0 if whole else len(marker)), 0)
        cut = bool(self._cuts) or self._partial
        info = TruncationInfo(items_total=self._total(), totals_exact=not self._partial)
        if not cut or (not self._partial and len(drawn) + len(marker) >= len(self._source.text) <= available):
            return View(self._source.text, cut=False, info=info)
        return View(f"{drawn}\n{marker}", cut=True, info=info)

    def fallbacks(self) -> tuple[str, ...]:
        """Return an empty outermost element with the handle or a note in a comment, then without it, then `<x/>`."""
        name = self._root.name
        return f"<{name}/><!-- {self._source.handle or self._note()} -->", f"<{name}/>", "<x/>"

    def _total(self) -> int | None:
        return None if self._partial else sum(isinstance(child, _Element) for child in self._root.children)

    def _note(self) -> str:
        total = "the rest was not read" if self._partial else f"{self._total()} elements inside the outermost"
        return self._source.note(f"shortened; {total}; {self._source.total} characters in all")

    def _draw(self, element: _Element, available: int, depth: int) -> str:
        if not element.children:
            return f"<{self._head(element, available)}/>"
        limit = self._limits.depth
        if (limit is not None and depth >= limit) or depth >= _MAX_DRAWN:
            self._cuts += 1
            return f"<{element.name}><!-- {len(element.children)} inside --></{element.name}>"
        head = self._head(element, available)
        inner = self._inside(element.children, available - len(head) - len(element.name) - 5, depth)
        return f"<{head}>{inner}</{element.name}>"

    def _head(self, element: _Element, available: int) -> str:
        """Return the name of an element, followed by its attributes if they fit."""
        shown = element.attributes[: self._limits.keys]
        head = " ".join([element.name, *shown])
        if element.size > available and len(head) > max(available // 2, 20):
            shown, head = [], element.name
        self._cuts += len(element.attributes) - len(shown)
        return head

    def _inside(self, children: list[_Element | str], available: int, depth: int) -> str:
        sizes = [_size(child) for child in children]
        count, head, tail = len(children), len(children), 0
        most = split_limit(count, self._limits.keys) if _is_record(children) else most_entries(count, self._limits)
        if sum(most) < count or sum(sizes) > available:
            head, tail = head_and_tail(count, available, most, sizes.__getitem__)
        kept = [*children[:head], *children[count - tail :]]
        skipped = count - len(kept)
        shares = share_out([_size(child) for child in kept], available - (_COMMENT if skipped else 0))
        drawn = [self._child(child, share, depth) for child, share in zip(kept, shares, strict=True)]
        if skipped:
            self._cuts += skipped
            drawn.insert(head, f"<!-- {skipped} of {count} not shown -->")
        return "".join(drawn)

    def _child(self, child: _Element | str, available: int, depth: int) -> str:
        if isinstance(child, _Element):
            return self._draw(child, available, depth + 1)
        limit = self._limits.string
        short = shorten(child, max(1, available if limit is None else min(available, limit)))
        self._cuts += short != child
        return escape(short)


def _is_record(children: list[_Element | str]) -> bool:
    """Return whether all child elements have different names, so that they are fields rather than items."""
    names = [child.name for child in children if isinstance(child, _Element)]
    return len(set(names)) == len(names)


def _size(child: _Element | str) -> int:
    return len(child) if isinstance(child, str) else child.size


class _Builder:
    """Builds elements from the events of expat, without recursion."""

    def __init__(self) -> None:
        self._stack = [_Element("", [])]  # the document, then the elements that are open
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = self._entity

    def parse(self, text: str, *, partial: bool) -> _Element:
        try:
            self._parser.Parse(_without_declaration(text), not partial)
        except expat.ExpatError as error:
            raise ValueError(f"not well-formed: {error}") from None
        while len(self._stack) > 1:
            self._end(self._stack[-1].name)
        root = next((child for child in self._stack[0].children if isinstance(child, _Element)), None)
        if root is None:
            raise ValueError("contains no element")
        return root

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._stack) > _XML_DEPTH:
            raise ValueError(f"nested deeper than {_XML_DEPTH}")
        written = [f"{key}={quoteattr(value)}" for key, value in attributes.items()]
        element = _Element(name, written, size=len(name) + sum(len(each) + 1 for each in written) + 3)
        self._stack[-1].children.append(element)
        self._stack.append(element)

    def _end(self, name: str) -> None:
        element = self._stack.pop()
        element.children = [child for child in element.children if not isinstance(child, str) or child.strip()]
        element.size += sum(map(_size, element.children)) + (len(name) + 2 if element.children else 0)

    def _text(self, text: str) -> None:
        self._stack[-1].children.append(text)

    def _entity(self, *_declaration: object) -> None:
        raise ValueError("declares entities, which are not expanded")


def _without_declaration(text: str) -> str:
    """Remove the XML declaration. The encoding that it names no longer applies, because the text is decoded."""
    text = text.lstrip("\ufeff \t\r\n")
    return text[text.find("?>") + 2 :] if text.startswith("<?xml") else text
