"""Shorten JSON to smaller JSON that parses and whose outermost value is still an array or an object."""

from __future__ import annotations

import json
import re
from typing import cast

from ctxguard.content.processors.tree import MARK, Cuts, Number, Sizes, Tree, mark_key, render, shrink
from ctxguard.content.views import Limits, Source, TruncationInfo, View

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
            place = next((index for index, item in enumerate(tree) if _is_mark(item)), len(tree))
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


def _is_mark(item: Tree) -> bool:
    return isinstance(item, str) and item.startswith(MARK) and item.endswith("items not shown")
