r"""The stability guard: no penalty step diverges, and no stable step is changed.

With :math:`D` the defect (WᵀW − sI, or its signs) and :math:`a = \alpha \lambda`, the penalty step is
:math:`W \leftarrow W (I - a D)`, on a singular value :math:`\sigma \leftarrow \sigma - a (\sigma^3 - s \sigma)`. It
shrinks every singular value that is too large as long as :math:`a \lVert D \rVert_2 \le 2`, and :math:`\sigma^2 = s`
attracts as long as :math:`a s < 1`. Beyond that (an N(0, 1) embedding, a huge λ) it diverges within a few steps. There,
and only there, the guard shortens the step to :math:`a \lVert D \rVert_2 = 1/2`, which halves the largest singular value.

A coupled penalty also goes through the momentum μ. The heavy ball on the quartic :math:`(\sigma^2 - s)^2` tolerates less:
the limit is :math:`2 / (1 + 4 \mu)`, and :math:`\sigma^2 = s` attracts up to :math:`a s < 1 + \mu`, with Nesterov
:math:`(1 + \mu) / (1 + 2 \mu)`. With these, no singular value that starts at rest exceeds 4 times the larger of its start and
√s, for any μ up to 0.99 (simulation, with and without Nesterov; tests/optim/test_stability.py); without momentum none grows
beyond 1.5 √s or its start. The limit is on the safe side: it depends on the velocity, so some steps are shortened that would
have ended well. A penalty at each k-th step is carried on by the momentum until the next: k steps are one step of momentum
μᵏ and of (1 − μᵏ)/(1 − μ) times the length. The signs of the ℓ1 modes do not get smaller near the target: there momentum
makes the step 1/(1 − μ) times longer, and the whole of it is judged.

:math:`\lVert D \rVert_2` is estimated by power iteration, below 8 × 8 by a few squarings of D: neither overestimates it. So
the guard never acts on a step that is stable without momentum; a step that it misses by a little grows by a little, and is
caught as the next one. No value is read back to the host on an accelerator; the factor is exactly 1.0 where nothing is to be
done.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bort.optim._spec import PenaltySpec, is_fake
from bort.penalty import is_l1

TINY = 8
"""Below this side the norm of a matrix takes no power iteration."""
_PROBES = 4
_ITERATIONS = 10
# Vectors are scaled before each third product: on a GPU a launch costs more than they do. No entry of D exceeds 1 there, so
# three products make a vector at most k³ times longer.
_SCALED_EVERY = 3
_POWER = 32


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
    return Limits(2 / (1 + 4 * momentum), attraction, 0.5)


@dataclass(frozen=True, slots=True)
class Stability:
    """What the guard knows of one penalty step."""

    rate: float | Tensor
    """a = α·λ; a tensor if the learning rate is one."""
    limits: Limits = limits()  # noqa: RUF009, a constant
    on_device: bool = False
    """The rate is a tensor of which nothing may be read back: what is launched with it may be recorded."""

    @classmethod
    def of(cls, spec: PenaltySpec, group: dict[str, Any], first_lr: float | Tensor | None) -> Stability:
        """For the next step of a param group, whose settings are ``spec`` and whose learning rate was ``first_lr`` at first.

        A coupled penalty stays in the momentum, and moves the weight also after a warm-up has raised the learning rate. So
        with momentum α is the largest learning rate that is known of the group: now, at first, or from its scheduler.
        """
        lr = group.get("lr")
        if lr is None:  # the optimizer finds its own
            lr = 1.0
        if spec.strength_tensor is not None:
            lr = lr * spec.strength_tensor
        if not spec.momentum:
            return cls(lr * spec.strength)
        for later in (group.get("initial_lr"), group.get("max_lr"), first_lr):
            if later is not None:
                lr = _larger(lr, later if spec.strength_tensor is None else later * spec.strength_tensor)
        if is_l1(spec.mode):
            return cls(lr * spec.strength / (1 - spec.momentum))
        carried = spec.momentum**spec.every
        gain = (1 - carried) / (1 - spec.momentum)
        return cls(lr * spec.strength * gain, limits(carried, nesterov=spec.nesterov))

    def is_proven(self, size: float | Tensor, s: float | Tensor, limit: float | None = None) -> bool:
        """Whether the step is stable, given an upper bound of ‖D‖₂. Reads tensors back to the host."""
        repels = self._repels(s)
        return bool(self.rate * size <= (limit or self.limits.step)) and not (
            bool(repels.any()) if isinstance(repels, Tensor) else repels
        )

    def may_look_at(self, d: Tensor) -> bool:
        """Whether numbers can be read at once: only a CPU has them without waiting for a device."""
        return d.device.type == "cpu" and not self.on_device and not torch.compiler.is_compiling() and not is_fake(d)

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
        # Signs around a target that moves with the weight: what grows by 1 + a in one step shrinks by a − 1 in the next, and
        # (a + 1)(a − 1) ≤ 1 up to a = √2.
        limit = self.limits.step * (math.sqrt(0.5) if l1 and isinstance(s, Tensor) else 1.0)
        # ‖D‖₂ ≤ ‖D‖_F, and the usual step is far below its limit.
        if self.may_look_at(d):
            largest = torch.linalg.vector_norm(d, dim=(-2, -1)).amax() if full else d.abs().amax()
            if self.is_proven(largest, reach, limit):
                return None
        size = spectral_norm(d) if full else d.abs()
        unstable = (self.rate * size > limit) | self._repels(reach)
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
    """A lower estimate of ‖D‖₂ of symmetric matrices (b, k, k), as (b, 1, 1), deterministic."""
    if d.shape[-1] == 1:
        return d.abs()
    return _by_squaring(d) if d.shape[-1] < TINY else _by_power_iteration(d)


def _by_squaring(d: Tensor) -> Tensor:
    """‖D³³‖_F / ‖D³²‖_F: at most ‖D‖₂, since ‖AB‖_F ≤ ‖A‖₂ ‖B‖_F, and less than 1.5% below it up to 7 × 7.

    Five squarings make D³². An exact solver (eigvalsh) would make the host wait for the device.
    """
    tiny = torch.finfo(d.dtype).tiny
    # The largest sum of a row is between ‖D‖₂ and √k·‖D‖₂: divided by it, D³³ can neither overflow nor vanish.
    largest = d.abs().sum(dim=-1, keepdim=True).amax(dim=-2, keepdim=True).clamp(min=tiny)
    d = d / largest
    power = torch.linalg.matrix_power(d, _POWER)
    before: Tensor = torch.linalg.vector_norm(power, dim=(-2, -1), keepdim=True)
    after: Tensor = torch.linalg.vector_norm(d @ power, dim=(-2, -1), keepdim=True)
    return after / before.clamp(min=tiny) * largest


def _by_power_iteration(d: Tensor) -> Tensor:
    index = torch.arange(d.shape[-1], device=d.device, dtype=d.dtype).unsqueeze(-1)
    phase = torch.arange(1, _PROBES + 1, device=d.device, dtype=d.dtype)
    x = torch.cos(index * (index + 1) * phase * 0.754877666)  # spread over all directions, the same every time
    x = x.expand(d.shape[0], -1, -1)
    tiny = torch.finfo(d.dtype).tiny
    largest = d.abs().amax(dim=(-2, -1), keepdim=True).clamp(min=tiny)
    d = d / largest  # so that squares of huge entries do not overflow
    for iteration in range(_ITERATIONS):
        if iteration % _SCALED_EVERY == 0:  # also before the last one, whose result is the estimate
            x = x / torch.linalg.vector_norm(x, dim=-2, keepdim=True).clamp(min=tiny)
        x = d @ x
    sizes: Tensor = torch.linalg.vector_norm(x, dim=-2, keepdim=True)
    return sizes.amax(dim=-1, keepdim=True) * largest
