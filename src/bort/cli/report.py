"""`bort report` and `bort figures`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro

from bort._sample_sizes import SampleSizes


def report(
    runs: tuple[Path, ...],
    /,
    out: Path = Path("report.html"),
    amount: Annotated[SampleSizes, tyro.conf.arg(name="")] = SampleSizes(),  # noqa: B008
    device: str = "cpu",
    data_root: Path | None = None,
) -> None:
    """Make one self-contained page about runs, beside each other, and the same figures as PNG and SVG.

    Args:
        runs: folders of runs on the same data.
        out: the page; its figures go into a folder beside it.
        amount: how much is looked at.
        device: cpu, cuda, …
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
    """
    from bort.cli._progress import working
    from bort.report import make, subjects

    try:
        if out.is_dir():
            raise ValueError(f"{out} is a folder; name the page, such as {out / 'report.html'}")
        with working() as say:
            made = make(subjects(list(runs), amount, device, data_root), say)
            files = made.write(out)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(f"bort report: {error}")
    for name, why in made.missing.items():
        print(f"{name} is left out: {why}")
    print(f"{out}, {out.stat().st_size / 2**20:.1f} MB, and {len(files) - 1} files in {files[-1].parent}")


def figures(
    names: tuple[str, ...],
    /,
    runs: tuple[Path, ...] = (),
    out: Path = Path("figures"),
    amount: Annotated[SampleSizes, tyro.conf.arg(name="")] = SampleSizes(),  # noqa: B008
    device: str = "cpu",
    data_root: Path | None = None,
) -> None:
    """Make figures of the paper again, from runs, as PNG and SVG.

    Args:
        names: training, gram, sigma, ratio, reconstruction, saliency, deletion, features, clusters, adversaries, the
            paper's own names such as fig:2_1_recon, or all.
        runs: folders of runs on the same data.
        out: the folder to write.
        amount: how much is looked at.
        device: cpu, cuda, …
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
    """
    from bort._files import write_atomically
    from bort.cli._progress import working
    from bort.report import FIGURES, Missing, draw, resolve, subjects
    from bort.pictures import to_png, to_svg

    try:
        if not names:
            raise ValueError(f"name a figure: all, {', '.join(FIGURES)}")
        wanted = list(FIGURES) if names == ("all",) else [resolve(name) for name in names]
        found = subjects(list(runs), amount, device, data_root)
        out.mkdir(parents=True, exist_ok=True)
        for name in wanted:
            with working() as say:
                try:
                    each = draw(name, found, say)
                except Missing as reason:
                    print(f"{name} is left out: {reason}")
                    continue
            write_atomically(out / f"{name}.png", to_png(each.figure))
            write_atomically(out / f"{name}.svg", to_svg(each.figure))
            print(f"{out / name}.png and .svg ({each.paper}): {each.look}")
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(f"bort figures: {error}")
