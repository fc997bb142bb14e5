"""GradScaler, with optimizers that unscale by themselves (fused) and with those that do not. On a GPU: test_cuda."""

import pytest
import torch
from torch import nn

from bort import BortA, BortS, bortify

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


@pytest.mark.parametrize("cls", [BortS, bortify(torch.optim.AdamW)])
def test_a_penalty_that_would_overflow_in_float16_is_refused(cls):
    """λ times GradScaler's first factor, 65536, is infinite in float16, and the scaler has looked for inf before."""
    first, p = nn.Parameter(1.5 * torch.eye(4)), nn.Parameter((1.5 * torch.eye(4)).half())
    groups = [{"params": [("first", first)], "decoupled": True}, {"params": [("p", p)]}]
    optimizer = cls(groups, lr=0.01, decoupled=False, fused=True)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(first.sum() + p.float().sum() * 1e-3).backward()
    with pytest.raises(TypeError, match=r"'p' of param group 1 has a float16 gradient.*decoupled=True.*bfloat16"):
        scaler.step(optimizer)
    assert torch.equal(first, 1.5 * torch.eye(4))  # a refused gradient leaves all weights as they were


@pytest.mark.parametrize(
    ("dtype", "decoupled"), [(torch.bfloat16, False), (torch.float16, True)], ids=["bfloat16", "float16"]
)
def test_other_half_precision_weights_can_be_scaled(dtype, decoupled):
    p = nn.Parameter((1.5 * torch.eye(4)).to(dtype))
    optimizer = BortS([p], lr=0.1, constraint=1.0, decoupled=decoupled, fused=True)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(p.float().sum() * 1e-3).backward()
    scaler.step(optimizer)
    assert p[0, 0].item() == pytest.approx(1.5 - 0.1 * (1.5**3 - 1.5), rel=1e-2)


@pytest.mark.parametrize("options", [{"scale": 1.0}, {"scale": "initial"}, {"constraint": 0.0}], ids=str)
def test_a_skipped_first_step_leaves_no_momentum(options):
    """torch's fused SGD makes its momentum of memory that is not initialised, and does not write to it if it skips."""
    results = []
    torch.use_deterministic_algorithms(True)  # fills such memory with nan
    try:
        for fused in (False, True):
            model = net()
            optimizer = BortS(model, lr=0.05, momentum=0.9, fused=fused, **options)
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
            for step in range(3):
                x, y = batch(step=step)
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                scaler.scale(loss * (torch.inf if step == 0 else 1.0)).backward()
                scaler.step(optimizer)
                scaler.update()
            results.append(weights(model))
    finally:
        torch.use_deterministic_algorithms(False)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)
