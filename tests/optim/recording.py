"""A recorder for CPU tensors that is as blind as a CUDA graph: it repeats operations on the memory that they were recorded
with, knows nothing of Python objects, executes nothing while it records, and refuses to read a value back."""

from collections import defaultdict

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from bort.optim._group_penalty import GroupPenalty

READS_BACK = ("_local_scalar_dense", "is_nonzero", "equal")


def memory(value):
    """Tensors as they lie in memory now, whatever becomes of the parameters."""
    return tree_map_only(torch.Tensor, torch.Tensor.detach, value)


class Tape(TorchDispatchMode):
    """What is done inside the block, without changing anything; ``replay`` does it."""

    current = None

    def __init__(self):
        super().__init__()
        self.operations = []

    def __enter__(self):
        Tape.current = self
        return super().__enter__()

    def __exit__(self, *error):
        Tape.current = None
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        if name in READS_BACK:
            raise RuntimeError(f"{name} reads a value back to the host")
        if function._schema.is_mutable:
            self.add(lambda *args, **kwargs: function(*args, **kwargs), *args, **kwargs)
            return kwargs.get("out", args[0] if isinstance(args[0], torch.Tensor) else None)
        results = function(*args, **kwargs)
        inputs = {t.untyped_storage().data_ptr() for t in tensors((args, kwargs))}
        if any(t.untyped_storage().data_ptr() not in inputs for t in tensors(results)):
            self.add(_into(function, memory(results)), *args, **kwargs)
        return results

    def add(self, operation, *args, **kwargs):
        args, kwargs = memory(args), memory(kwargs)
        self.operations.append(lambda: operation(*args, **kwargs))

    @torch.no_grad()
    def replay(self):
        for operation in self.operations:
            operation()


def _into(function, targets):
    def operation(*args, **kwargs):
        for target, result in zip(tensors(targets), tensors(function(*args, **kwargs)), strict=True):
            target.copy_(result)

    return operation


def tensors(value):
    found = []
    tree_map_only(torch.Tensor, found.append, value)
    return found


class CpuRecorder:
    """``wanted=False``: the same steps, launched one by one."""

    def __init__(self, wanted=True):
        self.wanted, self.capturing = wanted, False
        self.recorded = self.replayed = 0

    def serves(self, device):
        return True

    def is_capturing(self):
        return self.capturing

    def is_wanted(self):
        return self.wanted

    def record(self, launches, device, *, with_products):
        with Tape() as tape:
            launches()
        self.recorded += 1

        def replay():
            self.replayed += 1
            tape.replay()

        return replay

    def use(self, memory, seen):
        pass


def through(recorder, optimizer):
    """Let an optimizer make its steps as on a GPU."""
    optimizer._penalties = defaultdict(lambda: GroupPenalty(recorder))
    return optimizer
