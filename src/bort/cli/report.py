"""`bort report` and `bort figures`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from bort._sample_sizes import SampleSizes
from bort.cli._errors import exit_on_error
from bort.cli._subject_options import SubjectOptions


def report(
    runs: tuple[str, ...],
    /,
    out: Path = Path("report.html"),
    sizes: Annotated[SampleSizes, tyro.conf.arg(name="")] = SampleSizes(),  # noqa: B008
    device: str = "cpu",
    data_root: Path | None = None,
    explorer: str | None = None,
    look: Annotated[SubjectOptions, tyro.conf.arg(name="")] = SubjectOptions(),  # noqa: B008
) -> None:
    """Make one self-contained page about runs, beside each other, and the same figures as PNG and SVG.

    Args:
        runs: folders of runs on the same data; or networks such as timm/resnet50, hf:FOLDER or package.module:function, which
            returns a model. Without --images only their weights are shown.
        out: the page; its figures go into a folder beside it.
        sizes: how much is looked at.
        device: cpu, cuda, …
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
        explorer: the address of `bort serve` with the same runs, such as http://localhost:8765, that figures link to.
        look: what a network without a run does not say of itself.
    """
    with exit_on_error("report"):
        from bort.cli._progress import progress_bar
        from bort.report import make
        from bort.subject import resolve_all

        if out.is_dir():
            raise ValueError(f"{out} is a folder; name the page, such as {out / 'report.html'}")
        with progress_bar() as say:
            subjects = resolve_all(runs, look.details(runs), device=device, data_root=data_root)
            page = make(subjects, sizes=sizes, say=say, explorer=explorer)
            files = page.write(out)
    for name, why in page.missing.items():
        print(f"{name} is left out: {why}")
    print(f"{out}, {out.stat().st_size / 2**20:.1f} MB, and {len(files) - 1} files in {files[-1].parent}")


def figures(
    names: tuple[str, ...],
    /,
    runs: tuple[str, ...] = (),
    out: Path = Path("figures"),
    sizes: Annotated[SampleSizes, tyro.conf.arg(name="")] = SampleSizes(),  # noqa: B008
    device: str = "cpu",
    data_root: Path | None = None,
    look: Annotated[SubjectOptions, tyro.conf.arg(name="")] = SubjectOptions(),  # noqa: B008
) -> None:
    """Make figures of the paper again, from runs, as PNG and SVG.

    Args:
        names: of figures, the paper's own such as "figure 4" or fig:2_1_recon, or all; `bort figures` alone lists them.
        runs: folders of runs on the same data, or networks as `bort report` takes them.
        out: the folder to write.
        sizes: how much is looked at.
        device: cpu, cuda, …
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
        look: what a network without a run does not say of itself.
    """
    with exit_on_error("figures"):
        from bort._files import write_atomically
        from bort.cli._progress import progress_bar
        from bort.pictures import to_png, to_svg
        from bort.report import FIGURES, Missing, draw, measured, resolve
        from bort.subject import resolve_all

        if not names:
            raise ValueError(f"name a figure: all, {', '.join(FIGURES)}")
        every = [name for name, kind in FIGURES.items() if kind.fewest <= len(runs)]
        chosen = every if names == ("all",) else [resolve(name) for name in names]
        subjects = measured(resolve_all(runs, look.details(runs), device=device, data_root=data_root), sizes)
        out.mkdir(parents=True, exist_ok=True)
        for name in chosen:
            with progress_bar() as say:
                try:
                    illustration = draw(name, subjects, say=say)
                except Missing as reason:
                    print(f"{name} is left out: {reason}")
                    continue
            write_atomically(out / f"{name}.png", to_png(illustration.figure))
            write_atomically(out / f"{name}.svg", to_svg(illustration.figure))
            print(f"{out / name}.png and .svg ({illustration.paper}): {illustration.look}")
