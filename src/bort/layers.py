r"""The layers of a model as matrices: which parameters are linear maps, what they are multiplied with, where they stand.

Everything that looks at weights (param groups, the audit, a training's history, g) reads them through this file, so a
convolution is the same matrix everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.parameter import is_lazy
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from bort import penalty
from bort._inspect import evaluating, uncompiled_name, unwrapped
from bort._precision import own_precision

__all__ = ["LinearMap", "Spectrum", "layer_inputs", "linear_map", "linear_maps", "spectra", "spectrum"]

# q, k and v one after the other. (GPT-NeoX and BLOOM call theirs query_key_value and interleave them by head.)
_QKV_NAMES = ("qkv", "Wqkv", "in_proj", "qkv_proj")

# Up to this many rows or columns eigenvalues are computed exactly; beyond it, by this many Lanczos iterations.
_EXACT_SIDE = 256
_LANCZOS_ITERATIONS = 96
# Gram matrices of one size are held up to so many bytes: all those of a large language model would fill the device.
_GRAM_BYTES = 2**27


@dataclass(frozen=True)
class LinearMap:
    """How a weight is read as a matrix, in the words of :func:`bort.penalty.matrices`, and the kind of layer.

    Example:
        >>> layers.LinearMap("grouped convolution, 2 blocks", blocks=2)
        LinearMap(kind='grouped convolution, 2 blocks', blocks=2, transposed=False)
    """

    kind: str
    blocks: int = 1
    transposed: bool = False


def linear_map(name: str, p: Tensor, module: nn.Module, *, split_qkv: bool = False) -> LinearMap | None:
    """How parameter ``name`` of ``module`` is a linear map of the module's input; None if it is not known to be one.

    Example:
        >>> layer = nn.ConvTranspose2d(4, 8, 3)
        >>> layers.linear_map("up.weight", layer.weight, layer)
        LinearMap(kind='transposed convolution', blocks=1, transposed=True)
        >>> layers.linear_map("up.bias", layer.bias, layer) is None
        True
    """
    path = name.split(".")
    if isinstance(module, nn.MultiheadAttention) and path[-1].endswith("proj_weight"):
        if path[-1] != "in_proj_weight":
            return LinearMap("attention in-projection")
        return _fused("attention in-projection", split_qkv)
    if path[-1] != "weight":
        return None
    if isinstance(module, nn.Linear):
        fused = len(path) > 1 and path[-2] in _QKV_NAMES and p.shape[0] == 3 * p.shape[1]
        return _fused("fused qkv", split_qkv) if fused else LinearMap("linear")
    if isinstance(module, _ConvNd):
        transposed = isinstance(module, _ConvTransposeNd)
        kind = "transposed convolution" if transposed else "convolution"
        if module.groups > 1:
            grouping = "depthwise" if module.groups == module.in_channels else "grouped"
            kind = f"{grouping} {kind}, {module.groups} blocks"
        return LinearMap(kind, module.groups, transposed)
    if type(module).__name__ == "Conv1D" and p.ndim == 2:  # the linear layer of Hugging Face's GPT-2 family
        whole = ", not split: q, k and v are columns here" if split_qkv and path[-2:-1] == ["c_attn"] else ""
        return LinearMap(f"linear, stored (in, out){whole}", transposed=True)
    return None


def linear_maps(model: nn.Module) -> Iterator[tuple[str, Tensor, nn.Module, LinearMap]]:
    """Name, weight, module and reading of every known linear map. A weight that several modules share appears once per
    module. The weight of a parametrized layer (``torch.nn.utils.parametrize``, weight_norm, spectral_norm) is the one that it
    computes.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Conv1d(4, 2, 1))
        >>> [(name, linear.kind) for name, _, _, linear in layers.linear_maps(model)]
        [('0.weight', 'linear'), ('2.weight', 'convolution')]
    """
    for prefix, module in unwrapped(model).named_modules():
        for name, p in module.named_parameters(uncompiled_name(prefix), recurse=False):
            if is_lazy(p):
                raise ValueError(f"parameter {name!r} has no shape yet: run one batch through the lazy model first")
            linear = linear_map(name, p, module)
            if linear is not None and p.is_floating_point() and p.numel():
                yield name, p, module, linear
        computed = _computed_weight(module)
        if computed is not None:
            name = ".".join(filter(None, (uncompiled_name(prefix), "weight")))
            linear = linear_map(name, computed, module)
            if linear is not None:
                yield name, computed, module, linear


@torch.no_grad()
def _computed_weight(module: nn.Module) -> Tensor | None:
    """The weight of a layer that computes it from other parameters."""
    if not isinstance(module, (nn.Linear, _ConvNd)) or "weight" in module._parameters:
        return None
    for hook in module._forward_pre_hooks.values():  # torch's older way: the attribute is as old as the last pass
        if isinstance(hook, SpectralNorm):
            return hook.compute_weight(module, do_power_iteration=False).detach()
        if isinstance(hook, WeightNorm):
            weight: Tensor = hook.compute_weight(module)
            return weight.detach()
    with evaluating(module):  # in training mode spectral_norm makes a step of its power iteration whenever it is read
        computed = getattr(module, "weight", None)
    return computed.detach() if isinstance(computed, Tensor) else None


def _fused(kind: str, split: bool) -> LinearMap:
    return LinearMap(f"{kind}, three blocks", 3) if split else LinearMap(f"{kind}, one matrix")


def layer_inputs(module: nn.Module, x: Tensor, linear: LinearMap, *, padded: bool = False) -> Iterator[Tensor]:
    """The vectors z that the layer's matrix is multiplied with (equ:reconstruction), as (blocks, in, samples), one image (or
    one batch of rows) at a time.

    A convolution sees its padded input in overlapping patches of in·k·k numbers; a transposed one, stored (in, out, …),
    sees single pixels; a linear layer the last dimension. ``padded``: x has the padding already.

    Example:
        >>> layer, x = nn.Conv2d(2, 8, 3, bias=False), torch.rand(1, 2, 5, 5)
        >>> (z,) = layers.layer_inputs(layer, x, layers.LinearMap("convolution"))
        >>> z.shape  # 2·3·3 numbers at each of 3·3 places
        torch.Size([1, 18, 9])
        >>> torch.allclose(layer.weight.reshape(8, 18) @ z[0], layer(x).reshape(8, 9), atol=1e-6)
        True
    """
    if not isinstance(module, _ConvNd):
        shared = x.reshape(-1, x.shape[-1]).T.unsqueeze(0)  # the blocks of a fused qkv all read the same vector
        yield shared.expand(linear.blocks, -1, -1)
        return
    spatial = len(module.kernel_size)
    for image in x if x.ndim == spatial + 2 else x.unsqueeze(0):
        z = image if linear.transposed else _unfold(module, image, padded)
        yield z.reshape(linear.blocks, -1, z[0].numel() if linear.transposed else z.shape[-1])


def _unfold(module: _ConvNd, image: Tensor, padded: bool) -> Tensor:
    """(channels, …) to (channels·k·k, patches), for any number of spatial dimensions."""
    padding = [] if padded else module._reversed_padding_repeated_twice
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    z = F.pad(image.unsqueeze(0), padding, mode=mode)[0] if any(padding) else image
    spatial = len(module.kernel_size)
    for axis, (k, stride, dilation) in enumerate(zip(module.kernel_size, module.stride, module.dilation, strict=True)):
        z = z.unfold(1 + axis, (k - 1) * dilation + 1, stride)[..., ::dilation]
    # now (channels, *positions, *kernel): bring the kernel next to the channels, as in the weight
    order = [0, *range(1 + spatial, 1 + 2 * spatial), *range(1, 1 + spatial)]
    positions = z.shape[1 : 1 + spatial].numel()
    return z.permute(order).reshape(-1, positions)


class Spectrum(NamedTuple):
    """How far a weight is from the constraint, and the range of its singular values.

    Example:
        >>> layers.spectrum(torch.eye(3))
        Spectrum(residual=0.0, smallest=1.0, largest=1.0)
    """

    residual: float
    """:func:`bort.penalty.residual`: the root mean square of σ² − s."""
    smallest: float
    largest: float
    """Singular values."""


def spectrum(weight: Tensor, *, blocks: int = 1, transposed: bool = False) -> Spectrum:
    """The residual and the range of singular values of all blocks of a weight; see :func:`spectra`.

    Example:
        >>> found = layers.spectrum(torch.diag(torch.tensor([0.5, 2.0])))
        >>> found.smallest, found.largest
        (0.5, 2.0)
    """
    return spectra([(weight, LinearMap("", blocks, transposed))])[0]


@torch.no_grad()
def spectra(weights: Iterable[tuple[Tensor, LinearMap]], scale: float = 1.0) -> list[Spectrum]:
    """The residual (to WᵀW = s·I with the scale s) and the range of singular values of weights, all blocks of each; cheap
    enough for every epoch.

    Up to 256 rows or columns the range is exact: eigenvalues of the smaller Gram matrix in float64. Beyond that (conv5 of
    ACNN-Small has 4608 rows) it comes from a Lanczos iteration on the Gram matrix, whose Ritz values lie *inside* the true
    range and reach its ends first; :func:`bort.audit` has the exact ones. Matrices of one size are computed together, and the
    host waits for a device only when all of its work has been given to it.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> for _, weight, _, linear in layers.linear_maps(model):
        ...     _ = nn.init.orthogonal_(weight)
        >>> found = layers.spectra([(weight, linear) for _, weight, _, linear in layers.linear_maps(model)])
        >>> [round(spectrum.largest, 4) for spectrum in found]
        [1.0, 1.0]
    """
    waiting: dict[tuple[int, torch.device], list[tuple[_Slot, Tensor]]] = {}
    batches: list[tuple[list[_Slot], Tensor]] = []
    for place, (weight, linear) in enumerate(weights):
        with own_precision("highest", weight.device):
            w = penalty.matrices(weight.detach(), blocks=linear.blocks, transposed=linear.transposed)
            is_small = min(w.shape[-2:]) <= _EXACT_SIDE
            gram = penalty.defect(w.double() if is_small else w, 0.0, "full")
            eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
            residual = penalty.distance(gram - scale * eye).double()
        size = gram.shape[-1], gram.device
        waiting.setdefault(size, []).append((_Slot(place, len(gram), residual), gram))
        if sum(each.nbytes for _, each in waiting[size]) >= _GRAM_BYTES:
            batches.append(_compressed(waiting.pop(size)))
    batches += [_compressed(grams) for grams in waiting.values()]
    measured: dict[int, Spectrum] = {}
    for slots, matrices in batches:
        sigma = _eigenvalues(matrices.cpu())[:, [0, -1]].clamp(min=0).sqrt()
        residuals = torch.stack([slot.residual for slot in slots]).tolist()
        ranges = torch.split(sigma, [slot.blocks for slot in slots])
        for slot, residual, of_blocks in zip(slots, residuals, ranges, strict=True):
            smallest, largest = of_blocks.aminmax()
            measured[slot.place] = Spectrum(residual, smallest.item(), largest.item())
    return [measured[place] for place in range(len(measured))]


class _Slot(NamedTuple):
    """Which weight Gram matrices belong to."""

    place: int
    blocks: int
    residual: Tensor


def _compressed(grams: list[tuple[_Slot, Tensor]]) -> tuple[list[_Slot], Tensor]:
    """Out of Gram matrices of one size small ones in float64 with the same smallest and largest eigenvalues (nearly the same,
    if they are projections)."""
    together = torch.cat([gram for _, gram in grams])
    if together.shape[-1] > _EXACT_SIDE:
        with own_precision("highest", together.device):
            together = _krylov(together)
    return [slot for slot, _ in grams], together


def _eigenvalues(matrices: Tensor) -> Tensor:
    """Of small matrices (n, k, k), on the CPU, which has finished before a GPU has started. By numpy, where it is installed:
    torch would use all cores for it, and telling it not to (set_num_threads) changes how torch rounds from then on."""
    finite = matrices.isfinite().all(dim=-1).all(dim=-1)
    clean = torch.where(finite[:, None, None], matrices, 0.0)
    try:
        import numpy as np

        values = torch.from_numpy(np.linalg.eigvalsh(clean.numpy()))
    except ImportError:
        values = torch.linalg.eigvalsh(clean)
    return torch.where(finite[:, None], values, torch.nan)


def _krylov(gram: Tensor) -> Tensor:
    """Symmetric matrices (n, k, k), projected on a Krylov space of a fixed random vector: their eigenvalues are Ritz values.

    Nothing is read back to the host: on a GPU that would take longer than the products.
    """
    generator = torch.Generator().manual_seed(0)
    count, size = gram.shape[:2]
    first = torch.randn(size, generator=generator, dtype=torch.float64).to(gram.device)
    basis = gram.new_zeros(count, min(_LANCZOS_ITERATIONS, size), size, dtype=torch.float64)
    basis[:, 0] = first / first.norm()
    least = 1e-7 * gram.abs().sum(dim=1).amax(dim=1, keepdim=True)  # relative to a bound on the largest eigenvalue
    for i in range(1, basis.shape[1]):
        q = (gram @ basis[:, i - 1, :, None].to(gram.dtype)).double()
        for _ in range(2):  # twice: rounding brings back a part of what was projected out
            q = q - basis[:, :i].mT @ (basis[:, :i] @ q)
        norm = torch.linalg.vector_norm(q[..., 0], dim=1, keepdim=True)
        # Below it the space is invariant, and q only rounding.
        basis[:, i] = torch.where(norm > least, q[..., 0] / norm, 0.0)
    projected = basis @ (gram.double() @ basis.mT)
    # A vector that is zero would add the eigenvalue 0. The first vector's Rayleigh quotient lies inside the range instead.
    unused = basis.any(dim=2).logical_not()
    diagonal = projected.diagonal(dim1=1, dim2=2)
    diagonal.copy_(torch.where(unused, diagonal[:, :1], diagonal))
    return projected
