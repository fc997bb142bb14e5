"""Images, signals, saliency maps and groups of signals as arrays of bytes, and those as PNG."""

from __future__ import annotations

import colorsys
import io
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bort._colours import NEGATIVE, POSITIVE, diverging
from bort._defaults import OVERLAY_STRENGTH

Picture = NDArray[np.uint8]
"""(H, W, 3)"""

_HEAT = "inferno"  # from dark to bright in even steps, also in grey and for the colour-blind


def picture(pixels: Tensor) -> Picture:
    """An image (C, H, W) in [0, 1], grey or in colour; if it has neither 1 nor 3 channels, their mean.

    Example:
        >>> pictures.picture(torch.tensor([[[0.0, 1.0]]]))
        array([[[  0,   0,   0],
                [255, 255, 255]]], dtype=uint8)
    """
    values = pixels.detach().cpu().float().clamp(0, 1)
    if len(values) != 3:
        values = values.mean(dim=0).expand(3, *values.shape[1:])
    return (values * 255).round().byte().permute(1, 2, 0).numpy()


def signal(values: Tensor, scale: float | None = None) -> Picture:
    """A signal that was traced back from a layer, (C, H, W), in signed colours: zero is black where there is one channel, and
    mid-grey where there are three, whose colours are then those that the signal adds. Other numbers of channels: their mean.

    Args:
        scale: the size of the values that get the strongest colours; larger ones are cut. By default the signal's own, see
            :func:`scale_of`; pictures beside each other can be compared if they have one scale.

    Example:
        >>> pictures.signal(torch.randn(1, 8, 8)).shape
        (8, 8, 3)
    """
    shown = _shown(values) / (scale or scale_of(values))
    return picture(0.5 + shown / 2) if len(shown) == 3 else _signed(shown[0])


def scale_of(*signals: Tensor) -> float:
    """The 99th percentile of the absolute values of these signals (…, C, H, W), which one :func:`signal` scale
    shows; never 0.

    Example:
        >>> pictures.scale_of(torch.tensor([[[-2.0, 1.0]]]))
        2.0
    """
    sizes = np.concatenate([_shown(values).abs().flatten().numpy() for values in signals])
    place = round(0.99 * (len(sizes) - 1))
    scale = float(np.partition(sizes, place)[place]) or float(sizes.max())  # of a sparse signal 99% may be 0
    return scale or 1.0


def _shown(values: Tensor) -> Tensor:
    """The channels that a picture shows, (…, 1 or 3, H, W): all of three, the mean of others. NaN and Inf count as 0."""
    flat = values.detach().cpu().float().nan_to_num(0.0, 0.0, 0.0)
    return flat if flat.shape[-3] == 3 else flat.mean(dim=-3, keepdim=True)


def _signed(part: Tensor) -> Picture:
    """(H, W) from -1 to 1 in the colours of signed values."""
    colours: Picture = diverging()[((part.clamp(-1, 1) * 255).round().long() + 255).numpy()]
    return colours


def normalised(saliency: Tensor, *, signed: bool = False) -> Tensor:
    """A saliency map (H, W) from 0, its 1st percentile, to 1, its 99th: only the order of the values counts.

    Args:
        signed: whether zero has a meaning and values below it speak against the class, as with Integrated Gradients. Then
            zero stays zero, and -1 and 1 are equally large, see :func:`scale_of`.

    Example:
        >>> maps = pictures.normalised(torch.arange(64.0).view(8, 8))
        >>> maps.min(), maps.max()
        (tensor(0.), tensor(1.))
    """
    if signed:
        return _over_scale(saliency)
    flat = saliency.detach().cpu().float()
    low, high = _range(flat)
    return ((flat - low) / (high - low)).clamp(0, 1)


def heat(saliency: Tensor, *, signed: bool = False) -> Picture:
    """A saliency map (H, W), :func:`normalised`, in colours: from dark to bright, or with ``signed`` from cyan to gold with
    black at zero.

    Example:
        >>> pictures.heat(torch.rand(8, 8)).shape
        (8, 8, 3)
    """
    if signed:
        return _signed(_over_scale(saliency))
    import matplotlib

    colours = matplotlib.colormaps[_HEAT](normalised(saliency).numpy(), bytes=True)
    return np.ascontiguousarray(colours[..., :3])


