"""Table 2 of the paper (tab:imagenet) in small: its 14 rows on 100 classes of Tiny ImageNet at 64 px. Not ImageNet.

Each Bort is run with the paper's λ, and with the λ that gives this much shorter training the paper's pull. Where the paper
changes the weight decay together with the optimizer, a control has the baseline with Bort's decay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from bort import train
from bort.optim import constraint_for
from bort.reproduce._cells import (
    Pair,
    accuracy_cell,
    difference_cell,
    failures,
    file_links,
    markdown,
    mean_cell,
    number_cell,
    text_and_table,
    values_of,
    verdict,
)
from bort.reproduce._measure import more_than_accuracy
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Table
from bort.train import Recipe

_IMAGENET: Final = 1_281_167
"""Training images of the paper's data set."""
_TINY_IMAGENET: Final = 50_000
_NO_PULL: Final = 0.01
"""A smaller pull moves no singular value from 0 to 3 by more than 8%: the training would be that of the control."""
_THREE_SEEDS: Final = ("timm/resnet50", "timm/deit_small_patch16_224")


@dataclass(frozen=True)
class Comparison:
    """A baseline and its Bort: what is trained for the two rows of the paper."""

    baseline: Recipe
    control: Recipe
    """The baseline with Bort's weight decay; the baseline itself if the paper has the same in both rows."""
    same_constraint: Recipe
    """Bort with the paper's λ."""
    same_pull: Recipe
    """Bort with the paper's pull."""
    paper: tuple[Recipe, Recipe]
    """The full-size rows."""

    @property
    def recipes(self) -> dict[str, Recipe]:
        """By what is said of them."""
        named = {f"{self.baseline.optim.name}, as in the paper": self.baseline}
        if self.control != self.baseline:
            named[f"{self.baseline.optim.name} with Bort's weight decay"] = self.control
        bort = self.same_constraint
        if pull_of(bort, _TINY_IMAGENET) >= _NO_PULL:
            named[f"{bort.optim.name} with the paper's λ, {bort.optim.constraint:g}"] = bort
        named[f"{self.same_pull.optim.name} with the paper's pull, {self.same_pull.optim.pull:g}"] = self.same_pull
        return named


def pull_of(row: Recipe, images: int) -> float:
    """Of the λ that a recipe names, in its training on so many images; to two digits."""
    optim, per_epoch = row.optim, images // row.batch
    per_pull = constraint_for(
        1.0,
        lr=optim.lr,
        steps=row.epochs * per_epoch,
        schedule=optim.schedule,
        warmup=round(optim.warmup_epochs * per_epoch),
        momentum=optim.momentum,
    )
    return float(f"{optim.constraint / per_pull:.2g}")


@cache
def comparisons() -> tuple[Comparison, ...]:
    full = [r for r in map(train.recipes.get, train.recipes.names()) if r.paper and r.paper.table == "2"]
    found = []
    for large, large_bort in zip(full[::2], full[1::2], strict=True):
        baseline, bort = (train.recipes.get(f"tiny-{row.name}") for row in (large, large_bort))
        decay = bort.optim.weight_decay
        control = baseline
        if decay != baseline.optim.weight_decay:
            optim = replace(baseline.optim, weight_decay=decay)
            control = replace(baseline, name=f"{baseline.name}-decay-{decay:g}", optim=optim)
        pulled = replace(bort.optim, constraint=0.0, pull=pull_of(large_bort, _IMAGENET))
        same_pull = replace(bort, name=f"{bort.name}-paper-pull", optim=pulled)
        found.append(Comparison(baseline, control, bort, same_pull, (large, large_bort)))
    return tuple(found)


def experiments(quick: bool) -> list[Experiment]:
    if quick:
        raise ValueError("table2 has no quick form: its networks need the images of a folder, and none are embedded")
    return [
        Experiment(recipe, more_than_accuracy, note, seeds=(0, 1, 2) if recipe.net.name in _THREE_SEEDS else (0, 1))
        for comparison in comparisons()
        for note, recipe in comparison.recipes.items()
    ]


_MORE: Final = {
    "calibration error ↓": ("calibration_error",),
    **{kind: ("corruptions", kind) for kind in ("noise 0.08", "blur 1.0", "jpeg 25", "fgsm 2/255", "fgsm 4/255")},
}


