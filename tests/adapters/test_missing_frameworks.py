"""An adapter whose framework is missing says which extra brings it; those of plain lists need nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCK = "import sys; sys.modules.update(dict.fromkeys({blocked!r})); import {module}"


def imported(module, *blocked):
    code = BLOCK.format(blocked=blocked, module=module)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_pydantic_ai_names_its_extra():
    done = imported("ctxguard_pydantic_ai", "pydantic_ai")
    assert done.returncode == 1
    assert "pip install 'ctxguard-stabilizer[pydantic-ai]'" in done.stderr


@pytest.mark.parametrize("module", ["ctxguard_openai", "ctxguard_anthropic"])
def test_plain_lists_need_no_package(module):
    done = imported(module, "openai", "anthropic", "pydantic_ai", "langchain_core")
    assert done.returncode == 0, done.stderr
