"""Sanity checks of saliency maps: a map that looks the same for a network with random weights explains the image, not the
network (Adebayo et al. 2018), and a map that is no better than a random one explains nothing.

    maps, others = (explain.integrated_gradients(m, x, target) for m in (model, randomised(model, x=x)))
    map_similarity(maps, others).means                        # near 0 for a method that depends on what was learned
    deletion_insertion(model, x, random_map(x), target).means  # the floor
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bort._inspect import check_images, check_input, evaluating, images_at_once, outputs_of, unwrapped
from bort.measure._rank_correlation import rank_correlation


@torch.no_grad()
def randomised(model: nn.Module, seed: int = 0, *, x: Tensor | None = None) -> nn.Module:
    """A copy of a model with random weights: Adebayo et al.'s model parameter randomisation test, with all layers randomised
    (the end of their cascade).

    The values of each parameter are permuted, where Adebayo et al. initialise it anew: nothing learned is left but the
    distribution of the values, and this works for any parameter, also for tokens and scales that no initialisation is known
    of. A parameter whose values are all equal does not change.

    Statistics of BatchNorm do not fit random weights, which may make outputs overflow. They are set to mean 0 and variance 1,
    as in a new network, or measured on images ``x``, if there are any: then the activations have the size that is usual.

    Args:
        model: any torch model; a compiled or data-parallel one is copied without its wrapper.
        seed: of the permutations, which are the same on every device.
        x: a batch of the model's inputs, two or more.

    Example:
        >>> model = nets.create("lenet")
        >>> twin = measure.randomised(model)
        >>> torch.equal(twin.conv1.weight, model.conv1.weight)
        False
        >>> torch.equal(twin.conv1.weight.flatten().sort().values, model.conv1.weight.flatten().sort().values)
        True
    """
    with torch.inference_mode(False):  # else the copy could not be explained
        twin = copy.deepcopy(unwrapped(model))
    generator = torch.Generator().manual_seed(seed)
    for parameter in twin.parameters():
        order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
        parameter.copy_(parameter.flatten()[order].view_as(parameter))
    for module in twin.modules():
        for name, value in (("running_mean", 0.0), ("running_var", 1.0)):
            statistic = getattr(module, name, None)
            if isinstance(statistic, Tensor):
                statistic.fill_(value)
    if x is not None:
        _measure_statistics(twin, x)
    return twin


def _measure_statistics(model: nn.Module, x: Tensor) -> None:
    """Set the statistics of all BatchNorm layers to those of x."""
    check_input(model, x)
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    if not layers:
        return
    if len(x) < 2:
        raise ValueError("x has one image: give two or more to measure the statistics of BatchNorm on")
    momenta = [layer.momentum for layer in layers]
    passes = min(math.ceil(len(x) / images_at_once(model, x)), len(x) // 2)  # a pass of one image may have no variance
    with evaluating(model):
        for layer in layers:
            layer.reset_running_stats()
            layer.train()
            layer.momentum = None  # the mean over all passes
        for part in x.tensor_split(passes):
            outputs_of(model, part)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


@dataclass(frozen=True)
class MapSimilarity:
    """Spearman's rank correlation of two maps of each image, from −1 to 1; nan where one of the maps is constant.

    Example:
        >>> one = torch.tensor([[[1.0, 2.0, 3.0]], [[5.0, 5.0, 5.0]]])
        >>> measure.map_similarity(one, one).signed.isnan()  # the second map is constant
        tensor([False,  True])
    """

    signed: Tensor
    """(N,): of the maps as they are."""
    absolute: Tensor
    """(N,): of their absolute values: methods with a sign may give the same picture with the sign turned. Not near 0 even for
    random networks if the architecture or the image alone makes some places larger, as pixels that no path leads from."""

    @property
    def means(self) -> tuple[float, float]:
        """Mean signed and absolute correlation, each over the images that have one; nan if none has."""
        return self.signed.nanmean().item(), self.absolute.nanmean().item()


def map_similarity(a: Tensor, b: Tensor) -> MapSimilarity:
    """How alike saliency maps (N, H, W) of the same images are in the order that they put pixels in. Equal values share the
    mean of their ranks.

    Example:
        >>> one = torch.tensor([[[1.0, 2.0, 3.0]]])
        >>> alike, opposite = measure.map_similarity(one, one**2), measure.map_similarity(one, -one)
        >>> alike.signed.round(), opposite.signed.round(), opposite.absolute.round()  # only the order counts
        (tensor([1.], ...), tensor([-1.], ...), tensor([1.], ...))
    """
    a, b = torch.as_tensor(a).detach(), torch.as_tensor(b).detach()
    if a.shape != b.shape or a.ndim != 3 or not a.numel():
        raise ValueError(f"maps of shapes {tuple(a.shape)} and {tuple(b.shape)}: give (N, height, width) twice")
    if not (torch.isfinite(a).all() and torch.isfinite(b).all()):
        raise ValueError("the maps have NaN or Inf in them")
    a, b = a.double(), b.to(a.device).double()
    a, b = a.flatten(1), b.flatten(1)
    return MapSimilarity(rank_correlation(a, b), rank_correlation(a.abs(), b.abs()))


def random_map(x: Tensor, seed: int = 0) -> Tensor:
    """Maps (N, H, W) of independent uniform numbers for images x (N, C, H, W), the same on every device: what a method must
    beat in :func:`deletion_insertion`.

    Example:
        >>> x = torch.rand(2, 3, 8, 8)
        >>> measure.random_map(x).shape, torch.equal(measure.random_map(x), measure.random_map(x))
        (torch.Size([2, 8, 8]), True)
    """
    check_images(nn.Identity(), x)
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(len(x), *x.shape[-2:], generator=generator).to(x.device)
