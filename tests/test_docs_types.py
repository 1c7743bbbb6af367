"""The README's and the how-to pages' programs pass `mypy --strict`, as a reader's own type checker would run it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from markdown_pages import ROOT, blocks_of

UNTYPED = ("budget", "content", "patterns", "recipe_chat", "replay", "strategies")
"""Pages whose programs are not typed: sketches without their beginning, and frameworks without types."""
PAGES = [
    "README.md",
    *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")) if page.stem not in UNTYPED),
]
"""Pages whose programs are typed as a whole."""
NEEDED = (
    "mypy",
    "agents",
    "boto3",
    "deepagents",
    "google.genai",
    "langchain",
    "langchain_openai",
    "openai",
    "pydantic_ai",
)


def programs_of(page):
    """Return the programs of a page: a block that imports the stabilizer begins one, the others go on with it."""
    programs = []
    for block in blocks_of(page):
        if block.language == "python":
            if not programs or "from ctxguard import Stabilizer" in block.text:
                programs.append("")
            programs[-1] += block.text + "\n\n"
    return programs


def test_programs_of_the_pages_are_typed(tmp_path):
    for module in NEEDED:
        pytest.importorskip(module, reason=f"{module} is not installed")
    files = []
    for page in PAGES:
        for number, program in enumerate(programs_of(ROOT / page)):
            files.append(tmp_path / f"page_{page.lower().replace('/', '_').removesuffix('.md')}_{number}.py")
            files[-1].write_text(program, encoding="utf-8")
    assert len(files) > len(PAGES) / 2
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        *map(str, files),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
