"""What the penalty costs the host, measured without a device: everything of a step but the launches themselves.

    python benchmarks/host.py [--nets ResNet-50 …] [--out FILE.json]

The tables are those of a GPU, but nothing is launched: neither kernels nor the CUDA graph. So this is Python and torch's own
bookkeeping, to which a replay adds one launch, and single launches four or five for each batch. Microseconds of a step, the
least of many, with the penalty recorded and launched one by one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from step import LR, NETS, SEED, Still, create, fresh, groups

import bort
from bort._environment import describe
from bort._table import table
from bort.optim import _group_penalty
from bort.optim._group_penalty import GroupPenalty
from bort.optim.kernels import Kernels, _launch

STEPS = 300
SMALL = ("ResNet-50", "DeiT-S", "Swin-S")


class Recorder:
    """Takes CPU tensors for those of a GPU, and records nothing."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted

    def serves(self, device: torch.device) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def is_wanted(self) -> bool:
        return self.wanted

    def record(self, launches: Callable[[], None], device: torch.device, *, with_products: bool) -> Callable[[], None]:
        return lambda: None

    def use(self, memory: list[torch.Tensor], seen: set[object]) -> None:
        pass


def penalty_step(model: torch.nn.Module, decoupled: bool, recorded: bool) -> Callable[[], Any]:
    optimizer = bort.bortify(Still)(groups(fresh(model)), lr=LR, decoupled=decoupled)
    optimizer._penalties = defaultdict(lambda: GroupPenalty(Recorder(recorded)))
    optimizer.step()
    for group_penalty in optimizer._penalties.values():
        group_penalty._has_looked = True  # the first step reads the residuals once
    step: Callable[[], Any] = optimizer.step
    return step


def microseconds(step: Callable[[], Any]) -> float:
    step()
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e6 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", default=list(SMALL))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    _launch._start = lambda *arguments, **settings: None  # type: ignore[assignment]
    _group_penalty.Kernels = lambda: Kernels(available=lambda device: True)  # type: ignore[assignment, misc]
    results, rows = {}, []
    for net in arguments.nets:
        model = create(NETS.get(net, net), "cpu")
        base = microseconds(Still(groups(fresh(model)), lr=LR).step)
        times = {
            f"{name}, {way}": microseconds(penalty_step(model, decoupled, recorded)) - base
            for name, decoupled in (("decoupled", True), ("coupled", False))
            for way, recorded in (("recorded", True), ("one by one", False))
        }
        weights = sum(len(group["params"]) for group in groups(model) if group["constraint"])
        results[net] = {"weights": weights, "microseconds": times}
        rows.append((net, str(weights), *(f"{value:.0f}" for value in times.values())))
    print(table(("network", "weights", *times), rows, right=range(1, 6)))
    if arguments.out:
        whole = {"command": f"python benchmarks/host.py --nets {' '.join(arguments.nets)}", "results": results}
        arguments.out.write_text(json.dumps(whole | describe(SEED), indent=2) + "\n")


if __name__ == "__main__":
    main()
