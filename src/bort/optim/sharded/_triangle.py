r"""One triangle of symmetric matrices: ranks that add up Gram matrices need not send the other one.

With :math:`h = \lceil k/2 \rceil` a matrix is

.. math:: G = \begin{pmatrix} A & B^T \\ B & C \end{pmatrix}, \qquad A\colon h \times h.

The lower triangle of A and the upper one of C fit together into one rectangle, and B follows it: k(k + 1)/2 numbers. That
takes a few calls for any number of matrices, and no table of indices, which would be larger than the matrices.
"""

from __future__ import annotations

import torch
from torch import Tensor


def packed(matrices: Tensor) -> Tensor:
    """(n, k, k) → (n, k(k + 1)/2). Read are the lower triangles of G and A, and the upper one of C."""
    n, k, _ = matrices.shape
    h, odd = (k + 1) // 2, k % 2
    rectangle = matrices.new_zeros(n, h + 1 - odd, h)
    rectangle[:, 1 - odd :] = matrices[:, :h, :h].tril()
    rectangle[:, : k - h, odd:] += matrices[:, h:, h:].triu()
    return torch.cat([rectangle.flatten(1), matrices[:, h:, :h].flatten(1)], dim=1)


def unpacked(numbers: Tensor, k: int) -> Tensor:
    """(n, k(k + 1)/2) → (n, k, k), both triangles with the same bits."""
    h, odd = (k + 1) // 2, k % 2
    rectangle, b = torch.split(numbers, [(h + 1 - odd) * h, (k - h) * h], dim=1)
    rectangle, b = rectangle.reshape(-1, h + 1 - odd, h), b.reshape(len(numbers), k - h, h)
    a, c = rectangle[:, 1 - odd :].tril(), rectangle[:, : k - h, odd:].triu()
    matrices = numbers.new_empty(len(numbers), k, k)
    torch.add(a, a.tril(-1).mT, out=matrices[:, :h, :h])
    torch.add(c, c.triu(1).mT, out=matrices[:, h:, h:])
    matrices[:, h:, :h] = b
    matrices[:, :h, h:] = b.mT
    return matrices
