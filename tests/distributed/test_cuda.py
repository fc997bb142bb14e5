"""Sharded weights on a GPU, alone in their group: kernels and NCCL are the same with more."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import bort
from bort import penalty
from bort.optim._spec import PenaltySpec
from bort.optim._stability import Stability
from bort.optim.kernels import Kernels

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def mesh(tmp_path):
    dist.init_process_group("nccl", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    yield dist.init_device_mesh("cuda", (1,))
    dist.destroy_process_group()


def test_directions_of_whole_matrices():
    """As owners compute them, by the kernels where they apply: not for few rows, nor in half precision."""
    torch.manual_seed(0)
    shapes = [(64, 576), (300, 200), (7, 9), (1030, 1031)]
    matrices = [(slot, torch.randn(shape, device="cuda") / 20) for slot, shape in enumerate(shapes)]
    matrices.append((4, (torch.randn(32, 64, device="cuda") / 8).bfloat16()))
    kernels = Kernels()
    with torch.no_grad():
        for _ in range(2):
            directions = kernels.directions(matrices, PenaltySpec(0.1), Stability(0.01))
            for slot, matrix in matrices:
                direction, residual = directions[slot]
                exact = penalty.gradient(matrix.double())
                assert (direction.double() - exact).norm() < 0.01 * exact.norm()
                assert residual.item() == pytest.approx(penalty.residual(matrix.double()).item(), rel=2e-3)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_tables_for_replicated_weights_are_uploaded_once(mesh):
    """Whole matrices are copied to the same memory at every step, so that the kernels' tables stay valid."""
    from torch.distributed.tensor import Replicate, distribute_tensor

    weights = [
        nn.Parameter(distribute_tensor(torch.randn(64, n, device="cuda"), mesh, [Replicate()])) for n in (64, 300)
    ]
    for p in weights:
        p.grad = torch.zeros_like(p)
    optimizer = bort.BortS(weights, lr=1e-4)
    optimizer.step()
    try:
        torch.cuda.set_sync_debug_mode("error")  # an upload from pageable memory waits for the device
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("decoupled", [False, True])
def test_weights_whole_on_one_gpu_take_the_recorded_step_of_plain_ones(mesh, decoupled):
    """Bit by bit."""
    from torch.distributed.tensor import Shard, distribute_tensor

    results = []
    for is_sharded in (False, True):
        torch.manual_seed(0)
        weights = [torch.randn(shape, device="cuda") / 8 for shape in ((64, 96), (96, 64), (3, 50), (300, 1100))]
        cut = (lambda w: distribute_tensor(w, mesh, [Shard(0)])) if is_sharded else torch.clone
        params = [nn.Parameter(cut(w)) for w in weights]
        optimizer = bort.BortS(params, lr=0.1, momentum=0.9, decoupled=decoupled)
        for _ in range(4):
            for p in params:
                p.grad = cut(torch.randn(p.shape, device="cuda") / 8)
            optimizer.step()
        results.append([p.full_tensor() if is_sharded else p for p in params])
    for plain, sharded in zip(*results, strict=True):
        assert torch.equal(plain, sharded)


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("cls", [bort.BortS, bort.BortA])
def test_fsdp2_on_one_gpu_is_the_plain_step(mesh, cls, offload):
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

    results = []
    for shard in (False, True):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 64), nn.Linear(64, 10))
        if shard:
            policy = CPUOffloadPolicy() if offload else OffloadPolicy()
            net = fully_shard(net if offload else net.cuda(), mesh=mesh, offload_policy=policy)
        else:
            net = net.cuda()
        optimizer = cls(net.parameters(), lr=0.02, constraint=0.3)
        for step in range(5):
            x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step)).cuda()
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        weights = [p.full_tensor() if shard else p for p in net.parameters()]
        results.append(([w.detach().cpu() for w in weights], optimizer.residuals()))
    (plain, residuals), (sharded, sharded_residuals) = results
    for a, b in zip(plain, sharded, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert list(sharded_residuals.values()) == pytest.approx(list(residuals.values()), rel=1e-3, abs=1e-3)
