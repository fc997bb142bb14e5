"""Checks of a recipe's values: types, choices, finite numbers. A recipe may have been written by hand."""

from __future__ import annotations

import math
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_SHAPE = {
    "channels",
    "classes",
    "image_size",
}  # of the images: keywords of nets.create that come from the recipe's data


def require(holds: bool, message: str) -> None:
    """A ValueError with the message unless it holds."""
    if not holds:
        raise ValueError(message)


def check_fields(values: Any, where: str) -> None:
    """Check every field of a dataclass against its type: numbers are finite, a choice is one of those there are."""
    for name, hint in get_type_hints(type(values)).items():
        _check(hint, getattr(values, name), f"{where}.{name}".removeprefix("recipe."))


def check_options(options: dict[str, Any], where: str) -> None:
    """Check that the options are keywords with plain values, so that they go to JSON and back. Which ones a network has, it
    knows itself."""
    for name, value in options.items():
        require(isinstance(name, str) and name.isidentifier(), f"{where} has a name {name!r}: names are identifiers")
        require(name not in _SHAPE, f"{where}.{name}={value!r}: the network takes it from the data, set data.{name}")
        is_plain = isinstance(value, (bool, int, float, str))
        require(is_plain, f"{where}.{name}={value!r}: must be a number, text or a boolean")
        require(not isinstance(value, float) or math.isfinite(value), f"{where}.{name}={value!r}: must be finite")


def _check(hint: Any, value: Any, where: str) -> None:
    alternatives = get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is Union else (hint,)
    if value is None and NoneType in alternatives:
        return
    (kind,) = (alternative for alternative in alternatives if alternative is not NoneType)
    if get_origin(kind) is Literal:
        require(value in get_args(kind), f"{where}={value!r}: choose one of {', '.join(map(repr, get_args(kind)))}")
        return
    kind = get_origin(kind) or kind  # dict[str, …]: what is in it is checked elsewhere
    accepted = (int, float) if kind is float else (kind,)
    is_one = isinstance(value, accepted) and not (isinstance(value, bool) and kind is not bool)
    require(is_one, f"{where}={value!r}: must be of type {kind.__name__}")
    require(kind is not float or math.isfinite(value), f"{where}={value!r}: must be a finite number")
