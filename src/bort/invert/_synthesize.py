r"""Adversarial synthesis (paper, "Details of Decomposition and Synthesis"): the target's channels at the source's places.

.. math::
    Z^{tr}_i[\operatorname{argmax} Z^s_i] = y^t_i B \text{ for } i \in I^t, \text{ else } 0; \qquad X^{adv} = g(Z^{tr})

The paper leaves open whose open ReLUs g follows. That decides everything, and it is a trade-off: along the source's path the
image looks like the source and stays it for the classifier; along the target's it fools the classifier and looks like the
target. The default, "none", is the one of the three that fools oftener than "source" and still looks more like its source
than like its target; rounds of going forward again move all of them along the same trade-off, so there are none by default.
With k = 64, Bort-S on 5,000 digits: "source" fools 11% at a correlation of 0.88 with the source, "none" 25% at 0.74,
"target" 80% at 0.44, after three rounds 39% at 0.62 (benchmarks/results/choices-cpu.json).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor, nn

from bort._defaults import SALIENT_CHANNELS
from bort.invert._backtrack import Backtracker
from bort.invert._similar import correlation

Path = Literal["source", "target", "none"]


@dataclass(frozen=True)
class Synthesis:
    """A batch of synthesized images, and what the classifier says of them."""

    images: Tensor
    """X^adv, each with the mean and the deviation of its source: g has no scale of its own."""
    map_verdicts: Tensor
    """(N,): the class of the transplanted feature map."""
    image_verdicts: Tensor
    """(N,): the class of the image."""
    source_classes: Tensor
    target_classes: Tensor
    """(N,): the classes of what went in."""
    source_similarity: Tensor
    target_similarity: Tensor
    """(N,): correlation of the image with source and target."""

    @property
    def pairs(self) -> int:
        """How many of them the classifier takes for two classes."""
        return int((self.source_classes != self.target_classes).sum())

    @property
    def map_success(self) -> float:
        """Part of the pairs of two classes whose map is taken for the target's class; nan without such a pair."""
        return self._success(self.map_verdicts)

    @property
    def image_success(self) -> float:
        """Part of the pairs of two classes whose image is taken for the target's class; nan without such a pair."""
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
    """Images with the outlook of ``source`` and the salient channels of ``target``, pair by pair.

    Args:
        model: a classifier.
        source, target: batches of equal shape.
        layer: its feature map is transplanted.
        k: how many of the target's channels.
        value: the paper's B.
        path: whose open ReLUs g follows: "source", "target", or "none" (deconvolution).
        rounds: how often g is repeated along the path of the image just made; 0 is the paper. With "none" only pools have a
            path that can change.
    """
    if source.shape != target.shape:
        raise ValueError(f"source {tuple(source.shape)} and target {tuple(target.shape)} must be of one shape")
    if path not in ("source", "target", "none"):
        raise ValueError(f'path={path!r}: choose "source", "target" or "none"')
    if rounds < 0:
        raise ValueError(f"rounds={rounds}: must be 0 or more")
    back = Backtracker(model, layer, "deconvolution" if path == "none" else "guided")
    parts = back.batches(source)
    pairs = zip(parts, torch.split(target, [len(part) for part in parts]), strict=True)
    made = [_pairs(back, one, other, k, value, path, rounds) for one, other in pairs]
    return Synthesis(
        **{field.name: torch.cat([getattr(each, field.name) for each in made]) for field in fields(Synthesis)}
    )


def _pairs(
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
        map_verdicts=back.verdicts(source, seed).argmax(dim=1),
        image_verdicts=back.trace(images).outputs.argmax(dim=1),
        source_classes=from_source.outputs.argmax(dim=1),
        target_classes=from_target.outputs.argmax(dim=1),
        source_similarity=correlation(images, source),
        target_similarity=correlation(images, target),
    )


def _like(signals: Tensor, images: Tensor) -> Tensor:
    """The signals with each image's mean and deviation."""
    flat, wanted = signals.flatten(1), images.flatten(1)
    centred = flat - flat.mean(dim=1, keepdim=True)
    scale = wanted.std(dim=1, keepdim=True) / flat.std(dim=1, keepdim=True).clamp(min=1e-12)
    return (centred * scale + wanted.mean(dim=1, keepdim=True)).view_as(images)
