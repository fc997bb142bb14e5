"""The example notebook: what is committed is complete and clean, and it runs."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

FILE = Path(__file__).parents[2] / "examples" / "look-inside.ipynb"

IMAGES = {"data": 1, "reconstruct": 3, "maps": 4}
"""Cells that show digits, and how many pictures of each digit."""
FIGURES = {"deletion", "own-map", "figure"}
TABLES = {"groups", "audit-sgd", "audit-bort", "deletion"}


def code_cells(notebook: NotebookNode) -> dict[str, NotebookNode]:
    return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}


def html(cell: NotebookNode) -> str:
    return "".join(output.data.get("text/html", "") for output in cell.outputs if "data" in output)


def text(cell: NotebookNode) -> str:
    """What it printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def assert_shown(notebook: NotebookNode, digits: int) -> None:
    """The pictures, figures, tables and sentences that the text of the notebook speaks of; no error and no warning."""
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells.values()] == list(range(1, len(cells) + 1))
    for name, cell in cells.items():
        page = html(cell)
        assert page.count('src="data:image/png') == digits * IMAGES.get(name, 0), name
        assert page.count('src="data:image/svg+xml') == (name in FIGURES), name
        assert page.count("<thead>") == (name in TABLES), name
        assert all(output.output_type != "error" and output.get("name") != "stderr" for output in cell.outputs), name
    assert re.findall(r"^(\w+): \d+\.\d% of the test digits$", text(cells["train"]), re.MULTILINE) == ["SGD", "BortS"]
    assert text(cells["report"]).startswith("<report of ")
    assert re.fullmatch(r"<explorer at http://\S+/>\n", text(cells["explore"]))
    assert not cells["close"].outputs


def test_the_committed_outputs_are_there():
    assert_shown(nbformat.read(FILE, as_version=4), digits=8)


def columns(line: str) -> list[str]:
    """The cells of a line of a printed table."""
    return re.split(r" {2,}", line.strip())


def test_the_guide_quotes_its_audits():
    cells = code_cells(nbformat.read(FILE, as_version=4))
    audits = [cells[name].outputs[-1].data["text/plain"].splitlines() for name in ("audit-sgd", "audit-bort")]
    header = columns(audits[0][0])
    rows = [dict(zip(header, columns(line), strict=True)) for lines in audits for line in lines[2:]]
    page = (FILE.parents[1] / "docs" / "read-an-audit.md").read_text()
    quoted = [columns(line) for line in page.splitlines() if ".weight  " in line]
    shown = ("layer", "matrix", "invertible", "σ", "residual", "ratio", "floor")
    assert quoted == [[row[name] for name in shown] for row in rows]


def test_the_file_has_no_noise():
    notebook = nbformat.read(FILE, as_version=4)
    nbformat.validate(notebook)
    assert FILE.stat().st_size < 600_000
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.language_info == {"name": "python"}
    assert [cell.id for cell in notebook.cells if cell.metadata] == ["parameters"], "tags, and no times of execution"
    words = re.sub(r"data:image/[^\"\\]*", "", FILE.read_text())
    assert not re.search(r"/(tmp|home|root|Users)/|site-packages", words), "a path of somebody's machine"
    assert "<iframe" not in words, "frames are dead when the kernel has gone"


@pytest.mark.slow
def test_it_runs(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the kernel's threads would wait for those of the tests beside it
    from tests.examples.notebook import executed

    assert_shown(executed(EPOCHS=1, SHOWN=2, MEASURED=12), digits=2)
