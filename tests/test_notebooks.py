"""Every notebook runs from top to bottom, offline, says nothing on standard error, and is committed without outputs."""

from __future__ import annotations

import re

import pytest
from markdown_pages import ROOT

nbformat = pytest.importorskip("nbformat", reason="notebooks: nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="notebooks: nbclient is not installed")

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NEEDED = ("langchain_core", "langchain", "pydantic_ai", "matplotlib", "cryptography")


def code_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client", "ignore::DeprecationWarning:zmq")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_from_top_to_bottom(path):
    notebook = nbformat.read(path, as_version=4)
    source = "\n".join(cell.source for cell in code_of(notebook))
    for module in NEEDED:
        if re.search(rf"^\s*(?:from|import) {module}\b", source, re.MULTILINE):
            pytest.importorskip(module, reason=f"{path.name}: {module} is not installed")
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    complaints = [
        output.text
        for cell in code_of(notebook)
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stderr"
    ]
    assert not complaints, "".join(complaints)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_committed_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not [cell.id for cell in code_of(notebook) if cell.outputs or cell.execution_count]


def test_none_is_missing():
    assert {path.stem for path in NOTEBOOKS} >= {
        "01_stabilize_a_session",
        "02_langchain_chain",
        "03_pydantic_ai_agent",
        "04_pii",
        "05_choose_a_policy",
        "example_context_result",
        "example_history_compaction",
        "example_prompts",
    }
