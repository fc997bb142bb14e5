"""Pull: λ that fits the length of a training."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

import bort
from bort.optim import scheduled_rate

COSINE = {"lr": 0.005, "steps": 4000, "schedule": "cosine", "warmup": 400}


@pytest.mark.parametrize(("cls", "momentum"), [(bort.BortS, 0.0), (bort.BortS, 0.9), (bort.BortA, 0.0)])
@pytest.mark.parametrize("pull", [0.5, 1.5])
def test_the_distance_shrinks_by_the_pull(cls, momentum, pull):
    """Without a loss, σ near 1 comes nearer by exp(−2·pull) over the training, whatever the rate does."""
    constraint = bort.constraint_for(pull, momentum=momentum, **COSINE)
    w = nn.Parameter(torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q * 1.001)
    w.grad = torch.zeros_like(w)
    options = {"momentum": momentum} if cls is bort.BortS else {}
    optimizer = cls([w], lr=COSINE["lr"], weight_decay=0.0, constraint=constraint, **options)
    scheduler = LambdaLR(optimizer, lambda step: scheduled_rate(step, **COSINE) / COSINE["lr"])
    for _ in range(COSINE["steps"]):
        optimizer.step()
        scheduler.step()
    ratio = (torch.linalg.svdvals(w.detach()).mean().item() - 1) / 0.001
    assert ratio == pytest.approx(math.exp(-2 * pull), rel=0.05 if momentum else 0.02)


def test_the_forms_of_a_schedule_agree():
    rates = [scheduled_rate(step, **COSINE) for step in range(4000)]
    assert rates[399] == 0.005
    assert rates[0] == 0.005 / 400
    expected = bort.constraint_for(2.0, **COSINE)
    assert expected == pytest.approx(2.0 / sum(rates))
    assert bort.constraint_for(2.0, lr=0.005, steps=4000, schedule=rates) == pytest.approx(expected)
    for array in (np.array(rates), torch.tensor(rates, dtype=torch.float64)):
        assert bort.constraint_for(2.0, lr=0.005, steps=4000, schedule=array) == pytest.approx(expected)
    function = bort.constraint_for(2.0, lr=0.005, steps=4000, schedule=lambda step: rates[step] / 0.005)
    assert function == pytest.approx(expected)
    assert bort.constraint_for(2.0, lr=0.005, steps=4000, momentum=0.9) == pytest.approx(2.0 * 0.1 / (0.005 * 4000))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pull": -1.0}, "pull=-1.0: must be a finite number"),
        ({"momentum": 1.0}, "momentum=1.0: must be from 0 to below 1"),
        ({"steps": 0}, "the rates add up to 0, so no λ pulls at all"),
        ({"schedule": "linear"}, "schedule='linear': 'constant', 'cosine', a function"),
        ({"schedule": [0.1] * 9}, "schedule: the list of 9 rates has none for step 9, counted from 0"),
    ],
)
def test_what_means_nothing_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        bort.constraint_for(**({"pull": 1.0, "lr": 0.1, "steps": 10} | changes))


def test_dampening_asks_for_a_larger_constraint():
    """Of each gradient only (1 − dampening) enters the momentum. Without momentum SGD has none."""
    plain = {"lr": 0.1, "steps": 10, "momentum": 0.9}
    assert bort.constraint_for(1.0, dampening=0.5, **plain) == pytest.approx(2 * bort.constraint_for(1.0, **plain))
    with pytest.raises(ValueError, match=r"dampening=1\.0: must be from 0 to below 1"):
        bort.constraint_for(1.0, dampening=1.0, **plain)


def test_it_is_a_number_of_python():
    assert type(bort.constraint_for(np.float32(5), lr=np.float32(0.1), steps=10)) is float
