"""XRAI (Kapishnikov et al. 2019): regions instead of pixels.

Integrated Gradients from a black and from a white baseline give each pixel a value. The image is cut into segments by
Felzenszwalb's algorithm at six scales, each segment widened by a few pixels, and a map grows by the segment whose new pixels
have the highest mean, again and again; each pixel gets the mean it came in with.

The published code measures every segment anew in every round. A pixel enters the map once, so it is enough to take it out of
the counts and sums of its segments then: the whole growth costs as much as one look at every segment.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bort._inspect import Progress, Target, check_images, classes_of
from bort.explain._integrated import integrated_gradients

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SCALES = (50, 100, 150, 250, 500, 1200)
_SIZE = (224, 224)  # what the scales were chosen for
_GROWTH = 10  # of progress, for the growth of a map, where a step of Integrated Gradients or a scale is 1
_PARTS = len(_SCALES) + _GROWTH


class Meter:
    """One scale of (done, total) for a method of several parts, one after the other, each with a scale of its own."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._begun = progress, total, 0

    def part(self, units: int) -> Progress | None:
        """For the next part, which is that much of the total."""
        whole, start = self._progress, self._begun
        self._begun += units
        if whole is None:
            return None
        return lambda done, total: whole(start + units * done // total, self._total)


_Later = Callable[[Progress | None], Tensor]


def xrai(
    model: nn.Module,
    x: Tensor,
    target: Target = None,
    *,
    steps: int | None = None,
    dilation: int = 5,
    min_pixels: int = 50,
    attributions: Tensor | None = None,
    workers: int = 0,
    progress: Progress | None = None,
) -> Tensor:
    """Saliency maps (N, H, W) by XRAI.

    Args:
        model, x: any torch model and a batch of images.
        target: the class to explain; what the model says by default.
        steps: of Integrated Gradients, from each of two baselines; 100 by default.
        dilation: by how many pixels a segment is widened.
        min_pixels: a segment that brings fewer new pixels is left out.
        attributions: (N, H, W) to use instead of Integrated Gradients.
        workers: processes that cut images into segments and grow the maps; 0: none. It pays from some dozen images on.
        progress: called after some steps of Integrated Gradients, after each scale and each segment of an image, or, with
            workers, after the steps and each map; see :data:`Progress`.
    """
    check_images(model, x)
    if workers < 0:
        raise ValueError(f"workers={workers}: must be 0 or more")
    if dilation < 0 or min_pixels < 1:
        raise ValueError(f"dilation={dilation}, min_pixels={min_pixels}: a dilation of 0 or more, 1 or more pixels")
    if attributions is not None and attributions.shape != (len(x), *x.shape[-2:]):
        raise ValueError(f"attributions of shape {tuple(attributions.shape)}: they must be {(len(x), *x.shape[-2:])}")
    if attributions is not None and steps is not None:
        raise ValueError(f"steps={steps}: with attributions given there are no steps to make")
    if attributions is not None and not torch.isfinite(attributions).all():
        raise ValueError("the attributions have NaN or Inf in them")
    steps = (100 if steps is None else steps) if attributions is None else 0
    meter = Meter(progress, len(x) * (2 * steps + _PARTS))
    classes = classes_of(model, x, target)
    maps: list[Tensor] = []
    with _pool(workers) as run:
        waiting = []
        for n in range(len(x)):
            image = x[n : n + 1]
            values = attributions[n] if attributions is not None else _values(model, image, classes[n], steps, meter)
            waiting.append(run(image[0].detach().cpu(), values.detach().double().cpu(), dilation, min_pixels))
            while waiting and (len(waiting) > 4 * workers or n + 1 == len(x)):
                maps.append(waiting.pop(0)(meter.part(_PARTS)).to(x))
    return torch.stack(maps)


def _map(image: Tensor, values: Tensor, dilation: int, min_pixels: int, progress: Progress | None = None) -> Tensor:
    meter = Meter(progress, _PARTS)
    masks = segments(image, dilation, meter.part(len(_SCALES)))
    return grow(values, masks, min_pixels, meter.part(_GROWTH))


@contextmanager
def _pool(workers: int) -> Iterator[Callable[..., _Later]]:
    """A way to call `_map` and to ask for its result later: at once, or in processes of their own."""
    if not workers:
        yield lambda *given: partial(_map, *given)
        return
    # Started afresh, not forked: this process may hold a GPU and threads.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_alone) as pool:

        def begin(*given: Any) -> _Later:
            future = pool.submit(_map, *given)

            def result(progress: Progress | None) -> Tensor:
                found = future.result()
                if progress is not None:
                    progress(1, 1)
                return found

            return result

        try:
            yield begin
        except BaseException:
            pool.shutdown(cancel_futures=True)  # cancelled: what has not begun would be done in vain
            raise


def _alone() -> None:
    torch.set_num_threads(1)


def _values(model: nn.Module, image: Tensor, target: Tensor, steps: int, meter: Meter) -> Tensor:
    """The mean over a black and a white baseline of the largest attribution among the colours."""
    ends = [
        integrated_gradients(
            model,
            image,
            target[None],
            steps=steps,
            baseline=level.expand_as(image),
            by_colour=True,
            progress=meter.part(steps),
        )
        for level in (image.min(), image.max())
    ]
    return torch.stack(ends).mean(dim=0).amax(dim=1)[0]


def segments(image: Tensor, dilation: int, progress: Progress | None = None) -> Tensor:
    """(K, H, W) masks of the segments of an image (C, H, W), at all scales, widened."""
    try:
        import numpy as np
        from skimage.segmentation import felzenszwalb
        from skimage.transform import resize
    except ImportError:
        raise ImportError('XRAI needs scikit-image: pip install "bort[explain]"') from None
    pixels: NDArray[np.float64] = image.detach().double().cpu().numpy().transpose(1, 2, 0)
    low, high = pixels.min(), pixels.max()
    pixels = (pixels - low) / (high - low if high > low else 1.0) * 2 - 1
    large = resize(pixels, _SIZE, order=3, mode="constant", preserve_range=True, anti_aliasing=True)

    def cut(scale: int) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = felzenszwalb(large, scale=scale, sigma=0.8, min_size=150)
        return labels

    found: list[Tensor] = []
    with ThreadPoolExecutor(len(_SCALES)) as pool:  # most of it is C
        for labels in pool.map(cut, _SCALES):
            small = resize(labels, image.shape[1:], order=0, preserve_range=True, mode="constant", anti_aliasing=False)
            numbers = torch.from_numpy(np.ascontiguousarray(small)).long()
            masks = numbers == torch.arange(int(numbers.min()), int(numbers.max()) + 1)[:, None, None]
            found.append(_widen(masks, dilation))
            if progress is not None:
                progress(len(found), len(_SCALES))
    return torch.cat(found)


def _widen(masks: Tensor, radius: int) -> Tensor:
    """Each mask and all places within the radius of it. Most segments are small: only the box around each is looked at."""
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
    """(H, W): add the mask whose new pixels have the highest mean, until none brings enough new pixels. Progress is told in
    pixels: nobody knows how many rounds there will be."""
    flat, count, done = values.flatten(), len(masks), 0
    pixels, owners = masks.flatten(1).T.nonzero(as_tuple=True)  # by pixel: the masks that it is in
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
        # A pixel enters once; then it counts in none of its masks any more.
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
