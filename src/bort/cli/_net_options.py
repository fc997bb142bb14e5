"""Options of a recipe's network on the command line: ``--net.options.NAME VALUE`` and ``--net.options NAME=VALUE ...``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from bort.cli._values import parse_value
from bort.train import Recipe


def set_net_options(recipe: Recipe, arguments: list[str]) -> tuple[Recipe, list[str]]:
    """The recipe with the options of its network that are given as ``--net.options.NAME VALUE``, and the other arguments.
    tyro would know only the names that the recipe has already."""
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
            options[option] = parse_value(value)
        else:
            try:
                getattr(recipe.net, field)
            except AttributeError as error:  # it names what a field of version 0.1.0 has become
                raise ValueError(f"{flag}: {error}") from None
            rest.append(argument)
    if options and "--net.options" in rest:
        raise ValueError("--net.options sets all options of the network, --net.options.NAME one of them: use either")
    return replace(recipe, net=replace(recipe.net, options=recipe.net.options | options)), rest


REGISTRY = ConstructorRegistry()


@REGISTRY.primitive_rule
def _net_options(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[dict[str, Any]] | None:
    """How tyro reads and shows ``--net.options NAME=VALUE ...``."""
    if info.type_origin is not dict:
        return None

    def parse(pairs: list[str]) -> dict[str, Any]:
        if wrong := [pair for pair in pairs if "=" not in pair]:
            raise ValueError(f"{wrong[0]!r}: write NAME=VALUE")
        return {
            name.replace("-", "_"): parse_value(value) for name, _, value in (pair.partition("=") for pair in pairs)
        }

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="[NAME=VALUE ...]",
        instance_from_str=parse,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda options: [f"{name}={value}" for name, value in options.items()],
    )
