"""λ that grows over the first steps, and the warning that asks for it."""

import copy
import io
import warnings

import pytest
import torch
from torch import nn

from bort import BortA, BortS, penalty

WARMUP = 4


def weight(size=0.3):
    p = nn.Parameter(torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * size)
    p.grad = torch.zeros_like(p)
    return p


@pytest.mark.parametrize(("cls", "decoupled"), [(BortS, False), (BortS, True), (BortA, True)])
@pytest.mark.parametrize("every", [1, 2])
def test_it_grows_evenly_to_its_full_value(cls, decoupled, every):
    p = weight()
    optimizer = cls([p], lr=0.1, constraint=0.2, decoupled=decoupled, warmup=WARMUP, every=every, weight_decay=0.0)
    for step in range(1, 9):
        before = p.detach().clone()
        optimizer.step()
        part = min(1.0, step / WARMUP) * every if step % every == 0 else 0.0
        torch.testing.assert_close(p.detach(), before - 0.1 * 0.2 * part * penalty.gradient(before))


@pytest.mark.parametrize(("cls", "decoupled"), [(BortS, False), (BortA, True)])
def test_lambda_can_be_set_at_any_step(cls, decoupled):
    """A schedule of one's own, here the same as the warm-up: λ is read at each step."""
    p, q = weight(), weight()
    options = {"lr": 0.1, "constraint": 0.2, "decoupled": decoupled}
    warm, ours = cls([p], warmup=WARMUP, **options), cls([q], **options)
    full = [group["constraint"] for group in ours.param_groups]
    for step in range(1, 9):
        for group, constraint in zip(ours.param_groups, full, strict=True):
            group["constraint"] = constraint * min(1.0, step / WARMUP)
        warm.step()
        ours.step()
    torch.testing.assert_close(p, q)


def test_a_checkpoint_goes_on_with_it():
    p, q = weight(), weight()
    whole = BortS([p], lr=0.1, momentum=0.9, warmup=6)
    first = BortS([q], lr=0.1, momentum=0.9, warmup=6)
    for _ in range(3):
        whole.step()
        first.step()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = BortS([q], lr=0.1, momentum=0.9, warmup=6)
    second.load_state_dict(torch.load(file))
    copied = copy.deepcopy(second)
    for _ in range(5):
        whole.step()
        second.step()
    assert torch.equal(p, q)
    assert copied.param_groups[0]["penalty_step"] == 3


def test_an_optimizer_of_version_0_1_0_has_none():
    """Its groups and defaults do not know of it."""
    optimizer = BortS([weight()], lr=0.1)
    state = optimizer.__getstate__()
    for settings in (state["defaults"], *state["param_groups"]):
        del settings["warmup"]
    old = BortS.__new__(BortS)
    old.__setstate__(state)
    old.step()
    assert old.param_groups[0]["warmup"] == 0


@pytest.mark.parametrize("warmup", [-1, 2.5, True])
def test_what_is_no_number_of_steps_is_refused(warmup):
    with pytest.raises(ValueError, match=r"warmup=.* must be a whole number ≥ 0"):
        BortS([weight()], lr=0.1, warmup=warmup)


def test_weights_far_from_the_constraint_are_named_once():
    far = nn.Parameter(torch.randn(20, 20) * 4)
    far.grad = torch.zeros_like(far)
    groups = [{"params": [("free", far.detach().clone())], "constraint": 0.0}]
    optimizer = BortS([*groups, {"params": [("near", weight()), ("far", far)]}], lr=1e-6)
    far_away = r"param group 1: the weight 'far' is far from its constraint \(residual \d+"
    with pytest.warns(UserWarning, match=far_away + r".*scale='initial'.* otherwise .*warmup=STEPS"):
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


@pytest.mark.filterwarnings("error:.*is far from its constraint")
def test_no_warning_with_a_warm_up_or_near_the_constraint():
    far = nn.Parameter(torch.randn(20, 20) * 4)
    far.grad = torch.zeros_like(far)
    BortS([far], lr=1e-6, warmup=10).step()
    BortS([weight()], lr=1e-6).step()


def test_with_the_initial_scale_no_warm_up_is_recommended():
    """docs/fine-tuning.md: it did not help there."""
    far = nn.Parameter(torch.full((400, 400), 1.0))  # of rank 1: σ² is 400 times its mean
    far.grad = torch.zeros_like(far)
    with pytest.warns(UserWarning, match="is far from its constraint") as caught:
        BortS([far], lr=1e-6, scale="initial").step()
    assert "warmup" not in str(caught[0].message)
    assert "smaller constraint" in str(caught[0].message)
