"""`bort train`"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from bort.train import Interrupted, NotFinite, Recipe, Runtime, fit, read_recipe, recipes

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
            defaults = Arguments(replace(recipe, paper=None), Runtime(), out)  # the paper's figures are not an option
            given = tyro.cli(
                Arguments,
                args=options,
                default=defaults,
                prog=f"bort train {name}",
                config=(tyro.conf.AvoidSubcommands,),
            )
            run = fit(replace(given.recipe, paper=recipe.paper), given.out, given.runtime, force=given.force)
        except Interrupted as stop:
            if is_first:
                print(stop, file=sys.stderr)
            sys.exit(Interrupted.EXIT_CODE)
        except BrokenPipeError:  # `bort train R --help | head`
            sys.stdout = None
            return
    if not is_first:
        return
    last = run.history[-1]
    paper = f" (the paper: {run.recipe.paper.top1:.2f}%)" if run.recipe.paper else ""
    print(
        f"{run.recipe.name}: {last['accuracy']:.2%} of the test images{paper}, residual {last['residual']:.3f}, "
        f"σ {last['sigma'][0]:.2f} … {last['sigma'][1]:.2f}, {last['seconds']:.1f} s; {run.path}"
    )


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


def _set_net_options(recipe: Recipe, arguments: list[str]) -> tuple[Recipe, list[str]]:
    """The recipe with the options of its network that are given as ``--net.options.NAME VALUE``, and the other arguments. tyro
    would know only the names that the recipe has already."""
    options, rest, remaining = {}, [], list(arguments)
    while remaining:
        argument = remaining.pop(0)
        flag, equals, value = argument.partition("=")
        field, _, option = flag.removeprefix("--net.").replace("-", "_").partition(".")
        if not flag.startswith("--net."):
            rest.append(argument)
        elif field == "options" and option:
            if not equals:
                if not remaining or remaining[0].startswith("--"):
                    raise ValueError(f"{flag} needs a value")
                value = remaining.pop(0)
            options[option] = _value(value)
        else:
            try:
                getattr(recipe.net, field)
            except AttributeError as error:  # it names what a field of version 0.1.0 has become
                raise ValueError(f"{flag}: {error}") from None
            rest.append(argument)
    if options and "--net.options" in rest:
        raise ValueError("--net.options sets all options of the network, --net.options.NAME one of them: use either")
    return replace(recipe, net=replace(recipe.net, options=recipe.net.options | options)), rest


_registry = ConstructorRegistry()


@_registry.primitive_rule
def _net_options(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[dict[str, Any]] | None:
    """How tyro reads and shows ``--net.options NAME=VALUE ...``."""
    if info.type_origin is not dict:
        return None

    def parse(pairs: list[str]) -> dict[str, Any]:
        if wrong := [pair for pair in pairs if "=" not in pair]:
            raise ValueError(f"{wrong[0]!r}: write NAME=VALUE")
        return {name.replace("-", "_"): _value(value) for name, _, value in (pair.partition("=") for pair in pairs)}

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="[NAME=VALUE ...]",
        instance_from_str=parse,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda options: [f"{name}={value}" for name, value in options.items()],
    )


def _value(text: str) -> int | float | str | bool:
    """What a person means by a text: a boolean or a number if it looks like one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
