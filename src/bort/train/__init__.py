"""Recipes for training: what the paper's tables say, typed."""

from bort.train.recipes import Recipe, get, names

__all__ = ["Recipe", "get", "names"]
