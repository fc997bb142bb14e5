"""How strong to pull: the same trainings with pulls from 0 to 15, and what each gains and costs.

Settings are compared on a tenth of the training images that is held out, so that the test images decide nothing here.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bort import explain, invert, train
from bort.reproduce._areas import areas_of
from bort.reproduce._cells import (
    Pair,
    accuracy_cell,
    difference_cell,
    failures,
    file_links,
    markdown,
    text_and_table,
    values_of,
    verdict,
)
from bort.reproduce._measure import more_than_accuracy
from bort.reproduce._pull_chart import Line, curves
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Table, Trained
from bort.train import Recipe
from bort.train.recipes import Augment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS: Final = {
    "deit-s": "DeiT-S",
    "deit-s-plain": "DeiT-S, crops and flips",
    "resnet50": "ResNet-50",
    "resnet50-plain": "ResNet-50, crops and flips",
    "acnn-small": "ACNN-Small",
    "acnn-small-digits": "ACNN-Small, digits",
    "acnn-base": "ACNN-Base",
    "acnn-base-scale-2": "ACNN-Base, WᵀW = 2·I",
    "lenet": "LeNet, CIFAR-10",
}
"""What pages and figures call the networks, in their order."""
PULLS: Final = (0.0, 0.15, 0.5, 1.5, 5.0, 15.0)
_METHODS: Final = ("ig", "rise", "sat")
_HELD_OUT: Final = 10
_REBUILT: Final = 64
_WIDE: Final = "-scale-2"


def deit() -> Recipe:
    """With Bort's weight decay."""
    return replace(train.recipes.get("tiny-imagenet-deit-s-bort-a"), name="deit-s")


def resnet() -> Recipe:
    return replace(train.recipes.get("tiny-imagenet-resnet50-bort-s"), name="resnet50")


def resnet_plain() -> Recipe:
    """With the usual weight decay: the recipe's is for 300 epochs of ImageNet, and far too small here."""
    base = plain(resnet())
    return replace(base, optim=replace(base.optim, weight_decay=5e-4))


def of_table1(net: str) -> Recipe:
    """On CIFAR-10 with a cosine rate, and a tenth of Table 1's weight decay: for pulls under 3.5 λ is below the latter, which
    would set the scale of the layers."""
    base = train.recipes.get(f"cifar10-{net}-bort-s")
    return replace(base, name=net, optim=replace(base.optim, schedule="cosine", weight_decay=1e-3))


def digits() -> Recipe:
    """ACNN-Small in small: narrow, on the built-in digits, two minutes on two CPU cores."""
    base = train.recipes.get("mnist5k-acnn-small-bort-s")
    return replace(base, name="acnn-small-digits", optim=replace(base.optim, schedule="cosine"))


def acnn_base() -> Recipe:
    return replace(train.recipes.get("tiny-imagenet-acnn-base-bort-s"), name="acnn-base")


_BASELINES: Final = {"bort-s": "sgd", "bort-a": "adamw", "bort-l": "lamb"}


def pulled(recipe: Recipe, pull: float, *, held_out: int = _HELD_OUT) -> Recipe:
    """The recipe with another pull; with none, its optimizer is the one that Bort is built on, with Bort's weight decay."""
    optim = replace(recipe.optim, constraint=0.0, pull=pull)
    if not pull:
        optim = replace(optim, name=_BASELINES[optim.name], scale=1.0, every=1)  # type: ignore[arg-type]
    return replace(
        recipe,
        name=f"{recipe.name}-pull-{pull:g}",
        optim=optim,
        data=replace(recipe.data, held_out=held_out),
        paper=None,
    )


def plain(recipe: Recipe) -> Recipe:
    """The same with crops and flips only, and cross-entropy."""
    return replace(
        recipe, name=f"{recipe.name}-plain", augment=Augment(crop_and_flip=True), loss="cross-entropy", smoothing=0.1
    )


def experiments(quick: bool) -> list[Experiment]:
    if quick:
        lenet = replace(train.recipes.get("mnist5k-lenet-bort-s"), name="lenet")
        look = partial(looked_at, images=16, masks=50)
        return [Experiment(pulled(lenet, pull), look) for pull in (0.0, 1.5, 15.0)]
    look = partial(looked_at, images=200, masks=1000)
    wide = replace(acnn_base(), name=f"acnn-base{_WIDE}", optim=replace(acnn_base().optim, scale=2.0))
    small = (of_table1("acnn-small"), digits(), of_table1("lenet"))
    networks = (deit(), plain(deit()), resnet(), resnet_plain(), *small, acnn_base(), wide)
    # Without a pull there is no target either, so its scale makes no difference.
    return [Experiment(pulled(n, pull), look) for n in networks for pull in PULLS if pull or n is not wide]


