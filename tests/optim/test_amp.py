"""GradScaler, with optimizers that unscale by themselves (fused) and with those that do not. On a GPU: test_cuda."""

import pytest
import torch

from bort import BortA, BortS

from .cases import assert_same, batch, net, weights

CASES = [(BortS, {"lr": 0.05, "momentum": 0.9}), (BortA, {"lr": 0.05}), (BortA, {"lr": 0.05, "decoupled": False})]


def scaled_training(cls, options, *, fused, scale, poison=None, steps=4):
    """Training with a loss scaled by ``scale``; in step ``poison`` a gradient is inf. Returns weights, and before/after
    of the poisoned step."""
    model = net()
    optimizer = cls(model.parameters(), constraint=0.4, fused=fused, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1, growth_interval=10_000)
    around = []
    for step in range(steps):
        x, y = batch(step=step)
        optimizer.zero_grad()
        scaler.scale(torch.nn.functional.cross_entropy(model(x), y)).backward()
        if step == poison:
            model[0].weight.grad[0, 0] = torch.inf
            model[0].weight.data[0, 0] = -0.0  # the one number that "x − 0" can change
            around.append(weights(model))
        scaler.step(optimizer)
        scaler.update()
        if step == poison:
            around.append(weights(model))
    return weights(model), around


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("cls", "options"), CASES)
def test_scaling_changes_nothing(cls, options, fused):
    plain, _ = scaled_training(cls, options, fused=fused, scale=1)
    scaled, _ = scaled_training(cls, options, fused=fused, scale=2.0**12)
    for a, b in zip(plain, scaled, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("cls", "options"), CASES)
def test_a_step_with_inf_moves_no_weight(cls, options, fused):
    _, (before, after) = scaled_training(cls, options, fused=fused, scale=2.0**12, poison=2)
    assert_same([w.view(torch.int32) for w in before], [w.view(torch.int32) for w in after])
