"""Recipes (the rows of the paper's tables, typed) and the loop that trains them, exactly, through any interruption."""

from bort._file_lock import InUse
from bort.train import recipes
from bort.train._evaluate import recognised
from bort.train._fit import fit
from bort.train._nonfinite import NotFinite
from bort.train._run import Run, load
from bort.train._run_folder import OtherRecipe, StartedDifferently, read_recipe
from bort.train._runtime import Runtime
from bort.train._signals import Interrupted
from bort.train.recipes import Recipe

__all__ = [
    "InUse",
    "Interrupted",
    "NotFinite",
    "OtherRecipe",
    "Recipe",
    "Run",
    "Runtime",
    "StartedDifferently",
    "fit",
    "load",
    "read_recipe",
    "recipes",
    "recognised",
]
