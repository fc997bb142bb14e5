"""Which LeNet the paper may have meant: a search over activation, pool, momentum, normalised or raw inputs and λ; and a ReLU
behind the last layer, which lets classes die."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from bort import train
from bort.reproduce._cells import accuracy_cell, file_links, markdown, mean_accuracy, number_cell, text_and_table
from bort.reproduce._measure import classes, training
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Measure, Table
from bort.train import Recipe

_CONSTRAINTS: Final = (0.0, 0.01, 0.1)
_USUAL: Final[dict[str, Any]] = {"activation": "relu", "pool": "max", "last": "linear"}
"""Options that nets.LeNet has if a recipe does not name them."""


@dataclass(frozen=True)
class Variant:
    """A LeNet and how it is trained. Without arguments it is that of Table 1's recipes."""

    activation: str = "relu"
    pool: str = "max"
    momentum: float = 0.9
    normalise: bool = True
    last: str = "linear"

    @classmethod
    def of(cls, recipe: Recipe) -> Variant:
        options = _USUAL | recipe.net.options
        return cls(
            options["activation"], options["pool"], recipe.optim.momentum, recipe.data.normalise, options["last"]
        )

    def applied_to(self, recipe: Recipe) -> Recipe:
        """Only unusual options are named, so that the recipe equals those of runs that are there already."""
        options = {name: getattr(self, name) for name, usual in _USUAL.items() if getattr(self, name) != usual}
        return replace(
            recipe,
            net=replace(recipe.net, options=options),
            data=replace(recipe.data, normalise=self.normalise),
            optim=replace(recipe.optim, momentum=self.momentum),
        )

    @property
    def words(self) -> tuple[str, ...]:
        inputs = "normalised" if self.normalise else "raw"
        end = ("relu at the end",) if self.last == "relu" else ()
        return (self.activation, self.pool, f"momentum{self.momentum:g}", inputs, *end)

    @property
    def label(self) -> str:
        """For the table."""
        return ", ".join(self.words)

    @property
    def slug(self) -> str:
        """For names of recipes and files."""
        return "-".join(self.words).replace(" ", "_")


def experiments(quick: bool) -> list[Experiment]:
    data = ("mnist5k",) if quick else ("mnist", "cifar10")
    grid: tuple[tuple[Any, ...], ...] = (
        (("relu", "tanh"), ("max",), (0.9,), (True,))
        if quick
        else (("relu", "tanh", "sigmoid"), ("max", "average"), (0.0, 0.9), (True, False))
    )
    searched = [
        experiment
        for name, choice in itertools.product(data, itertools.product(*grid))
        for experiment in _with_and_without_bort(name, Variant(*choice), (0.0, 0.01, 0.1), training)
    ]
    with_last_relu = [
        experiment
        for name in data
        for experiment in _with_and_without_bort(name, Variant(last="relu"), (0.0, 0.1), classes)
    ]
    return [*searched, *with_last_relu]


def _with_and_without_bort(
    data: str, variant: Variant, constraints: tuple[float, ...], measure: Measure
) -> Iterator[Experiment]:
    """SGD for λ 0, else Bort-S. Weight decay is a tenth of λ and 0.01 at most, as in Table 1: SGD 0.01, λ 0.1 0.01."""
    base = variant.applied_to(train.recipes.get(f"{data}-lenet-sgd"))
    for constraint in constraints:
        optimizer: Literal["sgd", "bort-s"] = "bort-s" if constraint else "sgd"
        decay = min(0.01, constraint / 10) if constraint else 0.01
        optim = replace(base.optim, name=optimizer, constraint=constraint, weight_decay=decay)
        name = f"{data}-lenet-{variant.slug}-lambda{constraint:g}"
        yield Experiment(replace(base, name=name, optim=optim, paper=None), measure, variant.slug)


def section(results: list[Result]) -> str:
    rows: list[tuple[str, ...]] = []
    for (data, variant), runs in _by_variant(results).items():
        by_constraint = {constraint: _with_constraint(runs, constraint) for constraint in _CONSTRAINTS}
        gap = _gap(data, by_constraint)
        cells = (
            "–" if mean_accuracy(seeds) is None else accuracy_cell(seeds).replace(" (n = 1)", "")
            for seeds in by_constraint.values()
        )
        rows.append((data, variant.label, *cells, "–" if gap is None else f"{gap:.1f}", _links(runs)))
    text = (
        "`bort reproduce lenet`. The paper does not describe its LeNet. One seed unless n is given, else as in Table 1; "
        "weight decay 0.01, and 0.001 with λ 0.01. *gap*: mean distance to the paper's two figures, SGD and λ 0.1.\n\n"
        + _nearest_and_best(results)
    )
    header = ("data", "LeNet, momentum, inputs", "SGD %", "λ 0.01 %", "λ 0.1 %", "gap", "files")
    return text_and_table(text, header, rows) + _dead_classes(results)