def looked_at(trained: Trained, *, images: int, masks: int) -> dict[str, Any]:
    """Accuracy and residuals; deletion and insertion; reconstructions; calibration; robustness."""
    x, _ = trained.examples(images)
    model = trained.model
    top = explain.top_layer(model, x[:1])
    few = x[:_REBUILT]
    rebuilt = invert.correlation(invert.reconstruct(model, few, top), few)
    return more_than_accuracy(trained) | {
        "methods": areas_of(model, x, _METHODS, {"rise": {"masks": masks}}),
        "reconstruction": round(rebuilt.double().mean().item(), 4),
        "images": len(x),
        "masks": masks,
    }


def _networks(results: list[Result]) -> dict[str, dict[float, list[Result]]]:
    """Seeds by network and pull."""
    networks: dict[str, dict[float, list[Result]]] = {}
    for result in results:
        name, _, pull = result.row.rpartition("-pull-")
        networks.setdefault(name, {}).setdefault(float(pull), []).append(result)
    for name, pulls in networks.items():
        without = networks.get(name.removesuffix(_WIDE), {}).get(0.0)
        if without:
            pulls[0.0] = without
    order = {name: number for number, name in enumerate(LABELS)}
    names = sorted(networks, key=lambda name: (order.get(name, len(order)), name))
    return {name: dict(sorted(networks[name].items())) for name in names}


def _mean(seeds: list[Result], *path: str) -> float:
    """Of a metric over the seeds; nan if one of them does not have it."""
    values = values_of(seeds, *path)
    return statistics.mean(values) if len(values) == len(seeds) else math.nan


def _value(name: str, pull: float, seeds: list[Result], path: tuple[str, ...]) -> float:
    """What page and figure have of a network at a pull."""
    if path == _RESIDUAL and name.endswith(_WIDE) and not pull:
        return math.nan  # the training without a pull has its distance to I, and not to this network's target
    return _mean(seeds, *path)


def _cell(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


_RESIDUAL: Final = ("median_residual",)
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "median residual": _RESIDUAL,
    "IG deletion ↓": ("methods", "ig", "probability deletion"),
    "IG insertion ↑": ("methods", "ig", "probability insertion"),
    "RISE insertion ↑": ("methods", "rise", "probability insertion"),
    "SAT insertion ↑": ("methods", "sat", "probability insertion"),
    "reconstruction": ("reconstruction",),
    "calibration error ↓": ("calibration_error",),
    "noise 0.08": ("corruptions", "noise 0.08"),
    "blur 1.0": ("corruptions", "blur 1.0"),
    "FGSM 2/255": ("corruptions", "fgsm 2/255"),
}


def section(results: list[Result]) -> str:
    rows = []
    for name, pulls in _networks([result for result in results if not result.failed]).items():
        for pull, seeds in pulls.items():
            cells = (_cell(_value(name, pull, seeds, path)) for path in _COLUMNS.values())
            difference = difference_cell(pulls.get(0.0, []), seeds) if pull else ""
            rows.append((_label(name), f"{pull:g}", accuracy_cell(seeds), difference, *cells, file_links(seeds)))
    images = max(result.metrics.get("images", 0) for result in results)
    text = (
        "`bort reproduce pull`. Pull = λ · Σ lr / (1 − momentum), 0: the optimizer without Bort, with the same weight decay. "
        f"Accuracy and calibration are on every {_HELD_OUT}th training image, which was held out; accuracy under noise, blur "
        f"and FGSM on at most 1,000 of them, deletion and insertion (probability) on {images or '–'}, reconstruction "
        f"(correlation with the image, from the top layer) on {min(images, _REBUILT) or '–'}.\n\n"
        "DeiT-S and ResNet-50 have the paper's augmentation and Bort's weight decay of Table 2; *crops and flips*: without "
        "the rest of the augmentation, ResNet-50 also with cross-entropy of one view in place of JSD of three, and the usual "
        "weight decay, 5e-4, in place of the recipe's 2e-5. *ACNN-Small, digits*: a narrow one, 12 epochs of 3,600 digits "
        "on a CPU (`--only digits --seeds 0 1 2`); 400 are held out, so one image is a quarter of a point. Others on "
        "CIFAR-10: Table 1's recipes with a cosine rate and weight decay 0.001. *Median residual*: over the layers.\n\n"
        f"{failures(results)}"
        '"–": not measured. Differences are from pull 0, paired by seed, each with the 95% interval that it has by itself. '
        "One seed is no proof: the spread between seeds is not known yet where n = 1.\n\n"
        f"{_CURVES}"
    )
    return text_and_table(text, ("network", "pull", "held-out accuracy %", "difference", *_COLUMNS, "files"), rows)


def _label(name: str) -> str:
    return LABELS.get(name, name)


