"""XRAI's regions: the segments of an image, and the map that grows out of them (Kapishnikov et al. 2019).

The published code computes the mean of every segment again in every round. A pixel enters the map once, so it is enough to
subtract it from the counts and sums of its segments then: the whole growth costs as much as one look at every segment.
"""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections import OrderedDict
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from bort._inspect import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCALES: Final = (50, 100, 150, 250, 500, 1200)
"""Felzenszwalb's scales, as published: larger ones give larger segments."""
_SIZE, _COLOURS = (224, 224), 3  # of the images that the scales were chosen for
_MOST_KEPT: Final = 64  # images whose segments are kept, 0.6 MB each at 224²
_kept: OrderedDict[bytes, list[Tensor]] = OrderedDict()
_lock = threading.Lock()


def segments(image: Tensor, dilation: int, progress: Progress | None = None) -> Tensor:
    """(K, H, W) masks of the segments of an image (C, H, W) at all scales, widened by ``dilation`` pixels."""
    masks: list[Tensor] = []
    with closing(_labels(image)) as scales:
        for labels in scales:
            numbers = torch.arange(int(labels.min()), int(labels.max()) + 1)[:, None, None]
            masks.append(_widen(labels == numbers, dilation))
            if progress is not None:
                progress(len(masks), len(SCALES))
    return torch.cat(masks)


def _labels(image: Tensor) -> Generator[Tensor]:
    """(H, W) numbers of the segments, scale by scale. Kept, since reports look at the same images for several networks."""
    content = image.detach().cpu().contiguous()
    key = hashlib.sha256(f"{content.dtype} {tuple(content.shape)}".encode() + content.numpy().tobytes()).digest()
    with _lock:
        known = _kept.get(key)
    if known is not None:
        yield from known
        return
    found = []
    for labels in _cut(content):
        found.append(labels)
        yield labels
    with _lock:
        _kept[key] = found
        while len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)


def _cut(image: Tensor) -> Iterator[Tensor]:
    try:
        import numpy as np
        from skimage.segmentation import felzenszwalb
        from skimage.transform import resize
    except ImportError:
        raise ImportError('XRAI needs scikit-image: pip install "bort[explain]"') from None
    pixels: NDArray[np.float64] = image.double().numpy().transpose(1, 2, 0)
    low, high = pixels.min(), pixels.max()
    pixels = (pixels - low) / (high - low if high > low else 1.0) * 2 - 1
    if len(image) > _COLOURS:  # the distance of two pixels grows with the number of channels
        pixels = pixels * (_COLOURS / len(image)) ** 0.5
    large = resize(pixels, _SIZE, order=3, mode="constant", preserve_range=True, anti_aliasing=True)

    def cut(scale: int) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = felzenszwalb(large, scale=scale, sigma=0.8, min_size=150)
        return labels

    with _without_warning(len(image)), ThreadPoolExecutor(len(SCALES)) as pool:  # partly C code that releases the GIL
        for labels in pool.map(cut, SCALES):
            small = resize(labels, image.shape[1:], order=0, preserve_range=True, mode="constant", anti_aliasing=False)
            yield torch.from_numpy(np.ascontiguousarray(small)).short()  # at most 334 segments of 150 pixels in 224²


@contextmanager
def _without_warning(channels: int) -> Iterator[None]:
    """Inside, scikit-image does not warn of more than three channels."""
    with warnings.catch_warnings() if channels > _COLOURS else nullcontext():
        if channels > _COLOURS:
            warnings.filterwarnings("ignore", "Got image with third dimension", RuntimeWarning)
        yield


def _widen(masks: Tensor, radius: int) -> Tensor:
    """Each mask with all places within the radius of it. Only the box around a segment is computed: most are small."""
    if not radius:
        return masks
    axis = torch.arange(-radius, radius + 1)
    disk = (axis[:, None].square() + axis.square() <= radius * radius).float()[None, None]
    height, width = masks.shape[1:]
    wide = torch.zeros_like(masks)
    for mask, result in zip(masks, wide, strict=True):
        rows, columns = mask.any(dim=1).nonzero(), mask.any(dim=0).nonzero()
        if not len(rows):
            continue
        top, bottom = max(0, int(rows[0]) - radius), min(height, int(rows[-1]) + radius + 1)
        left, right = max(0, int(columns[0]) - radius), min(width, int(columns[-1]) + radius + 1)
        box = mask[None, None, top:bottom, left:right].float()
        result[top:bottom, left:right] = F.conv2d(box, disk, padding=radius)[0, 0] > 0.5
    return wide


def grow(values: Tensor, masks: Tensor, min_pixels: int, progress: Progress | None = None) -> Tensor:
    """(H, W): the map that grows by the mask whose new pixels have the highest mean, again and again, until none brings
    ``min_pixels`` new ones. Each pixel gets the mean of the pixels it came in with; the rest gets its own mean.

    Progress counts pixels, since the number of rounds is not known.
    """
    flat, count, done = values.flatten(), len(masks), 0
    pixels, owners = masks.flatten(1).T.nonzero(as_tuple=True)  # sorted by pixel, with the masks that it is in
    starts = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(pixels, minlength=len(flat)).cumsum(dim=0)])
    counts = torch.bincount(owners, minlength=count).double()
    sums = torch.bincount(owners, weights=flat[pixels], minlength=count)
    free = torch.ones_like(flat, dtype=torch.bool)
    result = torch.full_like(flat, -torch.inf)
    while True:
        gains = torch.where(counts >= min_pixels, sums / counts.clamp(min=1), -torch.inf)
        best = int(gains.argmax())
        if gains[best] == -torch.inf:
            break
        new = (masks[best].flatten() & free).nonzero()[:, 0]
        result[new] = flat[new].mean()
        free[new] = False
        # Take the new pixels out of the counts and sums of all masks that they are in.
        lengths = starts[new + 1] - starts[new]
        within = torch.arange(int(lengths.sum())) - (lengths.cumsum(dim=0) - lengths).repeat_interleave(lengths)
        leaving = owners[starts[new].repeat_interleave(lengths) + within]
        counts -= torch.bincount(leaving, minlength=count)
        sums -= torch.bincount(leaving, weights=flat[new].repeat_interleave(lengths), minlength=count)
        counts[best] = 0
        done += len(new)
        if progress is not None:
            progress(done, len(flat))
    rest = result == -torch.inf
    if rest.any():
        result[rest] = flat[rest].mean()
    if progress is not None:
        progress(len(flat), len(flat))
    return result.view_as(values)
