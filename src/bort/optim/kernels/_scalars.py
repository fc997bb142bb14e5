"""The numbers of one step, as the kernels are given them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bort.optim._stability import Limits


@dataclass(frozen=True, slots=True)
class Scalars:
    """Tensors have one element, on the device: a recorded launch goes on reading it there."""

    scale: float
    """s, of all weights."""
    scales: Tensor | None
    """s of each weight, by its slot: E is then divided by it, and ``scale`` is 1."""
    is_adaptive: bool
    """Whether the penalty is that of E, not of E/s: what is computed from E/s is multiplied by s again."""
    rate: Tensor
    """a = α·λ, by which the stability of the step is judged."""
    factor: Tensor
    """What E·X is multiplied by before it is subtracted from the weight, or added to the gradient (coupled)."""
    limits: Limits
    skip: Tensor | None = None
    """Not zero: leave weights and residuals as they are; results are the gradients alone."""
