"""Complaints: each names the value and the place, before the first step."""

import fractions
import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from bort import BortA, BortS

from .cases import net


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("constraint", -0.1, "constraint=-0.1 in param group 0"),
        ("constraint", math.nan, "constraint=nan in param group 0"),
        ("constraint", math.inf, "constraint=inf in param group 0"),
        ("constraint", "strong", "constraint='strong' in param group 0"),
        ("decoupled", "yes", "decoupled='yes' in param group 0"),
        ("every", 0, "every=0 in param group 0"),
        ("every", 1.5, "every=1.5 in param group 0"),
        ("scale", 0.0, "scale=0.0 in param group 0"),
        ("scale", "auto", "scale='auto' in param group 0"),
        ("mode", "diagonal", "mode='diagonal' in param group 0: choose one of full, rows"),
        ("shard", 1, "shard=1 in param group 0: must be True or False"),
        ("precision", "low", "precision='low' in param group 0: choose one of highest, high, medium"),
    ],
)
def test_meaningless_settings_are_refused(setting, value, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        BortS(net().parameters(), lr=0.1, **{setting: value})


def test_a_refused_group_names_itself_and_leaves_nothing_behind():
    model = net()
    optimizer = BortS(model[0].parameters(), lr=0.1)
    with pytest.raises(ValueError, match="mode='x' in param group 1"):
        optimizer.add_param_group({"params": model[2].parameters(), "mode": "x"})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": model[2].parameters()})


def test_weights_that_cannot_be_constrained_are_named():
    with pytest.raises(TypeError, match=r"parameter 'w' of param group 0 is complex \(torch.complex64\)"):
        BortS([("w", nn.Parameter(torch.ones(2, 2, dtype=torch.complex64)))], lr=0.1)
    with pytest.raises(TypeError, match=r"parameter '1' of param group 0 is sparse \(torch.sparse_coo\)"):
        BortS([nn.Parameter(torch.ones(2, 2)), torch.eye(2).to_sparse().requires_grad_()], lr=0.1)
    with pytest.raises(ValueError, match=r"'0' of param group 0 of shape \(3, 2\) cannot be cut into blocks=2"):
        BortS([{"params": [nn.Parameter(torch.ones(3, 2))], "blocks": 2}], lr=0.1)
    # without a constraint they are welcome, as are complex vectors with one
    BortS([nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))], lr=0.1, constraint=0)
    BortS([nn.Parameter(torch.ones(2, dtype=torch.complex64)), nn.Parameter(torch.ones(2, 2))], lr=0.1)


def test_a_sparse_gradient_is_named_before_anything_moves():
    first = nn.Parameter(torch.randn(3, 2))
    embedding = nn.Embedding(5, 3, sparse=True)
    optimizer = BortA([("first", first), ("embedding", embedding.weight)], lr=0.1)
    first.grad = torch.ones(3, 2)
    embedding(torch.tensor([1, 2])).sum().backward()
    before = first.detach().clone()
    with pytest.raises(TypeError, match="parameter 'embedding' has a sparse gradient"):
        optimizer.step()
    assert torch.equal(first, before)


def test_weight_decay_that_wins_is_announced_with_its_number():
    with pytest.warns(UserWarning, match=r"σ² = 1 − 0.3/0.1 = -2 ≤ 0") as caught:
        BortS(net().parameters(), lr=0.1, weight_decay=0.3, constraint=0.1)
    assert caught[0].filename == __file__


def test_a_rate_that_overshoots_is_announced_with_its_number():
    with pytest.warns(UserWarning, match=r"lr·λ/\(1 − momentum\) = 0.5·0.4/0.1 = 2 ≥ 1"):
        BortS(net().parameters(), lr=0.5, momentum=0.9, constraint=0.4)
    with pytest.warns(UserWarning, match=r"lr·λ·every/\(1 − momentum\) = 0.5·0.4·10/1 = 2 ≥ 1"):
        BortA(net().parameters(), lr=0.5, weight_decay=0.0, constraint=0.4, every=10)


def test_an_adaptive_target_that_cannot_be_met_is_said():
    with pytest.raises(ValueError, match=r"scale='adaptive' with mode='columns' in param group 0"):
        BortS(net().parameters(), lr=0.1, scale="adaptive", mode="columns")
    with pytest.warns(UserWarning, match=r"more rows than columns \('0.weight'\) shrink to zero"):
        BortS(net().named_parameters(), lr=0.1, scale="adaptive")


def test_nothing_to_constrain_is_announced():
    with pytest.warns(UserWarning, match="BortS has nothing to constrain: none of its 2 parameters"):
        BortS([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(()))], lr=0.1)


def test_sensible_settings_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BortS(net().parameters(), lr=0.01, momentum=0.9, weight_decay=0.01, constraint=0.1)
        BortS([nn.Parameter(torch.ones(3))], lr=0.1, constraint=0)
        BortS([{"params": [nn.Parameter(torch.ones(3))], "weight_decay": 0.2}, {"params": net().parameters()}], lr=0.1)


def test_dampening_and_what_overshoots():
    """The first gradient enters the momentum whole, and all later ones dampened."""
    with pytest.warns(UserWarning, match=r"lr·λ/\(1 − momentum\) = 0.5·0.4/0.1 = 2 ≥ 1"):
        BortS(net().parameters(), lr=0.5, momentum=0.9, dampening=0.99, constraint=0.4)
    with pytest.warns(UserWarning, match=r"lr·λ·\(1 − dampening\)/\(1 − momentum\)² = 0.5·0.018·0.5/0.01² = 45 ≥ 6"):
        BortS(net().parameters(), lr=0.5, momentum=0.99, dampening=0.5, constraint=0.018)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BortS(net().parameters(), lr=0.5, momentum=0.99, dampening=0.99, constraint=0.018)


@pytest.mark.parametrize("number", [np.float32, np.float64, fractions.Fraction])
def test_numbers_of_other_libraries_are_numbers(number):
    """They are kept as Python's own: torch.load refuses numpy's in a state dict."""
    half, two = number(0.5), np.int64(2)
    options = {"constraint": half, "scale": half, "every": two, "warmup": two}
    group = BortS([{"params": [nn.Parameter(torch.eye(4))], "blocks": two}], lr=0.1, **options).param_groups[0]
    expected = {"constraint": 0.5, "scale": 0.5, "every": 2, "warmup": 2, "blocks": 2}
    assert {key: group[key] for key in expected} == expected
    assert {type(group[key]) for key in expected} == {int, float}
