"""`bort evaluate`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro


def evaluate(
    runs: tuple[Path, ...],
    /,
    methods: Annotated[tuple[str, ...], tyro.conf.arg(aliases=("--method",))] = ("all",),
    images: int = 50,
    steps: int = 28,
    substrates: tuple[Literal["zero", "mean", "blur"], Literal["zero", "mean", "blur"]] = ("zero", "zero"),
    k: int | None = None,
    threshold: float | None = None,
    masks: int | None = None,
    seed: int | None = None,
    device: str = "cpu",
    out: Path | None = None,
    data_root: Path | None = None,
) -> None:
    """Measure saliency methods by deletion and insertion, for one run or several beside each other.

    Args:
        runs: folders of runs on the same data.
        methods: some of `bort.explain.names()`, or all.
        images: how many of the test images, the same for all runs.
        steps: of deletion and insertion.
        substrates: what deletion goes to, and what insertion starts from.
        k: for SAT: how many channels.
        threshold: for SAT: γ, a part of each signal's maximum.
        masks: for RISE: how many.
        seed: for RISE: of the masks.
        device: cpu, cuda, …
        out: the folder to write; evaluated/ in the (first) run by default.
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
    """
    given = {"k": k, "threshold": threshold, "masks": masks, "seed": seed}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        if not runs:
            raise ValueError("name the folder of a run")
        _evaluate(runs, methods, images, steps, substrates, given, device, out or runs[0] / "evaluated", data_root)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(f"bort evaluate: {error}")


def _evaluate(
    folders: tuple[Path, ...],
    asked: tuple[str, ...],
    count: int,
    steps: int,
    substrates: Any,
    given: dict[str, Any],
    device: str,
    out: Path,
    root: Path | None,
) -> None:
    from bort import measure, train
    from bort._table import table
    from bort.cli._output import Written
    from bort.cli._progress import working
    from bort.cli.explain import chosen_methods, options_for
    from bort.measure._deletion import SCORES
    from bort.report._curves import curves as draw_curves
    from bort.pictures import npy
    from bort.pictures import to_png
    from bort.report._subject import names
    from bort.train._examples import examples

    methods = chosen_methods(asked)
    options = options_for(methods, given)
    runs = {name: train.load(folder) for name, folder in names(list(folders)).items()}
    sets = {run.recipe.data.name for run in runs.values()}
    if len(sets) > 1:
        raise ValueError(f"the runs are on different data ({', '.join(sorted(sets))}): evaluate them apart")
    with Written(out) as written:
        found, rows, facts = {}, [], []
        for name, run in runs.items():
            x = examples(run.recipe, count, root)[0]
            with working() as progress:
                found[name] = measure.evaluate(
                    run.model.to(device),
                    x.to(device),
                    methods,
                    steps=steps,
                    substrates=substrates,
                    options=options,
                    progress=progress,
                )
            for method, each in found[name].items():
                prefix = f"{name}-{method}" if len(runs) > 1 else method
                written.add(f"{prefix}-maps.npy", npy(each.maps))
                areas = {score: each.scores[score].means for score in SCORES}
                for score in SCORES:
                    curves = each.scores[score]
                    written.add(f"{prefix}-{score}-deletion.npy", npy(curves.deletion_curves))
                    written.add(f"{prefix}-{score}-insertion.npy", npy(curves.insertion_curves))
                cells = (f"{areas[score][which]:.3f}" for score in SCORES for which in (0, 1))
                rows.append((method, name, *cells, f"{each.seconds:.1f}"))
                facts.append({"run": name, "method": method, "areas": areas, "seconds": each.seconds})
        written.add("curves.png", to_png(draw_curves(found)))
        order = {method: number for number, method in enumerate(methods)}
        rows.sort(key=lambda row: order[row[0]])
        short = {"probability": "prob.", "logit": "logit", "relative": "relative"}
        header = ("method", "run", *(f"{short[score]} {end}" for score in SCORES for end in ("del ↓", "ins ↑")), "s")
        print(table(header, rows, right=tuple(range(2, len(header)))))
        manifest = written.close(
            next(iter(runs.values())).recipe.seed,
            command="bort evaluate",
            runs={name: str(run.path) for name, run in runs.items()},
            images=len(x),
            steps=steps,
            substrates=list(substrates),
            options=options,
            results=facts,
        )
        print(f"{len(x)} images; {len(written.files)} files, listed in {manifest}")
