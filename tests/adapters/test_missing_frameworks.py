"""An adapter whose framework is missing says which extra brings it; those of plain lists need nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ctxguard.settings import install_command

BLOCK = "import sys; sys.modules.update(dict.fromkeys({blocked!r})); import {module}"


def imported(module, *blocked):
    code = BLOCK.format(blocked=blocked, module=module)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("ctxguard_pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("ctxguard_langchain", "langchain_core", "langchain"),
        ("ctxguard_langchain.middleware", "langchain", "langchain"),
        ("ctxguard_openai_agents", "agents", "openai-agents"),
        ("ctxguard_adk", "google.adk", "adk"),
        ("ctxguard_crewai.guard", "crewai", "crewai"),
        ("ctxguard_strands.guard", "strands", "strands"),
    ],
)
def test_a_missing_framework_names_the_extra(module, missing, extra):
    if module.endswith("middleware"):
        pytest.importorskip("langchain_core", reason="LangChain is not installed (extra langchain)")
    done = imported(module, missing)
    assert done.returncode == 1
    assert install_command(extra) in done.stderr


@pytest.mark.parametrize("module", ["ctxguard_openai", "ctxguard_anthropic", "ctxguard_strands", "ctxguard_crewai"])
def test_plain_lists_need_no_package(module):
    done = imported(module, "openai", "anthropic", "pydantic_ai", "langchain_core", "strands", "crewai")
    assert done.returncode == 0, done.stderr
