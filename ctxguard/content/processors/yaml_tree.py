"""Show YAML as smaller YAML that loads; the marker is a comment at its end."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ctxguard.content.processors.tree import Number, Sizes, Tree, shrink
from ctxguard.content.views import NO_LIMITS, Limits, Source, TruncationInfo, View, note

if TYPE_CHECKING:
    from collections.abc import Callable

    import yaml

_SAMPLE = 65_536
_MAX_NESTING = 400


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
    import yaml

    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.take(event)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())[:160]) from None
    if not builder.documents:
        raise ValueError("holds no document")
    return builder.documents


class _Builder:
    """Build trees from the parser's events: no recursion, and nothing that a document asks for is constructed."""

    def __init__(self) -> None:
        self.documents: list[Tree] = []
        self._open: list[list[Tree] | dict[str, Tree]] = []
        self._keys: list[str | None] = []
        self._anchors: dict[str, Tree] = {}
        self._patterns = _patterns()
        self._acts = self._by_event()

    def take(self, event: yaml.Event) -> None:
        """Take the next event."""
        act = self._acts.get(type(event))
        if act is not None:
            act(event)

    def _by_event(self) -> dict[type[yaml.Event], Callable[[Any], None]]:
        import yaml

        return {
            yaml.AliasEvent: self._alias,
            yaml.DocumentEndEvent: self._end_document,
            yaml.MappingEndEvent: self._leave,
            yaml.MappingStartEvent: self._mapping,
            yaml.ScalarEvent: self._scalar,
            yaml.SequenceEndEvent: self._leave,
            yaml.SequenceStartEvent: self._sequence,
        }

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        value: str = event.value
        if event.implicit[0] and any(known.match(value) for known in self._patterns.get(value[:1], ())):
            value = Number(value)
        self._add(value, event.anchor)

    def _mapping(self, event: yaml.MappingStartEvent) -> None:
        self._enter({}, event.anchor)

    def _sequence(self, event: yaml.SequenceStartEvent) -> None:
        self._enter([], event.anchor)

    def _leave(self, _event: yaml.Event) -> None:
        self._open.pop()
        self._keys.pop()

    def _alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            raise ValueError(f"names an anchor that it does not have: {event.anchor}")
        value = self._anchors[event.anchor]
        if any(value is container for container in self._open):
            raise ValueError("holds an alias of itself")
        self._add(value, None)

    def _end_document(self, _event: yaml.Event) -> None:
        self._anchors = {}

    def _enter(self, container: list[Tree] | dict[str, Tree], anchor: str | None) -> None:
        if len(self._open) >= _MAX_NESTING:
            raise ValueError("nested too deep to be read")
        self._add(container, anchor)
        self._open.append(container)
        self._keys.append(None)

    def _add(self, value: Tree, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = value
        if not self._open:
            self.documents.append(value)
            return
        container, key = self._open[-1], self._keys[-1]
        if isinstance(container, list):
            container.append(value)
        elif key is not None:
            container[key] = value
            self._keys[-1] = None
        elif isinstance(value, str):
            self._keys[-1] = value
        else:
            raise ValueError("uses a list or a mapping as a key")


@lru_cache(maxsize=1)
def _patterns() -> dict[str, list[re.Pattern[str]]]:
    """Return the patterns of unquoted scalars that are not text (numbers, dates, null), by their first character."""
    import yaml

    resolvers = yaml.SafeLoader.yaml_implicit_resolvers
    return {first: [pattern for _, pattern in known] for first, known in resolvers.items()}


@lru_cache(maxsize=1)
def _dumper() -> type[Any]:
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Write numbers as they were spelled, and every value in full in its place."""

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the parent's signature
            return True

        def as_written(self, data: Number) -> yaml.Node:
            tag = self.resolve(yaml.ScalarNode, str(data), (True, False))
            return cast("yaml.Node", self.represent_scalar(tag, str(data)))

    Dumper.add_representer(Number, Dumper.as_written)
    return Dumper


def _dumped(documents: list[Tree]) -> str:
    import yaml

    several = len(documents) > 1
    text: str = yaml.dump_all(
        documents, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=10_000, explicit_start=several
    )
    return text


def _first_entries(text: str) -> str:
    """Cut a text that was cut off back to its last complete outermost entry."""
    starts = [match.start() for match in re.finditer(r"^[^\s#]", text, re.MULTILINE)]
    return text[: starts[-1]] if len(starts) > 1 else text[: text.rfind("\n") + 1]
