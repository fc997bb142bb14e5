"""Pairs of recipes that differ in their optimizer only, for what is compared network by network."""

from __future__ import annotations

from dataclasses import dataclass

from bort import train
from bort.train import Recipe


@dataclass(frozen=True)
class Pair:
    name: str
    """What both are called in a table: data and network."""
    baseline: Recipe
    """With SGD."""
    bort: Recipe
    """With Bort-S."""


def sgd_and_bort(name: str) -> Pair:
    return Pair(name, train.recipes.get(f"{name}-sgd"), train.recipes.get(f"{name}-bort-s"))


def digits() -> list[Pair]:
    """For ``quick``."""
    return [sgd_and_bort("mnist5k-lenet")]


def acnn_small() -> list[Pair]:
    """The networks that the paper's figures are of, and those of Table 3 but ImageNet's."""
    return [sgd_and_bort("mnist-acnn-small"), sgd_and_bort("cifar10-acnn-small")]
