"""The code blocks of the documents, and the shims by which the page on them runs them."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
from recordings import DOCUMENTS

PAGE = Path(__file__).parents[2] / "docs" / "spec.md"


def code_blocks(number: str) -> list[str]:
    """Return the Python blocks of a document as they are written; skip the test where there are no documents."""
    found = list(DOCUMENTS.glob(f"{number}_*.md"))
    if not found:
        pytest.skip("the documents (../shared/spec) are not on this machine")
    return re.findall(r"^```python\n(.*?)^```", found[0].read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def shimmed(number: str) -> dict[str, object]:
    """Return a namespace in which the page's shim for a document has run."""
    shim = re.search(rf"```python\n(# The shim of {number}.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    space: dict[str, object] = {}
    exec(shim, space)
    return space


async def run_block(block: str, space: dict[str, object]) -> None:
    """Run a block that may await; the names that it binds are in the namespace afterwards."""
    code = compile(block, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, space)
    if inspect.iscoroutine(result):
        await result
