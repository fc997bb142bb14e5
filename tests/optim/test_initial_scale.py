"""``scale="initial"``: each weight is drawn to its own scale. With any settings, against the reference: test_reference."""

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from bort import BortA, BortS, penalty
from bort.optim import adapt_state_dict

from .cases import MAIN, assert_same, net, train, weights

EACH = pytest.mark.parametrize(("cls", "options"), MAIN.values(), ids=MAIN)


def weight(*shape, size=1.0, dtype=torch.float64, seed=0):
    start = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    p = nn.Parameter((size * start).to(dtype))
    p.grad = torch.zeros_like(p)
    return p


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_the_scale_of_a_weight_is_that_of_what_is_constrained(shape):
    w = weight(*shape, size=2.0).detach()
    means = {
        "full": torch.linalg.svdvals(w).square().mean(),
        "rows": w.square().sum(dim=1).mean(),
        "l1-columns": w.square().sum(dim=0).mean(),
    }
    for mode, mean in means.items():
        torch.testing.assert_close(penalty.own_scale(w, mode=mode), mean[None])
    halves = penalty.own_scale(torch.cat([w, 3 * w]), blocks=2)
    torch.testing.assert_close(halves, torch.stack([means["full"], 9 * means["full"]]))
    torch.testing.assert_close(penalty.own_scale(w.T, mode="rows", transposed=True), means["rows"][None])


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("cls", [BortS, BortA])
def test_one_step_is_the_equation(cls, blocks):
    p = weight(6, 4, size=5.0)
    expected = []
    for w in p.detach().clone().chunk(blocks):
        s = torch.linalg.svdvals(w).square().mean()
        expected.append(w - 0.1 * 0.2 * (w @ w.T @ w / s - w))
    optimizer = cls([{"params": [p], "blocks": blocks}], lr=0.1, constraint=0.2, weight_decay=0.0, scale="initial")
    optimizer.step()
    torch.testing.assert_close(p.detach(), torch.cat(expected))


def test_lambda_pulls_alike_on_weights_of_any_scale():
    """A weight and the same weight times 70 stay so, and end with all σ at the mean square of the first ones."""
    small, large = weight(8, 5, size=0.1), weight(8, 5, size=7.0)
    root = torch.linalg.svdvals(small.detach()).square().mean().sqrt()
    optimizer = BortS([small, large], lr=0.1, momentum=0.9, constraint=0.3, scale="initial")
    for _ in range(200):
        optimizer.step()
        torch.testing.assert_close(70 * small.detach(), large.detach())
    torch.testing.assert_close(torch.linalg.svdvals(small.detach()), root.expand(5), rtol=1e-4, atol=0)
    assert max(optimizer.residuals().values()) < 1e-4


@EACH
def test_a_checkpoint_goes_on(cls, options):
    """Saved after the weights have moved away from their first scales, and loaded where others were measured before."""
    settings = options | {"constraint": 2.0, "scale": "initial"}
    model = net()
    optimizer = cls(model.parameters(), **settings)
    train(model, optimizer, 3)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = net(seed=1)
    resumed = cls(other.parameters(), **settings)
    train(other, resumed, 1)
    other.load_state_dict(model.state_dict())
    resumed.load_state_dict(torch.load(file))
    copied, copied_optimizer = pickle.loads(pickle.dumps(copy.deepcopy((other, resumed))))
    for each, its in ((model, optimizer), (other, resumed), (copied, copied_optimizer)):
        train(each, its, 3, first=3)
    assert_same(weights(model), weights(other))
    assert_same(weights(model), weights(copied))


@EACH
def test_a_checkpoint_of_the_plain_optimizer_has_no_scales_yet(cls, options):
    model = net()
    base = cls.base(model.parameters(), **options)
    train(model, base, 2)
    optimizer = cls(model.parameters(), scale="initial", **options)
    optimizer.load_state_dict(base.state_dict())
    expected = [penalty.own_scale(p.detach()) for p in model.parameters() if p.ndim == 2]
    train(model, optimizer, 2)
    for p, scale in zip((p for p in model.parameters() if p.ndim == 2), expected, strict=True):
        torch.testing.assert_close(optimizer.state[p]["initial_scale"], scale)
    base.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, base, 1)


