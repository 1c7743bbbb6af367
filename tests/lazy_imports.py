"""Contract types for `lint-imports` that follow a name through a package whose stub says where it is.

Such a package loads its names when they are first used, so its own imports name none of their modules, and a contract
would see nothing behind it. Here each import of a name counts as an import of the module that the stub gives it.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract

ROOT = Path(__file__).resolve().parents[1]
NAMED = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)


@cache
def homes():
    """Return the module of each name, by the package that lists it in its stub."""
    stubs = [path for top in ("ctxguard", "adapters") for path in (ROOT / top).rglob("__init__.pyi")]
    return {module_of(path): {name: home for home, name in NAMED.findall(path.read_text("utf-8"))} for path in stubs}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("adapters", "__init__"))


@cache
def lazy_imports():
    """Return the pairs of modules of which the first imports a name of the second through a package."""
    pairs = set()
    for path in (path for top in ("ctxguard", "adapters") for path in (ROOT / top).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in homes():
                names = (homes()[node.module].get(each.name) for each in node.names)
                pairs |= {(module_of(path), home) for home in names if home}
    return pairs


class _Followed:
    def check(self, graph, verbose):
        for importer, imported in lazy_imports():
            if {importer, imported} <= graph.modules and importer != imported:
                graph.add_import(importer=importer, imported=imported)
        return super().check(graph, verbose)


class Forbidden(_Followed, ForbiddenContract):
    """A forbidden import, also through a package."""


class Independence(_Followed, IndependenceContract):
    """Modules that do not know each other, also not through a package."""


class Layers(_Followed, LayersContract):
    """Modules of which none looks up, also not through a package."""
