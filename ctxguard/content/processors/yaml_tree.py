"""Show YAML as smaller YAML that loads; the marker is a comment at its end."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

import yaml

from ctxguard.content.processors.tree import Number, Sizes, Tree, shrink
from ctxguard.content.views import NO_LIMITS, Limits, Source, TruncationInfo, View, note

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAMPLE = 65_536
_MAX_NESTING = 400
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVERS = yaml.SafeLoader.yaml_implicit_resolvers
"""Patterns of unquoted scalars that are not text (numbers, dates, null), by their first character."""


class YamlProcessor:
    """Show a YAML text without comments, anchors and tags; of the limits, `depth`, `items`, `keys` and `string` count.

    Raises:
        ValueError: the text is not YAML, or neither a mapping nor a list.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source, self._limits, self._sizes = source, limits, Sizes()
        text = source.text[: source.head_end]
        self._partial = source.gap is not None or len(text) > _SAMPLE
        self._documents = parse_yaml(_first_entries(text[:_SAMPLE]) if self._partial else text)
        tree: Tree = self._documents[0] if len(self._documents) == 1 else self._documents
        if not isinstance(tree, dict | list):
            raise ValueError("holds no mapping and no list")  # noqa: TRY004 - the text is at fault, not a type
        self._tree = tree

    def view(self, room: int) -> View:
        """Return the tree within the room, with a comment where something is cut."""
        if self._limits == NO_LIMITS and not self._partial and len(self._source.text) <= room:
            return View(
                self._source.text,
                cut=False,
                info=TruncationInfo(items_shown=len(self._tree), items_total=len(self._tree)),
            )
        marker = self._marker(99999, 99999)
        tree, cuts = shrink(self._tree, room, self._limits, sizes=self._sizes, reserve=len(marker))
        info = TruncationInfo(
            items_shown=cuts.top_shown,
            items_total=None if self._partial else cuts.top_total,
            cells_truncated=cuts.values,
            totals_exact=not self._partial,
        )
        if not cuts.any and not self._partial and self._sizes.of(self._tree, room) <= room:
            return View(self._source.text, cut=False, info=info)
        documents = cast("list[Tree]", tree) if len(self._documents) > 1 else [tree]
        marker = self._marker(cuts.top_shown, cuts.top_total)
        return View(_dumped(documents) + marker, cut=True, info=info)

    def fallbacks(self) -> tuple[str, ...]:
        """Return the marker after an empty container of the same kind, then only that."""
        empty = "[]" if isinstance(self._tree, list) else "{}"
        return f"{empty} {self._marker(0, len(self._tree))}", empty

    def _marker(self, shown: int, total: int) -> str:
        what = "documents" if len(self._documents) > 1 else "items" if isinstance(self._tree, list) else "keys"
        of = "the rest was not read" if self._partial else f"{total} in all"
        text = f"{shown} {what} shown; {of}; {self._source.total} characters in all"
        return f"# {note(text, self._source.handle)}\n"


def parse_yaml(text: str) -> list[Tree]:
    """Parse every document of a YAML text, scalars as they are spelled, aliases shared and never expanded, no tags.

    Raises:
        ValueError: it is not YAML, nested deeper than 400, or uses keys that are not scalars.
    """
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    try:
        documents = [
            _tree(next(events), events, {}, []) for event in events if isinstance(event, yaml.DocumentStartEvent)
        ]
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())[:160]) from None
    if not documents:
        raise ValueError("holds no document")
    return documents


def _tree(event: yaml.NodeEvent, events: Iterator[Any], anchors: dict[str | None, Tree], within: list[Tree]) -> Tree:
    """Build the tree that starts with an event: nothing that a document asks for is constructed."""
    if isinstance(event, yaml.AliasEvent):
        return _aliased(event.anchor, anchors, within)
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


def _aliased(anchor: str | None, anchors: dict[str | None, Tree], within: list[Tree]) -> Tree:
    if anchor not in anchors:
        raise ValueError(f"names an anchor that it does not have: {anchor}")
    tree = anchors[anchor]
    if any(tree is container for container in within):
        raise ValueError("holds an alias of itself")
    return tree


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Write numbers as they were spelled, and every value in full in its place."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the parent's signature
        return True

    def as_written(self, data: Number) -> yaml.Node:
        tag = self.resolve(yaml.ScalarNode, str(data), (True, False))
        return cast("yaml.Node", self.represent_scalar(tag, str(data)))


_Dumper.add_representer(Number, _Dumper.as_written)


def _dumped(documents: list[Tree]) -> str:
    several = len(documents) > 1
    text: str = yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000, explicit_start=several
    )
    return text


def _first_entries(text: str) -> str:
    """Cut a text that was cut off back to its last complete outermost entry."""
    starts = [match.start() for match in re.finditer(r"^[^\s#]", text, re.MULTILINE)]
    return text[: starts[-1]] if len(starts) > 1 else text[: text.rfind("\n") + 1]
