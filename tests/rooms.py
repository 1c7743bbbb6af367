"""Count the code lines of each room, and keep the table of their budgets: `python tests/rooms.py [--write]`.

A code line is one that is not blank, not a comment, and not part of a docstring. The table is in CONTRIBUTING.md. With
`--write`, the lines that are left of the whole are shared out anew, in proportion to the size of the rooms.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections import Counter
from functools import cache
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "CONTRIBUTING.md"
MOST = 32_500
"""Code lines of the whole."""
ROW = re.compile(r"^\| `([^`]+)` \| ([\d,]+) \| (.+) \|$", re.MULTILINE)
_SILENT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def code_lines(source):
    texts = (
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    docstrings = {line for text in texts for line in range(text.lineno, text.end_lineno + 1)}
    spoken = (token for token in tokenize.generate_tokens(StringIO(source).readline) if token.type not in _SILENT)
    return len({line for token in spoken for line in range(token.start[0], token.end[0] + 1)} - docstrings)


def room_of(path):
    """Return the room of a module, by its path in the repository: a package of the core, an adapter, or the top."""
    return "/".join(path.parts[:2]) if len(path.parts) > 2 else f"{path.parts[0]}/*.py"


@cache
def modules():
    """Return each module and the room it lies in."""
    paths = (path for top in ("ctxguard", "adapters") for path in (ROOT / top).rglob("*.py"))
    return {path: room_of(path.relative_to(ROOT)) for path in paths}


@cache
def rooms():
    counted = Counter()
    for path, room in modules().items():
        counted[room] += code_lines(path.read_text(encoding="utf-8"))
    return counted


def table():
    """Return the budget of each room, and what it is for."""
    _, _, text = TABLE.read_text(encoding="utf-8").partition("\n## Rooms\n")
    return {room: (int(lines.replace(",", "")), why) for room, lines, why in ROW.findall(text.partition("\n## ")[0])}


def shared_out(counted):
    """Return budgets that add up to the whole: what each room takes, and its part of what is left."""
    left = MOST - counted.total()
    budgets = {room: lines + left * lines // counted.total() for room, lines in counted.items()}
    budgets[max(budgets, key=budgets.__getitem__)] += MOST - sum(budgets.values())
    return budgets


def main():
    counted, known = rooms(), table()
    if "--write" in sys.argv:
        budgets = shared_out(counted)
        text = TABLE.read_text(encoding="utf-8")
        head, title, rest = text.partition("\n## Rooms\n")
        lines = [
            f"| `{room}` | {budgets[room]:,} | {known.get(room, (0, 'what is it for?'))[1]} |"
            for room, _ in counted.most_common()
        ]
        found = list(ROW.finditer(rest.partition("\n## ")[0]))
        begin, end = found[0].start(), found[-1].end()
        TABLE.write_text(head + title + rest[:begin] + "\n".join(lines) + rest[end:], encoding="utf-8")
    for room, lines in counted.most_common():
        budget = table().get(room, (0, ""))[0]
        print(f"{lines:>7,} of {budget:>6,}  {room}{'' if lines <= budget else '  <- over its budget'}")
    print(f"{counted.total():>7,} of {MOST:>6,}")


if __name__ == "__main__":
    main()
