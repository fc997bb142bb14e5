"""The fast optimizers make the steps of the readable one: any settings, any shapes, many steps, in float64."""

import pytest
import timm.optim
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bort import BortS, bortify, penalty
from bort.optim.reference import Reference, direction

BASES = {
    "SGD": (torch.optim.SGD, {"lr": 0.05}),
    "SGD with momentum and decay": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    "SGD with Nesterov momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.5, "nesterov": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01}),
    "Adam": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.002, "momentum": 0.5}),
    "NAdam": (torch.optim.NAdam, {"lr": 0.01}),
    "Lion": (timm.optim.Lion, {"lr": 0.002}),
}
SHAPES = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=4)


@st.composite
def penalties(draw):
    """Settings whose steps are short enough for the guard to leave them alone."""
    mode = draw(st.sampled_from(penalty.MODES))
    # The mean row norm of a single row is the row's own: its defect is 0 but for rounding, and the l1 modes take its sign.
    scales = [1.0, 0.5, 2.0, *(["adaptive"] if mode in ("full", "rows") else [])]
    if mode in ("full", "rows", "columns"):
        scales.append("initial")
    return {
        "constraint": draw(st.floats(0.0, 0.1 if mode == "l1-full" else 0.3)),
        "decoupled": draw(st.booleans()),
        "every": draw(st.sampled_from([1, 1, 2, 3])),
        "scale": draw(st.sampled_from(scales)),
        "mode": mode,
    }


def parameters(shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [nn.Parameter(w / max(4, w.numel() ** 0.5)) for w in weights]  # no singular value above 1


def step_both(fast, reference, steps, seed=0):
    """Random gradients, the same for both; now and then a parameter has none."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for group, other in zip(fast.param_groups, reference.base.param_groups, strict=True):
            for p, q in zip(group["params"], other["params"], strict=True):
                gradient = torch.randn(p.shape, generator=generator, dtype=p.dtype) / 10
                p.grad = q.grad = gradient if gradient.sum() < 0.3 else None
        fast.step()
        reference.step()


def assert_equal(weights, expected):
    for p, q in zip(weights, expected, strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:param group 0", "ignore:.* has nothing to constrain")
@pytest.mark.parametrize("base", BASES)
@settings(max_examples=25)
@given(SHAPES, penalties(), st.integers(1, 3), st.booleans(), st.integers(0, 999))
def test_any_settings_any_shapes_many_steps(base, shapes, options, blocks, transposed, seed):
    cls, arguments = BASES[base]
    shapes = [(shape[0] * blocks, *shape[1:]) for shape in shapes]
    weights, expected = parameters(shapes, seed), parameters(shapes, seed)
    layout = {"blocks": blocks, "transposed": transposed}
    fast = bortify(cls)([{"params": weights, **layout}], **arguments, **options)
    reference = Reference(cls(expected, **arguments), **layout, **options)
    step_both(fast, reference, 20, seed)
    assert_equal(weights, expected)


def test_every_setting_can_differ_by_group():
    settings = [
        {"constraint": 0.5, "decoupled": True, "mode": "rows"},
        {"constraint": 0.0},
        {"every": 2, "scale": 3.0},
        {"blocks": 2, "transposed": True},
        {"lr": 0.01, "decoupled": True},
    ]
    shapes = [(4, 3), (6, 2, 2)]
    weights, expected = ([parameters(shapes, seed) for seed in range(len(settings))] for _ in range(2))
    fast = BortS([{"params": p, **s} for p, s in zip(weights, settings, strict=True)], lr=0.1, constraint=0.2)
    base = torch.optim.SGD([{"params": q, **s} for q, s in zip(expected, settings, strict=True)], lr=0.1)
    step_both(fast, Reference(base, constraint=0.2), 7)
    for p, q in zip(weights, expected, strict=True):
        assert_equal(p, q)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_the_reference_is_the_papers_equation(m, n, seed):
    (p,) = parameters([(m, n, 2)], seed)
    w = p.detach().reshape(m, -1)
    equation = (w @ w.T @ w - w).reshape(p.shape)
    torch.testing.assert_close(direction(p.detach(), 1.0, "full", 1, False), equation, rtol=1e-12, atol=1e-12)
    p.grad = torch.ones_like(p)
    expected = p.detach() - 0.1 * p.grad - 0.1 * 0.3 * equation
    Reference(torch.optim.SGD([p], lr=0.1), constraint=0.3).step()
    torch.testing.assert_close(p.detach(), expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(p.grad, torch.ones_like(p)), "the gradient is the user's"
