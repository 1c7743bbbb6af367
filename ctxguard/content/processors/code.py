"""Shorten source code: the first definitions are shown in full while they fit, the others by their first lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ctxguard.content.processors.text import TextProcessor, shorten
from ctxguard.content.views import Limits, Source, View

_OPENS = re.compile(
    r"(?:@\w|(?:export |public |private |protected |static |final |abstract |async |pub(?:\(\w+\))? |unsafe |default )*"
    r"(?:def|class|function|fn|func|impl|struct|enum|trait|interface|type|module|namespace|const|let|var|package)\b)"
    r"|[A-Za-z_][\w<>\[\],*& ]* [*&]?\w+\([^;]*$"
)
_WHOLE = 300_000  # longer code, in characters, is shown as plain text


@dataclass(frozen=True, slots=True)
class _CodeBlock:
    """A definition with its decorators, or the lines between two definitions. `size` is the number of characters."""

    lines: list[str]
    size: int

    @property
    def title(self) -> str:
        """The first line that is not a decorator or a comment, which shows the name of a definition."""
        return next((line for line in self.lines if line.strip() and line[0] not in "@#"), self.lines[0])


class CodeProcessor(TextProcessor):
    """Shows source code. Of the `Limits`, only `lines` and `line_length` apply.

    A block is a definition or the lines between two definitions. Code is shown as text if it has fewer than three
    blocks, or if not even the first lines of all blocks fit.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self._limits = limits
        whole = source.gap is None and len(source.text) <= _WHOLE
        self._blocks = _blocks(source.text) if whole else []

    def view(self, available: int) -> View:
        """Return the blocks that fit in full, and the first lines of the others."""
        text, limit = self._source.text, self._limits.lines
        if len(self._blocks) < 3 or (len(text) <= available and (limit is None or self._total <= limit)):
            return super().view(available)
        marker = self._marker(f"{self._total} of {self._total} lines shown")
        free = available - len(marker) - 1
        chosen = self._whole_blocks(free, limit)
        return super().view(available) if chosen is None else self._draw(chosen)

    def _whole_blocks(self, available: int, lines: int | None) -> set[int] | None:
        """Return the indexes of the blocks to show in full; None if not even the first lines of all blocks fit."""
        available -= sum(min(len(block.title), 200) + 24 for block in self._blocks)
        left = (1 << 40 if lines is None else lines) - 1 - 2 * len(self._blocks)
        if available < 0 or left < 0:
            return None
        whole: set[int] = set()
        for index, block in enumerate(self._blocks):
            cost = block.size - min(len(block.title), 200) - 24
            if cost <= available and len(block.lines) - 2 <= left:
                whole.add(index)
                available -= cost
                left -= len(block.lines) - 2
        return whole

    def _draw(self, whole: set[int]) -> View:
        out: list[str] = []
        shown = 0
        length = self._limits.line_length or 1 << 30
        for index, block in enumerate(self._blocks):
            if index in whole or len(block.lines) == 1:
                out.extend(shorten(line, length) for line in block.lines)
                shown += len(block.lines)
                continue
            out.append(shorten(block.title, min(200, length)))
            out.append(f"    [… {len(block.lines) - 1} lines]")
            shown += 1
        out.append(self._marker(f"{shown} of {self._total} lines shown"))
        return View("\n".join(out), cut=True, info=self._info(shown))


def _blocks(text: str) -> list[_CodeBlock]:
    """Split a text before every definition that is not indented."""
    blocks: list[list[str]] = [[]]
    decorated = False
    for line in text.rstrip("\n").split("\n"):
        opens = bool(line[:1].strip()) and _OPENS.match(line) is not None
        if opens and not decorated and blocks[-1]:
            blocks.append([])
        decorated = opens and line.startswith("@")
        blocks[-1].append(line)
    return [_CodeBlock(lines, sum(map(len, lines)) + len(lines)) for lines in blocks if lines]
