"""Robustness: the accuracy of a network on images that are noisy, blurred, compressed, or changed against it.

Noise, blur and JPEG are described in `_corruptions`. FGSM (Goodfellow et al. 2015) changes every pixel by ε in the direction
in which the cross-entropy of the true class rises: pixels + ε · sign(∇ cross-entropy), cut off at 0 and 1. It is a single
step, so it bounds the robustness from above only.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bort._inspect import Progress, check_images, evaluating, images_at_once, outputs_of
from bort.measure._corruptions import CORRUPTIONS, Corruption, apply, draw_noise
from bort.measure._labels import checked_labels

if TYPE_CHECKING:
    from bort.data import View


def robustness(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    view: View,
    kinds: Iterable[str] = CORRUPTIONS,
    *,
    batch: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Accuracy from 0 to 1 under each kind of corruption, and "clean". The model is left as it was.

    An image whose largest logit is that of several classes counts in part: see :func:`bort.train.recognised`.

    Args:
        model: any classifier.
        x: images (N, C, H, W) as the model sees them.
        labels: their true classes (N,).
        view: how the images were normalised. Corruptions act on pixels in [0, 1], in float32 at least; the result is
            normalised and converted to the type of x.
        kinds: such as "noise 0.08", "blur 1.0", "jpeg 25", "fgsm 2/255"; all of :data:`CORRUPTIONS` by default.
        batch: images in a pass; as many as the memory budget allows by default.
        seed: of the noise. It depends on this and on an image's place in x: it is the same for every network, device, batch
            and deviation.
        progress: called after each pass with every kind, with the number of images done.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(4, 1, 28, 28)
        >>> view = data.View(28, 1, mean=(0.0,), std=(1.0,))
        >>> measure.robustness(model, x, model(x).argmax(dim=1), view, ["noise 0.04"])["clean"]
        1.0
    """
    from bort.train import recognised  # here: an audit should not load the training loop

    names = ("clean", kinds) if isinstance(kinds, str) else ("clean", *kinds)
    corruptions = {name: Corruption.named(name) for name in names}
    check_images(model, x)
    if view.channels != x.shape[1]:
        raise ValueError(f"the view is of images with {view.channels} channels, these have {x.shape[1]}")
    if batch is not None and batch < 1:
        raise ValueError(f"batch={batch}: must be 1 or more")
    size = batch or _images_at_once(model, x, backward=any(c.family == "fgsm" for c in corruptions.values()))
    generator = torch.Generator().manual_seed(seed)
    hits = dict.fromkeys(corruptions, 0.0)
    with evaluating(model):
        with torch.no_grad():
            labels = checked_labels(labels, len(x), outputs_of(model, x[:1]))
        for start in range(0, len(x), size):
            part = slice(start, start + size)
            shown = _Batch(model, x[part], labels[part], view, generator)
            for name, corruption in corruptions.items():
                with torch.no_grad():
                    logits = outputs_of(model, shown.under(corruption))
                hits[name] += recognised(logits, labels[part]).sum().item()
            if progress is not None:
                progress(min(len(x), start + size), len(x))
    return {name: hit / len(x) for name, hit in hits.items()}


def _images_at_once(model: nn.Module, x: Tensor, *, backward: bool) -> int:
    size = images_at_once(model, x)
    return min(size, images_at_once(model, x, backward=True)) if backward else size


class _Batch:
    """Images in one pass. What several strengths of a corruption share is computed when it is first needed."""

    def __init__(self, model: nn.Module, x: Tensor, labels: Tensor, view: View, generator: torch.Generator) -> None:
        self._model, self._x, self._labels, self._view, self._generator = model, x, labels, view, generator
        precise = x.detach().to(torch.promote_types(x.dtype, torch.float32))
        self._pixels = view.pixels(precise)
        # bfloat16 rounds away a hundredth at most; a normalisation that is another one leaves the range further.
        if (view.normalised(self._pixels) - precise).abs().max() > 0.1:
            raise ValueError(
                "the images leave the range of pixels, [0, 1], when the view's normalisation is undone: give them as this "
                "view normalises them, or the view that they were made with"
            )

    def under(self, corruption: Corruption) -> Tensor:
        """The network's input."""
        if corruption.family == "clean":
            return self._x
        if corruption.family == "fgsm":
            return self._input((self._pixels + corruption.strength * self._ascent).clamp(0, 1))
        return self._input(apply(corruption, self._pixels, lambda: self._noise))

    def _input(self, pixels: Tensor) -> Tensor:
        return self._view.normalised(pixels).to(self._x.dtype)

    @cached_property
    def _noise(self) -> Tensor:
        return draw_noise(self._pixels, self._generator)

    @cached_property
    def _ascent(self) -> Tensor:
        """The sign of the gradient of the cross-entropy of the true class y by the pixels.

        The cross-entropy is log(1 + exp m) with m = log Σ_{j ≠ y} exp z_j − z_y, and its gradient is that of m times a
        positive number. That number is rounded to 0 where the network is sure, and then the attack would do nothing; the
        gradient of m is not.
        """
        with torch.inference_mode(False), torch.enable_grad():
            pixels = self._pixels.detach().clone().requires_grad_()
            logits = outputs_of(self._model, self._input(pixels)).double()
            if not logits.requires_grad:
                raise ValueError("the model's logits have no gradient, which fgsm needs: leave fgsm out of kinds")
            own = self._labels.clone()[:, None]
            margins = logits.scatter(1, own, -torch.inf).logsumexp(dim=1) - logits.gather(1, own)[:, 0]
            (slope,) = torch.autograd.grad(margins.sum(), pixels)
        return slope.nan_to_num(nan=0.0).sign()
