"""A run as a report sees it: its network, its test images, and what is measured of them once and used in many figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from bort import measure, train
from bort._amount import Amount
from bort.explain._common import top_layer
from bort.invert import Backtracker
from bort.invert._grid import grid_of
from bort.train._examples import examples
from bort.train._view import View, view_of_run

Say = Callable[[str, int, int], None]
"""Called with (what, done, total) as slow work goes on."""


class Missing(Exception):
    """A part of a report that makes no sense for these runs; the message says why."""


@dataclass
class Subject:
    """One run. Everything is computed when it is first asked for."""

    name: str
    run: train.Run
    amount: Amount
    device: str = "cpu"
    data_root: Path | None = None

    def __post_init__(self) -> None:
        self.model = self.run.model.to(self.device)

    @cached_property
    def view(self) -> View:
        return view_of_run(self.run, self.data_root)

    @cached_property
    def _test(self) -> tuple[Tensor, Tensor]:
        """Enough test images for everything, in an order in which any first few are of different classes."""
        most = max(self.amount.measured, self.amount.evaluated, self.amount.pairs, self.amount.shown)
        try:
            images, labels = examples(self.run.recipe, most, self.data_root)
        except (OSError, ValueError) as error:
            raise Missing(f"the test images of {self.name} are not at hand: {error}") from error
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        seen: dict[int, int] = {}
        turns = []
        for place in order.tolist():
            label = int(labels[place])
            seen[label] = seen.get(label, 0) + 1
            turns.append((seen[label], label, place))
        chosen = torch.tensor([place for _, _, place in sorted(turns)])
        return images[chosen].to(self.device), labels[chosen]

    def images(self, count: int) -> Tensor:
        return self._test[0][:count]

    def labels(self, count: int) -> Tensor:
        return self._test[1][:count]

    @cached_property
    def layer(self) -> str:
        """The top layer with a map: the paper's Z."""
        try:
            return top_layer(self.model, self.images(1))
        except ValueError as error:
            raise Missing(f"{self.name}: {error}") from error

    @cached_property
    def channels(self) -> int:
        """Of that layer."""
        features = Backtracker(self.model, self.layer, "gradient").features(self.images(1))
        return grid_of(self.model, self.layer, features).shape[0]

    @cached_property
    def audit(self) -> measure.Audit:
        """With the test images if there are any."""
        try:
            x = self.images(self.amount.measured)
        except Missing:
            return measure.audit(self.model)
        return measure.audit(self.model, x)

    @property
    def mean_ratio(self) -> float | None:
        """Of the layers: the part of its input that a layer loses. None without test images."""
        known = [layer.ratio for layer in self.audit if layer.ratio is not None and math.isfinite(layer.ratio)]
        return sum(known) / len(known) if known else None

    @cached_property
    def grams(self) -> dict[str, measure.Gram]:
        return measure.gram(self.model, smaller=True)

    def evaluate(self, methods: list[str], say: Say | None = None) -> dict[str, measure.Evaluation]:
        if not hasattr(self, "_evaluated"):
            options: dict[str, dict[str, object]] = {
                "rise": {"masks": self.amount.masks},
                "sat": {"k": min(self.amount.features, self.channels)},
            }
            told = None if say is None else lambda what, done, total: say(f"{self.name}: {what}", done, total)
            self._evaluated = measure.evaluate(
                self.model,
                self.images(self.amount.evaluated),
                methods,
                options={name: options[name] for name in methods if name in options},
                progress=told,
            )
        return self._evaluated


def number(value: float | None) -> str:
    """For a sentence."""
    return "not measured" if value is None or not math.isfinite(value) else f"{value:.2f}"


def subjects(
    folders: list[Path], amount: Amount | None = None, device: str = "cpu", data_root: Path | None = None
) -> list[Subject]:
    """The runs of folders, checked to be on the same data; a damaged one is named."""
    if not folders:
        raise ValueError("name the folder of a run")
    found = []
    for name, folder in names(folders).items():
        try:
            run = train.load(folder)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise ValueError(f"the run in {folder} cannot be read: {error}") from error
        bad = next((n for n, p in run.model.named_parameters() if not torch.isfinite(p).all()), None)
        if bad is not None:
            raise ValueError(f"the run in {folder} has diverged: {bad} has NaN or Inf in it")
        found.append(Subject(name, run, amount or Amount(), device, data_root))
    shapes = {(s.run.recipe.data.name, s.run.recipe.data.image_size): s.name for s in found}
    if len(shapes) > 1:
        said = "; ".join(f"{name} on {data} at {size} px" for (data, size), name in shapes.items())
        raise ValueError(f"the runs are on different data ({said}): make a report for each")
    return found


def names(folders: list[Path]) -> dict[str, Path]:
    """Short names that tell the runs apart."""
    short = [folder.resolve().name for folder in folders]
    if len(set(short)) == len(short):
        return dict(zip(short, folders, strict=True))
    return {f"{number}-{name}": folder for number, (name, folder) in enumerate(zip(short, folders, strict=True), 1)}
