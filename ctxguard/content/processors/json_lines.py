"""Shorten JSON lines as a log is shortened, with errors first; every line of the view is valid JSON."""

from __future__ import annotations

import json

from ctxguard.content.processors.json_tree import parse_json
from ctxguard.content.processors.log import LogProcessor
from ctxguard.content.processors.text import shorten
from ctxguard.content.processors.tree import MARK, Sizes, render, shrink
from ctxguard.content.views import NO_LIMITS


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
