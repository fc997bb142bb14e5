"""The audit: what the constraint has made of each layer of a network, in one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bort import penalty
from bort._patches import layer_inputs
from bort._table import table
from bort.optim._linear import LinearMap, linear_maps


@dataclass(frozen=True)
class LayerAudit:
    """One layer's weight, read as matrices (out, in). The Gram matrix is the smaller one, as in `penalty.residual`."""

    name: str
    kind: str
    shape: tuple[int, int]
    blocks: int
    invertible: bool
    """Whether WᵀW = I is possible at all (equ:orth): at least as many rows as columns."""
    sigma: tuple[float, float]
    """Smallest and largest singular value."""
    row_norms: tuple[float, float]
    """Smallest and largest ‖w_j‖; the largest is C_w of equ:bound."""
    gram_diagonal: float
    """Mean of the Gram matrix's diagonal: 1 on the constraint."""
    gram_off_diagonal: float
    """Root mean square of its other entries: 0 on the constraint."""
    residual: float
    ratio: float | None
    """‖z − Wᵀ(Wz)‖ / ‖z‖ over the layer's inputs z (section 4.2), None without data."""


@dataclass(frozen=True)
class Audit:
    """The layers of a network, in order. Print it, iterate over it, or look a layer up by its parameter's name."""

    layers: tuple[LayerAudit, ...]

    def __iter__(self) -> Iterator[LayerAudit]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, name: str) -> LayerAudit:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(f"no layer {name!r}; there are {', '.join(layer.name for layer in self.layers)}")

    def __str__(self) -> str:
        header = ("layer", "matrix", "invertible", "σ", "‖row‖", "Gram diag", "off-diag", "residual", "ratio")
        rows = [
            (
                layer.name,
                _shape(layer),
                "yes" if layer.invertible else "no, wide",
                _range(layer.sigma),
                _range(layer.row_norms),
                f"{layer.gram_diagonal:.3f}",
                f"{layer.gram_off_diagonal:.4f}",
                f"{layer.residual:.3f}",
                _ratio(layer),
            )
            for layer in self
        ]
        return table(header, rows, right=(5, 6, 7, 8))


def compare(audits: dict[str, Audit]) -> str:
    """Several audits of one architecture side by side: singular values, residual and ratio of each layer."""
    first = next(iter(audits.values()))
    columns: dict[str, Callable[[LayerAudit], str]] = {
        "σ": lambda layer: _range(layer.sigma),
        "residual": lambda layer: f"{layer.residual:.3f}",
        "ratio": _ratio,
    }
    header = ["layer", "matrix", "invertible", *(f"{what} {name}" for what in columns for name in audits)]
    rows = [
        [
            layer.name,
            _shape(layer),
            "yes" if layer.invertible else "no, wide",
            *(show(one[layer.name]) for show in columns.values() for one in audits.values()),
        ]
        for layer in first
    ]
    return table(header, rows, right=range(3 + len(audits), len(header)))


@torch.no_grad()
def audit(model: nn.Module, x: Tensor | None = None) -> Audit:
    """What is true of each linear map of a model: shape, singular values, bounds, Gram matrix, reconstruction.

    With a batch of inputs ``x`` the model is run once, in eval mode, and the reconstruction ratio of each layer is
    measured on what that layer really receives. The model is left as it was: modes, gradients, hooks.
    """
    uses: list[Use] = [(p, name, module, linear) for name, p, module, linear in linear_maps(model)]
    ratios = {} if x is None else _ratios(model, x, uses)
    first = {p: (name, linear) for p, name, _, linear in reversed(uses)}  # a shared weight goes by its first name
    return Audit(tuple(_layer(name, p, linear, ratios.get(p)) for p, (name, linear) in reversed(first.items())))


Use = tuple[Tensor, str, nn.Module, LinearMap]
"""A weight in one of the modules that use it."""


def _layer(name: str, p: Tensor, linear: LinearMap, ratio: float | None) -> LayerAudit:
    # float64 on the CPU: eigenvalues of a Gram matrix carry half the digits of the singular values they are squares of.
    w = penalty.matrices(p.detach().cpu().double(), blocks=linear.blocks, transposed=linear.transposed)
    e = penalty.defect(w, 0.0, "full")
    eigenvalues = torch.linalg.eigvalsh(e).clamp(min=0)
    diagonal = e.diagonal(dim1=-2, dim2=-1)
    k, off = e.shape[-1], e.square().sum() - diagonal.square().sum()
    norms = w.norm(dim=-1)
    return LayerAudit(
        name=name,
        kind=linear.kind,
        shape=(w.shape[-2], w.shape[-1]),
        blocks=linear.blocks,
        invertible=penalty.is_tall(w),
        sigma=(eigenvalues.min().sqrt().item(), eigenvalues.max().sqrt().item()),
        row_norms=(norms.min().item(), norms.max().item()),
        gram_diagonal=diagonal.mean().item(),
        gram_off_diagonal=math.sqrt(max(0.0, off.item()) / max(1, linear.blocks * k * (k - 1))),
        residual=penalty.residual(p.detach(), blocks=linear.blocks, transposed=linear.transposed).item(),
        ratio=ratio,
    )


def _ratios(model: nn.Module, x: Tensor, uses: list[Use]) -> dict[Tensor, float]:
    """‖z − Wᵀ(Wz)‖ / ‖z‖ over all inputs of each weight, measured in forward hooks; a reused one counts every use."""
    sums: dict[Tensor, list[Tensor]] = {p: [] for p, *_ in uses}

    def watch(p: Tensor, linear: LinearMap) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        w = penalty.matrices(p.detach(), blocks=linear.blocks, transposed=linear.transposed)

        def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            given = inputs[0] if inputs else next(iter(named.values()), None)
            if not isinstance(given, Tensor) or not given.is_floating_point():
                return
            for z in layer_inputs(module, given.detach().to(w.dtype), linear):  # (blocks, in, samples), image by image
                error = z - w.mT @ (w @ z)
                sums[p].append(torch.stack([error.double().square().sum(), z.double().square().sum()]))

        return hook

    training = {module: module.training for module in model.modules()}
    with ExitStack() as stack:
        for p, name, module, linear in uses:
            if isinstance(module, nn.MultiheadAttention) and not name.endswith("in_proj_weight"):
                continue  # separate projections of keys and values, whose inputs are other than the module's first
            stack.callback(module.register_forward_pre_hook(watch(p, linear), with_kwargs=True).remove)
        try:
            model.eval()
            model(x)
        finally:
            for module, mode in training.items():
                module.training = mode
    totals = {p: torch.stack(parts).sum(dim=0).tolist() for p, parts in sums.items() if parts}
    return {p: math.sqrt(error / size) for p, (error, size) in totals.items() if size}


def _shape(layer: LayerAudit) -> str:
    return (f"{layer.blocks} of " if layer.blocks > 1 else "") + f"{layer.shape[0]}×{layer.shape[1]}"


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2f} … {ends[1]:.2f}"


def _ratio(layer: LayerAudit) -> str:
    return "–" if layer.ratio is None else f"{layer.ratio:.2f}"