@pytest.mark.parametrize("options", [{"every": 3}, {"lr": 0.0}, {"warmup": 5}], ids=str)
def test_it_is_measured_before_anything_has_moved(options):
    """Also where the first step has no penalty."""
    p = weight(6, 4, size=3.0)
    p.grad = torch.randn_like(p)
    expected = penalty.own_scale(p.detach())
    optimizer = BortA([p], **({"lr": 0.5} | options), scale="initial")
    for _ in range(3):
        optimizer.step()
    torch.testing.assert_close(optimizer.state[p]["initial_scale"], expected)


def test_a_weight_without_a_gradient_is_measured_when_it_has_one():
    first, late = weight(6, 4), weight(6, 4)
    late.grad = None
    optimizer = BortA([first, late], lr=0.01, scale="initial")
    optimizer.step()
    assert late not in optimizer.state, "the base optimizer has to find it empty"
    with torch.no_grad():
        late *= 3
    late.grad = torch.zeros_like(late)
    expected = penalty.own_scale(late.detach())
    optimizer.step()
    torch.testing.assert_close(optimizer.state[late]["initial_scale"], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_a_checkpoint_has_the_same_scale(dtype):
    """torch converts what it loads to the dtype of the weight."""
    p = weight(4000, 4, size=30.0, dtype=dtype)  # its mean σ² is larger than the largest half
    optimizer = BortS([p], lr=1e-3, scale="initial")
    optimizer.step()
    resumed = BortS([p], lr=1e-3, scale="initial")
    resumed.load_state_dict(optimizer.state_dict())
    scale = optimizer.state[p]["initial_scale"]
    assert torch.equal(resumed.state[p]["initial_scale"], scale)
    assert scale.item() == pytest.approx(min(4000 * 900, torch.finfo(dtype).max), rel=0.05)
    before = p.detach().clone()
    resumed.step()
    assert p.isfinite().all()
    assert p.norm() <= before.norm()


@pytest.mark.filterwarnings("error")
def test_residuals_are_relative_and_near():
    """No warning of weights far from the constraint: σ² is 250 times 1, and near their own mean."""
    p = nn.Parameter(16 * torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0] + weight(8, 8).detach())
    p.grad = torch.zeros_like(p)
    root = penalty.own_scale(p.detach()).sqrt()
    expected = penalty.residual(p.detach() / root).item()
    optimizer = BortS([("w", p)], lr=1e-3, scale="initial")
    assert optimizer.residuals() == {"w": pytest.approx(expected)}
    optimizer.step()
    assert optimizer.residuals() == {"w": pytest.approx(expected, rel=1e-6)}
    assert expected < 1


def test_residuals_before_the_first_step_settle_nothing():
    p = weight(6, 4)
    optimizer = BortS([p], lr=0.1, scale="initial")
    optimizer.residuals()
    with torch.no_grad():
        p *= 5  # as if pretrained weights were loaded now
    expected = penalty.own_scale(p.detach())
    optimizer.step()
    torch.testing.assert_close(optimizer.state[p]["initial_scale"], expected)


def test_a_weight_that_is_zero_has_the_scale_one():
    zero = weight(4, 3, size=0.0)
    optimizer = BortS([zero], lr=0.1, scale="initial")
    optimizer.step()
    assert optimizer.state[zero]["initial_scale"].tolist() == [1.0]
    assert not zero.any()


def test_weight_decay_is_compared_in_units_of_the_scale():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BortS(net().parameters(), lr=0.01, weight_decay=0.05, scale="initial")
    with pytest.warns(UserWarning, match=r"weight decay 0.1 ≥ constraint 0.1"):
        BortS(net().parameters(), lr=0.01, weight_decay=0.1, scale="initial")


