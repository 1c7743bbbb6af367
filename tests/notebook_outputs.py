"""Run the notebooks, and write their outputs into them: `make outputs`. Recordings are hidden from them."""

from __future__ import annotations

import os
import sys

import nbclient
import nbformat
from patience import PATIENCE
from test_notebooks import ROOT, SHOWN, WHERE_RECORDINGS_ARE, code_of

KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def joined(outputs):
    """Return outputs with what was printed in several pieces joined, since the pieces differ from run to run."""
    made = []
    for output in outputs:
        if made and output.output_type == "stream" and made[-1].get("name") == output.name:
            made[-1].text += output.text
        else:
            made.append(output)
    return made


def main():
    os.environ[WHERE_RECORDINGS_ARE] = ""
    for name in sys.argv[1:] or SHOWN:
        path = ROOT / "notebooks" / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        resources = {"metadata": {"path": str(path.parent)}}
        nbclient.NotebookClient(notebook, timeout=PATIENCE, resources=resources).execute()
        for cell in code_of(notebook):
            cell.metadata.pop("execution", None)  # when it ran
            cell.outputs = joined(cell.outputs)
        notebook.metadata = KERNEL  # no version of this machine
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
