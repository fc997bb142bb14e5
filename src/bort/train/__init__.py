"""Recipes and the loop that runs them: the paper's tables, typed, and training that survives anything."""

from bort.train import recipes
from bort.train._nonfinite import NotFinite
from bort.train._fit import fit
from bort.train._run import Run, load
from bort.train._runtime import Runtime
from bort.train._signals import Interrupted
from bort.train.recipes import Recipe

__all__ = ["Interrupted", "NotFinite", "Recipe", "Run", "Runtime", "fit", "load", "recipes"]
