"""Run the notebooks that are committed with their outputs, and write these into them: `make outputs`."""

from __future__ import annotations

import nbclient
import nbformat
from patience import PATIENCE
from test_notebooks import ROOT, SHOWN, code_of

KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def main():
    for name in SHOWN:
        path = ROOT / "notebooks" / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        resources = {"metadata": {"path": str(path.parent)}}
        nbclient.NotebookClient(notebook, timeout=PATIENCE, resources=resources).execute()
        for cell in code_of(notebook):
            cell.metadata.pop("execution", None)  # when it ran
        notebook.metadata = KERNEL  # no version of this machine
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
