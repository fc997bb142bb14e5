"""The plain torch path against the readable reference: stacked, in strips, any dtype and memory layout."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bort import penalty
from bort.optim import _plain_torch as _dense
from bort.optim import _stability as _guard

FAR = (1e-9, _guard.limits())


def group(**settings):
    return {"mode": "full", "scale": 1.0, "blocks": 1, "transposed": False} | settings


def directions(weights, **settings):
    found = {}
    with torch.no_grad():
        for batch, moves, distances in _dense.directions(list(enumerate(weights)), group(**settings), FAR):
            for (slot, _), move, distance in zip(batch, moves, distances, strict=True):
                found[slot] = move, distance
    return [found[slot] for slot in range(len(weights))]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=4),
    st.sampled_from(penalty.MODES),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    st.integers(0, 9),
)
def test_equals_the_reference(shapes, mode, dtype, seed):
    torch.manual_seed(seed)
    weights = [torch.randn(*shape).to(dtype) for shape in shapes]
    for w, (move, distance) in zip(weights, directions(weights, mode=mode), strict=True):
        expected = penalty.gradient(w.double(), mode=mode)
        if not penalty.is_l1(mode):  # a sign may tip over in float32
            torch.testing.assert_close(move.double(), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(distance.double(), penalty.residual(w.double(), mode=mode), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{}, {"mode": "columns"}, {"blocks": 2}, {"transposed": True, "mode": "rows"}], ids=str
)
def test_channels_last_is_read_where_it_lies(settings, monkeypatch):
    torch.manual_seed(0)
    w = torch.randn(8, 5, 3, 2, dtype=torch.float64).to(memory_format=torch.channels_last)
    addresses = []
    real = penalty.matrices
    monkeypatch.setattr(
        penalty, "matrices", lambda *a, **k: addresses.append(real(*a, **k).data_ptr()) or real(*a, **k)
    )
    ((move, _),) = directions([w], **settings)
    assert addresses == [w.data_ptr()]
    monkeypatch.undo()
    torch.testing.assert_close(move, penalty.gradient(w, **settings))


@pytest.mark.parametrize("shape", [(600, 700), (700, 521), (512, 512)])
def test_a_large_gram_matrix_in_strips(shape):
    torch.manual_seed(0)
    w = torch.randn(*shape, dtype=torch.float64) / 20
    ((move, distance),) = directions([w])
    torch.testing.assert_close(move, penalty.gradient(w))
    torch.testing.assert_close(distance, penalty.residual(w))


@pytest.mark.parametrize("settings", [{}, {"blocks": 4}, {"blocks": 2, "mode": "rows", "transposed": True}], ids=str)
def test_stacked_equals_one_by_one(settings, monkeypatch):
    """On a GPU weights of one shape go together; here the same is done on the CPU."""
    torch.manual_seed(0)
    weights = [torch.randn(8, 3, 2, 2, dtype=torch.float64) for _ in range(3)]
    one_by_one = directions(weights, **settings)
    monkeypatch.setattr(_dense, "_batches", lambda weights: [weights])
    for (move, distance), (expected, far), w in zip(directions(weights, **settings), one_by_one, weights, strict=True):
        torch.testing.assert_close(move, expected)
        torch.testing.assert_close(distance, far)
        torch.testing.assert_close(distance, penalty.residual(w, **settings))
