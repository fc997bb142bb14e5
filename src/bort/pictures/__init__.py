"""Tensors as pictures, and how figures look.

Pictures: images, signals, saliency maps and groups of signals as arrays of bytes, and those as PNG. Figures: few lines,
direct labels, colours that everybody can tell apart, on light and on dark paper.
"""

from bort._colours import colour
from bort.pictures._figures import BAD, GOOD, GRID, INK, MUTED, Row, key, legend, panels, sheet, style, to_png, to_svg
from bort.pictures._pixels import (
    Picture,
    coloured_groups,
    enlarged,
    grid,
    heat,
    normalised,
    npy,
    overlay,
    picture,
    png,
    reduced,
    scale_of,
    signal,
)

__all__ = [
    "BAD",
    "GOOD",
    "GRID",
    "INK",
    "MUTED",
    "Picture",
    "Row",
    "colour",
    "coloured_groups",
    "enlarged",
    "grid",
    "heat",
    "key",
    "legend",
    "normalised",
    "npy",
    "overlay",
    "panels",
    "picture",
    "png",
    "reduced",
    "scale_of",
    "sheet",
    "signal",
    "style",
    "to_png",
    "to_svg",
]
