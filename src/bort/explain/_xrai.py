"""XRAI (Kapishnikov et al. 2019): regions instead of pixels.

Integrated Gradients from a black and from a white baseline give each pixel a value. The image is cut into segments by
Felzenszwalb's algorithm at six scales, each segment is widened by a few pixels, and the map grows by the segment whose new
pixels have the highest mean, again and again; each pixel gets the mean of the pixels it came in with.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bort._inspect import Progress, Target, check_images, classes_of, precise, widened
from bort.explain._integrated import integrated_gradients
from bort.explain._regions import SCALES, grow, segments

_GROWTH = 10  # of progress for the growth of a map, where a step of Integrated Gradients or a scale is 1
_IN_A_CALL = 16  # images that a GPU is given at a time, so that it does not wait for its host
_REGIONS = len(SCALES) + _GROWTH  # of progress for the segments and the growth of one image

_Later = Callable[[Progress | None], Tensor]
"""Waits for a map, calling the progress function meanwhile."""


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
        target: the class to explain; the predicted one by default.
        steps: of Integrated Gradients, from each of two baselines; 100 by default.
        dilation: by how many pixels a segment is widened.
        min_pixels: a segment that brings fewer new pixels is left out.
        attributions: (N, H, W) to use instead of Integrated Gradients.
        workers: processes that cut images into segments and grow the maps; 0: none. It pays from some dozen images on.
        progress: called after a few steps of Integrated Gradients, after each scale and each segment of an image, or, with
            workers, after the steps and each map; see :data:`Progress`.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(2, 1, 28, 28)
        >>> explain.xrai(model, x).shape
        torch.Size([2, 28, 28])
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
    model, x = precise(model), widened(x)
    meter = Meter(progress, len(x) * (2 * steps + _REGIONS))
    classes = classes_of(model, x, target)
    maps: list[Tensor] = []
    with _pool(workers) as run:
        waiting: list[_Later] = []
        count = images_in_a_call(x)
        for first in range(0, len(x), count):
            images, targets = x[first : first + count], classes[first : first + count]
            given = None if attributions is None else attributions[first : first + count]
            values = _values(model, images, targets, steps, meter) if given is None else given
            for image, of_image in zip(images.detach().cpu(), values.detach().double().cpu(), strict=True):
                waiting.append(run(image, of_image, dilation, min_pixels))
            while waiting and (len(waiting) > 4 * workers or first + count >= len(x)):
                maps.append(waiting.pop(0)(meter.part(_REGIONS)).to(x))
    return torch.stack(maps)


def images_in_a_call(x: Tensor) -> int:
    """Of Integrated Gradients. On a CPU one: there the first map is finished before the second image is looked at."""
    return 1 if x.device.type == "cpu" else _IN_A_CALL


def _values(model: nn.Module, images: Tensor, targets: Tensor, steps: int, meter: Meter) -> Tensor:
    """(N, H, W): the mean over a black and a white baseline of the attributions, then the largest among the colours."""
    attributions = [
        integrated_gradients(
            model,
            images,
            targets,
            steps=steps,
            baseline=levels.view(-1, 1, 1, 1).expand_as(images),
            by_colour=True,
            progress=meter.part(steps * len(images)),
        )
        for levels in (images.flatten(1).amin(dim=1), images.flatten(1).amax(dim=1))
    ]
    return torch.stack(attributions).mean(dim=0).amax(dim=1)


def _map(image: Tensor, values: Tensor, dilation: int, min_pixels: int, progress: Progress | None = None) -> Tensor:
    """(H, W), from an image (C, H, W) and the values of its pixels."""
    meter = Meter(progress, _REGIONS)
    masks = segments(image, dilation, meter.part(len(SCALES)))
    return grow(values, masks, min_pixels, meter.part(_GROWTH))


@contextmanager
def _pool(workers: int) -> Iterator[Callable[..., _Later]]:
    """A function that starts `_map` in one of so many processes and returns a way to wait for its result. Without workers
    `_map` runs in this process, when its result is waited for."""
    if not workers:
        yield lambda *arguments: partial(_map, *arguments)
        return
    # Spawned, not forked: this process may hold a GPU and threads.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_use_one_thread) as pool:

        def start(*arguments: Any) -> _Later:
            future = pool.submit(_map, *arguments)

            def wait(progress: Progress | None) -> Tensor:
                result = future.result()
                if progress is not None:
                    progress(1, 1)
                return result

            return wait

        try:
            yield start
        except BaseException:
            pool.shutdown(cancel_futures=True)  # cancelled: nobody will ask for the maps that have not been started
            raise


def _use_one_thread() -> None:
    torch.set_num_threads(1)


class Meter:
    """One scale of (done, total) for several parts that run one after the other, each with a scale of its own."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._assigned = progress, total, 0

    def part(self, units: int) -> Progress | None:
        """The progress function for the next part, which is ``units`` of the total."""
        progress, start = self._progress, self._assigned
        self._assigned += units
        if progress is None:
            return None
        return lambda done, total: progress(start + units * done // total, self._total)
