"""The weights of a LAMB step in batches that multi-tensor calls take, and the norms of each of them."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bort.optim.kernels import is_capturing
from bort.optim.sharded import is_dtensor, local, local_gradient, norms_of_wholes


@dataclass(slots=True)
class Batch:
    """Weights of one group that have a gradient, of one device and one dtype; sharded ones, of one mesh and one layout.

    Of sharded weights the lists hold the local pieces: only norms need the others.
    """

    group: dict[str, Any]
    device: torch.device
    dtype: torch.dtype
    params: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    grads: list[Tensor] = field(default_factory=list)
    exp_avgs: list[Tensor] = field(default_factory=list)
    exp_avg_sqs: list[Tensor] = field(default_factory=list)

    def add(self, p: Tensor, state: dict[str, Any]) -> None:
        if "exp_avg" not in state:
            refuse_capture()
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        self.params.append(p)
        self.weights.append(local(p))
        self.grads.append(local_gradient(p))
        self.exp_avgs.append(local(state["exp_avg"]))
        self.exp_avg_sqs.append(local(state["exp_avg_sq"]))

    def norms(self, tensors: Sequence[Tensor]) -> Tensor:
        """The norm of each tensor, of which there is one for each weight; in float32 or wider."""
        norms = torch.stack(torch._foreach_norm(list(tensors), 2, self._wide))
        first: Any = self.params[0]
        return norms_of_wholes(norms, first) if is_dtensor(first) else norms

    def scalar(self, value: float | Tensor) -> Any:
        """A number as the multi-tensor calls take it: one on the device in the batch's dtype, any other as it is."""
        if not isinstance(value, Tensor):
            return value
        if value.device.type == "cpu" and self.device.type != "cpu":
            return value.item()
        return value.to(self.device, self.dtype).reshape(())

    def divided_grads(self, divisor: Tensor | None) -> list[Tensor]:
        """New tensors. Those of float16 are divided in float32: GradScaler's first factor, 65536, is infinite in float16."""
        if divisor is None or self.dtype is not torch.float16:
            return list(torch._foreach_div(self.grads, 1.0 if divisor is None else self.scalar(divisor)))
        number = divisor.to(self.device, torch.float32).reshape(())
        return [quotient.half() for quotient in torch._foreach_div([grad.float() for grad in self.grads], number)]

    def tensor(self, value: float | Tensor) -> Tensor:
        """A number as a tensor on the batch's device."""
        if isinstance(value, Tensor):
            return value
        return torch.full((), value, dtype=self.dtype, device=self.device)

    def count(self, step: int | Tensor) -> int | Tensor:
        """A count of steps where the batch can use it, in float32 or wider."""
        return step.to(self.device, self._wide) if isinstance(step, Tensor) else step

    @property
    def _wide(self) -> torch.dtype:
        return torch.promote_types(self.dtype, torch.float32)


def refuse_capture() -> None:
    """Before state is made: what is made during a capture belongs to the graph, and is made anew at each replay."""
    if is_capturing():
        raise RuntimeError("Lamb has no state yet: make a step before the one that is captured in a CUDA graph")


def batches_of(groups: Sequence[dict[str, Any]], state: MutableMapping[Tensor, dict[str, Any]]) -> list[Batch]:
    """All weights that have a gradient. Moments that are not there yet are made."""
    found = [(number, p) for number, group in enumerate(groups) for p in group["params"] if p.grad is not None]
    if any(p.grad.layout is not torch.strided for _, p in found):
        raise RuntimeError(
            "Lamb does not support sparse gradients: make them dense, or use SparseAdam for these weights"
        )
    strange = next((p for _, p in found if p.is_complex()), None)
    if strange is not None:
        raise TypeError(
            f"parameter {_name(groups, strange)!r} is complex ({strange.dtype}): Lamb is defined for real weights. Keep it "
            "as a real parameter (torch.view_as_real), or give it to another optimizer"
        )
    batches: dict[Any, Batch] = {}
    for number, p in found:
        layout = (p.device_mesh, p.placements) if is_dtensor(p) else None
        key = (number, p.device, p.dtype, layout)
        batches.setdefault(key, Batch(groups[number], p.device, p.dtype)).add(p, state[p])
    return list(batches.values())


def _name(groups: Sequence[dict[str, Any]], weight: Tensor) -> str:
    """ "group.index" where the optimizer was not given the names."""
    return next(
        group["param_names"][place] if "param_names" in group else f"{number}.{place}"
        for number, group in enumerate(groups)
        for place, p in enumerate(group["params"])
        if p is weight
    )
