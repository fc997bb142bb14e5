"""Figure 7 (fig:ablation_cifar10): weight decay by λ, as a table and as a chart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bort import train
from bort.pictures import panels, style
from bort.reproduce._cells import accuracy_cell, failures, file_links, mean_accuracy, text_and_table
from bort.reproduce._measure import training
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EPOCHS: Final = 10
"""Of Table 1's 40: sixteen trainings of the widest network; the paper does not say how long its own were."""


def experiments(quick: bool) -> list[Experiment]:
    row = "mnist5k-lenet" if quick else "cifar10-acnn-small"
    decays, constraints = ((0.0, 0.01), (0.01, 0.1)) if quick else ((0.0, 0.001, 0.01, 0.1), (0.0, 0.01, 0.1, 1.0))
    cells = []
    for decay in decays:
        for constraint in constraints:
            base = train.recipes.get(f"{row}-bort-s" if constraint else f"{row}-sgd")
            optim = replace(base.optim, weight_decay=decay, constraint=constraint)
            name, epochs = f"{row}-wd{decay:g}-lambda{constraint:g}", base.epochs if quick else _EPOCHS
            cells.append(Experiment(replace(base, name=name, optim=optim, epochs=epochs, paper=None), training))
    return cells


Grid = dict[tuple[float, float], list[Result]]
"""Results by weight decay and λ."""


def _grid(results: list[Result]) -> tuple[list[float], list[float], Grid]:
    """Weight decays, λs, and the results of each cell that has some."""
    cells: Grid = {}
    for result in results:
        optim = result.recipe.optim
        cells.setdefault((optim.weight_decay, optim.constraint), []).append(result)
    return sorted({decay for decay, _ in cells}), sorted({constraint for _, constraint in cells}), cells


def section(results: list[Result]) -> str:
    decays, constraints, cells = _grid(results)
    rows = [(f"{d:g}", *(accuracy_cell(cells[d, c]) if (d, c) in cells else "–" for c in constraints)) for d in decays]
    header = ("weight decay \\ λ", *(f"{c:g}" for c in constraints))
    recipe = results[0].recipe
    text = (
        f"`bort reproduce ablation`. {recipe.net.name} on {recipe.data.name}, {recipe.epochs} epochs, the rest as in Table "
        "1; λ 0 is SGD. Test accuracy in per cent after the last epoch, at a constant rate: single cells can be several "
        "points off. "
        f"Files: {file_links(results)}.\n\n{_CHART}"
    )
    return text_and_table(text, header, rows)


_CHART = "![Test accuracy by weight decay and λ](ablation/grid.png)"


def summary(results: list[Result]) -> str:
    """The best of the grid, and its chart."""
    _, _, cells = _grid([result for result in results if not result.failed])
    if not cells:
        return failures(results)
    (decay, constraint), seeds = max(cells.items(), key=lambda item: mean_accuracy(item[1]) or 0.0)
    trained = f"λ {constraint:g}" if constraint else "SGD"
    best = f"Best: {trained} with weight decay {decay:g}, {accuracy_cell(seeds)}."
    return f"{results[0].recipe.net.name}, {results[0].recipe.epochs} epochs; λ 0 is SGD. {best}\n\n{_CHART}\n"


def chart(results: list[Result]) -> Figure:
    decays, constraints, cells = _grid(results)
    means = [[mean_accuracy(cells.get((d, c), [])) for c in constraints] for d in decays]
    values = [[float("nan") if mean is None else mean for mean in row] for row in means]
    with style():
        figure, ((axes,),) = panels(1, 1, 360, 300)
        image = axes.imshow(values, cmap="cividis", aspect="auto", origin="lower")
        middle = sum(image.get_clim()) / 2
        for y, row in enumerate(means):
            for x, mean in enumerate(row):
                text, is_dark = ("–", False) if mean is None else (f"{mean:.1f}", mean < middle)
                axes.text(x, y, text, ha="center", va="center", color="white" if is_dark else "black")
        axes.set_xticks(range(len(constraints)), [f"{c:g}" for c in constraints])
        axes.set_yticks(range(len(decays)), [f"{d:g}" for d in decays])
        axes.set_xlabel("λ (0: SGD)")
        axes.set_ylabel("weight decay")
        axes.set_title("test accuracy, %")
        axes.grid(visible=False)
    return figure


TABLE = Table("Figure 7: weight decay by λ", experiments, section, summary, seeds=(0,), charts={"grid": chart})
