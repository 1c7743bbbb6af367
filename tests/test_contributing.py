"""The table "Where a change belongs" in CONTRIBUTING.md leads somewhere: every file is there, and every name is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def rows():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("## Where a change belongs")[2].partition("\n\nThe core imports")[0]
    for line in table.splitlines():
        if line.startswith("| ") and not line.startswith(("| you want", "|---")):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


ROWS = list(rows())


def place(name):
    return next((found for found in (ROOT / "ctxguard" / name, ROOT / name) if found.exists()), None)


@pytest.mark.parametrize(("what", "where", "tests"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_leads_somewhere(what, where, tests):
    quoted = re.findall(r"`([^`]+)`", where)
    files = [name for name in quoted if "/" in name or name.endswith(".py")]
    assert files, f"{what}: no file is named"
    for name in [*files, *re.findall(r"`([^`]+)`", tests)]:
        assert place(name), f"{what}: there is no {name}"
    source = "".join(
        path.read_text(encoding="utf-8")
        for name in files
        for path in ([place(name)] if name.endswith(".py") else sorted(place(name).rglob("*.py")))
    )
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in set(quoted) - set(files):
        if name.startswith("make "):
            assert f"\n{name.removeprefix('make ')}: " in makefile, f"{what}: the Makefile has no {name}"
            continue
        for word in name.split("."):
            assert re.search(rf"\b{re.escape(word)}\b", source), f"{what}: {name} is in none of {files}"


def test_the_table_is_read():
    assert len(ROWS) > 30
