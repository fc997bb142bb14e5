"""Images with what was computed of them, beside each other: in a notebook, or as a file."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path

import torch
from torch import Tensor

from bort import _html
from bort._defaults import OVERLAY_STRENGTH
from bort._files import write_atomically
from bort.data import View
from bort.invert import correlation
from bort.pictures import Picture, Row, overlay, picture, png, reduced, sheet, signal, to_png, to_svg

_COLUMNS = 8
"""Images beside each other; further ones come below."""
_SIDE = 112
"""Pixels of the longer side of a picture in a notebook."""


def show(
    images: Tensor,
    maps: Tensor | Mapping[str, Tensor] | None = None,
    *,
    signals: Tensor | Mapping[str, Tensor] | None = None,
    view: View | None = None,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    names: Sequence[object] | Tensor = (),
    strength: float = OVERLAY_STRENGTH,
    signed: bool | Collection[str] = False,
    limit: int = 16,
) -> Shown:
    """Images, and below each its saliency maps and reconstructions::

        bort.show(x)
        bort.show(x, {"SAT": explain.sat(model, x), "CAM": explain.cam(model, x)}, mean=mean, std=std)
        bort.show(x, signals={"conv5": invert.reconstruct(model, x, "conv5")}).save("conv5.png")

    Args:
        images: (N, C, H, W), bytes or floats; 1 channel is grey, 3 are colours, of others the mean is shown.
        maps: (N, H, W) of any saliency method, or several by their names. Drawn over the images, each from its 1st to its
            99th percentile.
        signals: (N, C, H, W), as of :func:`bort.invert.reconstruct`, or several by their names. Drawn in signed colours, each
            with a scale of its own (:func:`bort.pictures.signal`); the number below is the correlation with the image.
        view, mean, std: how the images were normalised, as a View or as a number a channel. Without them floats from 0 to 1
            are shown as they are, others from the smallest (black) to the largest (white), with a note.
        names: words below the images, such as their classes.
        strength: of the maps, from 0 (the image alone) to 1 (the map alone).
        signed: whether zero has a meaning in the maps, as with Integrated Gradients: then gold is for the class, blue against
            it. True, or the names of those maps.
        limit: how many images are shown, the first ones.

    Example:
        >>> x = torch.rand(2, 3, 16, 16)
        >>> shown = bort.show(x, {"CAM": torch.rand(2, 16, 16)}, names=["cat", "dog"])
        >>> shown.save("images.png")
    """
    images = torch.as_tensor(images)
    _check_images(images)
    if limit < 1:
        raise ValueError(f"limit={limit}: must be 1 or more")
    captions = [str(name) for name in (names.tolist() if isinstance(names, Tensor) else names)]
    if captions and len(captions) != len(images):
        raise ValueError(f"{len(captions)} names for {len(images)} images: give one for each")
    pixels, notes = _pixels(images, view, mean, std)
    count = min(limit, len(images))
    if count < len(images):
        notes.append(f"The first {count} of {len(images)} images.")
    rows: list[Row] = [("image", [(picture(p), c) for p, c in zip(pixels[:count], captions or [""] * count)])]
    for name, values in _named(maps, "map").items():
        _check_values(f"the map {name!r}", values, (len(images), *images.shape[2:]))
        is_signed = signed if isinstance(signed, bool) else name in signed
        rows.append((name, [(overlay(p, v, strength, signed=is_signed), "") for p, v in zip(pixels[:count], values)]))
    for name, values in _named(signals, "signal").items():
        _check_values(f"the signal {name!r}", values, tuple(images.shape))
        alike = correlation(values[:count].double().cpu(), images[:count].double().cpu()).tolist()
        rows.append((name, [(signal(v), f"{c:.2f}") for v, c in zip(values, alike)]))
    if signals is not None:
        colours = "mid-grey is zero" if images.shape[1] == 3 else "black is zero, gold above it, blue below"
        notes.append(f"Signals: {colours}. Below a signal: its correlation with the image.")
    return Shown(rows, notes, (images.shape[2], images.shape[3]))


class Shown:
    """What :func:`show` returns: pictures in rows. A notebook shows it; elsewhere :meth:`save` it."""

    def __init__(self, rows: Sequence[Row], notes: Sequence[str], size: tuple[int, int]) -> None:
        self._rows, self._size = rows, size
        self.notes = tuple(notes)
        """What has to be known to read the pictures."""

    def save(self, file: str | os.PathLike[str]) -> None:
        """All pictures with their words as one picture, PNG or SVG by the file's ending."""
        path = Path(file)
        if path.suffix.lower() not in (".png", ".svg"):
            raise ValueError(f"{path}: the name must end in .png or .svg")
        figure = sheet([row for rows in self._in_columns() for row in rows])
        if path.suffix.lower() == ".png":
            write_atomically(path, to_png(figure))
        else:
            declaration = '<?xml version="1.0" encoding="utf-8"?>\n'
            write_atomically(path, declaration + to_svg(figure, transparent=False))

    def __repr__(self) -> str:
        height, width = self._size
        others = ", ".join(name for name, _ in self._rows[1:])
        return (
            f"<{len(self._rows[0][1])} images of {height}×{width}{f' with {others}' if others else ''}: shown in a notebook, "
            "elsewhere use save(file)>"
        )

    def _repr_html_(self) -> str:
        lines, number = [], 0
        for rows in self._in_columns():
            for name, pictures in rows:
                cells = (
                    self._cell(image, words, f"{name} {n}")
                    for n, (image, words) in enumerate(pictures, start=number + 1)
                )
                lines.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>')
            number += len(rows[0][1])
        return _html.notebook(f'<table class="pictures">{"".join(lines)}</table>', _html.paragraphs(self.notes))

    def _cell(self, image: Picture, words: str, alt: str) -> str:
        height, width = self._size
        shown = png(reduced(image, 2 * _SIDE))  # two pixels for one, for screens that have them
        tag = _html.image(shown, "png", alt, width=max(1, round(_SIDE * width / max(height, width))))
        return f"<td>{tag}{f'<br>{escape(words)}' if words else ''}</td>"

    def _in_columns(self) -> list[list[Row]]:
        """The rows in groups of at most so many images; a group has the same images in all its rows."""
        count = len(self._rows[0][1])
        return [
            [(name, pictures[start : start + _COLUMNS]) for name, pictures in self._rows]
            for start in range(0, count, _COLUMNS)
        ]


