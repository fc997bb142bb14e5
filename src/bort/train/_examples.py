"""A few test images of a run's data, as its network was trained to see them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from bort.data import Dataset
from bort.train._folder_feed import FolderFeed
from bort.train._recipe import Recipe
from bort.train._runtime import Runtime
from bort.train._view import data_of
from bort.train._world import World


def examples(recipe: Recipe, count: int, root: Path | None = None) -> tuple[Tensor, Tensor]:
    """Normalised images (count, C, H, W) and labels, spread evenly over the test set so that every class has its part."""
    if count < 1:
        raise ValueError(f"{count} images: must be 1 or more")
    data = data_of(recipe, root)
    if isinstance(data, Dataset):
        chosen = _spread(len(data.test_images), count)
        return data.normalise(data.test_images[chosen]), data.test_labels[chosen]
    files = [data.test_files[i] for i in _spread(len(data.test_files), count)]
    few = type(data)(data.name, data.root, data.class_names, data.train_files, files, data.fingerprint)
    feed = FolderFeed(few, recipe, Runtime(workers=0), World(torch.device("cpu")), torch.contiguous_format)
    images, labels = zip(*feed.test(World(torch.device("cpu"))), strict=True)
    return torch.cat(images), torch.cat(labels)


def _spread(total: int, count: int) -> list[int]:
    return [i * total // min(count, total) for i in range(min(count, total))]
