r"""The k most salient channels of a feature map (paper, "Details of Decomposition and Synthesis").

:math:`y_i = \max Z_i` is the largest activation of channel i (the max-pooled map), and the channel's place is where that
activation is in the map.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Salient:
    """k channels of each image's map, most salient first; and seeds with these channels in them.

    Example:
        >>> model, x = nets.create("acnn-small", width=0.05), torch.rand(2, 1, 28, 28)
        >>> salient = invert.Backtracker(model, "conv5").trace(x).salient(4)
        >>> salient.seed().sum(dim=(1, 2, 3))  # 1 for each of the four channels
        tensor([4., 4.])
    """

    channels: Tensor
    """(N, k)"""
    values: Tensor
    """(N, k): the largest activation y of each channel."""
    places: Tensor
    """(N, k): the index of that activation in the flattened map; the first one if several are equal."""
    shape: tuple[int, int, int]
    """channels, height and width of the map"""

    def part(self, numbers: Tensor) -> Salient:
        """The channels with these numbers (K,) in the order, in the order of the numbers."""
        chosen = numbers.to(self.channels.device)
        return Salient(self.channels[:, chosen], self.values[:, chosen], self.places[:, chosen], self.shape)

    def seed(self, strengths: Tensor | float | None = None, places: Tensor | None = None) -> Tensor:
        """(N, C, H, W): all k channels in one map, each with its strength at its place and 0 elsewhere.

        Args:
            strengths: (N, k), or one number for all; 1 by default.
            places: (N, k) indices into the flattened map; those of the largest activations by default.
        """
        count = len(self.channels)
        seed = self.values.new_zeros(count, self.shape[0], self.shape[1] * self.shape[2])
        image = torch.arange(count, device=seed.device)[:, None].expand_as(self.channels)
        seed[image, self.channels, self.places if places is None else places] = 1.0 if strengths is None else strengths
        return seed.view(count, *self.shape)

    def seeds(self, value: float = 1.0) -> Tensor:
        """(k, N, C, H, W): one channel in each map, ``value`` (the paper's B) at its place and 0 elsewhere."""
        count, k = self.channels.shape
        seeds = self.values.new_zeros(k, count, self.shape[0], self.shape[1] * self.shape[2])
        image = torch.arange(count, device=seeds.device)
        seeds[torch.arange(k, device=seeds.device)[:, None], image, self.channels.T, self.places.T] = value
        return seeds.view(k, count, *self.shape)


def salient(maps: Tensor, k: int, start: int = 0) -> Salient:
    """Channels start … start + k of (N, C, H, W), in order of salience."""
    shape = (maps.shape[1], maps.shape[2], maps.shape[3])
    if not 0 <= start < shape[0]:
        raise ValueError(f"start={start}: the layer has {shape[0]} channels, choose from 0 to {shape[0] - 1}")
    if not 1 <= k <= shape[0] - start:
        raise ValueError(
            f"k={k}: the layer has {shape[0]} channels, choose from 1 to {shape[0] - start}"
            + (f" after the first {start}" if start else "")
        )
    values, places = maps.flatten(2).max(dim=2)
    top = values.topk(start + k, dim=1)
    channels = top.indices[:, start:]
    return Salient(channels, top.values[:, start:], places.gather(1, channels), shape)
