"""The names are there, importing is cheap, and nothing loads what it does not need."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points, requires
from importlib.util import find_spec
from pathlib import Path

import pytest

import ctxguard
import ctxguard.errors as errors

HEAVY = (
    "pydantic",
    "pydantic_ai",
    "langchain",
    "langchain_core",
    "langgraph",
    "openai",
    "anthropic",
    "agents",
    "tiktoken",
    "toktok",
    "rich",
    "typer",
    "yaml",
    "sqlalchemy",
    "markitdown",
    "PIL",
    "stdnum",
    "phonenumbers",
    "asyncio",
)


def loaded_by(statement):
    script = f"{statement}; import sys; print(*sorted(m for m in {HEAVY!r} if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_importing_ctxguard_loads_no_framework_and_nothing_heavy():
    assert loaded_by("import ctxguard") == []


def test_importing_ctxguard_loads_little_of_the_standard_library():
    root = str(Path(ctxguard.__file__).parents[1])
    script = f"import sys; sys.path.insert(0, {root!r}); import ctxguard; print(*sys.modules)"
    # without `site`, which may have loaded anything
    run = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True)
    assert not {"dataclasses", "enum", "inspect", "pathlib", "re", "typing"} & {*run.stdout.split()}


def test_importing_the_core_loads_no_framework():
    frameworks = {
        "pydantic_ai",
        "langchain",
        "langchain_core",
        "langgraph",
        "openai",
        "anthropic",
        "agents",
        "tiktoken",
    }
    assert not frameworks & set(
        loaded_by("from ctxguard import Artifact, Stabilizer, stabilize_context, mask_pii; Stabilizer(9)")
    )


def test_every_public_name_is_there_and_listed():
    for name in ctxguard.__all__:
        assert getattr(ctxguard, name) is not None
    assert set(ctxguard.__all__) <= set(dir(ctxguard))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ctxguard.nothing  # noqa: B018


def test_all_of_each_module_is_the_truth():
    package = Path(ctxguard.__file__).parent
    for path in sorted(package.rglob("*.py")):
        name = ".".join(("ctxguard", *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__")
        module = import_module(name)
        for public in getattr(module, "__all__", ()):
            assert hasattr(module, public), f"{name}.__all__ lists {public}"


def stubs():
    root = Path(ctxguard.__file__).parents[1]
    found = [(root, path) for path in (root / "ctxguard").rglob("__init__.pyi")]
    found += [(root / "adapters", path) for path in (root / "adapters").rglob("__init__.pyi")]
    return {".".join(path.parent.relative_to(top).parts): path for top, path in found}


@pytest.mark.parametrize(("package", "stub"), stubs().items(), ids=stubs())
def test_a_package_gives_what_its_stub_says_and_no_module_hides_it(package, stub):
    imported = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    names = {alias.name: node.module for node in imported for alias in node.names}
    try:
        module = import_module(package)
    except ImportError as missing:
        pytest.skip(str(missing))
    assert sorted(names) == module.__all__
    for name, home in names.items():
        assert find_spec(f"{package}.{name}") is None, f"{name} is a module: Python would give that"
        if home.startswith("ctxguard."):
            assert getattr(module, name) is getattr(import_module(home), name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        module.nothing  # noqa: B018
    assert set(names) <= set(dir(module))


def test_the_error_tree_in_the_docstring_is_the_one_in_the_code():
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.CtxguardError)
        assert name in errors.__doc__


def test_adapters_are_found_by_entry_point():
    assert "openai" in {point.name for point in entry_points(group="ctxguard.adapters")}


def test_no_framework_is_a_requirement_of_the_core():
    required = [r for r in requires("ctxguard-stabilizer") if "extra ==" not in r]
    assert not [r for r in required if r.startswith(("langchain", "pydantic-ai", "openai", "anthropic", "torch"))]
