"""An optimizer on a few weights, and what can happen to it between its steps."""

import torch
from torch import nn

from bort import bortify

from .recording import through

SHAPES = [(4, 6), (6, 4), (4, 6), (9, 10), (2, 9), (8, 2, 3, 3)]


class Descent(torch.optim.Optimizer):
    """A base optimizer that takes weights of any dtype and layout, and GradScaler's word."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        if not getattr(self, "found_inf", torch.zeros(())):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p -= group["lr"] * p.grad / getattr(self, "grad_scale", 1.0)


Coupled = bortify(Descent)


def random(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) / 3


class Training:
    """An optimizer on a few weights, and what can happen to it. With the same events, two of these have the same numbers."""

    def __init__(self, recorder, cls=Coupled, **options):
        self.recorder = recorder
        self.weights = [nn.Parameter(random(shape, seed)) for seed, shape in enumerate(SHAPES)]
        self.frozen, self.elsewhere, self.steps = set(), {}, 0
        self.optimizer = cls(self.weights, **({"lr": 0.1, "constraint": 0.2, "decoupled": False} | options))
        if recorder is not None:
            through(recorder, self.optimizer)

    @property
    def groups(self):
        return self.optimizer.param_groups

    def weight(self, number):
        return self.weights[number % len(self.weights)]

    def set(self, **values):
        for group in self.groups:
            group.update(values)

    def step(self, _=0):
        """With gradients at new addresses at each third step, and where they were at the others."""
        self.steps += 1
        for position, p in enumerate(self.weights):
            grad = random(p.shape, 100 * self.steps + position).to(p.dtype)
            if position in self.frozen:
                p.grad = None
            elif p.grad is not None and self.steps % 3:
                p.grad.copy_(grad)
            else:
                p.grad = grad
        before = [p.grad for p in self.weights]
        self.optimizer.step()
        assert all(p.grad is grad for p, grad in zip(self.weights, before, strict=True))

    def train(self, _=0):
        for _ in range(3):
            self.step()

    # What happens to weights.

    def move(self, number):
        """To other memory; nan is left behind."""
        p = self.weight(number)
        old, p.data = p.data, p.data.clone()
        old.fill_(torch.nan)

    def swap(self, number):
        """To other memory, and the next time back again, as averaged weights are swapped."""
        p = self.weight(number)
        other = self.elsewhere.pop(p, None)
        if other is None or (other.shape, other.dtype) != (p.shape, p.dtype):
            other = torch.empty_like(p.data)
        self.elsewhere[p], p.data = p.data, other.copy_(p.data)

    def narrow(self, number):
        """Fewer rows at the same address."""
        p = self.weight(number)
        if len(p) > 2:
            p.data, p.grad = p.data[:-2], None

    def transpose(self, number):
        """Other strides at the same address."""
        p = self.weight(number)
        p.data, p.grad = p.data.transpose(0, 1), None

    def convert(self, number):
        p = self.weight(number)
        p.data, p.grad = p.data.to(torch.float32 if p.dtype is torch.float64 else torch.float64), None

    def freeze(self, number):
        self.frozen ^= {number % len(self.weights)}

    def add(self, number):
        self.weights.append(nn.Parameter(random((4 + number, 5), 50 + number)))
        self.optimizer.add_param_group({"params": self.weights[-1:]})

    def drop(self, _=0):
        params = self.groups[0]["params"]
        if len(params) > 1:
            gone = params.pop()
            self.weights = [p for p in self.weights if p is not gone]
            self.elsewhere.pop(gone, None)
            self.frozen.clear()

    # What happens to settings.

    def change_rate(self, number):
        self.set(lr=0.1 / (1 + number))

    def change_rate_to_a_tensor(self, number):
        self.set(lr=torch.tensor(0.05 / (1 + number)))

    def change_strength(self, number):
        self.set(constraint=0.3 / (1 + number))

    def change_scale(self, number):
        self.set(scale=(1.0, 1.5, "adaptive", "initial")[number % 4])

    def change_mode(self, number):
        self.set(mode=("full", "rows", "columns", "l1-full")[number % 4])

    def change_every(self, number):
        self.set(every=1 + number % 3)

    def change_coupling(self, number):
        self.set(decoupled=bool(number % 2))

    def change_blocks(self, number):
        if all(len(p) % 2 == 0 for p in self.weights):
            self.set(blocks=1 + number % 2)

    def reload(self, _=0):
        self.optimizer.load_state_dict(self.optimizer.state_dict())

    # What happens to steps.

    def step_with_inf(self, _=0):
        """GradScaler calls the step off: no penalty."""
        self.scaled_step(0, found_inf=1.0)

    def scaled_step(self, number, found_inf=0.0):
        self.optimizer.found_inf, self.optimizer.grad_scale = torch.tensor(found_inf), torch.tensor(2.0**number)
        self.step()
        del self.optimizer.found_inf, self.optimizer.grad_scale

    def captured_step(self, _=0):
        if self.recorder is not None:
            self.recorder.capturing = True
        self.step()
        if self.recorder is not None:
            self.recorder.capturing = False


EVENTS = sorted(
    name for name, value in vars(Training).items() if callable(value) and name not in ("__init__", "weight", "set")
)
