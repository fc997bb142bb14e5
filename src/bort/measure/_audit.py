"""The audit: what the constraint has made of each layer of a network, in one table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bort import penalty
from bort._table import table
from bort.measure._inputs import Use, uses_of
from bort.measure._layers import Comprehensibility, comprehensibility, reconstruction_ratio


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
    floor: float
    """What a wide layer's ratio cannot get under for inputs without preferred directions: √(1 − out/in); 0 if it is tall.
    Real inputs lie in few directions, so real ratios can be lower."""
    ratio: float | None
    """‖z − Wᵀ(Wz)‖ / ‖z‖ over the layer's inputs z (section 4.2), None without data."""
    cosine: float | None
    """Comprehensibility (Definition 1): mean cosine of a weight with the patches that excite it most, None without data."""
    claim: float | None
    """What activations alone would claim it to be, see :class:`Comprehensibility`."""
    agreement: float | None
    """Rank correlation of the two over the rows."""


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
        return table(_HEADER, self._rows(), right=range(5, len(_HEADER)))

    def markdown(self) -> str:
        """The same table for a README or a report."""
        lines = [_HEADER, ["---"] * len(_HEADER), *self._rows()]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain values, for JSON; None where a number does not exist."""
        layers = [dataclasses.asdict(layer) for layer in self]
        return [{key: None if value != value else value for key, value in layer.items()} for layer in layers]

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                layer.name,
                _shape(layer),
                "yes" if layer.invertible else "no, wide",
                _range(layer.sigma),
                _range(layer.row_norms),
                f"{layer.gram_diagonal:.3f}",
                f"{layer.gram_off_diagonal:.4f}",
                f"{layer.residual:.3f}",
                _number(layer.ratio),
                f"{layer.floor:.2f}" if layer.floor else "–",
                _number(layer.cosine),
                _number(layer.claim),
                _number(layer.agreement),
            )
            for layer in self
        ]


_HEADER = (
    *("layer", "matrix", "invertible", "σ", "‖row‖", "Gram diag", "off-diag", "residual"),
    *("ratio", "floor", "cosine", "claim", "agreement"),
)


def compare(audits: dict[str, Audit]) -> str:
    """Several audits of one architecture side by side: singular values, residual and ratio of each layer."""
    first = next(iter(audits.values()))
    columns: dict[str, Callable[[LayerAudit], str]] = {
        "σ": lambda layer: _range(layer.sigma),
        "residual": lambda layer: f"{layer.residual:.3f}",
        "ratio": lambda layer: _number(layer.ratio),
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

    With a batch of inputs ``x`` the model is run, in eval mode, and the reconstruction ratio and the comprehensibility of
    each layer are measured on what that layer really receives. The model is left as it was: modes, gradients, hooks.
    """
    ratios = {} if x is None else reconstruction_ratio(model, x)
    similar = {} if x is None else comprehensibility(model, x)
    first: dict[Tensor, Use] = {}  # a shared weight goes by its first name
    for use in uses_of(model):
        first.setdefault(use.weight, use)
    return Audit(tuple(_layer(use, ratios.get(use.name), similar.get(use.name)) for use in first.values()))


def _layer(use: Use, ratio: float | None, similar: Comprehensibility | None) -> LayerAudit:
    name, p, _, linear = use
    if not torch.isfinite(p).all():
        raise ValueError(f"{name} has NaN or Inf in it: there is nothing to audit in a layer that has diverged")
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
        floor=math.sqrt(max(0, w.shape[-1] - w.shape[-2]) / w.shape[-1]),
        ratio=ratio,
        cosine=None if similar is None else similar.cosine.mean().item(),
        claim=None if similar is None else similar.claim.mean().item(),
        agreement=None if similar is None else similar.agreement,
    )


def _shape(layer: LayerAudit) -> str:
    return (f"{layer.blocks} of " if layer.blocks > 1 else "") + f"{layer.shape[0]}×{layer.shape[1]}"


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2f} … {ends[1]:.2f}"


def _number(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.2f}"
