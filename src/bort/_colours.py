"""Colours that mean something: one for each run, those of signed values, and those of values from little to much.

Numbers behind the choices are in tests/test_colours.py: contrast on light and on dark paper, and how far apart the colours
are for people who do not see all of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

_LIGHT: Final = ("#0072b2", "#c04a00", "#004d38", "#ad2a86", "#5c4300", "#3d2ea8")
_DARK: Final = ("#56b4e9", "#f39a4e", "#8af0c4", "#f06ac0", "#f5ec7a", "#9a85ff")

DIFFERENT: Final = len(_LIGHT)
"""So many runs have colours of their own."""

POSITIVE: Final = (255, 170, 0)
"""Gold. Not the colour of a run, and like the strongest values of `HEAT`."""
NEGATIVE: Final = (0, 150, 200)
_STRONGEST: Final = ((255, 245, 210), (220, 248, 255))  # pale gold and pale cyan: the ends of the two sides
_LIGHTEST: Final = 92.0  # L* of the strongest values

HEAT: Final = ("#000004", "#210c4a", "#57106e", "#8a226a", "#bc3754", "#e45a31", "#f98e09", "#f9cb35", "#fcffa4")
"""Nine even steps of matplotlib's inferno, from little to much: for legends, without importing matplotlib."""


def colour(number: int, *, dark: bool = False) -> str:
    """Of the number-th run, on light or on dark paper: in figures, on pages and in exports.

    Example:
        >>> pictures.colour(0) != pictures.colour(1)
        True
    """
    colours = _DARK if dark else _LIGHT
    return colours[number % len(colours)]


def stylesheet(runs: int = DIFFERENT) -> str:
    """These colours as CSS variables: --run-0, --run-1, … on light and dark paper, and gradients for legends: --signed, from
    the most negative to the most positive value, --signed-rgb, the same of pictures in colour, and --heat."""
    variables = {
        "signed": _gradient([_hex(row) for row in diverging()[::51]]),  # 11 stops, zero in the middle
        "signed-rgb": _gradient(["#000", "#808080", "#fff"]),
        "heat": _gradient(list(HEAT)),
    }
    light = variables | {f"run-{n}": colour(n) for n in range(runs)}
    dark = {f"run-{n}": colour(n, dark=True) for n in range(runs)}
    on_dark_paper = "@media screen and (prefers-color-scheme: dark)"  # which nobody prints on
    return f":root {{ {_declared(light)} }}\n{on_dark_paper} {{ :root {{ {_declared(dark)} }} }}\n"


@lru_cache
def diverging() -> NDArray[np.uint8]:
    """(511, 3): the colours of values from -1 to 1, zero at 255. Zero is black, as the background of the pictures beside it.

    On each side lightness L* grows in proportion to the value, and equally on both, so that strength can be compared: a value
    t has L* = 92 |t|, along a path from black through the side's colour to a pale one.
    """
    sides = [_side(colour, end) for colour, end in zip((POSITIVE, NEGATIVE), _STRONGEST, strict=True)]
    return np.concatenate([sides[1][:0:-1], sides[0]])


def _side(middle: tuple[int, int, int], end: tuple[int, int, int]) -> NDArray[np.uint8]:
    """(256, 3)"""
    part = np.linspace(0, 1, 512)[:, None]
    path = np.concatenate([part * middle, middle + part * (np.array(end) - middle)])
    wanted = np.linspace(0, _LIGHTEST, 256)
    found = [np.interp(wanted, lightness(path), path[:, channel]) for channel in range(3)]
    return np.stack(found, axis=1).round().astype(np.uint8)


def lightness(rgb: NDArray[np.floating] | NDArray[np.uint8]) -> NDArray[np.floating]:
    """L* of CIELAB, from 0 (black) to 100 (white), of sRGB colours (…, 3) from 0 to 255."""
    y = luminance(rgb)
    return np.where(y > 0.008856, 116 * np.cbrt(y) - 16, 903.3 * y)


def luminance(rgb: NDArray[np.floating] | NDArray[np.uint8]) -> NDArray[np.floating]:
    """Relative luminance Y, from 0 to 1, of sRGB colours (…, 3) from 0 to 255."""
    part = np.asarray(rgb, dtype=float) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    weighted: NDArray[np.floating] = linear @ np.array([0.2126, 0.7152, 0.0722])
    return weighted


def _hex(rgb: NDArray[np.uint8]) -> str:
    return "#" + "".join(f"{value:02x}" for value in rgb)


def _gradient(stops: list[str]) -> str:
    return f"linear-gradient(to right, {', '.join(stops)})"


def _declared(variables: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in variables.items())
