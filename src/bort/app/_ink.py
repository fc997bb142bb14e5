"""Bright on dark or dark on bright: what the networks' own images are, and what an image that was sent is.

Digits are bright ink on dark paper, photographs of paper are the other way round, and a picture with transparent places has
no paper at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import torch
from torch import Tensor

from bort.data import to_eight_bits

if TYPE_CHECKING:
    from PIL.Image import Image

Paper = Literal["dark", "bright"]

_DARK, _BRIGHT = 0.25, 0.75  # means of a border, in pixels from 0 to 1
_ALIKE: Final = 0.9  # the part of the examples whose borders must be dark, or bright
_MIDDLE: Final = 0.5
_VISIBLE: Final = 0.25  # the least difference between ink and paper


def borders(pixels: Tensor) -> Tensor:
    """(N,): the mean along the edges of images (N, C, H, W) in [0, 1]."""
    return _edges(pixels).mean(dim=(1, 2))


def _edges(pixels: Tensor) -> Tensor:
    """(N, C, n): the pixels at the edges, a 28th of the side wide."""
    width = max(1, min(pixels.shape[2:]) // 28)
    is_edge = torch.ones(pixels.shape[2:], dtype=torch.bool, device=pixels.device)
    is_edge[width:-width, width:-width] = False
    return pixels[:, :, is_edge]


def paper_of(examples: Tensor) -> Paper | None:
    """What the images (N, C, H, W) in [0, 1] have at their edges, if nine of ten have the same; None as of photographs."""
    found = borders(examples)
    if (found < _DARK).float().mean() >= _ALIKE:
        return "dark"
    return "bright" if (found > _BRIGHT).float().mean() >= _ALIKE else None


def contrast_of(pixels: Tensor, paper: Paper | None) -> str:
    """ "dark on bright" or "bright on dark" if the image (1, C, H, W) is the other way round than images on that paper."""
    border = borders(pixels).item()
    if paper == "dark" and border > _MIDDLE:
        return "dark on bright"
    return "bright on dark" if paper == "bright" and border < _MIDDLE else ""


def inverted(pixels: Tensor) -> Tensor:
    """The image (1, C, H, W) in [0, 1] on the other paper, the ink as strong as can be: with the median p of the edges and
    the ink i that is furthest from it, (p - x) / (p - i) where p was bright and 1 - (x - p) / (i - p) where it was dark. Of
    black on white that is 1 - x; of a photograph, whose paper is grey, the paper becomes black."""
    paper = _edges(pixels).median()
    was_bright = bool(paper > _MIDDLE)
    ink = pixels.min() if was_bright else pixels.max()
    if abs(paper - ink) < 1 / 255:  # an empty sheet
        return 1 - pixels
    strength = ((pixels - paper) / (ink - paper)).clamp(0, 1)
    return strength if was_bright else 1 - strength


def paper_under(image: Image, paper: Paper) -> Paper:
    """What transparent places of an image become: this paper, or the other if what can be seen of the image would be lost on
    it, as white on bright paper and black on dark. A sample of its pixels says it: 25 million of them as floats would take
    400 MB."""
    width, height = image.size
    colours = _with_alpha(image.resize((min(width, 512), min(height, 512)), 0))  # 0: nearest, which mixes no colours
    if colours is None:
        return paper
    pixels = np.asarray(colours, dtype=np.float32) / 255
    alpha = pixels[..., 3]
    if not alpha.any():
        return paper
    ink = float((pixels[..., :3].mean(axis=2) * alpha).sum() / alpha.sum())
    if abs(ink - (paper == "bright")) >= _VISIBLE:
        return paper
    return "dark" if paper == "bright" else "bright"


def on_paper(image: Image, paper: Paper, high: float | None = None) -> Image:
    """The image as 8-bit grey or RGB, its transparent places in the colour of the paper. ``high``: see ``to_eight_bits``."""
    from PIL import Image as images

    colours = _with_alpha(image, high)
    if colours is None:
        return to_eight_bits(image, high)
    sheet = images.new("RGBA", colours.size, (0, 0, 0, 255) if paper == "dark" else (255, 255, 255, 255))
    return images.alpha_composite(sheet, colours).convert("RGB")


def _with_alpha(image: Image, high: float | None = None) -> Image | None:
    """As RGBA if some of it is transparent."""
    if image.mode in ("RGBa", "La"):  # multiplied by alpha
        image = image.convert("RGBA" if image.mode == "RGBa" else "LA")
    if image.mode.startswith("I") and "transparency" in image.info:  # 16 bits, of which one value is transparent
        from PIL import Image as images

        grey = to_eight_bits(image, high).convert("RGBA")
        seen: Any = np.asarray(image) != image.info["transparency"]
        grey.putalpha(images.fromarray(seen.astype(np.uint8) * 255))
        return grey
    if image.mode not in ("RGBA", "LA", "PA") and "transparency" not in image.info:
        return None
    colours = image.convert("RGBA")
    lowest: Any = colours.getchannel("A").getextrema()[0]
    return colours if lowest < 255 else None
