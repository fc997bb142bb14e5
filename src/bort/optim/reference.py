r"""Bort-X to read: what :func:`bort.bortify` does, one weight at a time, around a plain torch optimizer.

.. code-block:: python

    optimizer = Reference(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), constraint=0.1)
    loss.backward()
    optimizer.step()

It has no stability guard, no batches, no kernels and no shards. A penalty that is too strong diverges here, as the equations
do; short of that, the optimizers of :mod:`bort.optim` make the same steps, and the tests compare them with this one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bort import penalty
from bort.optim._spec import Scale

__all__ = ["Reference", "direction", "root_of_scale"]


class Reference:
    """A plain optimizer with the penalty around its step. The settings are those of :func:`bort.bortify`; a param group of
    ``base`` that has some of its own keeps them.

    Example:
        >>> weight = nn.Parameter(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        >>> optimizer = optim.reference.Reference(torch.optim.SGD([weight], lr=0.1), constraint=0.5)
        >>> weight.grad = torch.zeros(2, 2)
        >>> optimizer.step()
        >>> weight.diagonal()  # σ ← σ − αλ(σ² − 1)σ
        tensor([1.0000, 1.7000], grad_fn=...)
    """

    def __init__(
        self,
        base: Optimizer,
        constraint: float = 0.1,
        *,
        decoupled: bool = False,
        every: int = 1,
        scale: Scale = 1.0,
        mode: penalty.Mode = "full",
        blocks: int = 1,
        transposed: bool = False,
    ) -> None:
        self.base = base
        self.settings: dict[str, Any] = {"constraint": constraint, "decoupled": decoupled, "every": every}
        self.settings |= {"scale": scale, "mode": mode, "blocks": blocks, "transposed": transposed}
        self.steps = 0
        self.initial_roots: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        self.steps += 1
        own_gradients: dict[Tensor, Tensor] = {}
        for group in self.base.param_groups:
            settings = self.settings | group
            layout = [settings[key] for key in ("mode", "blocks", "transposed")]
            strength = settings["constraint"] * settings["every"]  # λ, that of all the steps since the last penalty
            for weight in group["params"]:
                if weight.grad is None or weight.ndim < 2:
                    continue
                scale, root = settings["scale"], torch.ones_like(weight)
                if scale == "initial":  # the penalty of W/√s with target 1, times √s
                    scale, root = 1.0, self.initial_roots.setdefault(weight, root_of_scale(weight, *layout))
                if self.steps % settings["every"]:
                    continue
                move = strength * root * direction(weight / root, scale, *layout)
                if settings["decoupled"]:
                    weight -= group["lr"] * move  # W ← W − αλ(WWᵀW − sW)
                else:
                    gradient = own_gradients.setdefault(weight, weight.grad)  # a weight may be listed twice
                    weight.grad = gradient + move  # g ← g + λ(WWᵀW − sW)
        self.base.step()
        for weight, gradient in own_gradients.items():
            weight.grad = gradient


def direction(weight: Tensor, scale: penalty.Scale, mode: penalty.Mode, blocks: int, transposed: bool) -> Tensor:
    """WWᵀW − sW of equ:bort, for each block of rows by itself; in the other modes, what takes its place.

    Example:
        >>> optim.reference.direction(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), 1.0, "full", blocks=1, transposed=False)
        tensor([[0., 0.],
                [0., 6.]])
    """
    signs = torch.sign if mode.startswith("l1") else lambda defect: defect
    moves = []
    for block in weight.chunk(blocks):
        w = block.flatten(1).T if transposed else block.flatten(1)
        s = w.norm(dim=1).mean() ** 2 if scale == "adaptive" else scale
        eye = torch.eye(min(w.shape), dtype=w.dtype, device=w.device)
        if mode.endswith("rows"):
            move = signs(w.square().sum(dim=1, keepdim=True) - s) * w
        elif mode.endswith("columns"):
            move = signs(w.square().sum(dim=0, keepdim=True) - s) * w
        elif w.shape[0] >= w.shape[1]:
            move = w @ signs(w.T @ w - s * eye)
        else:
            move = signs(w @ w.T - s * eye) @ w  # the same as W(WᵀW − sI), by the smaller Gram matrix
        moves.append((move.T if transposed else move).reshape(block.shape))
    return torch.cat(moves)


def root_of_scale(weight: Tensor, mode: penalty.Mode, blocks: int, transposed: bool) -> Tensor:
    """√s of each block, in the weight's shape, with s the mean of its σ²; in the other modes, of its squared row or column
    norms. 1 for a block that is zero.

    Example:
        >>> optim.reference.root_of_scale(torch.tensor([[3.0, 0.0], [0.0, 3.0]]), "full", blocks=1, transposed=False)
        tensor([[3., 3.],
                [3., 3.]])
    """
    roots = []
    for block in weight.chunk(blocks):
        w = block.flatten(1).T if transposed else block.flatten(1)
        count = {"rows": w.shape[0], "columns": w.shape[1]}.get(mode.removeprefix("l1-"), min(w.shape))
        s = w.square().sum() / count
        roots.append(torch.full_like(block, s.sqrt().item() or 1.0))
    return torch.cat(roots)
