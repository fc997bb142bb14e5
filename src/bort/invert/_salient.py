r"""The k most salient channels of a feature map (paper, "Details of Decomposition and Synthesis").

:math:`y_i` is the largest value of channel i, and its place the place of that value: the max-pooled map, and where it came
from.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Salient:
    """For each image its k channels, most salient first."""

    channels: Tensor
    """(N, k)"""
    values: Tensor
    """(N, k): y of each."""
    places: Tensor
    """(N, k): where in the flattened map; the first of equal ones."""


def salient(maps: Tensor, k: int) -> Salient:
    """Of (N, C, H, W)."""
    channels = maps.shape[1]
    if not 1 <= k <= channels:
        raise ValueError(f"k={k}: the layer has {channels} channels, choose from 1 to {channels}")
    values, places = maps.flatten(2).max(dim=2)
    top = values.topk(k, dim=1)
    return Salient(top.indices, top.values, places.gather(1, top.indices))


def single_seeds(found: Salient, shape: tuple[int, int, int], value: float) -> Tensor:
    """(k, N, C, H, W): one channel in each, ``value`` (the paper's B) at its place and 0 elsewhere."""
    count, k = found.channels.shape
    seeds = found.values.new_zeros(k, count, shape[0], shape[1] * shape[2])
    image = torch.arange(count, device=seeds.device)
    seeds[torch.arange(k, device=seeds.device)[:, None], image, found.channels.T, found.places.T] = value
    return seeds.view(k, count, *shape)


def joint_seed(found: Salient, places: Tensor, strengths: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """(N, C, H, W): all k channels in one map, each with its strength at its place; (N, k) each."""
    seed = found.values.new_zeros(len(found.channels), shape[0], shape[1] * shape[2])
    image = torch.arange(len(seed), device=seed.device)[:, None].expand_as(found.channels)
    seed[image, found.channels, places] = strengths
    return seed.view(len(seed), *shape)
