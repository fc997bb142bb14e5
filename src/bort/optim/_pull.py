r"""Pull: how far a training draws the singular values to their target, whatever its length and learning rate.

A penalty step is :math:`\sigma \leftarrow \sigma - \alpha \lambda (\sigma^2 - s) \sigma`. Near :math:`\sigma = \sqrt s` the
distance shrinks by :math:`1 - 2 s \alpha \lambda`, over a training with rates :math:`\alpha_t` by about

.. math::
    e^{-2 s P}, \quad P = \lambda \sum_t \alpha_t \Big/ (1 - \mu)

with the momentum :math:`\mu` where the penalty is coupled (Bort-S), and without it where it is decoupled. P is the pull.
Of SGD's dampening :math:`\tau` only :math:`(1 - \tau) \lambda` enters the momentum.
With 0.15 a quarter of the distance is gone at the end, if nothing pulls the other way; with 1.5 all but a twentieth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

Schedule: TypeAlias = Literal["constant", "cosine"] | Callable[[int], float] | Sequence[float]


def constraint_for(
    pull: float,
    *,
    lr: float,
    steps: int,
    schedule: Schedule = "constant",
    warmup: int = 0,
    momentum: float = 0.0,
    dampening: float = 0.0,
) -> float:
    """λ with which a training has this pull: pull · (1 − momentum) / Σ lr.

    Args:
        pull: 0 for none; see the table in docs/choose-lambda.md.
        lr: the learning rate, the largest one if there is a schedule.
        steps: of the optimizer, in the whole training.
        schedule: "constant"; "cosine", half a period down to 0; a function that gives the factor of ``lr`` at a step, as
            torch's LambdaLR takes; or the rates themselves, one a step.
        warmup: steps at the beginning in which the learning rate rises linearly. The optimizers' argument of this name is
            another one: there λ grows from 0, which is not counted here and makes the pull smaller.
        momentum: of BortS, whose penalty passes through it; 0 for BortA, BortL and all decoupled ones.
        dampening: of BortS with momentum, if it has any: the part of each gradient that does not enter the momentum. The
            first gradient enters whole, which is not counted here.

    Example:
        >>> round(bort.constraint_for(5, lr=5e-4, steps=60 * 195, schedule="cosine", warmup=3 * 195), 2)
        1.71
    """
    for name, value in (("pull", pull), ("lr", lr)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}={value}: must be a finite number, 0 or more")
    for name, value in (("momentum", momentum), ("dampening", dampening)):
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value}: must be from 0 to below 1")
    total = sum(scheduled_rate(step, lr=lr, steps=steps, schedule=schedule, warmup=warmup) for step in range(steps))
    if not total > 0:
        raise ValueError(f"lr={lr}, steps={steps}: the rates add up to {total}, so no λ pulls at all")
    entering = 1 - dampening if momentum else 1.0
    return float(pull * (1 - momentum) / (entering * total))


def scheduled_rate(step: int, *, lr: float, steps: int, schedule: Schedule = "constant", warmup: int = 0) -> float:
    """The learning rate of a step, counted from 0: a linear warm-up, then the schedule. See `constraint_for`.

    Example:
        >>> [optim.scheduled_rate(step, lr=0.1, steps=4, schedule="cosine", warmup=2) for step in range(4)]
        [0.05, 0.1, 0.1, 0.05]
    """
    if step < warmup:
        return lr * (step + 1) / warmup
    if isinstance(schedule, str):  # first of all: an array compares itself by element
        if schedule == "constant":
            return lr
        if schedule == "cosine":
            return lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
        raise ValueError(f"schedule={schedule!r}: 'constant', 'cosine', a function of the step or a list of rates")
    if callable(schedule):
        return lr * schedule(step)
    if step >= len(schedule):
        raise ValueError(
            f"schedule: the list of {len(schedule)} rates has none for step {step}, counted from 0: give one for each step"
        )
    return schedule[step]
