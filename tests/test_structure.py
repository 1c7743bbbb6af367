"""The structure of the package: no circle of modules, and a top that users of LLM frameworks understand."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = [ROOT / "ctxguard", *sorted((ROOT / "adapters").glob("ctxguard_*"))]
MOST_AT_THE_TOP = 28


def name_of(path, package):
    inside = path.relative_to(package.parent).with_suffix("")
    parts = inside.parts[:-1] if inside.name == "__init__" else inside.parts
    return ".".join(parts)


MODULES = {name_of(path, package): path for package in PACKAGES for path in package.rglob("*.py")}


def imports_of(module):
    """Walk what a module imports, wherever in it: at the top, in a function, or for its types alone."""
    stub = MODULES[module].with_suffix(".pyi")  # of a package that loads its public names when they are asked for
    for node in ast.walk(ast.parse((stub if stub.exists() else MODULES[module]).read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def home(module, name):
    """Return the module that a name comes from: what a package's `__init__` hands on stands in another one."""
    if name is None or module not in MODULES:
        return module
    if f"{module}.{name}" in MODULES:
        return f"{module}.{name}"
    if MODULES[module].name != "__init__.py":
        return module
    return next((home(source, name) for source, given in imports_of(module) if given == name), module)


def graph():
    edges = {module: set() for module in MODULES}
    for module, path in MODULES.items():
        if path.name == "__init__.py":
            continue  # the public names of a package
        for source, name in imports_of(module):
            target = home(source, name)
            if target in MODULES and target != module:
                edges[module].add(target)
    return edges


def test_no_modules_import_each_other_in_a_circle():
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_each_room_has_a_purpose_in_the_table():
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Rooms")[2]
    named = re.findall(r"^\| `((?:ctxguard|adapters)/[^`]+)` \| .+ \|$", table, re.MULTILINE)
    rooms = [
        path for top in ("ctxguard", "adapters") for path in (ROOT / top).iterdir() if (path / "__init__.py").exists()
    ]
    assert sorted(named) == sorted(["ctxguard/*.py", *(str(path.relative_to(ROOT)) for path in rooms)])


def test_the_modules_that_a_package_lists_are_there():
    listed = {
        (path.parent, name)
        for path in MODULES.values()
        if path.name == "__init__.py"
        for row in re.findall(r"^\| (`[^|]+) \|", path.read_text(encoding="utf-8"), re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert len(listed) > 20
    assert not sorted(f"{room.name}: {name}" for room, name in listed if not (room / f"{name}.py").exists())


def test_the_top_of_the_package_stays_small():
    top = {path.stem for path in (ROOT / "ctxguard").iterdir() if path.suffix == ".py" or path.is_dir()}
    top -= {"__pycache__", "__main__", "data"}
    assert len(top) <= MOST_AT_THE_TOP, sorted(top)


def test_no_module_is_named_for_nothing():
    nothing = {"utils", "helpers", "common", "base", "misc"}
    assert not [m for m in MODULES if m.startswith("ctxguard.") and nothing.intersection(m.split("."))]


def test_one_setting_says_where_the_recordings_are():
    """What finds them in another way is not hidden by it, and the gate does not see how it runs without."""
    finds = re.compile(r'/ \\?"shared\\?"|Path\(\\?"[^"\n]*\bshared/data')
    sources = [path for folder in ("tests", "benchmarks", "notebooks") for path in (ROOT / folder).rglob("*.*")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources if path.suffix in (".py", ".ipynb")}
    assert {name for name, text in texts.items() if finds.search(text)} == {
        "recordings.py",
        "test_002_context_and_memory.py",  # a folder of prompts in a temporary one
        "example_prompts.ipynb",  # the same
    }
    notebooks = [text for name, text in texts.items() if name.endswith(".ipynb")]
    reading = [line for text in notebooks for line in text.splitlines() if "shared/data" in line]
    assert reading
    assert not [line for line in reading if r"environ.get(\"CTXGUARD_RECORDINGS\"" not in line]
    tests = {name: text for name, text in texts.items() if name.startswith("test_")}
    users = [name for name, text in tests.items() if "from recordings import" in text]
    assert users
    assert not [name for name in users if "mark.recordings" not in tests[name]], "run without recordings by their mark"


def test_contracts_follow_a_name_through_a_package_that_loads_it_late():
    pytest.importorskip("importlinter", reason="import-linter is not installed")
    from lazy_imports import lazy_imports

    assert ("ctxguard.adapting.restoring", "ctxguard.pii.mask.session") in lazy_imports()
    assert len(lazy_imports()) > 100
