"""Where a training draws the singular values of a network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bort.optim import constraint_for

if TYPE_CHECKING:
    from bort.train import Run


@dataclass(frozen=True)
class Training:
    """Of how a network was trained, what decides where its singular values go.

    Example:
        >>> subject.Training(constraint=0.1, weight_decay=0.019).sigma
        0.9
    """

    constraint: float
    """λ; 0 without the constraint."""
    weight_decay: float = 0.0
    scale: float = 1.0
    """s of the target WᵀW = s·I."""
    decays_alike: bool = True
    """Whether weight decay moves a weight as the penalty does, by the rate alone. LAMB's does not: the ratio of two norms
    scales the decay, and not the penalty."""

    @property
    def sigma(self) -> float | None:
        r"""The singular value that penalty and weight decay w leave alone, where the loss does not pull:

        .. math::
            \lambda (\sigma^3 - s \sigma) + w \sigma = 0, \quad \sigma = \sqrt{s - w / \lambda}

        and 0 where w ≥ λs. Coupled or decoupled, with momentum or without, both terms get the same factor. None without λ,
        and where the two do not act alike.
        """
        if not self.constraint or (self.weight_decay and not self.decays_alike):
            return None
        return math.sqrt(max(0.0, self.scale - self.weight_decay / self.constraint))


def training_of(run: Run) -> Training | None:
    """None if a recipe gives the pull in place of λ, and there is no epoch that says how many steps it is spread over."""
    optim, constraint = run.recipe.optim, run.recipe.optim.constraint
    if optim.pull:
        if not run.history:
            return None
        per_epoch = run.history[-1]["step"] // run.history[-1]["epoch"]
        constraint = constraint_for(
            optim.pull,
            lr=optim.lr,
            steps=run.recipe.epochs * per_epoch,
            schedule=optim.schedule,
            warmup=optim.warmup_epochs * per_epoch,
            momentum=optim.momentum,
        )
    return Training(constraint, optim.weight_decay, optim.scale, decays_alike=optim.name != "bort-l")
