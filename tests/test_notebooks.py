"""Every notebook runs from top to bottom, offline, says nothing on standard error, and shows what it is committed with.

Its first code cell has the tag `parameters`, as papermill knows it: the budget, and where it matters a policy and a file.
Some also read recordings, from the folder that CTXGUARD_RECORDINGS names; what is committed is what they show without.
"""

from __future__ import annotations

import os
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
SHOWN = tuple(path.stem for path in NOTEBOOKS)
WHERE_RECORDINGS_ARE = "CTXGUARD_RECORDINGS"
OTHER_BUDGETS = (0.75, 1.5)  # of the budget with which a notebook is committed
NEEDED = ("langchain_core", "langchain", "pydantic_ai", "matplotlib", "cryptography")


def code_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def picture_in(cell):
    return any("image/png" in output.get("data", {}) for output in cell.outputs)


@pytest.fixture(scope="module")
def kernel():
    """One kernel for all: starting one, and importing the frameworks in it, takes longer than most notebooks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="jupyter_client|zmq")
        environment = {**os.environ, WHERE_RECORDINGS_ARE: ""}
        manager, client = start_new_kernel(cwd=str(ROOT / "notebooks"), env=environment)
        yield manager, client
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def parameters_of(notebook):
    """Return the cell with the parameters, which papermill and the next test override."""
    (cell,) = (cell for cell in code_of(notebook) if "parameters" in cell.metadata.get("tags", ()))
    return cell


def budget_of(notebook):
    return int(re.search(r"^BUDGET = ([\d_]+)", parameters_of(notebook).source, re.MULTILINE)[1])


def run(path, kernel, budget=None):
    """Run a notebook, with another budget if one is given, and return it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    source = "\n".join(cell.source for cell in code_of(notebook))
    for module in NEEDED:
        if re.search(rf"^\s*(?:from|import) {module}\b", source, re.MULTILINE):
            pytest.importorskip(module, reason=f"{path.name}: {module} is not installed")
    if budget is not None:
        parameters_of(notebook).source += f"\nBUDGET = {budget}"
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))  # no name of another notebook is left
    manager, client = kernel
    runner = nbclient.NotebookClient(notebook, km=manager, timeout=PATIENCE)
    runner.kc = client
    runner.execute()
    del notebook.cells[0]
    said = [output.text for cell in code_of(notebook) for output in cell.outputs if output.get("name") == "stderr"]
    assert not said, "".join(said)
    assert picture_in(notebook.cells[-1]), "it ends with a picture"
    return notebook


def told(notebook):
    """Return the text that each cell shows; pictures and pages look a little different on each machine."""
    return {
        cell.id: "".join(
            output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs
        )
        for cell in code_of(notebook)
    }


ANY_KERNEL = pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client", "ignore::DeprecationWarning:zmq")


@ANY_KERNEL
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_shows_what_it_is_committed_with(path, kernel):
    pytest.importorskip("toktok", reason="toktok-rs is not installed (extra tokens), and other counts are estimates")
    pytest.importorskip("pyppmd", reason="pyppmd is not installed (extra gain)")
    assert told(run(path, kernel)) == told(nbformat.read(path, as_version=4)), "run `make outputs`"


@ANY_KERNEL
@pytest.mark.parametrize("share", OTHER_BUDGETS)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_with_another_budget(path, kernel, share):
    run(path, kernel, int(share * budget_of(nbformat.read(path, as_version=4))))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_parameters_come_first_and_it_asserts_nothing(path):
    notebook = nbformat.read(path, as_version=4)
    assert parameters_of(notebook) is code_of(notebook)[0]
    assert budget_of(notebook)
    assert not [cell.id for cell in code_of(notebook) if re.search(r"^\s*assert\b", cell.source, re.MULTILINE)]
    assert "`make notebooks`" in notebook.cells[0].source


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


def test_none_is_missing():
    assert {path.stem for path in NOTEBOOKS} >= {
        *("01_chat", "02_agent", "03_rag", "04_compliance", "05_choose_a_policy", "06_what_stays", "07_your_own_log"),
        "example_context_result",
        "example_history_compaction",
        "example_prompts",
    }
