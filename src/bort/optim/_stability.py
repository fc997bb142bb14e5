r"""The stability guard: no penalty step diverges, and no stable step is changed.

With :math:`D` the defect (WᵀW − sI, or its signs) and :math:`a = \alpha \lambda`, the penalty step is
:math:`W \leftarrow W (I - a D)`, on a singular value :math:`\sigma \leftarrow \sigma - a (\sigma^3 - s \sigma)`. It
shrinks every singular value that is too large as long as :math:`a \lVert D \rVert_2 \le 2`, and :math:`\sigma^2 = s`
attracts as long as :math:`a s < 1`. Beyond that (an N(0, 1) embedding, a huge λ) it diverges within a few steps. There,
and only there, the guard shortens the step to :math:`a \lVert D \rVert_2 = 1/2`, which halves the largest singular value.

A coupled penalty also goes through the momentum μ. The heavy ball on the quartic :math:`(\sigma^2 - s)^2` tolerates less:
simulation from rest (with and without Nesterov) puts the limit above :math:`2 / (1 + 1.6 \mu)` for every μ in [0, 1), and
:math:`\sigma^2 = s` attracts up to :math:`a s < 1 + \mu`, with Nesterov :math:`(1 + \mu) / (1 + 2 \mu)`; a shortened step
is then (1 − μ) times shorter. There the guard is on the safe side: between its limit and the true one, which depends on the
velocity, it also shortens some steps that would have ended well. A penalty at each k-th step is carried on by the momentum
until the next: k steps are one step of momentum μᵏ and of (1 − μᵏ)/(1 − μ) times the length.

:math:`\lVert D \rVert_2` is estimated by power iteration, which can only underestimate it. So the guard never acts on a
step that is stable without momentum; a step that it misses by a little grows by a little, and is caught as the next one. No
value is read back to the host on an accelerator; the factor is exactly 1.0 where nothing is to be done.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bort.optim._spec import PenaltySpec

_PROBES = 4
_ITERATIONS = 10


@dataclass(frozen=True, slots=True)
class Limits:
    step: float
    """The largest stable a·‖D‖₂."""
    scale: float
    """The a·s from which on σ² = s no longer attracts."""
    shortened: float
    """a·‖D‖₂ of a step that had to be shortened."""


@functools.lru_cache(maxsize=64)
def limits(momentum: float = 0.0, *, nesterov: bool = False) -> Limits:
    attraction = (1 + momentum) / (1 + 2 * momentum) if nesterov else 1 + momentum
    return Limits(2 / (1 + 1.6 * momentum), attraction, 0.5 * (1 - momentum))


@dataclass(frozen=True, slots=True)
class Stability:
    """What the guard knows of one penalty step."""

    rate: float | Tensor
    """a = α·λ; a tensor if the learning rate is one."""
    limits: Limits = limits()  # noqa: RUF009, a constant

    @classmethod
    def of(cls, spec: PenaltySpec, group: dict[str, Any], default_lr: float | Tensor | None) -> Stability:
        """For the next step of a param group, whose settings are ``spec``.

        A coupled penalty stays in the momentum, and moves the weight also after a warm-up has raised the learning rate. So
        with momentum α is the largest learning rate that the group, its scheduler or the optimizer's defaults have.
        """
        lr = group.get("lr", 1.0)
        if not spec.momentum:
            return cls(lr * spec.strength)
        for later in (group.get("initial_lr"), group.get("max_lr"), default_lr):
            if later is not None:
                lr = _larger(lr, later)
        carried = spec.momentum**spec.every
        gain = (1 - carried) / (1 - spec.momentum)
        return cls(lr * spec.strength * gain, limits(carried, nesterov=spec.nesterov))

    def is_proven(self, size: float | Tensor, s: float | Tensor) -> bool:
        """Whether the step is stable, given an upper bound of ‖D‖₂. Reads tensors back to the host."""
        repels = self._repels(s)
        return bool(self.rate * size <= self.limits.step) and not (
            bool(repels.any()) if isinstance(repels, Tensor) else repels
        )

    def damping(self, d: Tensor, s: float | Tensor, *, full: bool = True, l1: bool = False) -> Tensor | None:
        """The factor in (0, 1] that makes the step a·d stable, shaped to multiply d; None where it is known to be 1.

        Args:
            d: a defect or its signs: (b, k, k) if ``full``, otherwise one number per row or column.
            s: the target of WᵀW = s·I.
            full: whether d is a Gram matrix's, as in the modes that end so.
            l1: whether d is made of signs. The ℓ1 modes oscillate around their target in any case; only the length of
                their step can be wrong.
        """
        if not d.numel():
            return None
        reach = 0.0 if l1 else s
        # ‖D‖₂ ≤ ‖D‖_F, and the usual step is far below its limit. Only a CPU can look without waiting for a device.
        can_look = d.device.type == "cpu" and not torch.compiler.is_compiling()
        if can_look and self.is_proven(torch.linalg.vector_norm(d) if full else d.abs().amax(), reach):
            return None
        size = spectral_norm(d) if full else d.abs()
        unstable = (self.rate * size > self.limits.step) | self._repels(reach)
        longest = torch.maximum(size, reach) if isinstance(reach, Tensor) else size.clamp(min=reach)
        shortened = self.limits.shortened / (self.rate * longest)
        return torch.where(unstable, shortened, torch.ones_like(size))

    def _repels(self, s: float | Tensor) -> bool | Tensor:
        """Whether σ² = s no longer attracts."""
        return self.rate * s >= self.limits.scale


def _larger(first: float | Tensor, second: float | Tensor) -> float | Tensor:
    if isinstance(first, Tensor):
        return torch.maximum(first, second) if isinstance(second, Tensor) else first.clamp(min=second)
    return second.clamp(min=first) if isinstance(second, Tensor) else max(first, second)


def spectral_norm(d: Tensor) -> Tensor:
    """A lower estimate of ‖D‖₂ of symmetric matrices (b, k, k), as (b, 1, 1): block power iteration, deterministic."""
    index = torch.arange(d.shape[-1], device=d.device, dtype=d.dtype).unsqueeze(-1)
    phase = torch.arange(1, _PROBES + 1, device=d.device, dtype=d.dtype)
    x = torch.cos(index * (index + 1) * phase * 0.754877666)  # spread over all directions, the same every time
    x = x.expand(d.shape[0], -1, -1)
    tiny = torch.finfo(d.dtype).tiny
    largest = d.abs().amax(dim=(-2, -1), keepdim=True).clamp(min=tiny)
    d = d / largest  # so that squares of huge entries do not overflow
    for _ in range(_ITERATIONS):
        x = x / torch.linalg.vector_norm(x, dim=-2, keepdim=True).clamp(min=tiny)
        x = d @ x
    sizes: Tensor = torch.linalg.vector_norm(x, dim=-2, keepdim=True)
    return sizes.amax(dim=-1, keepdim=True) * largest
