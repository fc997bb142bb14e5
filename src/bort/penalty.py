r"""The bounded orthogonal constraint: the mathematics, nothing else (paper, sections 3.2 and 3.3).

A weight is read as a matrix :math:`W` of shape (out, in); a convolution as (out, in·k·k). With a target ``scale`` *s*,

.. math::
    \text{value}(W) &= \lVert W^T W - s I \rVert_F^2                    && \text{equ:optim} \\
    \text{gradient}(W) &= W W^T W - s W = \nabla \text{value} / 4       && \text{equ:bort} \\
    \text{residual}(W) &= \lVert G - s I \rVert_F / \sqrt{\min(m, n)}   && G \text{ the smaller of } W^T W, W W^T

The paper drops the factor 4 into λ, and so do we. :math:`W (W^T W - sI)` and :math:`(W W^T - sI) W` are the same matrix,
so one formula serves every shape: a tall W is driven to orthonormal **columns** (invertible, equ:orth), a wide one can only
reach orthonormal **rows**. ``value`` of a wide W therefore never falls below :math:`s^2 (n - m)`, but its ``residual``
does reach zero: it is the root mean square of :math:`\sigma_i^2 - s` over the singular values.

Modes (the published code has them too): ``"full"`` is the paper; ``"rows"`` and ``"columns"`` bound the norms only, that
is, the diagonal of the Gram matrix (equ:bound); an ``"l1-"`` prefix replaces the squares by absolute values, so that the
gradient is made of signs. ``scale="adaptive"`` takes :math:`s = (\text{mean row norm})^2`, as a constant of the step. The
optimizers have ``scale="initial"`` besides: :func:`own_scale` of the weight at their first step, in units of which it is then
measured.

This file is the readable reference that every faster path is tested against.
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias, get_args

import torch
from torch import Tensor

Mode: TypeAlias = Literal["full", "rows", "columns", "l1-full", "l1-rows", "l1-columns"]
"""What is constrained: the Gram matrix, or only the norms of its rows or columns; squared, or by ℓ1."""

Scale: TypeAlias = float | Literal["adaptive"]
"""The target s of WᵀW = s·I: a number, or each weight's own (mean row norm)²."""

MODES: Final[tuple[str, ...]] = get_args(Mode)
"""All values of :data:`Mode`."""

__all__ = [
    "MODES",
    "Mode",
    "Scale",
    "defect",
    "distance",
    "gradient",
    "is_l1",
    "is_tall",
    "matrices",
    "own_scale",
    "pull",
    "residual",
    "target",
    "value",
]


def value(
    weight: Tensor, *, scale: Scale = 1.0, mode: Mode = "full", blocks: int = 1, transposed: bool = False
) -> Tensor:
    """The penalty of equ:optim, a 0-dim tensor; summed over ``blocks``.

    The ℓ1 forms are 2·Σ|G − sI|, so that in every mode the gradient below is exactly a quarter of this one's.

    Example:
        >>> penalty.value(2 * torch.eye(2))  # (σ² − 1)² = 9 for each of the two
        tensor(18.)
    """
    w = matrices(weight, blocks=blocks, transposed=transposed)
    s = target(w, scale)
    e = defect(w, s, mode)
    if is_l1(mode):
        return 2 * e.abs().sum()
    rank_deficit = max(0, w.shape[-1] - w.shape[-2]) if mode == "full" else 0
    floor = rank_deficit * (s.square().sum() if isinstance(s, Tensor) else s * s * blocks)
    return e.square().sum() + floor


def gradient(
    weight: Tensor, *, scale: Scale = 1.0, mode: Mode = "full", blocks: int = 1, transposed: bool = False
) -> Tensor:
    """WWᵀW − s·W (equ:bort) in the weight's own shape and dtype: a quarter of the gradient of :func:`value`.

    Example:
        >>> penalty.gradient(2 * torch.eye(2))  # σ³ − σ = 6
        tensor([[6., 0.],
                [0., 6.]])
    """
    w = matrices(weight, blocks=blocks, transposed=transposed)
    e = defect(w, target(w, scale), mode)
    return restore(pull(w, e.sign() if is_l1(mode) else e, mode), weight, transposed=transposed)


def residual(
    weight: Tensor, *, scale: Scale = 1.0, mode: Mode = "full", blocks: int = 1, transposed: bool = False
) -> Tensor:
    """How far the weight is from its constraint: the root mean square of σ² − s (of ‖row‖² − s in mode "rows").

    Example:
        >>> penalty.residual(2 * torch.eye(3))  # σ² − 1
        tensor(3.)
    """
    w = matrices(weight, blocks=blocks, transposed=transposed)
    return distance(defect(w, target(w, scale), mode))


def own_scale(weight: Tensor, *, mode: Mode = "full", blocks: int = 1, transposed: bool = False) -> Tensor:
    """The scale of a weight as it is, (blocks,): the mean of σ², which is ‖W‖²_F / min(m, n); in the modes for rows and
    columns that of their squared norms. 1 for a weight that is zero, which has none.

    Example:
        >>> penalty.own_scale(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))  # (9 + 16) / 2
        tensor([12.5000])
    """
    w = matrices(weight, blocks=blocks, transposed=transposed)
    rows, columns = w.shape[-2:]
    count = rows if mode.endswith("rows") else columns if mode.endswith("columns") else min(rows, columns)
    mean = w.square().sum(dim=(-2, -1)) / count
    return torch.where(mean > 0, mean, 1.0)


