"""`bort reproduce` and `bort results`"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bort.cli._errors import exit_on_error
from bort.reproduce import TABLES

if TYPE_CHECKING:
    Table = str
else:
    Table = Annotated[
        tyro.extras.literal_type_from_choices(TABLES),
        tyro.conf.arg(help="which.\n" + "\n".join(f"{name}: {content}" for name, content in TABLES.items())),
    ]


def reproduce(
    table: Table,
    /,
    quick: bool = False,
    seeds: tuple[int, ...] = (),
    only: str = "",
    out: Path | None = None,
    runs: Path | None = None,
    device: str = "auto",
    workers: int = 2,
    compile: bool = False,
    data_root: Path | None = None,
) -> None:
    """Run what is missing of one of the paper's tables; what is half done goes on.

    Args:
        quick: the whole path in small, on the built-in digits, into results/quick (all but table2 and modern).
        seeds: instead of the table's own.
        only: rows with this in their names.
        out: the folder for the result files; results/ by default.
        runs: the folder for the trainings; runs/reproduce by default.
        device: cpu, cuda, …; auto takes a GPU if there is one.
        workers: processes that read the images of a folder.
        compile: use torch.compile in the trainings; saves time for networks of timm on a GPU.
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
    """
    with exit_on_error("reproduce"):
        from bort import train
        from bort.reproduce import reproduce as run

        folder = out or Path("results/quick" if quick else "results")
        trainings = runs or Path("runs/reproduce-quick" if quick else "runs/reproduce")
        runtime = train.Runtime(device=device, workers=workers, compile=compile, data_root=data_root)
        try:
            files = run(table, folder, trainings, runtime, quick=quick, seeds=seeds or None, only=only)
        except train.StartedDifferently as error:
            raise ValueError(
                f"{error.args[0]}. Start it as it was, or choose another folder for the trainings with --runs"
            ) from error
        except train.Interrupted as stop:
            print(stop, file=sys.stderr)
            sys.exit(train.Interrupted.EXIT_CODE)
        print(f"{len(files)} results in {folder / table}")
        _write(folder)


def results(folder: Path = Path("results"), /, check: bool = False) -> None:
    """Write RESULTS.md and the pages of its tables anew out of the result files.

    Args:
        folder: where they are.
        check: write nothing, fail if a page is not what would be written.
    """
    with exit_on_error("results", KeyError):
        from bort.reproduce import pages

        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}: `bort reproduce` makes one, or name another")
        if not check:
            _write(folder)
            return
        command = "bort results" if folder == Path("results") else f"bort results {shlex.quote(str(folder))}"
        for name, text in pages(folder).items():
            file = folder / name
            if not file.exists() or file.read_text() != text:
                raise ValueError(f"{file} is not what its result files give: run `{command}`")


def _write(folder: Path) -> None:
    """RESULTS.md, the pages of its tables, and their charts."""
    from bort._files import write_atomically
    from bort.reproduce import charts, pages

    written = []
    for name, text in pages(folder).items():
        write_atomically(folder / name, text)
        written.append(folder / name)
    try:
        written += charts(folder)
    except ImportError as error:
        print(f"charts are left as they are: {error}")
    print(", ".join(map(str, written)) + " written")
