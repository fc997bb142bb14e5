"""LeNet on 5,000 digits with SGD and with Bort-S, and what that did to its layers."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bort import data, train
from bort.measure import audit, compare

NAMES = {"SGD": "mnist5k-lenet-sgd", "Bort-S": "mnist5k-lenet-bort-s"}


def run(epochs: int, seed: int) -> None:
    """What `bort demo` shows."""
    console = Console(highlight=False, soft_wrap=True)
    optim = train.recipes.get(NAMES["SGD"]).optim
    settings = f"lr={optim.lr}, momentum={optim.momentum}, weight_decay={optim.weight_decay}"
    console.print("[bold]LeNet on 4,000 digits, tested on 1,000 others.[/] The only difference is one line:")
    console.print(f"  SGD     torch.optim.SGD(model.parameters(), {settings})")
    console.print(f"  Bort-S  bort.BortS(model.parameters(), {settings}, constraint=0.1)\n")
    runs: dict[str, train.Run] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, recipe_name in NAMES.items():
            recipe = replace(train.recipes.get(recipe_name), name=name, epochs=epochs, seed=seed)
            runs[name] = train.fit(recipe, Path(folder) / name)
            last = runs[name].history[-1]
            console.print(f"{name}: {last['accuracy']:.1%} of the test digits, {last['seconds']:.0f} s\n")
    console.print(
        "[bold]The audit of both.[/] On the constraint σ is 1; here, with weight decay 0.01 against λ 0.1, it is 0.95."
    )
    console.print("The ratio is the part of a layer's input that Wᵀ(Wz) fails to bring back: 0 is perfect.\n")
    digits = data.load("mnist5k")
    test = digits.normalise(digits.test_images)
    print(compare({name: audit(run.model, test) for name, run in runs.items()}))
    ends = [f"{name} {run.accuracy:.1%} / {run.history[-1]['residual']:.2f}" for name, run in runs.items()]
    console.print(f"\nTest accuracy / largest distance to the constraint: {'; '.join(ends)}.")
