"""The grouped kernels against the reference, in Triton's interpreter: no GPU needed. On a GPU: test_cuda_kernels."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from bort import penalty
from bort.optim import _stability as _guard
from bort.optim.kernels import _launch
from bort.optim.kernels import _tiles as _plan

torch.manual_seed(0)

def check(shapes, *, a=0.01, scale=1.0, coupled=False, size=0.1, dtype=torch.float32, keep=True, tolerance=1e-3):
    weights = [(torch.randn(*shape) * size).to(dtype) for shape in shapes]
    before = [w.double() for w in weights]
    grads = [torch.randn_like(w) for w in weights]
    results = [torch.full_like(w, torch.nan) for w in weights]
    residuals = torch.full((len(weights),), torch.nan)
    plan = _plan.make_plan(list(enumerate(weights)), keep_errors=keep)
    request = _launch.Penalty(scale, a, None, 0.5 if coupled else -a, None, _guard.limits())
    for batch in plan.batches:
        pointers = torch.tensor([[grads[i].data_ptr(), results[i].data_ptr()] for i in batch.members])
        _launch.launch(batch, dtype, request, residuals, pointers if coupled else None)
    for i, w in enumerate(before):
        x = penalty.matrices(w)
        e = penalty.defect(x, scale, "full")
        factor = _guard.damping(e, a, scale)
        move = penalty.pull(x, e if factor is None else e * factor, "full").reshape(w.shape)
        start = grads[i].double() if coupled else w
        expected = start + 0.5 * move if coupled else start - a * move
        got = (results[i] if coupled else weights[i]).double()
        error = ((got - expected).norm() / (expected - start).norm()).item()
        assert error < tolerance, (tuple(w.shape), error)
        distance = penalty.distance(e).item()
        assert abs(residuals[i].item() / distance - 1) < 5e-3, (tuple(w.shape), residuals[i].item(), distance)

check([(5, 3), (3, 5), (1, 7), (7, 1), (1, 1), (64, 25), (131, 199), (199, 131), (16, 3, 3, 3)])
check([(127, 40), (2, 1100)], keep=False)
check([(5, 3), (130, 140)], coupled=True)
check([(140, 130), (12, 40)], size=3.0, a=0.1, tolerance=0.05)  # unstable: the guard's two estimates differ a little
check([(40, 30), (30, 40)], dtype=torch.bfloat16, a=1.0, size=0.2, scale=2.0, tolerance=0.05)
_plan.SCRATCH_BYTES = 1  # every weight a batch of its own
check([(33, 20), (20, 33), (64, 64)])
_plan.SEGMENT, _plan.LONG = 128, 300
check([(30, 500)])
_plan.has_accelerator = lambda device: True  # the kernels for one large weight
check([(30, 1400), (1400, 30), (140, 1100), (1100, 140)])
_plan.LONG = 10_000
check([(30, 1400), (1100, 300), (300, 1100)], coupled=True)
check([(300, 1100)])
_plan._wide_tiles_pay = lambda side, device: True
check([(300, 1100), (1100, 300), (130, 1030)])

# Directions of whole matrices, for owners: through the division that the optimizer uses.
import contextlib
from bort.optim.kernels import _run as _cuda
_cuda.available = lambda device: True
torch.cuda.is_current_stream_capturing = lambda: False
torch.cuda.device = lambda device: contextlib.nullcontext()
_plan.SCRATCH_BYTES = 96 * 2**20
group = {"mode": "full", "scale": 1.0, "precision": "high", "blocks": 1, "transposed": False}
_cuda.gives_directions = lambda matrix: matrix.dtype is torch.float32
from bort.optim.sharded import _dtensor as _sharded
matrices = [(0, torch.randn(30, 140) * 0.1), (1, torch.randn(140, 30) * 0.1), (2, torch.randn(3, 9))]
matrices.append((4, torch.randn(9, 12).half()))
workspace = _sharded.Workspace()
workspace.size = sum(_sharded._aligned(matrix.shape) for _, matrix in matrices)
turn = _sharded.Round(None, [], workspace)
with torch.no_grad():
    for _ in range(2):  # the second time out of the same memory, by the same plan
        wholes = [matrices[0][1], matrices[1][1], matrices[2][1], None, matrices[3][1]]
        moves = _sharded._wholes(wholes, turn, group, (0.01, _guard.limits()))
(division,) = turn.known.values()
assert [slot for mine, _ in division.plans for slot, _ in mine] == [0, 1] and moves[3] is None
found = dict(enumerate(moves))
for slot, matrix in matrices:
    direction, distance = found[slot]
    exact = penalty.gradient(matrix.double())
    assert (direction.double() - exact).norm() < 1e-2 * exact.norm(), slot
    assert abs(distance / penalty.residual(matrix.double()) - 1) < 5e-3
print("checked")
"""


@pytest.mark.slow
def test_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.stdout.strip() == "checked", result.stderr[-2000:]
