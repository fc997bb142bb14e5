"""`bort train`"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Protocol

import tyro

from bort.cli._errors import exit_on_error
from bort.cli._net_options import REGISTRY, set_net_options
from bort.train import Interrupted, NotFinite, Recipe, Run, Runtime, StartedDifferently, fit, read_recipe, recipes

_USAGE = """usage: bort train RECIPE [OPTIONS]

Train a recipe. RECIPE is a name from `bort recipes`, the recipe.json of a run, or a run's folder.
`bort train RECIPE --help` lists every setting with its value: --optim.lr 0.02, --epochs 5, --device cpu, ...
Options of the network: --net.options.NAME VALUE sets one of them, --net.options NAME=VALUE ... all of them.

The run goes into runs/RECIPE, or --out FOLDER. The same command again goes on with what is there.
Exit status: 0 done, 1 failed, 2 wrong options, 75 stopped by a signal with a checkpoint written.
"""


@dataclass(frozen=True)
class Arguments:
    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    runtime: Annotated[Runtime, tyro.conf.arg(name="")]
    out: Path
    """The run's folder."""
    force: bool = False
    """Go on although recipe, number of processes or data are not what the run in the folder was started with."""


class Fit(Protocol):
    """As :func:`bort.train.fit`."""

    def __call__(self, recipe: Recipe, out: Path, runtime: Runtime, *, force: bool) -> Run: ...


def train(arguments: list[str], fit: Fit = fit) -> None:
    """Train a recipe; every setting is an option. ``fit`` is the function that trains."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        sys.exit(0 if arguments else 2)
    name, *options = arguments
    is_first = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun started
    with exit_on_error("train", NotFinite):
        try:
            recipe, out = _resolve(name)
            changed, options = set_net_options(recipe, options)
            changed = _with_one_of_pull_and_constraint(changed, options)
            defaults = Arguments(replace(changed, paper=None), Runtime(), out)  # the paper's figures are not an option
            given = tyro.cli(
                Arguments,
                args=options,
                default=defaults,
                prog=f"bort train {name}",
                config=(tyro.conf.AvoidSubcommands,),
                registry=REGISTRY,
            )
            run = fit(replace(given.recipe, paper=recipe.paper), given.out, given.runtime, force=given.force)
        except StartedDifferently as error:
            raise ValueError(
                f"{error.args[0]}. Start it as it was, choose another folder with --out, or go on all the same with --force"
            ) from error
        except Interrupted as stop:
            if is_first:
                print(stop, file=sys.stderr)
            sys.exit(Interrupted.EXIT_CODE)
    if not is_first:
        return
    last = run.history[-1]
    of = "test images" + (f" (the paper: {run.recipe.paper.top1:.2f}%)" if run.recipe.paper else "")
    if run.recipe.data.held_out:
        of = "held-out training images"
    print(
        f"{run.recipe.name}: {last['accuracy']:.2%} of the {of}, residual {last['residual']:.3f}, "
        f"σ {last['sigma'][0]:.2f} … {last['sigma'][1]:.2f}, {last['seconds']:.1f} s; {run.path}"
    )


def _with_one_of_pull_and_constraint(recipe: Recipe, options: list[str]) -> Recipe:
    """The recipe without its λ if a pull is given, and without its pull if a λ is: one follows from the other. The value that
    takes its place stands for the one that is given."""
    given = {option.partition("=")[0] for option in options}
    for field, other in (("pull", "constraint"), ("constraint", "pull")):
        value = getattr(recipe.optim, other)
        if f"--optim.{field}" in given and f"--optim.{other}" not in given and value:
            return replace(recipe, optim=replace(recipe.optim, **{field: value, other: 0.0}))
    return recipe


def _resolve(name: str) -> tuple[Recipe, Path]:
    """The recipe that was named, and the folder that its run goes into."""
    path = Path(name)
    if name not in recipes.names() and path.is_dir():
        return read_recipe(path), path
    if path.suffix == ".json":
        recipe = read_recipe(path)
        return recipe, Path("runs") / recipe.name
    recipe = recipes.get(name)
    return recipe, Path("runs") / recipe.name