_CURVES: Final = "![what each pull gains and costs](pull/curves.png)"


def summary(results: list[Result]) -> str:
    """For each network: without a pull, with the best one, and what that does to explanations."""
    rows, pairs = [], {}
    for name, pulls in _compared(results).items():
        candidates = _candidates(pulls)
        best = max(candidates, key=candidates.__getitem__)
        count = len(candidates) - 1
        ends = [pulls[pull] for pull in sorted({0.0, best})]
        insertion = " → ".join(_cell(_mean(seeds, *_COLUMNS["IG insertion ↑"])) for seeds in ends)
        difference = difference_cell(pulls[0.0], pulls[best], best_of=count) if best else "none is better"
        pairs[_label(name)] = Pair(pulls[0.0], pulls[best] if best else [], best_of=count)
        rows.append((_label(name), f"{best:g}", " → ".join(map(accuracy_cell, ends)), difference, insertion))
    text = (
        "Pull = λ · Σ lr / (1 − momentum); trained with pulls from 0 (the optimizer without Bort, same weight decay) to 15, "
        "compared on held-out training images. *Best* is among 0 and the pulls with the most seeds, "
        "chosen on the same images; where it is the best of several, its interval is made wider for that (Bonferroni)"
    )
    header = ("network", "best pull", "held-out accuracy %, 0 → best", "difference", "IG insertion ↑, 0 → best")
    if not rows:
        return "No pull has been compared with none yet.\n"
    none = [name for name, pair in pairs.items() if not pair.after]
    worse = f"Of the pulls with the most seeds none is more accurate than 0 for {'; '.join(none)}.\n\n" if none else ""
    return f"{verdict(pairs)}{worse}{text}.\n\n{_CURVES}\n\n{markdown(header, rows)}"


def _compared(results: list[Result]) -> dict[str, dict[float, list[Result]]]:
    """The networks that were trained without a pull and, with the same seed, with one."""
    networks = _networks([result for result in results if not result.failed])
    return {
        name: pulls for name, pulls in networks.items() if 0.0 in pulls and any(_changes(pulls, "accuracy").values())
    }


def _candidates(pulls: dict[float, list[Result]]) -> dict[float, float]:
    """Gains of 0 and of the pulls with the most seeds: one lucky seed is not to stand for a network."""
    gains = _changes(pulls, "accuracy")
    most = max(map(len, gains.values()))
    return {0.0: 0.0} | {pull: statistics.mean(seeds) for pull, seeds in gains.items() if len(seeds) == most}


def _by_seed(seeds: list[Result], *path: str) -> dict[int, float]:
    return {seed.seed: value for seed in seeds for value in values_of([seed], *path)}


def _changes(pulls: dict[float, list[Result]], *path: str) -> dict[float, list[float]]:
    """What each pull changes in a metric, a number for each seed that was trained without a pull too."""
    without = _by_seed(pulls[0.0], *path)
    changes = {}
    for pull, seeds in pulls.items():
        if pull:
            own = _by_seed(seeds, *path)
            changes[pull] = [own[seed] - without[seed] for seed in sorted(own.keys() & without.keys())]
    return changes


_PANELS: Final[dict[str, tuple[str, ...]]] = {
    "change of accuracy, points ↑": ("accuracy",),
    "change of IG insertion ↑": _COLUMNS["IG insertion ↑"],
    "change of IG deletion ↓": _COLUMNS["IG deletion ↓"],
    "median residual": _RESIDUAL,
    "change of reconstruction ↑": _COLUMNS["reconstruction"],
    "change of calibration error ↓": _COLUMNS["calibration error ↓"],
}
"""Titles and metrics."""


def chart(results: list[Result]) -> Figure | None:
    """What each pull changes, paired by seed with none, and how near it brings the layers; None without two to compare."""
    numbers: dict[str, int] = {}
    lines = []
    for name, pulls in _compared(results).items():
        # Another target than I is a variant of its network: in the same colour, dashed.
        number = numbers.setdefault(name.removesuffix(_WIDE), len(numbers))
        residuals = {
            pull: list(_by_seed(seeds, *_RESIDUAL).values())
            for pull, seeds in pulls.items()
            if pull or not name.endswith(_WIDE)
        }
        values = {
            title: residuals if path == _RESIDUAL else {0.0: [0.0]} | _changes(pulls, *path)
            for title, path in _PANELS.items()
        }
        points = values["change of accuracy, points ↑"]
        points.update({pull: [100 * change for change in changes] for pull, changes in points.items()})
        lines.append(Line(_label(name), number, values, dashed=name.endswith(_WIDE)))
    return curves(lines, PULLS) if lines else None


TABLE = Table("How strong to pull", experiments, section, summary, seeds=(0,), charts={"curves": chart})