def overlay(
    pixels: Tensor,
    saliency: Tensor,
    strength: float = OVERLAY_STRENGTH,
    *,
    signed: bool = False,
    scale: float | None = None,
) -> Picture:
    """The map over the image (C, H, W), which is shown in grey. With ``signed`` (see :func:`heat`) the
    image is darkened, and the stronger a value, the more of its side's colour covers it: at zero there is none;
    ``scale`` is then as in :func:`signal`.

    Example:
        >>> pictures.overlay(torch.rand(3, 8, 8), torch.rand(8, 8), strength=0.5).shape
        (8, 8, 3)
    """
    if not 0 <= strength <= 1:
        raise ValueError(f"strength={strength}: must be from 0 (the image) to 1 (the map)")
    grey = picture(pixels.mean(dim=0, keepdim=True)).astype(np.float32)
    if signed:
        part = _over_scale(saliency, scale).numpy()[..., None]
        colours = np.where(part > 0, *(np.array(side, np.float32) for side in (POSITIVE, NEGATIVE)))
        grey, cover = (1 - strength / 2) * grey, strength * np.abs(part)
    else:
        colours, cover = heat(saliency).astype(np.float32), np.float32(strength)
    mixed: Picture = ((1 - cover) * grey + cover * colours).round().astype(np.uint8)
    return mixed


def _over_scale(saliency: Tensor, scale: float | None = None) -> Tensor:
    """The map (H, W) divided by its scale, from -1 to 1."""
    return (_shown(saliency[None])[0] / (scale or scale_of(saliency[None]))).clamp(-1, 1)


def _range(values: Tensor) -> tuple[float, float]:
    """The 1st and the 99th percentile; never equal."""
    low, high = (values.flatten().quantile(part).item() for part in (0.01, 0.99))
    if high <= low:  # a sparse map: more than 98% of its values are the same
        low, high = values.min().item(), values.max().item()
    return low, high if high > low else low + max(1.0, abs(low))


def enlarged(image: Picture, side: int = 224) -> Picture:
    """At least ``side`` pixels at its longer side, each pixel repeated a whole number of times: small images stay sharp.

    Example:
        >>> pictures.enlarged(pictures.picture(torch.rand(1, 28, 28)), side=100).shape  # each pixel 4 × 4
        (112, 112, 3)
    """
    factor = math.ceil(side / max(image.shape[:2]))
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


def reduced(image: Picture, side: int) -> Picture:
    """At most ``side`` pixels at its longer side.

    Example:
        >>> pictures.reduced(pictures.picture(torch.rand(1, 64, 32)), side=16).shape
        (16, 8, 3)
    """
    from PIL import Image

    if max(image.shape[:2]) <= side:
        return image
    smaller = Image.fromarray(image)
    smaller.thumbnail((side, side))
    return np.asarray(smaller)


def png(image: Picture) -> bytes:
    """The picture as a PNG file.

    Example:
        >>> pictures.png(pictures.picture(torch.rand(3, 8, 8)))[:4]
        b'\x89PNG'
    """
    from PIL import Image

    buffer = io.BytesIO()
    # Noisy pictures become no smaller by level 9, which takes four times as long.
    Image.fromarray(image).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


def npy(values: Tensor) -> bytes:
    """The values as a file that numpy.load reads.

    Example:
        >>> import io
        >>> import numpy
        >>> numpy.load(io.BytesIO(pictures.npy(torch.tensor([1.0, 2.0]))))
        array([1., 2.], dtype=float32)
    """
    buffer = io.BytesIO()
    np.save(buffer, values.detach().cpu().numpy(), allow_pickle=False)
    return buffer.getvalue()


def grid(images: list[list[Picture]], gap: int = 2, colour: int = 255) -> Picture:
    """Rows of pictures of one size as one picture, ``gap`` pixels of a grey ``colour`` between them.

    Example:
        >>> one = pictures.picture(torch.rand(1, 8, 8))
        >>> pictures.grid([[one, one], [one, one]], gap=2).shape
        (18, 18, 3)
    """
    height, width = images[0][0].shape[:2]
    rows, columns = len(images), max(map(len, images))
    canvas = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap, 3), colour, dtype=np.uint8)
    for r, row in enumerate(images):
        for c, image in enumerate(row):
            canvas[r * (height + gap) :, c * (width + gap) :][:height, :width] = image
    return canvas


def coloured_groups(signals: Tensor, groups: Tensor, count: int) -> Picture:
    """Signals (k, C, H, W), each in one of ``count`` groups (k,), as one picture: every group has a colour, and each place
    shows the colours of the groups whose signals are strong there.

    Example:
        >>> pictures.coloured_groups(torch.rand(4, 1, 8, 8), torch.tensor([0, 0, 1, 1]), 2).shape
        (8, 8, 3)
    """
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
