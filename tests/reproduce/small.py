"""Experiments of a second: 150 images, one epoch, narrow networks."""

from dataclasses import replace

import torch

from bort import train
from bort.data import Dataset
from bort.reproduce import Result, reproduce

CPU = train.Runtime(device="cpu")
RECIPES = {name: train.recipes.get(name) for name in train.recipes.names()}


def fit(recipe, out, runtime, **options):
    """As `bort.train.fit`, with a recipe cut down."""
    net = recipe.net
    if net.name.startswith("acnn"):
        net = replace(net, options={"width": 0.05, "narrowest": 4})
    data = replace(recipe.data, name="tests.train.small:dataset")
    return train.fit(replace(recipe, net=net, data=data, epochs=1), out, runtime, **options)


def make(table, folder, runtime=CPU, **options):
    """The quick form of a table into folder/results; returns its progress lines and the files."""
    lines = []
    choices = {"quick": True, "fit": fit, "say": lines.append} | options
    files = reproduce(table, folder / "results", folder / "runs", runtime, **choices)
    return lines, files


def four_pixels():
    """Four test images of one pixel: 0 for the first, 1 for the others."""
    images = torch.full((4, 1, 1, 1), 255, dtype=torch.uint8)
    images[0] = 0
    labels = torch.tensor([0, 0, 3, 3])
    return Dataset("four pixels", images, labels, images, labels)


def result(table, recipe, accuracy=50.0, *, seed=0, note="", failed="", quick=False, **metrics):
    """One that is made up, so that the numbers are known."""
    recipe = replace(recipe, seed=seed)
    measured = {} if failed else {"accuracy": accuracy / 100, "residual": 0.5, **metrics}
    file = f"{table}/{recipe.name}-seed{seed}.json"
    return Result(table, recipe, measured, file, note=note, failed=failed, quick=quick)


def line(text, start):
    """The first line of a page that begins so."""
    return next(candidate for candidate in text.splitlines() if candidate.startswith(start))
