"""Each number that decides something in the default chain has a row, with its value, in the record of constants."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ctxguard import Stabilizer

ROOT = Path(__file__).resolve().parents[2]
STAGES = ROOT / "ctxguard" / "stages"
COUNTING = ROOT / "ctxguard" / "tokens" / "artifact_counter.py"
RECORD = ROOT / "docs" / "decisions" / "0007_constants.md"
_ROW = re.compile(r"^\| `([a-z_]+)\.([A-Za-z_]+)` \| ([^|]+) \| (.+) \|$", re.MULTILINE)
EMPTY = {"", "–", "?"}


def modules_of_the_default_chain():
    """Return the names of the modules in `stages` that the default chain's stages are made of."""
    waiting = {type(stage).__module__.rpartition(".")[2] for stage in Stabilizer(4_000).stages}
    found = set()
    while waiting:
        name = waiting.pop()
        path = STAGES / f"{name}.py"
        if name in found or not path.exists():
            continue
        found.add(name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ctxguard.stages."):
                waiting.add(node.module.rpartition(".")[2])
    return found


def numbers_in(name):
    """Return the module-level constants of a module that hold a number, with the source of their values."""
    found = {}
    path = COUNTING if name == COUNTING.stem else STAGES / f"{name}.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.expr) and _is_numeric(value):
            found[target.id] = ast.unparse(value)
    return found


def _is_numeric(value):
    """Tell whether an expression is a number, or a tuple of numbers, or a table of numbers by name."""
    if isinstance(value, ast.Call):  # MappingProxyType({...})
        return isinstance(value.func, ast.Name) and value.func.id == "MappingProxyType" and _is_numeric(value.args[0])
    if isinstance(value, ast.Dict):
        return all(isinstance(key, ast.Constant) for key in value.keys) and all(map(_is_numeric, value.values))
    if isinstance(value, (ast.Tuple, ast.List)):
        return bool(value.elts) and all(map(_is_numeric, value.elts))
    if isinstance(value, (ast.BinOp, ast.UnaryOp)):
        return all(map(_is_numeric, (n for n in ast.iter_child_nodes(value) if isinstance(n, ast.expr))))
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def constants():
    names = modules_of_the_default_chain() | {COUNTING.stem}
    return {(name, each): value for name in names for each, value in numbers_in(name).items()}


def rows():
    return {
        (m[1], m[2]): (m[3].strip(" `"), m[4].split(" | ")) for m in _ROW.finditer(RECORD.read_text(encoding="utf-8"))
    }


def test_the_stages_of_the_default_chain_are_looked_at():
    found = modules_of_the_default_chain()
    assert {"stable_window", "bound_tool_output", "mask_pii"} <= found
    assert numbers_in("bound_tool_output")


def test_each_constant_has_a_row_with_its_value():
    known, real = rows(), constants()
    missing = [f"| `{m}.{n}` | `{v}` | … |" for (m, n), v in sorted(real.items()) if (m, n) not in known]
    assert not missing, f"{RECORD.name} needs these rows:\n" + "\n".join(missing)
    changed = {key: (known[key][0], value) for key, value in real.items() if known[key][0] != value.replace("|", "/")}
    assert not changed, "the record says another value than the code"


def test_no_row_is_of_a_constant_that_is_gone():
    real = constants()
    gone = [f"{module}.{name}" for module, name in rows() if (module, name) not in real]
    assert gone == []


def test_each_row_says_what_the_constant_decides_and_how_it_was_chosen():
    bare = [
        f"{module}.{name}"
        for (module, name), (_, cells) in rows().items()
        if EMPTY & {cell.strip() for cell in cells[:2]}
    ]
    assert bare == []
