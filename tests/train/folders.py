"""Trainings on a folder of striped images, out of memory and out of files, for tests of feeds."""

from dataclasses import replace

import pytest
import torch

from bort import data, train
from bort.train._images import feed_for
from bort.train._world import World
from bort.train.recipes import Augment, Data, Net, Optim, Recipe

CPU = World(torch.device("cpu"))
LAYOUT = torch.contiguous_format
PLACES = pytest.mark.parametrize("images", ["files", "device", "host"])
PLAIN, CROPPED = Augment(), Augment(crop_and_flip=True)
SPLITS = Augment("rand-m9-mstd0.5", erase=0.6, splits=3, crop_and_flip=True)


def recipe(**changes):
    augment = Augment("rand-m9-mstd0.5", mixup=0.8, cutmix=1.0, erase=0.5, crop_and_flip=True)
    base = Recipe(
        "stripes",
        Net("acnn-base", {"width": 0.05}),
        Data("folder:stripes", 32, classes=2),
        Optim("bort-a", lr=1e-3, constraint=0.1, groups="modules"),
        epochs=2,
        batch=4,
        augment=augment,
    )
    return replace(base, **changes)


def feed(root, chosen, workers=0, world=CPU, images="files"):
    runtime = train.Runtime(workers=workers, images=images)
    folder = data.load(chosen.data.name, root)
    if chosen.data.held_out:
        folder = folder.held_out(chosen.data.held_out)
    return feed_for(folder, chosen, runtime, world, LAYOUT, lambda _: None)


def fit(root, out, chosen, on_step=None, workers=2, images="auto"):
    runtime = train.Runtime(device="cpu", data_root=root, workers=workers, images=images)
    return train.fit(chosen, out, runtime, on_step=on_step)