def summary(results: list[Result]) -> str:
    variants = len({Variant.of(result.recipe) for result in results})
    return f"The paper does not describe its LeNet; {variants} variants were tried.\n\n{_nearest_and_best(results)}\n"


def _nearest_and_best(results: list[Result]) -> str:
    """For each data set the variant nearest to the paper, and the most accurate one."""
    nearest: dict[str, tuple[float, str]] = {}
    best: dict[str, tuple[float, str]] = {}
    for (data, variant), runs in _by_variant(results).items():
        by_constraint = {constraint: _with_constraint(runs, constraint) for constraint in _CONSTRAINTS}
        for constraint, seeds in by_constraint.items():
            mean = mean_accuracy(seeds)
            if mean is not None and mean > best.get(data, (-1.0, ""))[0]:
                best[data] = mean, f"{variant.label}, {f'λ {constraint:g}' if constraint else 'SGD'}"
        gap = _gap(data, by_constraint)
        if gap is not None and gap < nearest.get(data, (101.0, ""))[0]:
            nearest[data] = gap, variant.label
    return "\n".join(
        f"- {data}: the paper has {number_cell(_paper(data, 'sgd'))} → {number_cell(_paper(data, 'bort-s'))}. "
        + (f"Nearest: {nearest[data][1]} (gap {nearest[data][0]:.1f}). " if data in nearest else "")
        + f"Most accurate: {best[data][1]} ({best[data][0]:.2f}%)."
        for data in best
    )


def _by_variant(results: list[Result]) -> dict[tuple[str, Variant], list[Result]]:
    groups: dict[tuple[str, Variant], list[Result]] = {}
    for result in results:
        groups.setdefault((result.recipe.data.name, Variant.of(result.recipe)), []).append(result)
    return groups


def _with_constraint(results: list[Result], constraint: float) -> list[Result]:
    return [result for result in results if result.recipe.optim.constraint == constraint]


def _links(results: list[Result]) -> str:
    """By λ, and by seed where there is more than one."""
    several = len({result.seed for result in results}) > 1
    links = []
    for result in results:
        name = f"λ {result.recipe.optim.constraint:g}" + (f" seed {result.seed}" if several else "")
        links.append(f"[{name}]({result.file})")
    return " ".join(links)


def _paper(data: str, optimizer: str) -> float | None:
    """The paper's accuracy of LeNet; None if it has no such row."""
    for recipe in map(train.recipes.get, train.recipes.names()):
        if recipe.paper and (recipe.net.name, recipe.data.name, recipe.optim.name) == ("lenet", data, optimizer):
            return recipe.paper.top1
    return None


def _gap(data: str, by_constraint: dict[float, list[Result]]) -> float | None:
    """Mean distance of SGD and of λ 0.1 to the paper's; None if one of the four is missing."""
    sgd, bort = mean_accuracy(by_constraint[0.0]), mean_accuracy(by_constraint[0.1])
    paper_sgd, paper_bort = _paper(data, "sgd"), _paper(data, "bort-s")
    if sgd is None or bort is None or paper_sgd is None or paper_bort is None:
        return None
    return (abs(sgd - paper_sgd) + abs(bort - paper_bort)) / 2


def _dead_classes(results: list[Result]) -> str:
    """Seed by seed: with a last ReLU, how many classes are dead decides the accuracy."""
    counted = [result for result in results if not result.failed and "dead_classes" in result.metrics]
    if not counted:
        return ""
    rows = []
    for data, seed in sorted({(result.recipe.data.name, result.seed) for result in counted}):
        runs = [result for result in counted if (result.recipe.data.name, result.seed) == (data, seed)]
        cells: list[str] = []
        for constraint in (0.0, 0.1):
            metrics = [result.metrics for result in _with_constraint(runs, constraint)]
            cells += [f"{100 * metrics[0]['accuracy']:.2f}", str(metrics[0]["dead_classes"])] if metrics else ["–", "–"]
        rows.append((data, str(seed), *cells, file_links(runs)))
    header = ("data", "seed", "SGD %", "dead classes", "λ 0.1 %", "dead classes", "files")
    text = (
        "Behind a last ReLU a class whose logit is negative for every image gets no gradient: it dies, and of ten classes "
        "each dead one costs a tenth of the images. *dead*: fewer than 1% of its test images have its logit largest and "
        "alone. In accuracy k equal logits count as 1/k: of an image with all logits 0 nothing is said."
    )
    return f"\n## A ReLU at the end, seed by seed\n\n{text}\n\n{markdown(header, rows)}"


TABLE = Table("Which LeNet?", experiments, section, summary, seeds=(0,))
