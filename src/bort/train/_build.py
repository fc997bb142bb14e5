"""The network and the data that a recipe names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn

from bort import nets
from bort.data import Dataset, Folder
from bort.data import load as load_data
from bort.train._schema import Recipe, check_kind_of_data


def network_of(recipe: Recipe) -> nn.Module:
    """The recipe's network. Its initial weights are drawn from torch's global generator."""
    name, options, data = recipe.net.name, recipe.net.options, recipe.data
    try:
        return nets.create(name, channels=data.channels, classes=data.classes, image_size=data.image_size, **options)
    except TypeError as error:  # an option of the wrong type
        raise ValueError(f"net.name={name!r} cannot be made with {options}: {error}") from error


def data_of(recipe: Recipe, root: Path | None) -> Dataset | Folder:
    """The recipe's data, which normalises its images as the recipe says."""
    data = load_data(recipe.data.name, root)
    check_kind_of_data(recipe, is_folder=isinstance(data, Folder))
    if recipe.data.held_out:
        data = data.held_out(recipe.data.held_out)
    return replace(data, raw=True) if isinstance(data, Dataset) and not recipe.data.normalise else data