def _check_images(images: Tensor) -> None:
    if images.ndim != 4 or not images.numel():
        advice = "; one image is images[None]" if images.ndim == 3 else ""
        raise ValueError(f"images of shape {tuple(images.shape)}: give (N, channels, height, width){advice}")
    if not images.is_floating_point() and images.dtype != torch.uint8:
        raise ValueError(f"images of type {images.dtype}: give floats, or bytes (torch.uint8)")
    if not images.isfinite().all():
        raise ValueError("the images have NaN or Inf in them")


def _check_values(what: str, values: Tensor, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise ValueError(f"{what} has the shape {tuple(values.shape)}: for these images it must be {shape}")
    if not values.isfinite().all():
        raise ValueError(f"{what} has NaN or Inf in it")


def _named(values: Tensor | Mapping[str, Tensor] | None, name: str) -> Mapping[str, Tensor]:
    if values is None:
        return {}
    named = values if isinstance(values, Mapping) else {name: values}
    return {name: torch.as_tensor(value) for name, value in named.items()}


def _pixels(images: Tensor, view: View | None, mean: Sequence[float], std: Sequence[float]) -> tuple[Tensor, list[str]]:
    """The images in [0, 1], and what has to be said of that."""
    values = images.detach().float()
    if images.dtype == torch.uint8:
        return values / 255, []
    if view is None and (mean or std):
        view = View((images.shape[2], images.shape[3]), images.shape[1], tuple(mean), tuple(std))
    if view is not None:
        channels = images.shape[1]
        if not len(view.mean) == len(view.std) == channels:
            raise ValueError(
                f"mean has {len(view.mean)} numbers, std {len(view.std)}, the images have {channels} channels: give one of "
                "both for each"
            )
        return view.pixels(values), []
    low, high = values.min().item(), values.max().item()
    if low >= 0 and high <= 1:
        return values, []
    scaled = (values - low) / max(high - low, 1e-12)
    return scaled, [f"Values from {low:.2f} (black) to {high:.2f} (white); mean and std would give the pixels."]
