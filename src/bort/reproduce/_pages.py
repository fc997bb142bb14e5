"""RESULTS.md, a page for each table, and charts, made from results/*/*.json: every number has a file, and so a command and a
commit."""

from __future__ import annotations

from pathlib import Path

from bort._files import write_atomically
from bort.pictures import to_png
from bort.reproduce._registry import TABLES, get
from bort.reproduce._result import Result

_HEAD = """# Results

Made by `bort results` out of the files beside it; do not edit. The page behind each title has all rows, and links to their
files: command, commit, versions, hardware, seed and data hash. *n* is the number of seeds, ± their standard deviation; a
difference is paired by seed, with its 95% interval in brackets; it is *not decided* where that contains 0. Runs that failed
stay in the tables. What the figures say about the paper, and about when to use Bort:
[what held, what did not](../docs/reproduction.md).
"""
_PAGE_HEAD = """[All results](RESULTS.md). Made by `bort results`; do not edit. *n* is the number of seeds, ± their standard
deviation. *residual* is the root mean square of σ² − 1 (σ² − s with a target of s·I) over a layer's singular values σ, in the
worst layer that is constrained, or for a baseline, which constrains none, in the worst of all layers: 0 on the constraint.
"""


def pages(folder: Path) -> dict[str, str]:
    """RESULTS.md, with a summary of each table that has results in the folder, and the page of each; by their names.

    Example:
        >>> from pathlib import Path
        >>> list(reproduce.pages(Path("results")))  # there are no results yet
        ['RESULTS.md']
    """
    by_table = {name: Result.read(folder / name) for name in TABLES}
    parts, texts = [_HEAD], {}
    for name, own in by_table.items():
        if own:
            table = get(name)
            results = [*own, *(result for other in table.also_reads for result in by_table[other])]
            parts.append(f"## [{table.title}]({name}.md)\n\n{table.summary(results)}")
            texts[f"{name}.md"] = f"# {table.title}\n\n{_PAGE_HEAD}\n{table.section(results)}"
    if not texts:
        parts.append("There are no results yet: `bort reproduce table1`.\n")
    return {"RESULTS.md": "\n".join(parts)} | texts


def charts(folder: Path) -> list[Path]:
    """Draw the charts that the pages show as PNG files beside the results, and return the files.

    Example:
        >>> from pathlib import Path
        >>> reproduce.charts(Path("results"))  # there are no results yet
        []
    """
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
