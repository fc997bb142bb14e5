"""RandAugment in timm's notation, each image with its own ops, magnitudes, signs and interpolations.

Everything that the draws decide is computed for all layers at once. Then each layer does its three stages (tables, affine
maps, blends) on the images that have drawn one of the stage's ops. Images that are taken along to fill a stage's fixed
capacity come with neutral parameters, which leave them exactly as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bort.augment._affine import Places, affine_matrix, affine_places, map_factors, sampled
from bort.augment._blend import blended, grey, mean_level, smooth
from bort.augment._capacity import capacity
from bort.augment._constant import constant
from bort.augment._draws import normal, randint
from bort.augment._notation import parse
from bort.augment._ops import NOTHING, OPS, Op, Stage
from bort.augment._point import PARAMETERS, plain_tables, through_tables

_GROUPS = ((Stage.POINT, 1), (Stage.AFFINE, 1), (Stage.BLEND, 1), (Stage.POINT, 2))
"""Of images that a stage handles together: (stage, least priority), see `_priorities`."""
_PER_LAYER = 4  # whether to apply the op, its magnitude, its sign, its interpolation

Change = Callable[[Tensor, int], Tensor]
"""(images of a stage, layer) -> the changed images"""


class Choice(NamedTuple):
    """What N images have drawn in each of L layers; (N, L) each."""

    op: Tensor
    """int64: a place in `RandAugment.ops`, of which the last does nothing."""
    argument: Tensor
    """float64: degrees, a factor, a number of bits …"""
    cubic: Tensor
    """bool: a geometric op reads with cubic weights, not bilinear ones."""


class RandAugment:
    """
    Args:
        notation: timm's, such as rand-m9-mstd0.5; see `parse`
        fill: bytes, one a channel, for places that a geometric op leaves empty
    """

    def __init__(self, notation: str, fill: tuple[int, ...]) -> None:
        self.notation = parse(notation)
        self.ops: tuple[Op, ...] = (*(OPS[name] for name in self.notation.ops), NOTHING)
        layers = self.notation.layers
        self.draws = layers * _PER_LAYER + (len(self.notation.weights) or layers)
        """How many uniform numbers an image takes."""
        self._fill = fill

    def choose(self, u: Tensor) -> Choice:
        """Out of uniform numbers (N, draws)."""
        wanted = self.notation
        first = wanted.layers * _PER_LAYER
        apply, magnitude, sign, cubic = u[:, :first].view(len(u), _PER_LAYER, wanted.layers).unbind(1)
        nothing = constant((len(self.ops) - 1,), torch.int64, u.device)
        op = torch.where(apply < wanted.probability, self._drawn(u[:, first:]), nothing)
        if wanted.deviation == math.inf:
            magnitude = magnitude * wanted.magnitude
        else:
            magnitude = normal(magnitude) * wanted.deviation + wanted.magnitude
        argument = self.arguments(op, magnitude.clamp(0, wanted.highest), sign > 0.5)
        return Choice(op, argument, cubic < 0.5)

    def arguments(self, op: Tensor, magnitude: Tensor, negative: Tensor) -> Tensor:
        """Of ops with these magnitudes, in float64; ``negative`` counts for ops with a random sign only."""
        rows = tuple(
            (v.slope, float(v.whole), v.ceiling, v.offset, float(v.sign or 1), float(v.sign or -1), v.least)
            for v in (op.level for op in self.ops)
        )
        slope, whole, ceiling, offset, plus, minus, least = constant(rows, torch.float64, op.device)[op].unbind(-1)
        value = magnitude / 10 * slope
        value = (value - value.frac() * whole).minimum(ceiling)
        return (offset + torch.where(negative, minus, plus) * value).maximum(least)

    def capacities(self, count: int) -> list[int]:
        """How many of ``count`` images each group is prepared for, where shapes are fixed; see `capacity`."""
        ops = self.ops[:-1]
        shares = [sum(_priorities(op)[stage] >= least for op in ops) / len(ops) for stage, least in _GROUPS]
        # Without replacement the chances differ from layer to layer, and nine in ten of timm's weights are geometric.
        return [
            capacity(count, self.notation.probability * (share if not self.notation.weights else 1)) for share in shares
        ]

    def __call__(self, images: Tensor, choice: Choice) -> Tensor:
        """Change images (N, C, H, W) in uint8 in place."""
        op, argument, cubic = (value.mT for value in choice)
        (point, affine, blend), histograms = self._places(op)
        tables = self._tables(op.gather(1, point), argument.gather(1, point), histograms, images.shape[1])
        maps = self._maps(op.gather(1, affine), argument.gather(1, affine), cubic.gather(1, affine), images)
        blends = self._blends(op.gather(1, blend), argument.gather(1, blend))
        for layer in range(self.notation.layers):
            for places, change in ((point, tables), (affine, maps), (blend, blends)):
                chosen = places[layer]
                images.index_copy_(0, chosen, change(images.index_select(0, chosen), layer))
        return images

    def _drawn(self, u: Tensor) -> Tensor:
        """(N, layers): ops drawn with replacement; or, where they have weights, without: each op starts a clock that rings
        after an exponential time of rate ``weight``, and the first to ring are taken."""
        if not self.notation.weights:
            return randint(u, len(self.ops) - 1).long()
        times = -torch.log1p(-u) / constant(self.notation.weights, torch.float64, u.device)
        return times.topk(self.notation.layers, dim=1, largest=False).indices

    def _places(self, op: Tensor) -> tuple[list[Tensor], int]:
        """For each stage (L, capacity): places of the images that have drawn one of its ops, then of others; and how many of
        the first ones of stage POINT may need a histogram."""
        table = constant(tuple(zip(*(_priorities(op) for op in self.ops))), torch.uint8, op.device)
        priorities = table[:, op]
        order = priorities.argsort(dim=-1, descending=True, stable=True)
        # On a CPU nobody captures, and looking at the numbers costs nothing.
        counts = _exact_counts(priorities) if op.device.type == "cpu" else self.capacities(op.shape[1])
        return [places[:, :count] for places, count in zip(order, counts)], counts[-1]

    def _is(self, kind: str, op: Tensor) -> Tensor:
        """Which of the ops drawn are of this kind."""
        return constant(tuple(op.kind == kind for op in self.ops), torch.bool, op.device)[op]

    def _tables(self, op: Tensor, argument: Tensor, histograms: int, channels: int) -> Change:
        fixed = tuple(tuple((PARAMETERS | op.fixed).values()) for op in self.ops)
        is_argument = tuple(tuple(op.kind == name for name in PARAMETERS) for op in self.ops)
        values = constant(fixed, torch.float64, op.device)[op]
        replaced = constant(is_argument, torch.bool, op.device)[op]
        plain = plain_tables(torch.where(replaced, argument[..., None], values).float())
        tables = plain.byte().repeat(1, 1, channels, 1)
        autocontrast, equalize = (self._is(kind, op[:, :histograms]) for kind in ("autocontrast", "equalize"))
        return lambda part, layer: through_tables(part, tables[layer], autocontrast[layer], equalize[layer])

    def _maps(self, op: Tensor, argument: Tensor, cubic: Tensor, images: Tensor) -> Change:
        height, width = images.shape[2:]
        factors = constant(tuple(map_factors(op.kind, height, width) for op in self.ops), torch.float64, op.device)
        matrix = affine_matrix(factors[op.flatten()], argument.flatten())
        places = affine_places(matrix, cubic.flatten(), height, width)
        by_layer = [Places(*part) for part in zip(*(torch.unflatten(value, 0, op.shape) for value in places))]
        fill = constant(self._fill, torch.uint8, images.device)
        return lambda part, layer: sampled(part, by_layer[layer], fill)

    def _blends(self, op: Tensor, argument: Tensor) -> Change:
        is_blend = constant(tuple(op.stage is Stage.BLEND for op in self.ops), torch.bool, op.device)[op]
        factor = torch.where(is_blend, argument, constant((1.0,), torch.float64, op.device)).float()
        color, contrast = (self._is(kind, op)[..., None, None, None] for kind in ("color", "contrast"))

        def change(part: Tensor, layer: int) -> Tensor:
            x = part.float()
            luma = grey(x)
            degenerate = torch.where(contrast[layer], mean_level(luma), smooth(x))
            return blended(torch.where(color[layer], luma, degenerate), x, factor[layer])

        return change


def _priorities(op: Op) -> tuple[int, ...]:
    """For each stage: 0 if the op does not need it, 1 if it does, 2 if its table needs a histogram of the image."""
    needs_histogram = op.kind in ("autocontrast", "equalize")
    return tuple((op.stage == stage) * (1 + needs_histogram) for stage in (Stage.POINT, Stage.AFFINE, Stage.BLEND))


def _exact_counts(priorities: Tensor) -> list[int]:
    """How many images are in each group, in the layer where they are most; priorities are (3, L, N)."""
    return [int((priorities[stage] >= least).sum(-1).max()) if priorities.numel() else 0 for stage, least in _GROUPS]
