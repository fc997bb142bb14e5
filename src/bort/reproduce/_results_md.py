"""RESULTS.md and its charts, made from results/*/*.json: every number in it has a file, and so a command and a commit."""

from __future__ import annotations

from pathlib import Path

from bort._files import write_atomically
from bort.pictures import to_png
from bort.reproduce._registry import TABLES, get
from bort.reproduce._result import Result

_HEAD = """# Results

Made by `bort results` out of the files beside it; do not edit. Each file has the command, commit, versions, hardware, seed
and data hash of its figures. *n* is the number of seeds, ± their standard deviation. Runs that failed stay in the tables.
*residual* is the root mean square of σ² − 1 over a layer's singular values σ, in its worst layer: 0 on the constraint.
"""


def results(folder: Path) -> str:
    """The text of RESULTS.md: a section for each table that has results in the folder."""
    by_table = {name: Result.read(folder / name) for name in TABLES}
    sections = []
    for name, own in by_table.items():
        if own:
            table = get(name)
            others = [result for other in table.also_reads for result in by_table[other]]
            sections.append(table.section([*own, *others]))
    return "\n".join([_HEAD, *(sections or ["There are no results yet: `bort reproduce table1`.\n"])])


def charts(folder: Path) -> list[Path]:
    """Draw the charts that RESULTS.md shows as PNG files beside the results, and return the files."""
    files = []
    for name in TABLES:
        drawings = get(name).charts
        finished = [result for result in Result.read(folder / name) if not result.failed] if drawings else []
        for title, draw in drawings.items():
            figure = draw(finished) if finished else None
            if figure is not None:
                files.append(folder / name / f"{title}.png")
                write_atomically(files[-1], to_png(figure))
    return files
