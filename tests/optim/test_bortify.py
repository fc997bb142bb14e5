"""The classes themselves: real subclasses, found by name, with an honest signature."""

import copy
import inspect
import pickle
import subprocess
import sys

import pytest
import timm.optim
import torch
import torch.distributed.optim

import bort
from bort import BortA, BortL, BortS, bortify

from .cases import ALL, net


@pytest.mark.parametrize(("cls", "options"), ALL.values(), ids=ALL)
def test_real_subclasses_that_pickle_and_deepcopy_by_name(cls, options):
    assert issubclass(cls, cls.base)
    assert issubclass(cls, torch.optim.Optimizer)
    assert pickle.loads(pickle.dumps(cls)) is cls
    assert copy.deepcopy(cls) is cls
    assert bortify(cls.base) is cls
    assert bortify(cls) is cls


@pytest.mark.parametrize("cls", [cls for cls, _ in ALL.values()], ids=ALL)
def test_the_signature_is_the_bases_plus_ours(cls):
    ours, theirs = inspect.signature(cls).parameters, inspect.signature(cls.base).parameters
    first, *others = theirs
    assert [ours[name] for name in others] == [theirs[name] for name in others]
    assert ours[first].replace(annotation=theirs[first].annotation) == theirs[first]
    assert "Module" in str(ours[first].annotation)
    added = [name for name in ours if name not in theirs]
    assert added == ["constraint", "decoupled", "every", "warmup", "scale", "mode", "precision", "shard"]
    assert all(ours[name].kind is inspect.Parameter.KEYWORD_ONLY for name in added)


def test_arguments_keep_their_positions():
    group = BortS(net().parameters(), 0.3, 0.8, 0.1).param_groups[0]
    assert (group["lr"], group["momentum"], group["dampening"]) == (0.3, 0.8, 0.1)


def test_names_and_docs():
    assert [cls.__name__ for cls in (BortS, BortA, BortL)] == ["BortS", "BortA", "BortL"]
    assert bortify(torch.optim.NAdam).__name__ == "BortNAdam"
    assert BortS.__module__ == "bort.optim"
    assert "constraint" in bortify.__doc__


def test_a_pickle_is_read_in_another_process():
    """Made there from the base class's name: nothing has to be defined again."""
    data = pickle.dumps(bortify(torch.optim.NAdam)([torch.nn.Parameter(torch.ones(2, 2))], lr=0.5))
    code = f"import pickle; o = pickle.loads({data!r}); print(type(o).__name__, o.param_groups[0]['lr'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["BortNAdam", "0.5"]


def test_what_cannot_be_bortified_is_said():
    with pytest.raises(TypeError, match=r"takes a torch.optim.Optimizer class, not <class 'int'>"):
        bortify(int)
    with pytest.raises(TypeError, match="LBFGS evaluates its closure several times"):
        bortify(torch.optim.LBFGS)

    class Scaled(torch.optim.SGD):
        def __init__(self, params, scale=1.0):
            super().__init__(params, lr=scale)

    with pytest.raises(TypeError, match="Scaled has arguments of its own called scale"):
        bortify(Scaled)
    with pytest.raises(TypeError, match=r"Lookahead wraps another optimizer \(base_optimizer=…\): bortify that one"):
        bortify(timm.optim.Lookahead)
    with pytest.raises(TypeError, match=r"ZeroRedundancyOptimizer wraps another optimizer \(optimizer_class=…\)"):
        bortify(torch.distributed.optim.ZeroRedundancyOptimizer)


def test_subclasses_of_a_bort_class_work():
    p = torch.nn.Parameter(torch.randn(3, 2))
    p.grad = torch.zeros(3, 2)
    optimizer = Mine([p], lr=0.1)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    before = p.detach().clone()
    optimizer.step()
    assert calls == [1]
    torch.testing.assert_close(p.detach(), before - 0.01 * bort.penalty.gradient(before))


class Mine(BortS):
    """At module level, where pickle finds it by its own name."""


def test_a_users_subclass_pickles_as_itself():
    assert pickle.loads(pickle.dumps(Mine)) is Mine
    assert type(pickle.loads(pickle.dumps(Mine([torch.nn.Parameter(torch.ones(2, 2))], lr=0.1)))) is Mine


def test_a_step_without_closure_can_be_bortified():
    class Plain(torch.optim.SGD):
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data -= group["lr"] * p.grad

    p = torch.nn.Parameter(torch.randn(3, 2))
    p.grad = torch.zeros(3, 2)
    before = p.detach().clone()
    bortify(Plain)([p], lr=0.1).step()
    torch.testing.assert_close(p.detach(), before - 0.01 * bort.penalty.gradient(before))


ALONE = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # as if it were not installed
import bort
assert "torch" not in sys.modules, "import bort is to be fast"
import torch, bort.optim
p = torch.nn.Parameter(torch.ones(2, 2)); p.grad = torch.ones(2, 2)
for cls in (bort.BortS, bort.BortA, bort.BortL):
    cls([p], lr=0.1).step()
print(bort.param_groups(torch.nn.Linear(2, 2)))
"""


def test_optim_needs_torch_alone():
    blocked = {"timm", "torchvision", "mlxtend", "rich", "tyro", "captum", "sklearn", "matplotlib", "transformers"}
    result = subprocess.run([sys.executable, "-c", ALONE.format(blocked=blocked)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
