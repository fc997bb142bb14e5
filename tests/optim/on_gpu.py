"""Weights, gradients and optimizers for the tests of recorded steps on a GPU."""

import pytest
import torch
from torch import nn

NEEDS_CUDA = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]

# For the kernels, tall and wide, and for plain torch: few rows, few columns, two of one shape.
SHAPES = [(64, 96), (96, 64), (40, 8, 3, 3), (3, 50), (3, 50), (50, 5), (300, 1100)]


class Still(torch.optim.SGD):
    """Makes no step of its own: what is left is the penalty."""

    def step(self):
        pass


def noise(shape, seed):
    return torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(seed)) / 8


def parameters(shapes=SHAPES, dtype=torch.float32):
    return [nn.Parameter(noise(shape, seed).to(dtype)) for seed, shape in enumerate(shapes)]


def set_gradients(params, step, *, anew=False):
    for position, p in enumerate(params):
        grad = noise(p.shape, 1000 * (1 + step) + position).to(p.dtype)
        if anew or p.grad is None:
            p.grad = grad.to(memory_format=torch.preserve_format)
        else:
            p.grad.copy_(grad)


def clones(params):
    return [p.detach().clone() for p in params]


def assert_bits(first, second):
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b), (a.shape, (a.double() - b.double()).abs().max())


@pytest.fixture(params=[False, True], ids=["coupled", "decoupled"])
def decoupled(request):
    return request.param


def made(monkeypatch, make, graphs):
    """An optimizer that records its steps, or launches them one by one. Which it is, it decides in its first step."""
    monkeypatch.setenv("BORT_GRAPHS", str(int(graphs)))
    return make()
