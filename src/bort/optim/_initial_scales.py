r"""``scale="initial"``: the target of each weight is the scale that it has when the optimizer first steps it.

.. math::
    s = \lVert W \rVert_F^2 / \min(m, n), \qquad W \leftarrow W - \alpha \lambda (W W^T W / s - W)

s is the mean of the weight's :math:`\sigma^2`, so its singular values are drawn together instead of to 1: for networks that
have been trained without the constraint. It is the penalty of :math:`W / \sqrt s` with target 1, times :math:`\sqrt s`. So λ,
the residual and the stability guard mean the same for every weight, whatever its scale.

s is measured at the first step, before anything moves, and kept in the optimizer's state of the weight, where checkpoints
find it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor

from bort import penalty
from bort.optim._spec import Weight
from bort.optim.kernels import is_capturing
from bort.optim.sharded import is_dtensor, largest_of_ranks, whole

KEY = "initial_scale"
"""Its name in the state of a weight, (blocks,)."""


class InitialScales:
    """The scales of one param group."""

    def __init__(self) -> None:
        self._scales: Tensor | None = None
        self._known: set[int] = set()
        self._unsaved: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def of(
        self, group: dict[str, Any], weights: list[Weight], slots: int, state: Mapping[Tensor, dict[str, Any]]
    ) -> Tensor:
        """(slots, blocks), of which those of ``weights`` are known: from the state, or measured now."""
        missing = [weight for weight in weights if weight[0] not in self._known]
        if missing and is_capturing():
            raise RuntimeError(
                "scale='initial': make a step before the one that is captured in a CUDA graph, which would measure the scale "
                "again at each replay"
            )
        device = weights[0][1].device
        with torch.inference_mode(False):  # a tensor made in inference mode could not be written to after it
            if self._scales is None:
                wide = any(p.dtype is torch.float64 for _, p in weights)
                dtype = torch.float64 if wide else torch.float32
                self._scales = torch.ones(slots, group["blocks"], dtype=dtype, device=device)
            elif self._scales.device != device:  # the weights have moved
                self._scales = self._scales.to(device)
        for slot, p in missing:
            scale = _saved(p, group["blocks"], state)
            if scale is None:
                scale = _measured(p, group)
            self._scales[slot].copy_(scale)
            self._known.add(slot)
            self._unsaved.append((p, scale))
        return self._scales

    def save(self, state: MutableMapping[Tensor, dict[str, Any]]) -> None:
        """After the base optimizer's step, which makes the state of a weight where there is none. It leaves out weights
        without a gradient; their scales wait for one."""
        if self._unsaved:
            for p, scale in self._unsaved:
                if p.grad is not None:
                    state[p][KEY] = scale
            self._unsaved = [(p, scale) for p, scale in self._unsaved if p.grad is None]


def _saved(p: Tensor, blocks: int, state: Mapping[Tensor, dict[str, Any]]) -> Tensor | None:
    scale = state.get(p, {}).get(KEY)
    # torch.distributed.checkpoint writes {} for what is missing.
    is_there = isinstance(scale, Tensor) and len(scale) == blocks
    if not is_dtensor(p):
        return scale if is_there else None
    # Of a weight that has had a gradient on some ranks only, not every rank has the scale; but all have to use the same.
    known = largest_of_ranks(scale if is_there else torch.zeros(blocks, dtype=p.dtype), p)  # type: ignore[arg-type]
    return known if known.all() else None


def _measured(p: Tensor, group: dict[str, Any]) -> Tensor:
    """In the dtype of the weight: load_state_dict converts what it loads to that, and the scale has to stay the same."""
    layout = {key: group[key] for key in ("mode", "blocks", "transposed")}
    scale = penalty.own_scale(whole(p), **layout)
    limits = torch.finfo(p.dtype)
    return scale.clamp(limits.tiny, limits.max).to(p.device, p.dtype)
