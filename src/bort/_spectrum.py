r"""Where a weight stands: its distance to the constraint and its range of singular values, cheap enough for every epoch.

Up to 256 rows or columns the range is exact: eigenvalues of the smaller Gram matrix in float64. Beyond that (conv5 of
ACNN-Small has 4608 rows) it comes from a Lanczos iteration on the Gram matrix, whose Ritz values lie *inside* the true range
and reach its ends first; `bort.audit` has the exact ones.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bort import penalty

_EXACT = 256
_ITERATIONS = 96


class Spectrum(NamedTuple):
    residual: float
    """:func:`bort.penalty.residual`: the root mean square of σ² − 1."""
    smallest: float
    largest: float
    """Singular values."""


@torch.no_grad()
def spectrum(weight: Tensor, *, blocks: int = 1, transposed: bool = False) -> Spectrum:
    """Of all blocks of the weight together."""
    w = penalty.matrices(weight.detach(), blocks=blocks, transposed=transposed)
    is_small = min(w.shape[-2:]) <= _EXACT
    gram = penalty.defect(w.double() if is_small else w, 0.0, "full")
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    residual = penalty.distance(gram - eye).item()
    values = _eigenvalues(gram.cpu()) if is_small else torch.stack([_ritz_values(each) for each in gram])
    smallest, largest = values.clamp(min=0).sqrt().aminmax()
    return Spectrum(residual, smallest.item(), largest.item())


def _eigenvalues(gram: Tensor) -> Tensor:
    """Of small matrices, on the CPU, which is done with them before a GPU has started. By numpy: torch would wake all cores
    for it, and telling it not to (set_num_threads) changes how it rounds from then on."""
    import numpy as np

    if not torch.isfinite(gram).all():
        return gram.new_full(gram.shape[:-1], torch.nan)
    return torch.from_numpy(np.linalg.eigvalsh(gram.numpy()))


def _ritz_values(gram: Tensor) -> Tensor:
    """Eigenvalues of a symmetric matrix as a Krylov space of a fixed random vector sees them, the first and last of them.

    Nothing is read back before the end: on a GPU that would take longer than the products.
    """
    generator = torch.Generator().manual_seed(0)
    size = gram.shape[0]
    q = torch.randn(size, generator=generator, dtype=torch.float64).to(gram.device)
    basis = gram.new_zeros(min(_ITERATIONS, size), size, dtype=torch.float64)
    basis[0] = q / q.norm()
    least = 1e-7 * gram.abs().sum(dim=0).max()  # of a bound on the largest eigenvalue
    for i in range(1, len(basis)):
        q = (gram @ basis[i - 1].to(gram.dtype)).double()
        for _ in range(2):  # once is not enough: rounding brings back what was projected out
            q = q - basis[:i].mT @ (basis[:i] @ q)
        norm = q.norm()
        basis[i] = torch.where(norm > least, q / norm, 0.0)  # below it the space is invariant, and the rest rounding
    projected = (basis @ (gram.double() @ basis.mT)).cpu()
    used = int(basis.any(dim=1).sum())
    return _eigenvalues(projected[:used, :used])[[0, -1]]