def matrices(weight: Tensor, *, blocks: int = 1, transposed: bool = False) -> Tensor:
    """The weight as a batch of matrices (blocks, out, in), in float32 or wider.

    ``blocks`` cuts the first dimension in equal parts that are constrained one by one: the groups of a grouped or
    depthwise convolution, the three parts of a fused qkv projection. ``transposed`` is for weights stored (in, out, …):
    transposed convolutions.

    Example:
        >>> penalty.matrices(torch.zeros(8, 3, 5, 5)).shape
        torch.Size([1, 8, 75])
        >>> penalty.matrices(torch.zeros(8, 3, 5, 5), blocks=2).shape
        torch.Size([2, 4, 75])
    """
    if weight.ndim < 2:
        raise ValueError(f"a weight of shape {tuple(weight.shape)} is not a matrix: give it two or more dimensions")
    if weight.is_complex():
        raise TypeError(
            f"a weight of shape {tuple(weight.shape)} is complex ({weight.dtype}): the constraint is defined for real weights"
        )
    if blocks < 1 or weight.shape[0] % blocks:
        raise ValueError(
            f"a weight of shape {tuple(weight.shape)} cannot be cut into blocks={blocks}: "
            f"its first dimension, {weight.shape[0]}, is not a multiple"
        )
    rows, columns = weight.shape[0] // blocks, math.prod(weight.shape[1:])
    w = weight.reshape(blocks, rows, columns)
    if w.dtype in (torch.float16, torch.bfloat16):
        w = w.float()  # G − I cancels: half precision would leave nothing of it
    return w.mT if transposed else w


def restore(w: Tensor, weight: Tensor, *, transposed: bool = False) -> Tensor:
    """The inverse of :func:`matrices`: back to the weight's shape and dtype."""
    return (w.mT if transposed else w).reshape(weight.shape).to(weight.dtype)


def target(w: Tensor, scale: Scale) -> float | Tensor:
    """s of WᵀW = s·I: the number given, or (blocks, 1, 1) values of (mean row norm)², not differentiated through.

    Example:
        >>> penalty.target(torch.full((1, 2, 4), 0.5), "adaptive")  # rows of norm 1
        tensor([[[1.]]])
    """
    if isinstance(scale, str) and scale != "adaptive":
        raise ValueError(
            f'scale={scale!r}: the target is a number or "adaptive" here. "initial" is a setting of the optimizers: the '
            "own_scale(weight) of their first step"
        )
    if scale == "adaptive":
        norms: Tensor = torch.linalg.vector_norm(w.detach(), dim=-1, keepdim=True)
        return norms.mean(dim=-2, keepdim=True).square()
    return float(scale)


def defect(w: Tensor, s: float | Tensor, mode: Mode) -> Tensor:
    """What is wrong with each matrix of a batch: the smaller Gram matrix minus s·I, or the squared norms minus s.

    Shapes: (b, k, k) with k = min(m, n) in the full modes, (b, m, 1) for rows, (b, 1, n) for columns.

    Example:
        >>> penalty.defect(2 * torch.eye(2)[None], 1.0, "full")
        tensor([[[3., 0.],
                 [0., 3.]]])
    """
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} is unknown: choose one of {', '.join(MODES)}")
    if mode.endswith("rows"):
        return w.square().sum(dim=-1, keepdim=True) - s
    if mode.endswith("columns"):
        return w.square().sum(dim=-2, keepdim=True) - s
    gram = w.mT @ w if is_tall(w) else w @ w.mT
    return gram - s * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)


def pull(w: Tensor, d: Tensor, mode: Mode) -> Tensor:
    """The direction of the penalty, d applied to W from the side its Gram matrix was taken: W·d or d·W.

    Example:
        >>> w = 2 * torch.eye(2)[None]
        >>> penalty.pull(w, penalty.defect(w, 1.0, "full"), "full")  # gradient(W)
        tensor([[[6., 0.],
                 [0., 6.]]])
    """
    if not mode.endswith("full"):
        return w * d
    return w @ d if is_tall(w) else d @ w


def distance(e: Tensor) -> Tensor:
    """Root mean square, over the singular values (or norms), of a :func:`defect`.

    Example:
        >>> penalty.distance(torch.tensor([[[1.0, 0.0], [0.0, 7.0]]]))  # √((1 + 49) / 2)
        tensor(5.)
    """
    count = e.shape[0] * max(e.shape[1:])
    return torch.linalg.vector_norm(e) / math.sqrt(count) if count else e.new_zeros(())


def is_tall(w: Tensor) -> bool:
    """Whether the columns can be orthonormal, so that the layer can be inverted (equ:orth).

    Example:
        >>> penalty.is_tall(torch.zeros(4, 3)), penalty.is_tall(torch.zeros(3, 4))
        (True, False)
    """
    return w.shape[-2] >= w.shape[-1]


def is_l1(mode: Mode) -> bool:
    """Whether the mode takes absolute values instead of squares.

    Example:
        >>> [mode for mode in penalty.MODES if penalty.is_l1(mode)]
        ['l1-full', 'l1-rows', 'l1-columns']
    """
    return mode.startswith("l1-")
