"""Tensors as pictures, and how figures look.

Pictures: images, signals, saliency maps and groups of signals as arrays of bytes, and those as PNG. Figures: few lines,
direct labels, colours that everybody can tell apart, on light and on dark paper.
"""

from __future__ import annotations

import colorsys
import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bort._defaults import OVERLAY_STRENGTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
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
    "legend",
    "npy",
    "overlay",
    "panels",
    "picture",
    "png",
    "reduced",
    "sheet",
    "signal",
    "style",
    "to_png",
    "to_svg",
]

Picture = NDArray[np.uint8]
"""(H, W, 3)"""

Row = tuple[str, list[tuple[Picture, str]]]
"""The name at the left of a row, and its pictures with the words under each."""

_HEAT = "inferno"  # from dark to bright in even steps, also in grey and for the colour-blind


def picture(pixels: Tensor) -> Picture:
    """An image (C, H, W) in [0, 1], grey or in colour; if it has neither 1 nor 3 channels, their mean."""
    values = pixels.detach().cpu().float().clamp(0, 1)
    if len(values) != 3:
        values = values.mean(dim=0).expand(3, *values.shape[1:])
    return (values * 255).round().byte().permute(1, 2, 0).numpy()


def signal(values: Tensor) -> Picture:
    """A signal that was traced back from a layer, (C, H, W): from its 1st percentile (dark) to its 99th (bright), since
    signals have no common scale."""
    flat = values.detach().cpu().float()
    low, high = _range(flat)
    return picture((flat - low) / (high - low))


def heat(saliency: Tensor) -> Picture:
    """A saliency map (H, W) in colours, from its 1st to its 99th percentile: only the order of the values counts."""
    import matplotlib

    flat = saliency.detach().cpu().float()
    low, high = _range(flat)
    colours = matplotlib.colormaps[_HEAT](((flat - low) / (high - low)).clamp(0, 1).numpy(), bytes=True)
    return np.ascontiguousarray(colours[..., :3])


def overlay(pixels: Tensor, saliency: Tensor, strength: float = OVERLAY_STRENGTH) -> Picture:
    """The map over the image (C, H, W), which is shown in grey."""
    if not 0 <= strength <= 1:
        raise ValueError(f"strength={strength}: must be from 0 (the image) to 1 (the map)")
    grey = picture(pixels.mean(dim=0, keepdim=True)).astype(np.float32)
    mixed = (1 - strength) * grey + strength * heat(saliency).astype(np.float32)
    return mixed.round().astype(np.uint8)


def _range(values: Tensor) -> tuple[float, float]:
    """The 1st and the 99th percentile; never equal."""
    low, high = (values.flatten().quantile(part).item() for part in (0.01, 0.99))
    if high <= low:  # a sparse map: more than 98% of its values are the same
        low, high = values.min().item(), values.max().item()
    return low, high if high > low else low + max(1.0, abs(low))


def enlarged(image: Picture, side: int = 224) -> Picture:
    """At least ``side`` pixels at its longer side, each pixel repeated a whole number of times: small images stay sharp."""
    factor = math.ceil(side / max(image.shape[:2]))
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


def reduced(image: Picture, side: int) -> Picture:
    """At most ``side`` pixels at its longer side."""
    from PIL import Image

    if max(image.shape[:2]) <= side:
        return image
    smaller = Image.fromarray(image)
    smaller.thumbnail((side, side))
    return np.asarray(smaller)


