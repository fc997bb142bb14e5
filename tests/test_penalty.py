"""The reference mathematics against the paper's equations, written out here in float64, and against autograd."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bort import penalty

SIZES = st.integers(1, 7)
MODES = st.sampled_from(penalty.MODES)
SCALES = st.sampled_from([1.0, 0.25, 3.0, "adaptive"])


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@given(SIZES, SIZES, st.integers(0, 99))
def test_value_and_gradient_are_the_papers_equations(m, n, seed):
    w = random(m, n, seed=seed)
    value = ((w.T @ w - torch.eye(n, dtype=w.dtype)) ** 2).sum()  # equ:optim
    gradient = w @ w.T @ w - w  # equ:bort
    torch.testing.assert_close(penalty.value(w), value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(penalty.gradient(w), gradient, rtol=1e-12, atol=1e-12)


@given(SIZES, SIZES, st.integers(1, 3), st.booleans(), MODES, SCALES, st.integers(0, 99))
def test_gradient_is_a_quarter_of_autograds(m, n, blocks, transposed, mode, scale, seed):
    w = random(m * blocks, n, 2, seed=seed).requires_grad_()
    options = {"scale": scale, "mode": mode, "blocks": blocks, "transposed": transposed}
    (expected,) = torch.autograd.grad(penalty.value(w, **options), w)
    torch.testing.assert_close(penalty.gradient(w.detach(), **options), expected / 4, rtol=1e-10, atol=1e-10)


@given(SIZES, SIZES, st.integers(0, 99))
def test_residual_is_the_spread_of_squared_singular_values(m, n, seed):
    w = random(m, n, seed=seed)
    expected = (torch.linalg.svdvals(w) ** 2 - 2.0).square().mean().sqrt()
    torch.testing.assert_close(penalty.residual(w, scale=2.0), expected, rtol=1e-10, atol=1e-10)


@given(SIZES, SIZES, st.sampled_from([1.0, 2.5]), st.integers(0, 99))
def test_nothing_is_wrong_on_the_constraint(m, n, scale, seed):
    q = torch.empty(m, n, dtype=torch.float64)
    torch.manual_seed(seed)
    nn.init.orthogonal_(q, gain=scale**0.5)
    assert penalty.residual(q, scale=scale) < 1e-12
    assert penalty.gradient(q, scale=scale).abs().max() < 1e-12
    assert abs(penalty.value(q, scale=scale).item() - scale**2 * max(0, n - m)) < 1e-10  # the floor of a wide W


@given(SIZES, SIZES, st.integers(0, 99))
def test_norm_modes_and_sign_modes_by_hand(m, n, seed):
    w = random(m, n, seed=seed)
    rows, columns = w.norm(dim=1, keepdim=True) ** 2 - 1, w.norm(dim=0, keepdim=True) ** 2 - 1
    for mode, expected in {
        "rows": rows * w,
        "columns": columns * w,
        "l1-rows": rows.sign() * w,
        "l1-columns": columns.sign() * w,
    }.items():
        torch.testing.assert_close(penalty.gradient(w, mode=mode), expected, rtol=1e-12, atol=1e-12)
    eye = torch.eye(min(m, n), dtype=w.dtype)
    full = w @ (w.T @ w - eye).sign() if m >= n else (w @ w.T - eye).sign() @ w
    torch.testing.assert_close(penalty.gradient(w, mode="l1-full"), full, rtol=1e-12, atol=1e-12)


def test_adaptive_scale_is_the_squared_mean_row_norm():
    w = torch.tensor([[3.0, 4.0], [0.0, 1.0]], dtype=torch.float64)  # row norms 5 and 1
    torch.testing.assert_close(penalty.gradient(w, scale="adaptive"), penalty.gradient(w, scale=9.0))


@pytest.mark.parametrize("conv", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_convolutions_are_out_by_in_times_kernel(conv):
    weight = conv(3, 4, 2).weight.detach().double()
    w = weight.reshape(4, -1)
    torch.testing.assert_close(penalty.gradient(weight), (w @ w.T @ w - w).reshape(weight.shape))


@pytest.mark.parametrize("groups", [2, 6])
def test_grouped_convolutions_are_independent_blocks(groups):
    weight = nn.Conv2d(6, 12, 3, groups=groups).weight.detach().double()
    parts = [penalty.gradient(part) for part in weight.chunk(groups)]
    torch.testing.assert_close(penalty.gradient(weight, blocks=groups), torch.cat(parts))
    values = sum(penalty.value(part) for part in weight.chunk(groups))
    torch.testing.assert_close(penalty.value(weight, blocks=groups), values)


def test_transposed_convolutions_are_read_the_other_way_round():
    """(in, out, k, k) stored; as a linear map its matrix is (out·k·k, in), so its rows are the stored columns."""
    weight = nn.ConvTranspose2d(4, 6, 2, groups=2).weight.detach().double()
    assert penalty.matrices(weight, blocks=2, transposed=True).shape == (2, 3 * 4, 2)
    stored = weight.reshape(2, 2, -1)
    expected = (stored.square().sum(dim=1, keepdim=True) - 1) * stored
    torch.testing.assert_close(
        penalty.gradient(weight, mode="rows", blocks=2, transposed=True), expected.reshape(weight.shape)
    )


def test_channels_last_and_strided_weights():
    weight = random(8, 4, 3, 3)
    expected = penalty.gradient(weight)
    torch.testing.assert_close(penalty.gradient(weight.to(memory_format=torch.channels_last)), expected)
    torch.testing.assert_close(penalty.gradient(weight.mT.contiguous().mT), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_weights_are_computed_in_float32(dtype):
    weight = random(6, 4).to(dtype)
    gradient = penalty.gradient(weight)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient, penalty.gradient(weight.double()).to(dtype))


def test_complaints_name_the_value():
    with pytest.raises(ValueError, match=r"shape \(3,\) is not a matrix"):
        penalty.gradient(torch.ones(3))
    with pytest.raises(ValueError, match="blocks=2"):
        penalty.gradient(torch.ones(3, 2), blocks=2)
    with pytest.raises(ValueError, match="mode='diagonal' is unknown"):
        penalty.value(torch.ones(3, 2), mode="diagonal")


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_proposition_1_the_constraint_costs_a_linear_model_nothing(m, n, seed):
    """vᵀWx with any W equals v₁ᵀW₁x with W₁ᵀW₁ = I, by the construction of the paper's proof."""
    v0, w0, x = random(m, seed=seed), random(m, n, seed=seed + 1), random(n, 20, seed=seed + 2)
    u, sigma, vt = torch.linalg.svd(w0)
    w1 = vt
    spread = torch.zeros(m, n, dtype=w0.dtype)
    spread[: len(sigma), : len(sigma)] = sigma.diag()
    v1 = spread.T @ u.T @ v0
    assert penalty.residual(w1) < 1e-12
    torch.testing.assert_close(v1 @ w1 @ x, v0 @ w0 @ x, rtol=1e-9, atol=1e-9)


def test_complex_weights_are_refused():
    unitary = torch.linalg.qr(torch.randn(3, 3, dtype=torch.complex64)).Q
    for function in (penalty.value, penalty.gradient, penalty.residual, penalty.own_scale):
        with pytest.raises(TypeError, match=r"complex \(torch.complex64\): the constraint is defined for real weights"):
            function(unitary)


def test_the_scale_of_the_optimizers_is_named_as_theirs():
    with pytest.raises(ValueError, match=r"scale='initial'.*a number.*\"adaptive\".*own_scale"):
        penalty.residual(torch.eye(3), scale="initial")
