"""timm's notation of RandAugment, such as rand-m9-mstd0.5-inc1."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PLAIN = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast"),
    *("Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
_HAVE_INCREASING = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
INCREASING = tuple(f"{name}Increasing" if name in _HAVE_INCREASING else name for name in PLAIN)
_WEIGHTS = {"Rotate": 3.0, "ShearX": 2.0, "ShearY": 2.0, "TranslateXRel": 1.0, "TranslateYRel": 1.0} | dict.fromkeys(
    ("ColorIncreasing", "SharpnessIncreasing", "AutoContrast"), 0.25
)
"""Of timm's set "weights"; all its other ops have 0.05."""

_UNIFORM_FROM = 100
_VALUES: dict[str, Callable[[str], Any]] = {"m": int, "n": int, "p": float, "mstd": float, "mmax": int, "inc": int}


@dataclass(frozen=True)
class Notation:
    """What a notation asks for. Defaults are timm's."""

    magnitude: float = 10
    deviation: float = 0.0
    """Of the magnitude, which is normal; infinite: it is uniform from 0 to ``magnitude``."""
    highest: float = 10
    """Magnitudes are clipped to 0 … highest."""
    layers: int = 2
    """How many ops an image draws."""
    probability: float = 0.5
    """With which each of them is applied."""
    ops: tuple[str, ...] = PLAIN
    weights: tuple[float, ...] = ()
    """Of the ops, which are then drawn without replacement; empty: equal ones, with replacement."""


def parse(notation: str) -> Notation:
    """Read timm's notation: "rand", then parts in any order, separated by "-".

    ``m9`` magnitude, ``n2`` layers, ``p0.5`` probability, ``mstd0.5`` deviation (above 100: uniform), ``mmax10`` the highest
    magnitude, ``inc1`` ops that grow stronger with the magnitude, ``tweights`` timm's weighted set. Parts that timm passes
    over in silence, such as ``inc`` without a number or an unknown set, are refused: they would not do what they say.
    """
    first, *parts = notation.split("-")
    if first != "rand":
        raise ValueError(f"{notation!r} is not in timm's notation of RandAugment, such as rand-m9-mstd0.5: no 'rand'")
    given: dict[str, Any] = {}
    for part in parts:
        key, value = _part(part, notation)
        if key in given:
            raise ValueError(f"RandAugment {notation!r}: {key!r} is given twice")
        given[key] = value
    deviation = given.get("mstd", 0.0)
    is_weighted = given.get("t") == "weights"
    ops = INCREASING if is_weighted or given.get("inc") else PLAIN
    weights = tuple(_WEIGHTS.get(name, 0.05) for name in ops) if is_weighted else ()
    layers = given.get("n", 2)
    if weights and layers > len(ops):
        raise ValueError(f"RandAugment {notation!r}: {layers} ops without replacement out of {len(ops)}")
    return Notation(
        magnitude=given.get("m", 10),
        deviation=math.inf if deviation > _UNIFORM_FROM else deviation,
        highest=given.get("mmax") or 10,  # timm reads 0 as "not given"
        layers=layers,
        probability=given.get("p", 0.5),
        ops=ops,
        weights=weights,
    )


def _part(part: str, notation: str) -> tuple[str, Any]:
    """The key and the value of a part."""
    if part.startswith("t"):
        return "t", _set(part, notation)
    match = re.fullmatch(r"(\D+)(\d.*)", part)
    if match is None or match[1] not in _VALUES:
        known = ", ".join(f"{key}…" for key in (*_VALUES, "t"))
        raise ValueError(f"RandAugment {notation!r}: the part {part!r} is none of {known} with a value")
    try:
        return match[1], _VALUES[match[1]](match[2])
    except ValueError:
        kind = "a whole number" if _VALUES[match[1]] is int else "a number"
        raise ValueError(f"RandAugment {notation!r}: {match[2]!r} in the part {part!r} is not {kind}") from None


def _set(part: str, notation: str) -> str:
    if part in ("t3a", "t3aw"):
        raise ValueError(f"RandAugment {notation!r}: the set {part!r} needs Gaussian blur, which is not available here")
    if part != "tweights":
        raise ValueError(f"RandAugment {notation!r}: there is no set {part!r}; there is 'tweights'")
    return part[1:]
