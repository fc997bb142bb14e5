r"""The stability guard: no penalty step diverges, and no stable step is touched.

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

from dataclasses import dataclass

import torch
from torch import Tensor

_PROBES = 4
_ITERATIONS = 10


@dataclass(frozen=True)
class Limits:
    step: float
    """The largest stable a·‖D‖₂."""
    scale: float
    """The a·s from which on σ² = s no longer attracts."""
    shortened: float
    """a·‖D‖₂ of a step that had to be shortened."""


def limits(momentum: float = 0.0, *, nesterov: bool = False) -> Limits:
    attraction = (1 + momentum) / (1 + 2 * momentum) if nesterov else 1 + momentum
    return Limits(2 / (1 + 1.6 * momentum), attraction, 0.5 * (1 - momentum))


def damping(
    d: Tensor,
    a: float | Tensor,
    s: float | Tensor,
    limit: Limits = limits(),  # noqa: B008, a constant
    *,
    full: bool = True,
    l1: bool = False,
) -> Tensor | None:
    """The factor in (0, 1] that makes the step a·d stable, shaped to multiply d; None where it is known to be 1.

    ``d`` is a defect or its signs: (b, k, k) if ``full``, otherwise one number per row or column.
    """
    if not d.numel():
        return None
    # The sign forms oscillate around their target by their nature; only the length of their step can be wrong.
    reach = 0.0 if l1 else s
    repelled = a * reach >= limit.scale
    if d.device.type == "cpu" and not torch.compiler.is_compiling():
        # ‖D‖₂ ≤ ‖D‖_F: on the CPU looking is free, and the usual step is far below its limit.
        bound = torch.linalg.vector_norm(d) if full else d.abs().amax()
        if bool(a * bound <= limit.step) and not bool(torch.as_tensor(repelled).any()):
            return None
    size = spectral_norm(d) if full else d.abs()
    unstable = (a * size > limit.step) | repelled
    longest = torch.maximum(size, reach) if isinstance(reach, Tensor) else size.clamp(min=reach)
    shortened = limit.shortened / (a * longest)
    return torch.where(unstable, shortened, torch.ones_like(size))


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