def section(results: list[Result]) -> str:
    rows, more = [], []
    for comparison in comparisons():
        for note, recipe in comparison.recipes.items():
            seeds = _seeds(results, recipe)
            if not seeds:
                continue
            is_bort = recipe.optim.name.startswith("bort")
            difference = difference_cell(_seeds(results, comparison.control), seeds) if is_bort else ""
            paper = comparison.paper[is_bort].paper if is_bort or recipe == comparison.baseline else None
            cells = (
                accuracy_cell(seeds),
                difference,
                mean_cell([100 * value for value in values_of(seeds, "top5")]),
                mean_cell(values_of(seeds, "median_residual"), digits=3),
                number_cell(paper.top1 if paper else None),
            )
            rows.append((_network(recipe), note, *cells, file_links(seeds)))
            others = (mean_cell(values_of(seeds, *path), digits=3) for path in _MORE.values())
            more.append((_network(recipe), note, *others))
    header = ("network", "trained with", "top-1 %", "paired difference from the control", "top-5 %")
    return (
        text_and_table(_TEXT, (*header, "median residual", "paper, ImageNet %", "files"), rows)
        + failures(results)
        + "\n## More than accuracy\n\n"
        + "Expected calibration error on 5,000 test images; accuracy on 1,000 of them under noise, blur, compression, and an "
        + "attack (FGSM).\n\n"
        + markdown(("network", "trained with", *_MORE), more)
        + "\n## How far the paper's rows pull\n\n"
        + _PULLS_TEXT
        + markdown(
            ("network", "trained with", "λ", "pull in the paper", "σ = 1.5 ends at", "σ = 3 ends at", "pull here"),
            _pulls(),
        )
    )


def _pulls() -> list[tuple[str, ...]]:
    rows = []
    for comparison in comparisons():
        full, small = comparison.paper[1], comparison.same_constraint
        pull = pull_of(full, _IMAGENET)
        ends = (f"{_pulled(sigma, pull):.2f}" for sigma in (1.5, 3.0))
        here = f"{pull_of(small, _TINY_IMAGENET):g}"
        rows.append((_network(small), full.optim.name, f"{full.optim.constraint:g}", f"{pull:g}", *ends, here))
    return rows


def _pulled(sigma: float, pull: float) -> float:
    """Where dσ = −(σ³ − σ)·d(pull) leads: 1/σ² goes to 1 like exp(−2·pull)."""
    return float((1 + (sigma**-2 - 1) * math.exp(-2 * pull)) ** -0.5)


def summary(results: list[Result]) -> str:
    rows, pairs = [], {}
    for comparison in comparisons():
        control = _seeds(results, comparison.control)
        borts = [_seeds(results, recipe) for recipe in (comparison.same_constraint, comparison.same_pull)]
        if control and any(borts):
            cells = (f"{accuracy_cell(seeds)}, {difference_cell(control, seeds)}" if seeds else "–" for seeds in borts)
            name = f"{_network(comparison.baseline)}, {comparison.baseline.optim.name}"
            pairs[f"{name}, paper's λ"], pairs[f"{name}, paper's pull"] = (Pair(control, seeds) for seeds in borts)
            pull = f"{comparison.same_pull.optim.pull:g}"
            rows.append((name, accuracy_cell(control), *cells, pull))
    if not rows:
        return "No pair of baseline and Bort is there yet.\n"
    text = (
        "**Not ImageNet**: 100 classes of Tiny ImageNet at 64 px. The baseline has Bort's weight decay, so that the "
        "difference is what λ does. Rows that are not here have not been run"
    )
    header = ("network", "baseline %", "Bort, paper's λ %, difference", "Bort, paper's pull %, difference", "pull")
    return f"{verdict(pairs)}{text}.\n\n{markdown(header, rows)}"


def _seeds(results: list[Result], recipe: Recipe) -> list[Result]:
    return [result for result in results if result.row == recipe.name]


def _network(recipe: Recipe) -> str:
    return recipe.name.removeprefix("tiny-imagenet-").partition(f"-{recipe.optim.name}")[0]


_TEXT: Final = (
    "`bort reproduce table2`. **Not ImageNet**: 100 classes of Tiny ImageNet at 64 px, the recipes' own augmentation, "
    "schedule and rates; 60 epochs (DeiT-S, Swin-S), 40 (ResNet-50) or 30 (VGG16) instead of 300, batches a quarter as "
    "large. *Pull* = λ · Σ lr / (1 − momentum): with the paper's λ these short trainings pull less than the paper's did, so "
    "λ is also set for the paper's pull. The *control* is the baseline with Bort's weight decay, where that differs. The "
    "paper's figures are of ImageNet at 224 px and stand beside for the order only; `bort train imagenet-…` are the "
    "full-size rows."
)

_PULLS_TEXT: Final = (
    "By arithmetic, from λ and the rates of the paper's recipes, with the decoupled penalty of its published code for AdamW: "
    "where a singular value ends if the penalty alone acts on it. A pull of 0.02 does next to nothing. So what the paper "
    "gains in these rows is hardly the constraint's, unless its penalty was applied in another way. *Pull here*: with "
    f"the paper's λ in our short training. Rows where that is below {_NO_PULL:g} are not run, since they would repeat their "
    "control.\n\n"
)

TABLE = Table("Table 2 in small", experiments, section, summary, seeds=(0, 1))
