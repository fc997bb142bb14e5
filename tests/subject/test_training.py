"""Where a training draws the singular values, against the optimizers themselves."""

import warnings
from dataclasses import replace

import pytest
import torch

from bort import BortA, BortS
from bort.subject import Subject, Training
from tests.train.small import RECIPE, fit

START = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 3


@pytest.mark.parametrize(
    ("optimizer", "decay", "scale", "settings"),
    [
        (BortS, 0.0, 1.0, {}),
        (BortS, 0.02, 1.0, {"momentum": 0.9}),
        (BortS, 0.1, 2.0, {"momentum": 0.9, "every": 4}),
        (BortS, 0.1, 1.0, {"decoupled": True}),
        (BortS, 0.3, 1.0, {"momentum": 0.9}),
        (BortA, 0.02, 1.0, {}),
        (BortA, 0.1, 2.0, {"every": 4}),
    ],
)
def test_where_penalty_and_decay_balance(optimizer, decay, scale, settings):
    """All singular values after many steps without a loss. The balance is that of small steps: these are not very small."""
    weight = torch.nn.Parameter(START.clone())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weight decay that outweighs λ, which is tried on purpose
        made = optimizer([weight], lr=0.05, constraint=0.2, weight_decay=decay, scale=scale, **settings)
    for _ in range(900):
        weight.grad = torch.zeros_like(weight)
        made.step()
    expected = Training(0.2, decay, scale).sigma
    assert torch.linalg.svdvals(weight.detach()).tolist() == pytest.approx([expected] * 5, abs=0.02)


def test_without_a_constraint_there_is_no_target():
    assert Training(0.0, 0.01).sigma is None


def test_lambs_decay_is_not_the_penaltys():
    assert Training(0.1, 0.02, decays_alike=False).sigma is None
    assert Training(0.1, decays_alike=False).sigma == 1


@pytest.mark.parametrize("optim", [replace(RECIPE.optim, scale=2.0), replace(RECIPE.optim, constraint=0, pull=3.0)])
def test_of_a_run(optim, tmp_path):
    """λ of a pull is the one that the run was trained with: its history has the pull that λ makes."""
    run = fit(tmp_path / "run", replace(RECIPE, optim=optim))
    training = Subject.of_loaded_run(run).training
    pull = training.constraint * optim.lr * run.history[-1]["step"] / (1 - optim.momentum)
    assert pull == pytest.approx(run.history[-1]["pull"])
    assert (training.weight_decay, training.scale, training.decays_alike) == (0.01, optim.scale, True)


def test_of_a_run_without_an_epoch_whose_recipe_gives_the_pull(tmp_path):
    run = fit(tmp_path / "run", replace(RECIPE, optim=replace(RECIPE.optim, constraint=0, pull=3.0)))
    assert Subject.of_loaded_run(replace(run, history=[])).training is None
