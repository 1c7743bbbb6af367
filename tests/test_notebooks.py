"""Every notebook runs from top to bottom, offline, and says nothing on standard error.

Those for one kind of user each are committed with their outputs, since a picture is at their end; the others are not.
Some read recordings, from the folder that CTXGUARD_RECORDINGS names, and all of them run without.
"""

from __future__ import annotations

import re
import warnings

import pytest
from markdown_pages import ROOT
from patience import PATIENCE

nbformat = pytest.importorskip("nbformat", reason="notebooks: nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="notebooks: nbclient is not installed")
start_new_kernel = pytest.importorskip("jupyter_client.manager", reason="notebooks: no kernel").start_new_kernel

pytestmark = pytest.mark.slow
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SHOWN = ("01_chat", "02_agent", "03_rag", "04_compliance")
NEEDED = ("langchain_core", "langchain", "pydantic_ai", "matplotlib", "cryptography")


def read_recordings(path):
    """Mark a notebook that reads recordings."""
    reads = "CTXGUARD_RECORDINGS" in path.read_text(encoding="utf-8")
    return pytest.param(path, marks=[pytest.mark.recordings] if reads else [])


def code_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def picture_in(cell):
    return any("image/png" in output.get("data", {}) for output in cell.outputs)


@pytest.fixture(scope="module")
def kernel():
    """One kernel for all: starting one, and importing the frameworks in it, takes longer than most notebooks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="jupyter_client|zmq")
        manager, client = start_new_kernel(cwd=str(ROOT / "notebooks"))
        yield manager, client
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client", "ignore::DeprecationWarning:zmq")
@pytest.mark.parametrize("path", [*map(read_recordings, NOTEBOOKS)], ids=lambda path: path.stem)
def test_it_runs_from_top_to_bottom(path, kernel):
    notebook = nbformat.read(path, as_version=4)
    source = "\n".join(cell.source for cell in code_of(notebook))
    for module in NEEDED:
        if re.search(rf"^\s*(?:from|import) {module}\b", source, re.MULTILINE):
            pytest.importorskip(module, reason=f"{path.name}: {module} is not installed")
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))  # no name of another notebook is left
    manager, client = kernel
    runner = nbclient.NotebookClient(notebook, km=manager, timeout=PATIENCE)
    runner.kc = client
    runner.execute()
    complaints = [
        output.text
        for cell in code_of(notebook)
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stderr"
    ]
    assert not complaints, "".join(complaints)
    assert picture_in(notebook.cells[-1]), "it ends with a picture"


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_committed_with_what_it_shows_and_ends_with_a_picture(name):
    path = ROOT / "notebooks" / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_of(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert notebook.cells[-1] is cells[-1]
    assert picture_in(cells[-1])
    assert path.stat().st_size < 100_000
    shown = nbformat.writes(notebook)
    assert not [word for word in (str(ROOT), "/home/", "/tmp/", "Traceback", "Warning") if word in shown]


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem not in SHOWN], ids=lambda path: path.stem)
def test_it_is_committed_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not [cell.id for cell in code_of(notebook) if cell.outputs or cell.execution_count]


def test_none_is_missing():
    assert {path.stem for path in NOTEBOOKS} >= {
        *SHOWN,
        "05_choose_a_policy",
        "example_context_result",
        "example_history_compaction",
        "example_prompts",
    }
