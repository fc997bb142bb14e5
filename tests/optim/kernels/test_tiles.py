"""Which weights the kernels get, and how the tables are laid out: no GPU needed for that."""

import pytest
import torch

from bort.optim.kernels import _run as _cuda

_plan = pytest.importorskip("bort.optim.kernels._tiles")

GROUP = {"mode": "full", "scale": 1.0, "precision": "high", "blocks": 1}


@pytest.fixture
def any_device(monkeypatch):
    """Kernels for CPU weights, as far as planning goes."""
    monkeypatch.setattr(_cuda, "available", lambda device: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


@pytest.mark.usefixtures("any_device")
def test_plans_are_kept_until_a_weight_changes_place_or_shape():
    weights = [(0, torch.randn(16, 32)), (1, torch.randn(40, 9))]
    known = {}
    with torch.no_grad():
        first = _cuda.divide(weights, GROUP, known)
        assert _cuda.divide(weights, GROUP, known) is first
        assert _cuda.divide(weights[1:], GROUP, known) is not first  # the first one has no gradient this time
        assert _cuda.divide(weights, GROUP, known) is first
        halved = [(0, weights[0][1][:8]), weights[1]]  # the same address
        assert _cuda.divide(halved, GROUP, known) is not first
        assert _cuda.divide(weights, GROUP | {"scale": 2.0}, known) is not first
        for rows in range(8, 8 + 2 * _cuda._KEPT):
            _cuda.divide([(0, torch.randn(rows, 16))], GROUP, known)
    assert len(known) <= _cuda._KEPT


@pytest.mark.usefixtures("any_device")
@pytest.mark.parametrize(
    ("weight", "group", "taken"),
    [
        (torch.randn(16, 32), {}, True),
        (torch.randn(16, 4, 3, 3).to(memory_format=torch.channels_last), {}, True),
        (torch.randn(16, 32).bfloat16(), {}, True),
        (torch.randn(16, 32).double(), {}, False),
        (torch.randn(7, 32), {}, False),
        (torch.randn(16, 64)[:, ::2], {}, False),
        (torch.randn(32, 16).T, {}, False),
        (torch.randn(16, 32), {"mode": "rows"}, False),
        (torch.randn(16, 32), {"scale": "adaptive"}, False),
        (torch.randn(16, 32), {"precision": "highest"}, False),
        (torch.randn(16, 32), {"blocks": 2}, False),
        (torch.randn(16, 32), {"train_mode": True}, False),
    ],
    ids=[
        "plain",
        "channels_last",
        "bf16",
        "fp64",
        "few rows",
        "strided",
        "transposed",
        "rows",
        "adaptive",
        "highest",
        "blocks",
        "schedule-free",
    ],
)
def test_what_the_kernels_take(weight, group, taken):
    with torch.no_grad():
        division = _cuda.divide([(0, weight)], GROUP | group, {})
    assert (len(division.plans), len(division.rest)) == ((1, 0) if taken else (0, 1))


def test_a_step_through_autograd_is_left_to_torch(any_device):
    with torch.enable_grad():
        assert _cuda.divide([(0, torch.randn(16, 32))], GROUP, {}).plans == ()


def test_tables_cover_every_tile_once_and_weights_go_into_batches():
    shapes = [(300, 2000), (130, 70), (64, 64), (2000, 300)]
    weights = [(10 + i, torch.randn(*shape)) for i, shape in enumerate(shapes)]
    plan = _plan.make_plan(weights, keep_errors=True)
    (batch,) = plan.batches
    assert sorted(batch.members) == [0, 1, 2, 3]
    for number, member in enumerate(batch.members):
        k, long = min(shapes[member]), max(shapes[member])
        side, padded = -(-k // 128), -(-long // 128)
        pairs = {tuple(t) for t in batch.gram_tiles[batch.gram_tiles[:, 0] == number, 1:].tolist()}
        assert pairs == {(i, j) for i in range(side) for j in range(i + 1)}
        tall = shapes[member][0] > shapes[member][1]
        found = batch.apply_tiles[tall]
        assert len({tuple(t) for t in found[found[:, 0] == number].tolist()}) == side * padded
        row = batch.matrices[number].tolist()
        assert row[0] == weights[member][1].data_ptr()
        assert row[11] == 10 + member  # where its residual goes
        assert (row[8] > 0) == (long < _plan.SHORT)  # rounding errors are kept for short rows


def test_a_weight_beyond_the_scratch_is_a_batch_of_its_own(monkeypatch):
    monkeypatch.setattr(_plan, "SCRATCH_BYTES", 3 * 2 * 128 * 128 * 2)
    weights = [(i, torch.randn(100, 100)) for i in range(4)]
    assert [len(batch.members) for batch in _plan.make_plan(weights, keep_errors=True).batches] == [2, 2]
    wide = [(0, torch.randn(100, 900)), *((i, torch.randn(100, 100)) for i in range(1, 3))]
    assert [batch.members for batch in _plan.make_plan(wide, keep_errors=True).batches] == [(0,), (1, 2)]
