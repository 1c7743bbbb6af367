"""Where a change belongs: what CONTRIBUTING.md and "How it works" name is there, file by file and name by name."""

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
    return next((found for top in ("ctxguard", "adapters", ".") if (found := ROOT / top / name).exists()), None)


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


PAGE = re.sub(r"```[\s\S]*?```", "", (ROOT / "docs" / "how_it_works.md").read_text(encoding="utf-8"))


def test_how_it_works_names_files_and_what_is_in_them():
    """A name with a file behind it, such as `Fold.cut` in `stages/fold.py`, stands in that file."""
    named = re.findall(r"`([\w.]+)`[^`\n|]{0,12} in `([\w./]+\.py)`", PAGE)
    assert len(named) > 20
    for name, file in named:
        source = place(file).read_text(encoding="utf-8")
        assert all(re.search(rf"\b{word}\b", source) for word in name.split(".")), f"{name} is not in {file}"
    files = re.findall(r"`((?:[a-z_]+/)+[a-z_.]*|[a-z_]+\.(?:py|toml))`", PAGE)
    assert len(files) > 50
    assert not [name for name in files if place(name) is None]


def test_how_it_works_has_a_row_for_each_package():
    table = PAGE.partition("## The packages")[2]
    rooms = {path.parent.name for path in (ROOT / "ctxguard").glob("*/__init__.py")}
    assert not sorted(room for room in rooms if f"`{room}/" not in table)


TEN_CHANGES = {
    "the trail tells exit codes": {"views/outcomes.py": "outcome"},
    "outputs of one tool are never shortened": {"stages/fold.py": "_with_seen"},
    "a new kind of personal data": {"data/rules/countries.toml": "name", "pii/detect/validate.py": "luhn"},
    "another provider's API": {
        "formats/ollama.py": "OllamaAdapter",
        "formats/registry.py": "OllamaAdapter",
        "formats/format.py": "ollama",
    },
    "the order in which exchanges are evicted": {"stages/fold.py": "_evicted"},
    "another store": {"stores/redis.py": "RedisStore", "stores/__init__.py": "RedisStore"},
    "one more response header of the proxy": {"wire/guard.py": "headers"},
    "how Claude's tool schemas are counted": {"data/models.toml": "costs.claude", "tokens/schemas.py": "PARAMETERS"},
    "recall prefers newer facts": {"stages/recall_relevant.py": "RecallRelevant", "stages/lexical.py": "def "},
    "a column of ctxguard bench": {"cli/bench.py": "COLUMNS", "harness/bench.py": "BenchCall"},
}
"""The sources that each of ten usual changes touches, with a name in each that the change begins at; without tests."""


@pytest.mark.parametrize("change", TEN_CHANGES)
def test_a_usual_change_touches_at_most_three_sources(change):
    places = TEN_CHANGES[change]
    assert len(places) <= 3
    for name, word in places.items():
        assert word in place(name).read_text(encoding="utf-8"), f"{change}: {word} is not in {name}"


@pytest.mark.parametrize("name", ["Ollama", "Redis"])
def test_what_was_added_last_is_named_in_at_most_three_sources(name):
    """A provider and a store that were added on top of the others show what the next one touches."""
    sources = [*(ROOT / "ctxguard").rglob("*.py"), *(ROOT / "adapters").rglob("*.py")]
    codes = {path: re.sub(r'"""[\s\S]*?"""|#.*', "", path.read_text(encoding="utf-8")) for path in sources}
    found = [str(path.relative_to(ROOT)) for path, code in codes.items() if name.lower() in code.lower()]
    assert 2 <= len(found) <= 3, found
