"""Show YAML as smaller YAML that loads; the marker is a comment at its end."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ctxguard.content.processors.trees import Number, Sizes, Tree, shrink
from ctxguard.content.views import Limits, Source, TruncationInfo, View, note

if TYPE_CHECKING:
    import yaml

__all__ = ["YamlShape", "parse_yaml"]

_SAMPLE = 65_536
_MAX_NESTING = 400
_AS_WRITTEN = ("bool", "float", "int", "null", "timestamp", "merge", "value")


class YamlShape:
    """Show a YAML text; comments and anchors of the whole are not kept.

    Args:
        source: the text.
        limits: `depth`, `items`, `keys` and `string` count.

    Raises:
        ValueError: the text is not YAML, or holds what only a custom loader reads.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source, self._limits, self._sizes = source, limits, Sizes()
        text = source.text[: source.head_end]
        self._partial = source.gap is not None or len(text) > _SAMPLE
        self._documents = parse_yaml(_first_entries(text[:_SAMPLE]) if self._partial else text)
        self._tree: Tree = self._documents[0] if len(self._documents) == 1 else self._documents
        if not isinstance(self._tree, dict | list):
            raise ValueError("holds no mapping and no list")  # noqa: TRY004 - the text is at fault, not a type

    def view(self, room: int) -> View:
        """Return the tree within the room, with a comment where something is cut."""
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

    def resorts(self) -> tuple[str, ...]:
        """Return the marker after an empty container of the same kind, then only that."""
        empty = "[]" if isinstance(self._tree, list) else "{}"
        return f"{empty} {self._marker(0, len(cast('list[Tree]', self._tree)))}", empty

    def _marker(self, shown: int, total: int) -> str:
        what = "documents" if len(self._documents) > 1 else "items" if isinstance(self._tree, list) else "keys"
        of = "the rest was not read" if self._partial else f"{total} in all"
        text = f"{shown} {what} shown; {of}; {self._source.total} characters in all"
        return f"# {note(text, self._source.handle)}\n"


def parse_yaml(text: str) -> list[Tree]:
    """Parse every document of a YAML text, scalars as they are spelled, aliases shared and never expanded.

    Raises:
        ValueError: it is not YAML, nested too deep, or uses keys that are no scalars.
    """
    import yaml

    if _is_too_deep(text):
        raise ValueError("nested too deep to be read")
    try:
        documents = list(yaml.load_all(text, _loader()))
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        raise ValueError(" ".join(str(error).split())[:160]) from None
    if not documents or _has_cycle(documents):
        raise ValueError("holds no document" if not documents else "holds an alias of itself")
    return cast("list[Tree]", documents)


def _is_too_deep(text: str) -> bool:
    opened = max(text.count("["), text.count("{"))
    if opened > _MAX_NESTING and (_depth(text, "[", "]") > _MAX_NESTING or _depth(text, "{", "}") > _MAX_NESTING):
        return True
    return re.search(r"^(?: *[-?:] ){100}", text, re.MULTILINE) is not None or "\n" + " " * 2000 in text


def _depth(text: str, opening: str, closing: str) -> int:
    deepest = depth = 0
    for match in re.finditer(f"[{re.escape(opening + closing)}]", text):
        depth += 1 if match[0] == opening else -1
        deepest = max(deepest, depth)
    return deepest


def _has_cycle(tree: object) -> bool:
    """Find a container inside itself; containers that were walked once are not walked again."""
    done: set[int] = set()
    path: set[int] = set()
    stack: list[tuple[object, bool]] = [(tree, False)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            path.discard(id(node))
            done.add(id(node))
        elif isinstance(node, dict | list):
            if id(node) in path:
                return True
            if id(node) not in done:
                path.add(id(node))
                stack.append((node, True))
                inner = node.values() if isinstance(node, dict) else node
                stack.extend((child, False) for child in inner if isinstance(child, dict | list))
    return False


@lru_cache(maxsize=1)
def _loader() -> type[Any]:
    import yaml

    parent = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("AsWrittenLoader", (parent,), {"flatten_mapping": lambda _self, _node: None})
    for name in _AS_WRITTEN:
        loader.add_constructor(f"tag:yaml.org,2002:{name}", _as_written)
    loader.add_multi_constructor("!", _untagged)
    return cast("type[Any]", loader)


def _as_written(_loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    return Number(node.value)


def _untagged(loader: yaml.SafeLoader, _tag: str, node: yaml.Node) -> object:
    import yaml

    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(cast("yaml.ScalarNode", node))


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
