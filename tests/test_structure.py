"""The structure of the package: no circle of modules, and a top that users of LLM frameworks understand."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = [ROOT / "ctxguard", *sorted((ROOT / "adapters").glob("ctxguard_*"))]
MOST_AT_THE_TOP = 26


def name_of(path, package):
    inside = path.relative_to(package.parent).with_suffix("")
    parts = inside.parts[:-1] if inside.name == "__init__" else inside.parts
    return ".".join(parts)


MODULES = {name_of(path, package): path for package in PACKAGES for path in package.rglob("*.py")}


def imports_of(module):
    """Walk what a module imports, wherever in it: at the top, in a function, or for its types alone."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
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


def circles(edges):
    """Return groups of modules that reach each other (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(edges[module]):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            group = []
            while group[-1:] != [module]:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return found


def test_no_modules_import_each_other_in_a_circle():
    assert circles(graph()) == []


def test_the_top_of_the_package_stays_small():
    top = {path.stem for path in (ROOT / "ctxguard").iterdir() if path.suffix == ".py" or path.is_dir()}
    top -= {"__pycache__", "__main__", "data"}
    assert len(top) <= MOST_AT_THE_TOP, sorted(top)


@pytest.mark.parametrize("module", sorted(m for m in MODULES if m.startswith("ctxguard.")))
def test_no_module_is_named_for_nothing(module):
    assert not {"utils", "helpers", "common", "base", "misc"}.intersection(module.split("."))