@pytest.mark.parametrize("compiled", [False, True])
def test_compiled_steps(compiled):
    model = net()
    optimizer = BortA(model.parameters(), lr=0.01, scale="initial")
    step = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
    model(torch.ones(2, 6)).sum().backward()
    expected = penalty.own_scale(model[0].weight.detach())
    for _ in range(3):
        step()
    torch.testing.assert_close(optimizer.state[model[0].weight]["initial_scale"], expected)


@pytest.mark.parametrize("form", ["flatten_optimizer_state_dict", "full_state_dict"])
@pytest.mark.parametrize("before", [torch.optim.AdamW, BortA])
def test_distributed_checkpoints(form, before):
    """They create the state of the new optimizer by a step of lr 0, and fill it from the saved one."""
    options = StateDictOptions(**{form: True})
    model, other = net(), net(seed=1)
    first = before(model.parameters(), lr=0.1, **({"scale": "initial"} if before is BortA else {}))
    train(model, first, 2)
    saved = get_optimizer_state_dict(model, first, options=options)
    optimizer = BortA(other.parameters(), lr=0.1, scale="initial")
    own = get_optimizer_state_dict(other, optimizer, options=options)
    set_optimizer_state_dict(other, optimizer, adapt_state_dict(saved, to=own), options=options)
    expected = penalty.own_scale(other[0].weight.detach())
    train(other, optimizer, 1)
    if before is BortA:
        expected = first.state[model[0].weight]["initial_scale"]
    torch.testing.assert_close(optimizer.state[other[0].weight]["initial_scale"], expected)


def weights_on(device, shapes=((16, 27), (60, 16), (3, 40), (1, 50))):
    """Some for the kernels, some with few rows."""
    params = []
    for seed, shape in enumerate(shapes):
        p = nn.Parameter(weight(*shape, size=3.0, seed=seed, dtype=torch.float32).detach().to(device))
        p.grad = weight(*shape, size=0.1, seed=seed + 9, dtype=torch.float32).detach().to(device)
        params.append(p)
    return params


NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@NEEDS_CUDA
@pytest.mark.parametrize("decoupled", [False, True])
def test_a_gpu_makes_the_steps_of_a_cpu(decoupled):
    on_gpu, on_cpu = weights_on("cuda"), weights_on("cpu")
    options = {"lr": 0.05, "momentum": 0.9, "constraint": 0.4, "decoupled": decoupled, "scale": "initial"}
    optimizers = [BortS(params, **options) for params in (on_gpu, on_cpu)]
    for _ in range(5):
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(on_gpu, on_cpu, strict=True):
        torch.testing.assert_close(p.cpu(), q, rtol=1e-2, atol=1e-2)
    first, second = (list(optimizer.residuals().values()) for optimizer in optimizers)
    assert first == pytest.approx(second, rel=1e-2, abs=1e-3)


@NEEDS_CUDA
@pytest.mark.parametrize("decoupled", [False, True])
def test_a_captured_step_keeps_the_scales(decoupled):
    captured, eager = weights_on("cuda"), weights_on("cuda")
    options = {"lr": 0.05, "momentum": 0.9, "constraint": 0.4, "decoupled": decoupled, "fused": True}
    optimizers = [BortS(params, scale="initial", **options) for params in (captured, eager)]
    for optimizer in optimizers:
        optimizer.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizers[0].step()
    for _ in range(4):
        graph.replay()
        optimizers[1].step()
    for p, q in zip(captured, eager, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@NEEDS_CUDA
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_a_first_step_cannot_be_captured():
    optimizer = BortS(weights_on("cuda"), lr=0.05, fused=True, scale="initial")
    complaint = "scale='initial': make a step before the one that is captured"
    with pytest.raises(RuntimeError, match=complaint), torch.cuda.graph(torch.cuda.CUDAGraph()):
        optimizer.step()
    torch.cuda.synchronize()
