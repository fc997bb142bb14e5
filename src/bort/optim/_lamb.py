r"""LAMB in multi-tensor calls: no value is read back from the device, so that a step can be captured in a CUDA graph.

.. math::
    g &\leftarrow g / \max(1, \lVert g \rVert / c)                                 && \text{norm over all weights} \\
    m &\leftarrow \beta_1 m + (1 - \beta_1) g                                      \\
    v &\leftarrow \beta_2 v + (1 - \beta_2) g^2                                    \\
    u &= \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} + d W   && d \text{: weight decay} \\
    W &\leftarrow W - \alpha \frac{\lVert W \rVert}{\lVert u \rVert} u             && \text{norms of each weight}

You et al., "Large batch optimization for deep learning" (arXiv:1904.00962); the first line is NVIDIA's addition. Options and
state dicts are those of timm's optimizer of this name: ``exp_avg`` and ``exp_avg_sq`` of a weight are m and v, ``step`` of a
param group is t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.optim import Optimizer

from bort.optim._lamb_batch import Batch, batches_of, refuse_capture

_Scalar: TypeAlias = float | Tensor
_Tensors: TypeAlias = tuple[Tensor, ...] | list[Tensor]

# What the groups in checkpoints of timm's optimizer may lack.
_LATER: dict[str, Any] = {
    "caution": False,
    "decoupled_decay": False,
    "corrected_weight_decay": False,
    "capturable": False,
    "step": 0,
}


class Lamb(Optimizer):
    """LAMB: Adam's step, as long for each weight as the weight's own norm.

    A capturable optimizer can also skip a step without the host knowing, as torch's fused ones do: if its attribute
    ``found_inf`` is set, to a tensor that is not 0, the step changes nothing; gradients are divided by ``grad_scale``.
    GradScaler sets both.

    Args:
        params: parameters or param groups, as for any torch optimizer.
        lr: α, a number or a tensor. A captured step reads a tensor on the device at each replay.
        bias_correction: divide the moments by 1 − βᵗ.
        betas: β₁ and β₂.
        eps: ε.
        weight_decay: d. A weight without decay is moved by α·u alone, unless ``always_adapt``.
        grad_averaging: weigh the gradient with 1 − β₁ in m; otherwise with 1.
        max_grad_norm: c, the norm that all gradients together are clipped to; None: not at all. One for all groups.
        trust_clip: let the ratio of the norms be at most 1.
        always_adapt: use the ratio of the norms also for weights without decay.
        caution: leave out entries of u whose sign is not the gradient's, and scale the others up (arXiv:2411.16085).
        decoupled_decay: take the decay out of u: W ← (1 − α·d)·W before the step.
        corrected_weight_decay: with ``decoupled_decay``, α²/α₀ in the place of α, with α₀ the rate at the beginning
            (arXiv:2506.02285).
        capturable: keep the count of steps on the device, for a step that is captured in a CUDA graph.

    Example:
        >>> weight = nn.Parameter(torch.tensor([3.0, 4.0]))
        >>> optimizer = optim.Lamb([weight], lr=0.1, weight_decay=0.0, always_adapt=True)
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> (torch.tensor([3.0, 4.0]) - weight.detach()).norm()  # lr times the norm of the weight, 5
        tensor(0.5000)
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        grad_averaging: bool = True,
        max_grad_norm: float | None = 1.0,
        trust_clip: bool = False,
        always_adapt: bool = False,
        caution: bool = False,
        decoupled_decay: bool = False,
        corrected_weight_decay: bool = False,
        *,
        capturable: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError(f"lr has {lr.numel()} elements: a rate that is a tensor must have one")
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not value >= 0:
                raise ValueError(f"{name}={value}: must be ≥ 0")
        for number, beta in enumerate(betas):
            if not 0 <= beta < 1:
                raise ValueError(f"betas[{number}]={beta}: must be ≥ 0 and < 1")
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "max_grad_norm": max_grad_norm,
            "trust_clip": trust_clip,
            "always_adapt": always_adapt,
            "caution": caution,
            "decoupled_decay": decoupled_decay,
            "corrected_weight_decay": corrected_weight_decay,
            "capturable": capturable,
            "step": 0,
        }
        super().__init__(params, defaults)
        if isinstance(lr, Tensor):
            self.defaults["lr"] = lr.clone()  # α₀: the groups' own is written to by a schedule

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for key, value in _LATER.items():
                group.setdefault(key, self.defaults.get(key, value))

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """What GradScaler asks: whether the optimizer divides and skips by itself."""
        return all(group["capturable"] for group in self.param_groups)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step. A closure is evaluated first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        skip = self._skip()
        batches = batches_of(self.param_groups, self.state)
        divisor = self._divisor(batches)
        for group in self.param_groups:
            _count(group, skip)
        for batch in batches:
            self._update(batch, divisor, None if skip is None else skip.to(batch.device))
        return loss

    def _skip(self) -> Tensor | None:
        found_inf = getattr(self, "found_inf", None)
        if found_inf is None:
            return None
        if not self._step_supports_amp_scaling:
            raise RuntimeError("found_inf is set: Lamb can skip a step only if all groups have capturable=True")
        skip: Tensor = found_inf.reshape(()) != 0
        return skip

    def _divisor(self, batches: list[Batch]) -> Tensor | None:
        """What the gradients are to be divided by: GradScaler's factor, times the excess of their norm over its limit."""
        scale: Tensor | None = getattr(self, "grad_scale", None)
        limit = self.defaults["max_grad_norm"]
        if limit is None or not batches:
            return scale
        device = batches[0].device
        norm = torch.linalg.vector_norm(torch.cat([batch.norms(batch.grads).to(device) for batch in batches]))
        if scale is None:
            return torch.clamp(norm / limit, min=1.0)
        scale = scale.to(device)
        return torch.clamp(norm / (scale * limit), min=1.0) * scale

    def _update(self, batch: Batch, divisor: Tensor | None, skip: Tensor | None) -> None:
        group, weights = batch.group, batch.weights
        grads: _Tensors = batch.grads
        lr, decay = batch.scalar(group["lr"]), group["weight_decay"]
        kept: tuple[_Scalar, _Scalar] = group["betas"]
        if divisor is not None or skip is not None:
            grads = batch.divided_grads(divisor)
        if skip is not None:
            # Nothing changes if gradients and rate are 0 and the moments are kept whole. Gradients are filled with 0, not
            # multiplied by it: they may be nan.
            for grad in grads:
                grad.masked_fill_(skip, 0.0)
            lr = batch.tensor(lr).masked_fill(skip, 0.0)
            kept = (batch.tensor(kept[0]).masked_fill(skip, 1.0), batch.tensor(kept[1]).masked_fill(skip, 1.0))
        updates = _adam(batch, grads, kept)
        if group["caution"]:
            _be_cautious(batch, updates, grads)
        if decay and group["decoupled_decay"]:
            rate = lr
            if group["corrected_weight_decay"]:
                rate = lr * lr / batch.scalar(self.defaults["lr"])
            torch._foreach_mul_(weights, 1 - rate * decay)
        elif decay:
            torch._foreach_add_(updates, weights, alpha=decay)
        if decay or group["always_adapt"]:
            steps = _trust_ratios(batch, updates) * lr
            if skip is not None:
                steps = steps.masked_fill(skip, 0.0)
            torch._foreach_addcmul_(weights, updates, steps.to(batch.dtype).unbind(), -1.0)
        elif isinstance(lr, Tensor):
            torch._foreach_mul_(updates, lr)
            torch._foreach_sub_(weights, updates)
        else:
            torch._foreach_add_(weights, updates, alpha=-lr)


