"""The plain torch path against the readable mathematics: stacked, in strips, any dtype and memory layout."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from bort import penalty
from bort.optim import _plain_torch
from bort.optim._spec import PenaltySpec
from bort.optim._stability import Stability

SHORT_STEP = Stability(1e-9)  # the guard leaves it alone


def directions(weights, **reading):
    """The direction and the residual of each weight."""
    with torch.no_grad():
        by_slot = each(_plain_torch.directions(list(enumerate(weights)), PenaltySpec(0.1, **reading), SHORT_STEP))
    return [by_slot[slot] for slot in range(len(weights))]


def each(batches):
    """{slot: (direction, residual)}"""
    return {slot: move for batch, *moves in batches for (slot, _), *move in zip(batch, *moves, strict=True)}


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=4),
    st.sampled_from(penalty.MODES),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    st.integers(0, 9),
)
def test_equals_the_mathematics(shapes, mode, dtype, seed):
    torch.manual_seed(seed)
    weights = [torch.randn(*shape).to(dtype) for shape in shapes]
    for w, (direction, residual) in zip(weights, directions(weights, mode=mode), strict=True):
        if not mode.startswith("l1"):  # in float32 a sign may tip over
            expected = penalty.gradient(w.double(), mode=mode)
            torch.testing.assert_close(direction.double(), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(residual.double(), penalty.residual(w.double(), mode=mode), rtol=1e-4, atol=1e-5)


class CopiesOf(TorchDispatchMode):
    """Collects the operations that copy memory of one tensor."""

    def __init__(self, tensor):
        super().__init__()
        self.address = tensor.untyped_storage().data_ptr()
        self.operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        reads = [a for a in args if isinstance(a, torch.Tensor) and a.untyped_storage().data_ptr() == self.address]
        if reads and name in ("clone", "_to_copy", "copy_", "contiguous", "stack", "cat"):
            self.operations.append(name)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "reading", [{}, {"mode": "columns"}, {"blocks": 2}, {"transposed": True, "mode": "rows"}], ids=str
)
def test_channels_last_is_read_where_it_lies(reading):
    torch.manual_seed(0)
    w = torch.randn(8, 5, 3, 2, dtype=torch.float64).to(memory_format=torch.channels_last)
    with CopiesOf(w) as copies:
        ((direction, _),) = directions([w], **reading)
    assert copies.operations == []
    with CopiesOf(w) as copies:
        expected = penalty.gradient(w, **reading)
    assert copies.operations != [], "which the plain formula does, so it would be noticed"
    torch.testing.assert_close(direction, expected)


@pytest.mark.parametrize("shape", [(600, 700), (700, 521), (512, 512)])
def test_a_large_gram_matrix_in_strips(shape):
    torch.manual_seed(0)
    w = torch.randn(*shape, dtype=torch.float64) / 20
    ((direction, residual),) = directions([w])
    torch.testing.assert_close(direction, penalty.gradient(w))
    torch.testing.assert_close(residual, penalty.residual(w))


@pytest.mark.parametrize("reading", [{}, {"blocks": 4}, {"blocks": 2, "mode": "rows", "transposed": True}], ids=str)
def test_stacked_equals_one_by_one(reading):
    torch.manual_seed(0)
    weights = [torch.randn(8, 3, 2, 2, dtype=torch.float64) for _ in range(3)]
    for w, (direction, residual) in zip(weights, directions(weights, **reading), strict=True):
        (alone,) = directions([w], **reading)
        torch.testing.assert_close((direction, residual), alone)


@pytest.mark.parametrize("scale", [1.0, "adaptive"])
def test_weights_with_few_rows_are_judged_together_and_each_by_itself(scale):
    """Several shapes, one guard: the two unstable steps are shortened, no other is changed by a bit."""
    torch.manual_seed(0)
    shapes = [(1, 30), (40, 1), (3, 20), (20, 3), (3, 20), (7, 9), (2, 2), (8, 12)]
    weights = [torch.randn(shape, dtype=torch.float64) / 9 for shape in shapes]
    for unstable in (1, 4):
        weights[unstable] *= 60
    stability, spec = Stability(0.1), PenaltySpec(0.1, scale=scale)
    with torch.no_grad():
        moves = each(_plain_torch.directions(list(enumerate(weights)), spec, stability))
    shortened = set()
    for slot, w in enumerate(weights):
        x, expected = penalty.matrices(w), penalty.gradient(w, scale=scale)
        s = torch.as_tensor(penalty.target(x, scale)).item()
        norm = torch.linalg.matrix_norm(penalty.defect(x, s, "full"), 2).item()
        if 0.1 * norm > 2 or 0.1 * s >= 1:
            shortened.add(slot)
            torch.testing.assert_close(moves[slot][0], expected * 0.5 / (0.1 * max(norm, s)), rtol=0.015, atol=0)
        else:
            torch.testing.assert_close(moves[slot][0], expected, rtol=1e-12, atol=1e-12)
    assert shortened == {1, 4}


@pytest.mark.parametrize("room", [2**30, 1], ids=["all together", "each alone"])
@pytest.mark.parametrize("options", [{}, {"scale": "adaptive"}, {"mode": "l1-full"}], ids=str)
def test_where_the_host_cannot_look_gram_matrices_of_one_side_are_judged_together(options, room, monkeypatch):
    """Each by itself all the same: those of unstable steps are shortened as alone, the others not changed by a bit."""
    monkeypatch.setattr(_plain_torch, "_STACK_BYTES", room)
    torch.manual_seed(0)
    shapes = [(12, 30), (40, 12), (9, 20), (12, 12), (12, 5, 3, 3), (12, 30), (3, 9)]
    weights = [torch.randn(shape, dtype=torch.float64) / 9 for shape in shapes]
    for unstable in (1, 5):
        weights[unstable] *= 60
    spec, stability = PenaltySpec(0.1, **options), Stability(torch.tensor(0.1, dtype=torch.float64), on_device=True)
    with torch.no_grad():
        moves = each(_plain_torch.directions(list(enumerate(weights)), spec, stability))
    shortened = set()
    for slot, w in enumerate(weights):
        x, expected = penalty.matrices(w), penalty.gradient(w, **options)
        e = penalty.defect(x, penalty.target(x, spec.scale), "full")
        is_l1 = "mode" in options
        factor = Stability(0.1).damping(e.sign() if is_l1 else e, penalty.target(x, spec.scale), l1=is_l1)
        if factor is not None and factor.item() < 1:
            shortened.add(slot)
            expected = expected * factor.item()
        torch.testing.assert_close(moves[slot][0], expected, rtol=1e-12, atol=1e-12)
    assert shortened == (set() if "mode" in options else {1, 5})


@pytest.mark.parametrize("shape", [(512, 200), (200, 512), (256, 32, 3, 3)])
def test_medium_precision_rounds_the_second_product_on_cpus_that_gain_by_it(shape, monkeypatch):
    """1e-3 per entry off the constraint, where a rounded Gram matrix would have left nothing of the penalty."""
    torch.manual_seed(0)
    w = (torch.nn.init.orthogonal_(torch.empty(shape)) + 1e-3 * torch.randn(shape)).contiguous()
    exact = penalty.gradient(w.double())
    results = {}
    for has_bfloat16 in (False, True):
        monkeypatch.setattr(_plain_torch, "_cpu_has_bfloat16", lambda has_bfloat16=has_bfloat16: has_bfloat16)
        for precision in ("high", "medium"):
            results[has_bfloat16, precision] = directions([w], precision=precision)[0]
    errors = {
        key: ((direction.double() - exact).norm() / exact.norm()).item() for key, (direction, _) in results.items()
    }
    assert 1e-3 < errors.pop((True, "medium")) < 1e-2
    assert max(errors.values()) < 1e-4
    assert len({residual.item() for _, residual in results.values()}) == 1
    assert all(direction.dtype is torch.float32 for direction, _ in results.values())


@pytest.mark.parametrize(("shape", "mode"), [((64, 96), "full"), ((512, 200), "rows")])
def test_medium_precision_changes_nothing_else(shape, mode, monkeypatch):
    monkeypatch.setattr(_plain_torch, "_cpu_has_bfloat16", lambda: True)
    w = torch.randn(shape)
    high, medium = (directions([w], mode=mode, precision=precision)[0] for precision in ("high", "medium"))
    assert torch.equal(high[0], medium[0])
