"""The penalty keeps its own precision, and the program its settings."""

import pytest
import torch

from bort import BortS, penalty
from bort._precision import own_precision


def near_the_constraint():
    torch.manual_seed(0)
    w = torch.nn.init.orthogonal_(torch.empty(64, 32)) + 1e-4 * torch.randn(64, 32)
    p = torch.nn.Parameter(w)
    p.grad = torch.zeros_like(p)
    return p


def test_autocast_does_not_reach_the_gram_matrix():
    """In bfloat16 the difference to I would be mostly rounding."""
    p = near_the_constraint()
    before = p.detach().double()
    optimizer = BortS([p], lr=1.0, constraint=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        assert optimizer.residuals()["0.0"] == pytest.approx(penalty.residual(before).item(), rel=1e-2)
        optimizer.step()
    expected = penalty.gradient(before)
    error = ((before - p.detach().double()) / 0.1 - expected).norm() / expected.norm()
    assert error < 0.02


@pytest.mark.parametrize("value", ["ieee", "tf32"])
def test_torchs_newer_settings_are_left_as_they_are(value):
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = value
        BortS([near_the_constraint()], lr=0.1).step()
        assert torch.backends.cuda.matmul.fp32_precision == value
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@pytest.mark.parametrize("value", ["highest", "high"])
def test_torchs_older_settings_are_left_as_they_are(value):
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(value)
        BortS([near_the_constraint()], lr=0.1).step()
        assert torch.get_float32_matmul_precision() == value
    finally:
        torch.set_float32_matmul_precision(before)


def test_settings_come_back_after_an_exception():
    before = torch.backends.cuda.matmul.fp32_precision
    with pytest.raises(KeyError), own_precision("highest", torch.device("cpu")):
        raise KeyError
    assert torch.backends.cuda.matmul.fp32_precision == before


@pytest.mark.parametrize("backend", [torch.backends.mkldnn.matmul, torch.backends.cuda.matmul])
def test_a_setting_for_all_backends_goes_on_reaching_them(backend):
    """Read, a backend's setting is that of all where it has none of its own; written back, it would be its own."""
    device = torch.device("cuda" if backend is torch.backends.cuda.matmul else "cpu")
    before = torch.backends.fp32_precision, backend.fp32_precision
    try:
        backend.fp32_precision = "none"
        for value in ("tf32", "ieee", "tf32"):
            torch.backends.fp32_precision = value
            assert backend.fp32_precision == value
            for precision in ("highest", "high"):
                with own_precision(precision, device):
                    pass
                assert backend.fp32_precision == value
        backend.fp32_precision = "ieee"  # its own stays
        with own_precision("high", device):
            pass
        assert backend.fp32_precision == "ieee"
    finally:
        torch.backends.fp32_precision, backend.fp32_precision = before
