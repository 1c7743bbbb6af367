"""Shorten YAML to smaller YAML that loads. A comment at its end says how much is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, cast

import yaml

from ctxguard.content.processors.json_tree import JsonProcessor
from ctxguard.content.processors.tree import Cuts, Number, Tree
from ctxguard.content.views import NO_LIMITS

_SAMPLE = 65_536  # characters of a text that are parsed, because PyYAML is slow
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
        self._partial = self._source.gap is not None or len(text) > _SAMPLE
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
    text = _REDACTION.sub(r"'\1'", text if whole else _first_entries(text[:_SAMPLE]))
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
