"""The programs of the README, CONTRIBUTING and every page pass `mypy --strict` and pyright, as a reader would run them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
from markdown_pages import ROOT, blocks_of

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
BEGIN_ANEW = "# mypy: allow-redefinition\n"
"""The blocks of a page follow each other. Said in the programs, since an option for all of them voids mypy's cache."""
NEEDED = (
    "agents",
    "boto3",
    "deepagents",
    "fastapi",
    "google.genai",
    "langchain",
    "langchain_openai",
    "openai",
    "pydantic_ai",
    "strands",
)

APART = ("crewai", "google.adk")
"""Frameworks that have an environment of their own; without them, their pages are not checked."""


def programs_of(page):
    """Return the programs of a page: all of its blocks are one, but for those of the README, which are alternatives."""
    blocks = [block.text for block in blocks_of(page) if block.language == "python"]
    return blocks if page.name == "README.md" else ["\n\n".join(blocks)] if blocks else []


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Write the programs into files."""
    for module in NEEDED:
        pytest.importorskip(module, reason=f"{module} is not installed")
    folder = tmp_path_factory.mktemp("programs")
    for page in PAGES:
        for number, program in enumerate(programs_of(page)):
            if any(f"from {module}" in program and find_spec(module) is None for module in APART):
                continue
            (folder / f"page_{page.stem.lower()}_{number}.py").write_text(BEGIN_ANEW + program, encoding="utf-8")
    assert len(list(folder.iterdir())) > len(PAGES) / 2
    return folder


def run(*command):
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)


def test_mypy(programs):
    pytest.importorskip("mypy", reason="mypy is not installed")
    done = run("mypy", "--config-file", str(ROOT / "pyproject.toml"), *map(str, sorted(programs.glob("*.py"))))
    assert done.returncode == 0, done.stdout


def test_pyright(programs):
    pytest.importorskip("basedpyright", reason="basedpyright is not installed")
    settings = {
        "include": [str(programs)],
        "extraPaths": [str(ROOT), str(ROOT / "adapters")],
        "typeCheckingMode": "standard",
        "reportPossiblyUnboundVariable": "none",  # loops of the pages run at least once
    }
    config = programs / "pyrightconfig.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    done = run("basedpyright", "--project", str(config), "--pythonpath", sys.executable, "--level", "error")
    assert done.returncode == 0, done.stdout