def png(image: Picture) -> bytes:
    """The picture as a PNG file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def npy(values: Tensor) -> bytes:
    """The values as a file that numpy.load reads."""
    buffer = io.BytesIO()
    np.save(buffer, values.detach().cpu().numpy(), allow_pickle=False)
    return buffer.getvalue()


def grid(images: list[list[Picture]], gap: int = 2, colour: int = 255) -> Picture:
    """Rows of pictures of one size as one picture, ``gap`` pixels of a grey ``colour`` between them."""
    height, width = images[0][0].shape[:2]
    rows, columns = len(images), max(map(len, images))
    canvas = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap, 3), colour, dtype=np.uint8)
    for r, row in enumerate(images):
        for c, image in enumerate(row):
            canvas[r * (height + gap) :, c * (width + gap) :][:height, :width] = image
    return canvas


def coloured_groups(signals: Tensor, groups: Tensor, count: int) -> Picture:
    """Signals (k, C, H, W), each in one of ``count`` groups (k,), as one picture: every group has a colour, and each place
    shows the colours of the groups whose signals are strong there."""
    strength = signals.abs().sum(dim=1).cpu()
    strength = strength / strength.amax(dim=(1, 2), keepdim=True).clamp(min=1e-12)
    canvas = torch.zeros(*strength.shape[1:], 3)
    for group in range(count):
        members = strength[groups.cpu() == group]
        if len(members):
            hue = torch.tensor(colorsys.hsv_to_rgb(group / count, 0.75, 1.0))
            canvas += members.mean(dim=0)[..., None] * hue
    top = canvas.quantile(0.99).item() or 1.0
    return ((canvas / top).clamp(0, 1) * 255).round().byte().numpy().astype(np.uint8)


INK, MUTED, GRID = "#24292f", "#6b7280", "#d5dae0"
"""Colours of text, of labels and of grid lines. The report's page replaces them by its own, for dark paper."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07800", "#3a8fc4")  # Okabe and Ito's, the last two darker
_PIXELS_PER_INCH = 96.0

_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "text.parse_math": False,  # a run may have dollars in its name
    "svg.fonttype": "none",  # text stays text: it can be found, and it follows the page's colours
    "svg.hashsalt": "bort",  # the same figure is the same file
}


@contextmanager
def style() -> Iterator[None]:
    """Inside, matplotlib draws in this package's style; afterwards its settings are what they were."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError('figures need matplotlib: pip install "bort[explain]"') from None
    with matplotlib.rc_context(_SETTINGS):
        yield


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows × columns panels, each width × height pixels. To be called inside :func:`style`."""
    from matplotlib.figure import Figure

    inches = (columns * width / _PIXELS_PER_INCH, rows * height / _PIXELS_PER_INCH)
    figure = Figure(figsize=inches, dpi=_PIXELS_PER_INCH, layout="constrained")
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False)]


def sheet(rows: list[Row], side: int = 92) -> Figure:
    """Rows of pictures, named at their left."""
    columns = max(len(pictures) for _, pictures in rows)
    with style():
        has_words = any(words for _, pictures in rows for _, words in pictures)
        names = 6 * max(
            len(name) for name, _ in rows
        )  # pixels; without room of their own they would press on the pictures
        figure, axes = panels(len(rows), columns, side + names / columns, side + (16 if has_words else 0))
        layout: Any = figure.get_layout_engine()
        layout.set(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
        for cells, (name, pictures) in zip(axes, rows, strict=True):
            for cell, (image, words) in zip(cells, pictures, strict=False):
                cell.imshow(image, interpolation="none")
                cell.set_xlabel(words, fontsize=7.5, labelpad=2, color=MUTED)
            for cell in cells:
                cell.set_xticks([])
                cell.set_yticks([])
                cell.grid(visible=False)
                cell.spines[:].set_visible(False)
            cells[0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=6, fontsize=8.5)
            for cell in cells[len(pictures) :]:
                cell.set_visible(False)
    return figure


def legend(name: str) -> str:
    """A name for a legend. matplotlib leaves out names that begin with an underscore, so they get a space of no width."""
    return f"\u200b{name}" if name.startswith("_") else name


def colour(number: int) -> str:
    """Of the number-th subject in a figure."""
    return _COLOURS[number % len(_COLOURS)]


def to_svg(figure: Figure, *, transparent: bool = True) -> str:
    """The <svg> element alone, without the declarations that a file needs. Its background is transparent, or white."""
    buffer = io.StringIO()
    with style():
        figure.savefig(buffer, format="svg", transparent=transparent, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def to_png(figure: Figure) -> bytes:
    """On white, at twice the pixels."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=2 * _PIXELS_PER_INCH, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
