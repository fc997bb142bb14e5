"""A training that has been written to disk, finished or not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bort.data import Dataset, Folder, View
from bort.train import _checkpoint
from bort.train._build import data_of, network_of
from bort.train._run_folder import CHECKPOINTS, RunFolder, read_recipe
from bort.train._schema import Recipe


@dataclass(frozen=True)
class Run:
    """A training on disk, finished or not.

    Example:
        >>> from dataclasses import replace
        >>> recipe = replace(train.recipes.get("mnist5k-lenet-bort-s"), epochs=1, batch=1000)
        >>> run = train.fit(recipe, "runs/first", train.Runtime(device="cpu"))
        mnist5k-lenet-bort-s  epoch 1/1  loss ...
        >>> run.model(run.examples(3)[0]).shape, run.history[-1]["epoch"]
        (torch.Size([3, 10]), 1)
    """

    path: Path
    recipe: Recipe
    history: list[dict[str, Any]]
    """One record an epoch: loss, accuracy, residual, σ range, seconds, …"""
    environment: list[dict[str, Any]]
    """One record for each time it was started: versions, hardware, commit, data."""
    model: nn.Module
    """The network of the newest checkpoint, on the CPU, in eval mode."""

    def view(self, data_root: Path | None = None) -> View:
        """How the network sees an image: as recorded when the run was started; from its data if there is no record."""
        recorded = self.environment[-1].get("data", {}) if self.environment else {}
        if {"mean", "std", "class_names"} <= recorded.keys():
            mean, std, class_names = (tuple(recorded[key]) for key in ("mean", "std", "class_names"))
            return View(self.recipe.data.image_size, self.recipe.data.channels, mean, std, class_names)
        return data_of(self.recipe, data_root).view(self.recipe.data.image_size)

    def data(self, data_root: Path | None = None) -> Dataset | Folder:
        """What it is trained on, read anew."""
        return data_of(self.recipe, data_root)

    def examples(
        self, count: int, data_root: Path | None = None, *, data: Dataset | Folder | None = None
    ) -> tuple[Tensor, Tensor]:
        """Test images as the network was trained to see them, (count, C, H, W), and their labels, spread evenly over the test
        set. ``data`` is what `data` has returned, if it has been read already."""
        data = data or self.data(data_root)
        view = data.view(self.recipe.data.image_size)
        return data.examples(count, view, skip_unreadable=self.recipe.data.corrupt == "skip")

    @property
    def is_complete(self) -> bool:
        return len(self.history) >= self.recipe.epochs

    @property
    def accuracy(self) -> float | None:
        """On the test images, after the last recorded epoch."""
        return self.history[-1]["accuracy"] if self.history else None


def load(out: str | os.PathLike[str]) -> Run:
    """The run in a folder, with the network of its newest undamaged checkpoint; or of the checkpoint that is named,
    ``RUN/checkpoints/step-…``, with the history until then.

    Example:
        >>> from dataclasses import replace
        >>> recipe = replace(train.recipes.get("mnist5k-lenet-bort-s"), epochs=1, batch=1000)
        >>> run = train.fit(recipe, "runs/first", train.Runtime(device="cpu"))
        mnist5k-lenet-bort-s  epoch 1/1  loss ...
        >>> train.load("runs/first").accuracy == run.accuracy
        True
    """
    path = Path(out)
    is_checkpoint = path.resolve().parent.name == CHECKPOINTS
    folder = RunFolder(path.resolve().parents[1] if is_checkpoint else path)
    recipe = read_recipe(folder.path)
    checkpoint = _checkpoint.read(path) if is_checkpoint else _checkpoint.load(folder.checkpoints)
    if checkpoint is None:
        raise FileNotFoundError(f"the run in {folder.path} has no checkpoint yet; start it again to go on")
    model = network_of(recipe)
    model.load_state_dict(checkpoint.state["model"])
    history = folder.history.read()[: checkpoint.state["recorded"]]
    return Run(folder.path, recipe, history, folder.environment(), model.eval())
