"""One measurement of the constrained weights of an optimizer, or of the linear maps of a model."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bort import penalty
from bort._precision import own_precision
from bort.layers import LinearMap, Spectrum, spectra
from bort.monitor._sources import ConstrainedWeight, constrained_weights
from bort.optim.sharded import whole


def measure(
    source: Any, *, layers: bool = False, model: nn.Module | None = None, prefix: str = "bort"
) -> dict[str, float]:
    """How far the weights are from their constraint now, under names that loggers take.

    ==========================  =======================================================================================
    bort/residual_largest       :func:`bort.penalty.residual` of the weight that is furthest from its constraint, 0 on it
    bort/residual_median        the median of all weights
    bort/sigma_smallest         the smallest singular value of all weights
    bort/sigma_largest          the largest one
    bort/milliseconds           what this measurement took, with the device waited for before and after it
    bort/NAME/residual, …       with ``layers``, the first three of each weight: residual, sigma_smallest, sigma_largest
    ==========================  =======================================================================================

    The residual is that of the audit, the root mean square of σ² − 1, and of the group's own ``scale`` and ``mode`` where an
    optimizer has others; with the scale "initial" it is relative to it. Singular values of weights with more than 256 rows
    and columns are from inside the true range (:func:`bort.layers.spectra`). A weight that is not finite makes the numbers
    nan.

    Weights that are sharded (DTensors of FSDP2) are gathered one after the other: all ranks have to call this. Otherwise
    nothing is exchanged, and the ranks of DDP measure the same.

    Args:
        source: a Bort optimizer, also inside a wrapper of Accelerate or Lightning. Or a module, whatever trains it: the
            weights are those that :func:`bort.param_groups` constrains; or the result of that function, to choose others.
        layers: the numbers of each weight as well.
        model: names the weights of an optimizer that was given plain parameters.
        prefix: the first part of the names.

    Returns:
        Nothing if there is nothing to measure, with a warning that says why.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> _ = nn.init.orthogonal_(model[0].weight)
        >>> optimizer = bort.BortS(bort.param_groups(model, 0.1, exclude=("2.*",)), lr=0.1)
        >>> values = monitor.measure(optimizer)
        >>> round(values["bort/sigma_largest"], 4), values["bort/residual_largest"] < 1e-5
        (1.0, True)
    """
    weights, problem = constrained_weights(source, model)
    if problem is not None:
        warnings.warn(f"bort.monitor measures nothing: {problem}", stacklevel=2)
        return {}
    return values_of(weights, layers=layers, prefix=prefix)


def values_of(weights: Sequence[ConstrainedWeight], *, layers: bool, prefix: str) -> dict[str, float]:
    devices = {each.weight.device for each in weights}
    _wait_for(devices)  # otherwise what was queued before, the training's own, would be counted
    start = time.perf_counter()
    measured = _spectra(weights)
    milliseconds = 1e3 * (time.perf_counter() - start)
    residuals, smallest, largest = torch.tensor(measured, dtype=torch.float64).unbind(dim=1)
    values = {  # by torch, whose extremes and quantiles of nan are nan
        "residual_largest": residuals.max().item(),
        "residual_median": residuals.quantile(0.5).item(),
        "sigma_smallest": smallest.min().item(),
        "sigma_largest": largest.max().item(),
        "milliseconds": milliseconds,
    }
    for each, spectrum in zip(weights, measured if layers else (), strict=layers):
        values[f"{each.name}/residual"] = spectrum.residual
        values[f"{each.name}/sigma_smallest"] = spectrum.smallest
        values[f"{each.name}/sigma_largest"] = spectrum.largest
    return {f"{prefix}/{name}": value for name, value in values.items()}


@torch.no_grad()
def _spectra(weights: Sequence[ConstrainedWeight]) -> list[Spectrum]:
    own: dict[int, Tensor] = {}  # residuals of weights with another target than I

    def matrices() -> Iterator[tuple[Tensor, LinearMap]]:
        for place, each in enumerate(weights):
            weight, linear = whole(each.weight), each.linear
            if not each.has_default_target:
                with own_precision("highest", weight.device):
                    own[place] = _own_residual(each, weight)
            yield weight, linear

    measured = spectra(matrices())
    for place, residual in zip(own, _read(list(own.values())), strict=True):
        measured[place] = measured[place]._replace(residual=residual)
    return measured


def _own_residual(each: ConstrainedWeight, weight: Tensor) -> Tensor:
    blocks, transposed = each.linear.blocks, each.linear.transposed
    if each.scale != "initial":
        return penalty.residual(weight, scale=each.scale, mode=each.mode, blocks=blocks, transposed=transposed)
    scale = each.initial_scale
    if scale is None:  # before the first step, which takes the scale of then
        scale = penalty.own_scale(weight, mode=each.mode, blocks=blocks, transposed=transposed)
    relative = weight.reshape(blocks, -1) / scale.to(weight).sqrt().unsqueeze(1)
    return penalty.residual(relative.reshape(weight.shape), mode=each.mode, blocks=blocks, transposed=transposed)


def _read(numbers: Sequence[Tensor]) -> list[float]:
    """All at once: each number by itself would make the host wait."""
    return torch.stack([number.double().to(numbers[0].device) for number in numbers]).tolist() if numbers else []


def _wait_for(devices: set[torch.device]) -> None:
    for device in devices:
        if device.type not in ("cpu", "meta"):
            torch.accelerator.synchronize(device)
