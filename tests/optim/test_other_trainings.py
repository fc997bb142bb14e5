"""What torch's own suite and other people's trainings met in version 0.1.0: each of these failed there."""

import abc
import pickle
import threading

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import SGD, AdamW

from bort import BortA, BortS, bortify
from bort.optim import adapt_state_dict
from bort.optim.reference import Reference


def weight(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    p = nn.Parameter(torch.randn(*shape, generator=generator, dtype=dtype) * 1.5 / shape[-1] ** 0.5)
    p.grad = torch.randn(*shape, generator=generator, dtype=dtype) / 10
    return p


class Abstract(SGD, abc.ABC):
    """An optimizer whose metaclass is not type."""


def test_a_base_with_a_metaclass_of_its_own():
    p, q = weight(4, 6), weight(4, 6)
    optimizer = bortify(Abstract)([p], lr=0.1, constraint=0.1)
    optimizer.step()
    BortS([q], lr=0.1, constraint=0.1).step()
    assert torch.equal(p, q)
    assert bortify(Abstract) is bortify(Abstract)
    assert pickle.loads(pickle.dumps(type(optimizer))) is type(optimizer)


def test_threads_leave_torchs_precision_as_it_was():
    before = torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision

    def train(seed):
        optimizer = BortS([weight(64, 64, seed=seed, dtype=torch.float32)], lr=0.01)
        for _ in range(200):
            optimizer.step()

    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision) == before


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters")
@pytest.mark.parametrize("decoupled", [False, True])
def test_a_parameter_that_is_listed_twice(decoupled):
    """torch warns and steps it twice; the penalty acts as often, and the gradient is given back."""
    p, q = weight(4, 6), weight(4, 6)
    gradient = p.grad
    fast = BortS([p, p], lr=0.1, constraint=0.1, decoupled=decoupled)
    reference = Reference(SGD([q, q], lr=0.1), constraint=0.1, decoupled=decoupled)
    for _ in range(3):
        fast.step()
        reference.step()
        assert p.grad is gradient
        torch.testing.assert_close(p, q)


def test_the_count_of_steps_is_in_the_group_from_the_beginning():
    """torch.distributed.checkpoint takes the keys of a group to be the same at all times."""
    optimizer = BortS([weight(4, 6)], lr=0.1, every=4)
    before = set(optimizer.param_groups[0])
    optimizer.step()
    assert set(optimizer.param_groups[0]) == before


@pytest.mark.parametrize("lr", [0.0, torch.tensor(0.0)], ids=["number", "tensor"])
def test_a_step_without_a_learning_rate_leaves_no_trace(lr):
    """torch.distributed.checkpoint makes one, with gradients of 0, to create the state of an optimizer."""
    p = weight(4, 6)
    start = p.detach().clone()
    p.grad.zero_()
    optimizer = BortS([p], lr=lr, momentum=0.9, constraint=0.1, every=2, foreach=False)
    optimizer.step()
    assert not optimizer.state[p]["momentum_buffer"].any()
    assert optimizer.param_groups[0]["penalty_step"] == 0
    assert torch.equal(p, start)


@pytest.mark.parametrize(("cls", "base"), [(BortS, SGD), (BortA, AdamW)])
def test_meta_tensors(cls, base):
    p, q = (nn.Parameter(torch.empty(4, 6, device="meta")) for _ in range(2))
    p.grad, q.grad = torch.empty_like(p), torch.empty_like(q)
    optimizer, plain = cls([p], lr=0.1), base([q], lr=0.1)
    optimizer.step()
    plain.step()
    assert set(optimizer.state[p]) == set(plain.state[q])


@pytest.mark.parametrize("cls", [BortS, BortA])
def test_fake_tensors(cls):
    with FakeTensorMode():
        model = nn.Linear(6, 4)
        optimizer = cls(model.parameters(), lr=0.1)
        model(torch.randn(2, 6)).sum().backward()
        optimizer.step()
        assert model.weight.shape == (4, 6)


