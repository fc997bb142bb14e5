"""`bort evaluate`"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bort._defaults import DELETION_STEPS
from bort.cli._errors import exit_on_error
from bort.cli._methods import chosen_methods, given_options, options_for
from bort.cli._subject_options import SubjectOptions

if TYPE_CHECKING:
    from bort.cli._output import OutputFolder
    from bort.measure import Evaluation

Substrate = Literal["zero", "mean", "blur"]


def evaluate(
    runs: tuple[str, ...],
    /,
    methods: Annotated[tuple[str, ...], tyro.conf.arg(aliases=("--method",))] = ("all",),
    count: int = 50,
    steps: int = DELETION_STEPS,
    substrates: tuple[Substrate, Substrate] = ("zero", "zero"),
    k: int | None = None,
    threshold: float | None = None,
    masks: int | None = None,
    seed: int | None = None,
    option: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    device: str = "cpu",
    out: Path | None = None,
    data_root: Path | None = None,
    look: Annotated[SubjectOptions, tyro.conf.arg(name="")] = SubjectOptions(),  # noqa: B008
) -> None:
    """Measure saliency methods by deletion and insertion, for one run or several beside each other.

    Args:
        runs: folders of runs on the same data; or networks such as timm/resnet50, hf:FOLDER or package.module:function, with
            --images.
        methods: one or several, or all; `--methods list` lists them, other packages' included.
        count: how many of the test images, the same for all runs.
        steps: of deletion and insertion.
        substrates: what deletion goes to, and what insertion starts from.
        k: for SAT: how many channels.
        threshold: for SAT: γ, a part of each signal's maximum.
        masks: for RISE: how many.
        seed: for RISE: of the masks.
        option: any other option of a method, as NAME=VALUE; once for each.
        device: cpu, cuda, …
        out: the folder to write; evaluated/ in the (first) run by default.
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
        look: what a network without a run does not say of itself.
    """
    named = {"k": k, "threshold": threshold, "masks": masks, "seed": seed}
    with exit_on_error("evaluate"):
        from bort import measure, report
        from bort.cli._output import OutputFolder
        from bort.cli._progress import progress_bar
        from bort.pictures import to_png
        from bort.subject import resolve_all

        chosen = chosen_methods(methods)
        options = options_for(chosen, given_options(named, option))
        subjects = resolve_all(runs, look.details(runs), device=device, data_root=data_root)
        default = Path(runs[0]) / "evaluated" if Path(runs[0]).is_dir() else Path("evaluated")
        with OutputFolder(out or default) as output:
            evaluations, results = {}, []
            for subject in subjects:
                x = subject.test_images(count)[0]
                with progress_bar() as say:
                    evaluations[subject.name] = measure.evaluate(
                        *(subject.model, x, chosen),
                        steps=steps,
                        substrates=substrates,
                        options=options,
                        multi_label=subject.multi_label,
                        progress=say,
                        warn=False,  # the notes are printed below
                    )
                for method, evaluation in evaluations[subject.name].items():
                    prefix = f"{subject.name}-{method}" if len(subjects) > 1 else method
                    _add_arrays(output, prefix, evaluation)
                    results.append({"run": subject.name, "method": method} | _areas(evaluation))
            output.add("curves.png", to_png(report.curves(evaluations)))
            _print_table(chosen, results)
            notes = {subject.name: measure.notes(evaluations[subject.name]) for subject in subjects}
            for name, sentences in notes.items():
                for sentence in sentences:
                    print(f"{name}: {sentence}")
            manifest = output.close(
                subjects[0],
                command="bort evaluate",
                runs={subject.name: run for subject, run in zip(subjects, runs, strict=True)},
                images=len(x),
                steps=steps,
                substrates=list(substrates),
                options=options,
                results=results,
                notes=notes,
            )
            print(f"{len(x)} images; {len(output.files)} files, listed in {manifest}")


def _add_arrays(output: OutputFolder, prefix: str, evaluation: Evaluation) -> None:
    from bort.pictures import npy

    output.add(f"{prefix}-maps.npy", npy(evaluation.maps))
    for score, curves in evaluation.scores.items():
        output.add(f"{prefix}-{score}-deletion.npy", npy(curves.deletion_curves))
        output.add(f"{prefix}-{score}-insertion.npy", npy(curves.insertion_curves))


def _areas(evaluation: Evaluation) -> dict[str, Any]:
    """Areas are None where no image has any, which JSON has no number for; "counted" says how many images have."""
    areas = {
        score: [None if math.isnan(mean) else mean for mean in curves.means]
        for score, curves in evaluation.scores.items()
    }
    counted = {score: curves.counted for score, curves in evaluation.scores.items()}
    return {"areas": areas, "counted": counted, "constant": evaluation.constant, "seconds": evaluation.seconds}


def _print_table(methods: list[str], results: list[dict[str, Any]]) -> None:
    """A row for each method and run, the runs of a method beside each other."""
    from bort._table import table
    from bort.measure import SCORES

    short = {"probability": "prob.", "logit": "logit", "relative": "relative"}
    header = ("method", "run", *(f"{short[score]} {end}" for score in SCORES for end in ("del ↓", "ins ↑")), "s")
    rows = [
        (
            result["method"],
            result["run"],
            *("–" if area is None else f"{area:.3f}" for score in SCORES for area in result["areas"][score]),
            f"{result['seconds']:.1f}",
        )
        for result in sorted(results, key=lambda result: methods.index(result["method"]))
    ]
    print(table(header, rows, right=tuple(range(2, len(header)))))
