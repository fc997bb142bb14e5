"""The example notebook, executed: `make notebook` writes the outputs into the file, the test looks at fresh ones."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FILE = Path(__file__).parents[2] / "examples" / "look-inside.ipynb"


def executed(**parameters: int) -> nbformat.NotebookNode:
    """The notebook with fresh outputs; a cell that fails raises. ``parameters`` replace numbers in the cell with that tag."""
    notebook = nbformat.read(FILE, as_version=4)
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    for name, value in parameters.items():
        cell.source, count = re.subn(rf"^{name} = \d+", f"{name} = {value}", cell.source, flags=re.MULTILINE)
        assert count == 1, f"the notebook has no parameter {name}"
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(FILE.parent)}},
    )
    # tqdm, which captum imports, would advise to install widgets.
    client.execute(env=os.environ | {"PYTHONWARNINGS": "ignore:IProgress not found"})
    notebook.metadata["language_info"] = {"name": "python"}  # without the version of whoever executed it
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(), FILE)
