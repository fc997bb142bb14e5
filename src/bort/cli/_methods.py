"""Saliency methods and their options, as typed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from bort.cli._values import parse_value


def chosen_methods(names: Sequence[str]) -> list[str]:
    """The names as typed, each once; "all" stands for all of them, and "list" prints them and ends the command."""
    from bort import explain

    if tuple(names) == ("list",):
        print("\n".join(explain.names()))
        sys.exit()
    chosen = explain.names() if tuple(names) == ("all",) else list(dict.fromkeys(names))
    for name in chosen:
        explain.get(name)
    return chosen


def given_options(named: dict[str, Any], others: Sequence[str]) -> dict[str, Any]:
    """The options that were given: by flags of their own (None where they were not) and as ``--option NAME=VALUE``."""
    given = {name: value for name, value in named.items() if value is not None}
    for text in others:
        name, equals, value = text.partition("=")
        name = name.replace("-", "_")
        if not equals or not name.isidentifier():
            raise ValueError(f"--option {text}: give it as NAME=VALUE, such as steps=32")
        if name in given:
            raise ValueError(f"--option {text}: {name} is given twice")
        given[name] = parse_value(value)
    return given


def options_for(methods: list[str], given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """For each method those of the options that it takes. An option that none of them takes is refused."""
    from bort import explain

    takes = {method: set(explain.get(method).options) for method in methods}
    for name, value in given.items():
        if not any(name in options for options in takes.values()):
            takers = [method for method in explain.names() if name in explain.get(method).options]
            hint = f"it is for {', '.join(takers)}" if takers else "no method has such an option"
            raise ValueError(f"--{name} {value} says nothing to {', '.join(methods)}; {hint}")
    return {method: {name: value for name, value in given.items() if name in takes[method]} for method in methods}
