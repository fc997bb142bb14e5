"""The audit: what the constraint has achieved in each layer of a network, in one table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bort import _html, penalty
from bort._inspect import spellings
from bort._layer_inputs import Use, weights_of
from bort._precision import own_precision
from bort._table import table
from bort.measure._columns import COLUMNS, Column, LayerAudit
from bort.measure._layers import Comprehensibility, comprehensibility, reconstruction_ratio


@dataclass(frozen=True)
class Audit:
    """The layers of a network, in order. Print it, iterate over it, or look a layer up by its weight's name.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False))
        >>> _ = nn.init.eye_(model[0].weight), nn.init.eye_(model[2].weight)
        >>> audit = bort.audit(model)
        >>> [layer.name for layer in audit], audit["0.weight"].shape
        (['0.weight', '2.weight'], (3, 2))
    """

    layers: tuple[LayerAudit, ...]

    def __iter__(self) -> Iterator[LayerAudit]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, name: str) -> LayerAudit:
        layers = {layer.name: layer for layer in self.layers}
        for spelling in spellings(name):
            if spelling in layers:
                return layers[spelling]
        raise KeyError(f"no layer {name!r}; there are {', '.join(layer.name for layer in self.layers)}")

    def __str__(self) -> str:
        return table(_titles(COLUMNS), self._rows(), right=[n for n, column in enumerate(COLUMNS) if column.is_number])

    __repr__ = __str__

    def html(self, caption: str = "Audit") -> str:
        """The same table for a page, with what the columns mean as their titles. ``caption`` names it for those who do not
        see it."""
        numbers = [n for n, column in enumerate(COLUMNS) if column.is_number]
        meanings = [column.meaning for column in COLUMNS]
        return _html.table(_titles(COLUMNS), self._rows(), caption, numbers=numbers, meanings=meanings, kind="dense")

    def _repr_html_(self) -> str:
        return _html.notebook(self.html())

    def markdown(self) -> str:
        """The same table for a README or a report."""
        lines = [_titles(COLUMNS), ["---"] * len(COLUMNS), *self._rows()]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain values, for JSON; None where a number does not exist."""
        layers = [dataclasses.asdict(layer) for layer in self]
        return [{key: None if value != value else value for key, value in layer.items()} for layer in layers]

    def _rows(self) -> list[list[str]]:
        return [[column.show(layer) for column in COLUMNS] for layer in self]


def _titles(columns: Sequence[Column]) -> list[str]:
    return [column.title for column in columns]


def compare(audits: dict[str, Audit]) -> str:
    """Several audits of one architecture side by side: singular values, residual and ratio of each layer.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False))
        >>> _ = nn.init.eye_(model[0].weight), nn.init.eye_(model[2].weight)
        >>> print(measure.compare({"SGD": bort.audit(model), "Bort-S": bort.audit(model)}))
        layer     matrix  invertible  σ SGD        σ Bort-S     residual SGD  residual Bort-S
        ...
    """
    columns = {column.key: column for column in COLUMNS}
    same = [columns[key] for key in ("name", "shape", "invertible")]
    differing = [(columns[key], name) for key in ("sigma", "residual", "ratio") for name in audits]
    header = [*_titles(same), *(f"{column.title} {name}" for column, name in differing)]
    rows = [
        [
            *(column.show(layer) for column in same),
            *(column.show(audits[name][layer.name]) for column, name in differing),
        ]
        for layer in next(iter(audits.values()))
    ]
    numbers = [len(same) + n for n, (column, _) in enumerate(differing) if column.is_number]
    return table(header, rows, right=numbers)


@torch.no_grad()
def audit(model: nn.Module, x: Tensor | None = None) -> Audit:
    """The linear maps of a model: shape, singular values, bounds, Gram matrix, reconstruction.

    With a batch of inputs ``x`` the model is run, in eval mode, and the reconstruction ratio and the comprehensibility of
    each layer are measured on the inputs that the layer receives. The model is left as it was: modes, gradients, hooks.

    The layers are those that :func:`bort.param_groups` constrains, and those that it leaves out by their names (``exclude``):
    the classifier, by default. Its table gives the reason.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False))
        >>> _ = nn.init.eye_(model[0].weight), nn.init.eye_(model[2].weight)
        >>> tall, wide = bort.audit(model, torch.rand(8, 2))
        >>> tall.invertible, tall.residual, tall.ratio  # WᵀW = I
        (True, 0.0, 0.0)
        >>> wide.invertible, round(wide.floor, 3)  # √(1 − 2/3)
        (False, 0.577)
    """
    ratios = {} if x is None else reconstruction_ratio(model, x)
    similarities = {} if x is None else comprehensibility(model, x)
    rows = []
    for use in weights_of(model).values():
        with own_precision("highest", use.weight.device):
            rows.append(_layer(use, ratios.get(use.name), similarities.get(use.name)))
    return Audit(tuple(rows))


def _layer(use: Use, ratio: float | None, similarity: Comprehensibility | None) -> LayerAudit:
    name, weight, _, linear, _ = use
    if not torch.isfinite(weight).all():
        raise ValueError(f"{name} has NaN or Inf in it: there is nothing to audit in a layer that has diverged")
    # In float64: eigenvalues of the Gram matrix are squares of singular values, which keep half of their digits only.
    w = penalty.matrices(weight.detach().cpu().double(), blocks=linear.blocks, transposed=linear.transposed)
    invertible = w.shape[-2] >= w.shape[-1]
    gram = w.mT @ w if invertible else w @ w.mT
    eigenvalues = torch.linalg.eigvalsh(gram).clamp(min=0)
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    size, off_diagonal = gram.shape[-1], gram.square().sum() - diagonal.square().sum()
    norms = w.norm(dim=-1)
    return LayerAudit(
        name=name,
        kind=linear.kind,
        shape=(w.shape[-2], w.shape[-1]),
        blocks=linear.blocks,
        invertible=invertible,
        sigma=(eigenvalues.min().sqrt().item(), eigenvalues.max().sqrt().item()),
        row_norms=(norms.min().item(), norms.max().item()),
        gram_diagonal=diagonal.mean().item(),
        gram_off_diagonal=math.sqrt(max(0.0, off_diagonal.item()) / max(1, linear.blocks * size * (size - 1))),
        residual=penalty.residual(weight.detach(), blocks=linear.blocks, transposed=linear.transposed).item(),
        floor=math.sqrt(max(0, w.shape[-1] - w.shape[-2]) / w.shape[-1]),
        ratio=ratio,
        cosine=None if similarity is None else similarity.cosine.mean().item(),
        claim=None if similarity is None else similarity.claim.mean().item(),
        agreement=None if similarity is None else similarity.agreement,
    )