def _count(group: dict[str, Any], skip: Tensor | None) -> None:
    """Count a step of the group: as a number, or on the device."""
    step = group["step"]
    if not group["capturable"]:
        group["step"] = int(step) + 1
    elif group["params"]:
        device = group["params"][0].device
        if not isinstance(step, Tensor) or step.device != device:
            refuse_capture()
            step = group["step"] = torch.tensor(float(step), dtype=torch.float32, device=device)
        step += 1 if skip is None else skip.to(device).logical_not()


def _adam(batch: Batch, grads: _Tensors, kept: tuple[_Scalar, _Scalar]) -> tuple[Tensor, ...]:
    """Update the moments, of which ``kept`` is the part that stays, and return Adam's steps."""
    group = batch.group
    beta1, beta2 = group["betas"]
    torch._foreach_mul_(batch.exp_avgs, kept[0])
    torch._foreach_add_(batch.exp_avgs, grads, alpha=1 - beta1 if group["grad_averaging"] else 1.0)
    torch._foreach_mul_(batch.exp_avg_sqs, kept[1])
    torch._foreach_addcmul_(batch.exp_avg_sqs, grads, grads, 1 - beta2)
    roots = torch._foreach_sqrt(batch.exp_avg_sqs)
    if not group["bias_correction"]:
        torch._foreach_add_(roots, group["eps"])
        return torch._foreach_div(batch.exp_avgs, roots)
    step = batch.count(group["step"])
    torch._foreach_div_(roots, batch.scalar(_correction(beta2, step) ** 0.5))
    torch._foreach_add_(roots, group["eps"])
    updates = torch._foreach_div(batch.exp_avgs, roots)
    torch._foreach_div_(updates, batch.scalar(_correction(beta1, step)))
    return updates


def _correction(beta: float, step: _Scalar) -> _Scalar:
    """1 − βᵗ."""
    if not isinstance(step, Tensor):
        return float(1 - beta**step)
    # In float32 the difference would lose digits where βᵗ is near 1. If the first steps are skipped, t is still 0.
    return -torch.expm1(step.clamp(min=1.0) * (math.log(beta) if beta else -math.inf))


def _be_cautious(batch: Batch, updates: tuple[Tensor, ...], grads: _Tensors) -> None:
    masks = torch._foreach_mul(updates, grads)
    torch._foreach_sign_(masks)
    torch._foreach_clamp_min_(masks, 0.0)
    # The mean of zeros and ones is the square of their norm, divided by their number.
    means = batch.norms(masks).square()
    torch._foreach_div_(means.unbind(), [float(p.numel()) for p in batch.params])
    torch._foreach_mul_(updates, masks)
    torch._foreach_div_(updates, means.clamp(min=1e-3).to(batch.dtype).unbind())


def _trust_ratios(batch: Batch, updates: tuple[Tensor, ...]) -> Tensor:
    """‖W‖/‖u‖ of each weight; 1 where one of them is 0."""
    of_weights, of_updates = batch.norms(batch.weights), batch.norms(updates)
    ratios = (of_weights / of_updates).masked_fill(~((of_weights > 0) & (of_updates > 0)), 1.0)
    return ratios.clamp(max=1.0) if batch.group["trust_clip"] else ratios
