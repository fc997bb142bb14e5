r"""Adversarial synthesis (paper, "Details of Decomposition and Synthesis"): the target's channels at the source's places.

.. math::
    Z^{tr}_i[\operatorname{argmax} Z^s_i] = y^t_i B \text{ for } i \in I^t, \text{ else } 0; \qquad X^{adv} = g(Z^{tr})

The paper does not say in whose forward pass ReLUs must have been open for g to pass them. The choice is a trade-off: with the
source's the image looks like the source and is mostly classified as the source; with the target's it is mostly classified as
the target, and looks like it. The default "none" ignores where ReLUs were open (deconvolution): its images are classified as
the target more often than with "source", and still look more like the source than like the target. Repeating g along the pass
of the image just made (``rounds``) moves along the same trade-off, so there is no repetition by default.

With k = 64, Bort-S on 5,000 digits, classified as the target and correlated with the source: "source" 11% and 0.88, "none"
25% and 0.74, "target" 80% and 0.44, "target" with three rounds 39% and 0.62 (benchmarks/results/choices-cpu.json).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor, nn

from bort._defaults import SALIENT_CHANNELS
from bort._inspect import check_input, decisions_of, widened
from bort.invert._backtrack import Backtracker
from bort.invert._correlation import correlation

Path = Literal["source", "target", "none"]
"""Whose forward pass says where ReLUs are open on the way back."""


@dataclass(frozen=True)
class Synthesis:
    """A batch of synthesized images, and how the model classifies them.

    Example:
        >>> model, x = nets.create("acnn-small", width=0.05), torch.rand(4, 1, 28, 28)
        >>> made = invert.synthesize(model, x[:2], x[2:], "conv5", k=8)
        >>> made.source_similarity.abs().max() <= 1
        tensor(True)
    """

    images: Tensor
    """X^adv, each shifted and scaled to the mean and standard deviation of its source: g has no scale of its own."""
    map_verdicts: Tensor
    """(N,): the class predicted from the transplanted feature map."""
    image_verdicts: Tensor
    """(N,): the class predicted from the synthesized image."""
    source_classes: Tensor
    """(N,): the class predicted from the source."""
    target_classes: Tensor
    """(N,): the class predicted from the target."""
    source_similarity: Tensor
    """(N,): correlation of the synthesized image with the source."""
    target_similarity: Tensor
    """(N,): correlation of the synthesized image with the target."""

    @property
    def pairs(self) -> int:
        """How many pairs of source and target are predicted to be of two classes: only these can succeed or fail."""
        return int((self.source_classes != self.target_classes).sum())

    @property
    def map_success(self) -> float:
        """Part of the pairs of two classes whose map is classified as the target; nan without such a pair."""
        return self._success(self.map_verdicts)

    @property
    def image_success(self) -> float:
        """Part of the pairs of two classes whose image is classified as the target; nan without such a pair."""
        return self._success(self.image_verdicts)

    def _success(self, verdicts: Tensor) -> float:
        pairs = self.source_classes != self.target_classes
        return (verdicts == self.target_classes)[pairs].double().mean().item()


def synthesize(
    model: nn.Module,
    source: Tensor,
    target: Tensor,
    layer: str,
    k: int = SALIENT_CHANNELS,
    *,
    value: float = 1.0,
    path: Path = "none",
    rounds: int = 0,
) -> Synthesis:
    """Images with the salient channels of ``target`` at the places they have in ``source``, pair by pair.

    Args:
        model: a classifier.
        source, target: batches of equal shape.
        layer: the layer whose feature map is transplanted.
        k: how many of the target's channels.
        value: the paper's B.
        path: whose forward pass says where ReLUs are open on the way back: "source", "target", or "none" (deconvolution). A
            model without activation functions that rules act on has gradients in their place, for "none" the source's.
        rounds: how often g is repeated along the pass of the image just made; 0 is the paper. With "none" only the maxima of
            pools can change between rounds.

    Example:
        >>> model, x = nets.create("acnn-small", width=0.05), torch.rand(4, 1, 28, 28)
        >>> made = invert.synthesize(model, x[:2], x[2:], "conv5", k=8)
        >>> torch.allclose(made.images.mean(dim=(1, 2, 3)), x[:2].mean(dim=(1, 2, 3)), atol=1e-5)  # as bright as the sources
        True
    """
    for images in (source, target):
        check_input(model, images)
    source, target = widened(source).detach(), widened(target).detach()
    if source.shape != target.shape:
        raise ValueError(f"source {tuple(source.shape)} and target {tuple(target.shape)} must be of one shape")
    if path not in ("source", "target", "none"):
        raise ValueError(f'path={path!r}: choose "source", "target" or "none"')
    if rounds < 0:
        raise ValueError(f"rounds={rounds}: must be 0 or more")
    back = Backtracker(model, layer)
    if path == "none" and back.trace(source[:1]).rule == "guided":
        back = Backtracker(back.model, layer, "deconvolution")
    sources = back.batches(source)
    targets = torch.split(target, [len(batch) for batch in sources])
    batches = [
        _synthesize(back, batch, other, k, value, path, rounds) for batch, other in zip(sources, targets, strict=True)
    ]
    return Synthesis(
        **{field.name: torch.cat([getattr(batch, field.name) for batch in batches]) for field in fields(Synthesis)}
    )


def _synthesize(
    back: Backtracker, source: Tensor, target: Tensor, k: int, value: float, path: Path, rounds: int
) -> Synthesis:
    from_source, from_target = back.trace(source), back.trace(target)
    salient = from_target.salient(k)
    places = from_source.maps.flatten(2).argmax(dim=2).gather(1, salient.channels)
    seed = from_target.grid.from_map(salient.seed(value * salient.values, places))
    images = _like(from_target(seed) if path == "target" else from_source(seed), source)
    for _ in range(rounds):
        images = _like(back(images, seed), source)
    return Synthesis(
        images=images,
        map_verdicts=decisions_of(from_source.forward(seed)),
        image_verdicts=decisions_of(back.trace(images).outputs),
        source_classes=decisions_of(from_source.outputs),
        target_classes=decisions_of(from_target.outputs),
        source_similarity=correlation(images, source),
        target_similarity=correlation(images, target),
    )


def _like(signals: Tensor, images: Tensor) -> Tensor:
    """The signals, shifted and scaled to each image's mean and standard deviation."""
    signal, image = signals.flatten(1), images.flatten(1)
    centred = signal - signal.mean(dim=1, keepdim=True)
    scale = image.std(dim=1, keepdim=True) / signal.std(dim=1, keepdim=True).clamp(min=1e-12)
    return (centred * scale + image.mean(dim=1, keepdim=True)).view_as(images)
