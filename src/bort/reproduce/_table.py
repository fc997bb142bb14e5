"""What a table is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from bort.data import Dataset, Folder
from bort.reproduce._result import Result
from bort.train import Recipe, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Trained:
    """The finished training (or pair of trainings) of an experiment, for what is to be measured.

    Example:
        >>> from pathlib import Path
        >>> class Run:  # as train.fit returns one
        ...     model = nets.create("lenet")
        >>> reproduce.Trained(Run, None, "cpu", None, Path("pictures")).model is Run.model
        True
    """

    run: Run
    baseline: Run | None
    """The second run, where the experiment has one."""
    device: str
    data_root: Path | None
    pictures: Path
    """The folder for what is drawn; it may not exist yet."""

    @property
    def model(self) -> nn.Module:
        return self.run.model.to(self.device)

    def examples(self, count: int) -> tuple[Tensor, Tensor]:
        """Test images as the network sees them, (N, C, H, W), and labels (N,), on the device."""
        images, labels = self.run.examples(count, data=self._data)
        return images.to(self.device), labels.to(self.device)

    @cached_property
    def _data(self) -> Dataset | Folder:
        """Read once: files are checked whenever they are read."""
        return self.run.data(self.data_root)


Measure = Callable[[Trained], dict[str, Any]]
"""Returns the metrics of a result file."""


@dataclass(frozen=True)
class Experiment:
    """A training and what is measured of it: one result file for each seed.

    Example:
        >>> first, *_ = reproduce.get("table1").experiments(True)
        >>> first.with_seed(3).stem
        'mnist5k-lenet-sgd-seed3'
    """

    recipe: Recipe
    measure: Measure
    note: str = ""
    """How this row differs from the others of its table."""
    name: str = ""
    """For the result file; the recipe's by default."""
    baseline: Recipe | None = None
    """A second training, to be drawn beside the first."""
    seeds: tuple[int, ...] = ()
    """Instead of the table's own."""

    def with_seed(self, seed: int) -> Experiment:
        baseline = None if self.baseline is None else replace(self.baseline, seed=seed)
        return replace(self, recipe=replace(self.recipe, seed=seed), baseline=baseline)

    @property
    def stem(self) -> str:
        """The name of its result file, without ".json"."""
        return f"{self.name or self.recipe.name}-seed{self.recipe.seed}"


@dataclass(frozen=True)
class Table:
    """A table or figure of the paper: its trainings, what is measured of them, and what is written of that.

    Example:
        >>> [experiment.stem for experiment in reproduce.get("table1").seeded(quick=True, seeds=(5,))][:2]
        ['mnist5k-lenet-sgd-seed5', 'mnist5k-lenet-bort-s-seed5']
    """

    title: str
    experiments: Callable[[bool], list[Experiment]]
    """Called with ``quick``: True for the same in small, on the built-in digits. Each experiment is run with every seed."""
    section: Callable[[list[Result]], str]
    """Results, in the order of their files' names, as the Markdown of the table's own page."""
    summary: Callable[[list[Result]], str]
    """The same in a few lines, for RESULTS.md."""
    seeds: tuple[int, ...]
    """Those that are run unless others are asked for; with ``quick`` it is 0 only."""
    also_reads: tuple[str, ...] = ()
    """Other tables whose results section and summary get too, after its own."""
    charts: Mapping[str, Callable[[list[Result]], Figure | None]] = field(default_factory=dict)
    """Drawn from the results that did not fail, by the name of the PNG file; None if they have nothing to draw."""

    def seeds_for(self, experiment: Experiment, quick: bool) -> tuple[int, ...]:
        return (0,) if quick else experiment.seeds or self.seeds

    def seeded(self, quick: bool, seeds: Iterable[int] | None = None) -> list[Experiment]:
        """Every experiment with every seed, one result file each."""
        chosen = None if seeds is None else tuple(seeds)
        return [
            experiment.with_seed(seed)
            for experiment in self.experiments(quick)
            for seed in (self.seeds_for(experiment, quick) if chosen is None else chosen)
        ]
