"""Residual and range of singular values, against numpy's decomposition."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bort import layers, penalty
from bort.layers import LinearMap, spectra, spectrum


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 12), columns=st.integers(1, 40), blocks=st.integers(1, 4), seed=st.integers(0, 999))
def test_small_ones_are_exact(rows, columns, blocks, seed):
    weight = torch.randn(blocks * rows, columns, generator=torch.Generator().manual_seed(seed))
    measured = spectrum(weight, blocks=blocks)
    values = np.concatenate(
        [np.linalg.svd(block, compute_uv=False) for block in weight.double().view(blocks, rows, -1)]
    )
    np.testing.assert_allclose(
        [measured.smallest, measured.largest], [values.min(), values.max()], rtol=1e-6, atol=1e-7
    )
    np.testing.assert_allclose(measured.residual, penalty.residual(weight, blocks=blocks).item(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(300, 900), (900, 300), (400, 20, 5, 5)])
def test_large_ones_nearly(shape):
    """Ritz values lie inside the range, and near its ends."""
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0)) / 20
    measured = spectrum(weight)
    values = np.linalg.svd(weight.flatten(1).double(), compute_uv=False)
    assert values.min() * (1 - 1e-4) <= measured.smallest <= values.min() * 1.03
    assert values.max() * 0.99 <= measured.largest <= values.max() * (1 + 1e-4)
    np.testing.assert_allclose(measured.residual, penalty.residual(weight).item(), rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_and_orthogonal(dtype):
    """Where every vector is an eigenvector, the iteration ends at once, without inventing a zero."""
    weight = torch.linalg.qr(torch.randn(500, 300, dtype=dtype, generator=torch.Generator().manual_seed(0)))[0]
    measured = spectrum(weight)
    assert measured.smallest == pytest.approx(1, abs=1e-4)
    assert measured.largest == pytest.approx(1, abs=1e-4)
    assert spectrum(torch.zeros(300, 300)) == (1.0, 0.0, 0.0)
    assert spectra([(torch.zeros(300, 300), LinearMap("", 1))], scale=2.0) == [(2.0, 0.0, 0.0)]


def test_transposed_weights():
    weight = torch.randn(6, 10, 3, 3, generator=torch.Generator().manual_seed(0))
    values = np.linalg.svd(weight.flatten(1).T.double(), compute_uv=False)
    measured = spectrum(weight, transposed=True)
    np.testing.assert_allclose([measured.smallest, measured.largest], [values.min(), values.max()], rtol=1e-6)


def test_many_weights_in_any_order_and_in_batches(monkeypatch):
    """Sizes that alternate, on both sides of what is exact, with blocks; however many Gram matrices are held at a time."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(8, 20), (300, 310), (20, 8), (310, 300), (16, 5), (300, 300)]
    weights = [(torch.randn(shape, generator=generator) / shape[1] ** 0.5, LinearMap("")) for shape in shapes]
    weights.append((weights[0][0], LinearMap("", blocks=2)))
    expected = [spectrum(weight, blocks=linear.blocks) for weight, linear in weights]
    for limit in (2**27, 1):
        monkeypatch.setattr(layers, "_GRAM_BYTES", limit)
        for measured, alone in zip(spectra(iter(weights)), expected, strict=True):
            assert measured == pytest.approx(alone, rel=1e-4)
    assert spectra([]) == []


def test_a_weight_that_is_not_finite_does_not_disturb_the_others():
    good = torch.randn(300, 300, generator=torch.Generator().manual_seed(0)) / 17
    bad = good.clone()
    bad[0, 0] = torch.nan
    plain = LinearMap("")
    first, diverged, last = spectra([(good, plain), (bad, plain), (good, plain)])
    assert first == last == pytest.approx(spectrum(good), rel=1e-4)
    assert all(math.isnan(value) for value in diverged)


def test_without_numpy(monkeypatch):
    weight = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    expected = spectrum(weight)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert spectrum(weight) == pytest.approx(expected, rel=1e-9)