@pytest.mark.filterwarnings("ignore:param group 0")
@pytest.mark.parametrize("mode", ["l1-rows", "l1-full"])
@pytest.mark.parametrize("rate", [1.5, 1.9, 2.0])
def test_signs_around_a_moving_target_stay_bounded(mode, rate):
    p = weight(8, 20)
    p.grad.zero_()
    start = p.detach().norm()
    optimizer = BortS([p], lr=1.0, constraint=rate, mode=mode, scale="adaptive")
    for _ in range(200):
        optimizer.step()
    assert p.detach().norm() < 4 * start


class WithArguments(SGD):
    def step(self, closure=None, *, extra=0):
        self.extra = extra
        return super().step(closure)


def test_arguments_of_the_bases_own_step():
    optimizer = bortify(WithArguments)([weight(4, 6)], lr=0.1)
    optimizer.step(extra=3)
    assert optimizer.extra == 3


def test_a_refused_gradient_counts_no_step():
    good, sparse = weight(4, 6), weight(4, 6, seed=1)
    optimizer = BortS([{"params": [good]}, {"params": [sparse]}], lr=0.1, every=2)
    sparse.grad = sparse.grad.to_sparse()
    with pytest.raises(TypeError, match="sparse gradient"):
        optimizer.step()
    assert [group["penalty_step"] for group in optimizer.param_groups] == [0, 0]


@pytest.mark.parametrize("mode", ["full", "rows", "l1-full", "l1-columns"])
def test_small_weights_together_are_what_they_are_one_by_one(mode):
    """On a CPU weights of one shape are stacked if they are small. One of them is unstable, which concerns no other."""
    start = [weight(5, 3, seed=seed).detach() * (30 if seed == 2 else 1) for seed in range(6)]
    together = [nn.Parameter(w.clone()) for w in start]
    alone = [nn.Parameter(w.clone()) for w in start]
    for p in (*together, *alone):
        p.grad = torch.zeros_like(p)
    one = BortS(together, lr=0.5, constraint=0.1, mode=mode)
    several = [BortS([p], lr=0.5, constraint=0.1, mode=mode) for p in alone]
    for _ in range(3):
        one.step()
        for optimizer in several:
            optimizer.step()
    for p, q in zip(together, alone, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


def test_a_momentum_that_carries_the_penalty_past_its_target_is_announced():
    """Just below lr·λ/(1 − μ) = 1, from where on a warning came before."""
    with pytest.warns(UserWarning, match=r"lr·λ/\(1 − momentum\)² = 0.099·0.1/0.01² = 99 ≥ 6"):
        BortS([weight(4, 6)], lr=0.099, momentum=0.99, constraint=0.1)


def trained(cls, seed):
    torch.manual_seed(seed)
    model = nn.Linear(4, 3)
    optimizer = cls(model.parameters(), lr=0.1 * seed)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("form", ["flatten_optimizer_state_dict", "full_state_dict"])
@pytest.mark.parametrize(("before", "after"), [(AdamW, BortA), (BortA, AdamW)])
def test_distributed_checkpoints_between_a_base_and_its_bort_form(form, before, after):
    options = StateDictOptions(**{form: True})
    saved = get_optimizer_state_dict(*trained(before, 1), options=options)
    model, optimizer = trained(after, 2)
    own = get_optimizer_state_dict(model, optimizer, options=options)
    set_optimizer_state_dict(model, optimizer, adapt_state_dict(saved, to=own), options=options)
    name = "state.weight.exp_avg"
    expected = saved[name] if "flatten" in form else saved["state"]["weight"]["exp_avg"]
    assert torch.equal(optimizer.state[model.weight]["exp_avg"], expected)
    group = optimizer.param_groups[0]
    assert group["lr"] == 0.1
    assert group.get("constraint") == (0.1 if after is BortA else None)
