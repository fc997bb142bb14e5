"""LeNet on 5,000 digits with SGD and with Bort-S, and what that did to its layers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from torch import Tensor, nn
from torch.nn import functional as F

from bort import data, nets
from bort.measure import audit, compare
from bort.optim import BortS

# Table 1, and the momentum that it leaves unsaid
RECIPE: dict[str, Any] = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.01}
BATCH = 64


def run(epochs: int, seed: int) -> None:
    """What `bort demo` shows."""
    console = Console(highlight=False, soft_wrap=True)
    settings = ", ".join(f"{key}={value}" for key, value in RECIPE.items())
    console.print("[bold]LeNet on 4,000 digits, tested on 1,000 others.[/] The only difference is one line:")
    console.print(f"  SGD     torch.optim.SGD(model.parameters(), {settings})")
    console.print(f"  Bort-S  bort.BortS(model.parameters(), {settings}, constraint=0.1)\n")
    digits = data.load("mnist5k")
    train, test = digits.normalise(digits.train_images), digits.normalise(digits.test_images)
    models: dict[str, nn.Module] = {}
    accuracies: dict[str, float] = {}
    runs: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "SGD": torch.optim.SGD,
        "Bort-S": lambda params, **recipe: BortS(params, constraint=0.1, **recipe),
    }
    for name, optimizer_class in runs.items():
        torch.manual_seed(seed)
        models[name] = model = nets.create("lenet")
        optimizer = optimizer_class(model.parameters(), **RECIPE)
        start = time.perf_counter()
        with _progress(console) as progress:
            task = progress.add_task(name, total=epochs, note="")
            for epoch in range(epochs):
                loss = _train_epoch(model, optimizer, train, digits.train_labels)
                accuracies[name] = _accuracy(model, test, digits.test_labels)
                _report(
                    console, progress, task, name, epoch + 1, epochs, f"loss {loss:.3f}  test {accuracies[name]:.1%}"
                )
        console.print(f"{name}: {accuracies[name]:.1%} of the test digits, {time.perf_counter() - start:.0f} s\n")
    console.print(
        "[bold]The audit of both.[/] On the constraint σ is 1; here, with weight decay 0.01 against λ 0.1, it is 0.95."
    )
    console.print("The ratio is the part of a layer's input that Wᵀ(Wz) fails to bring back: 0 is perfect.\n")
    print(compare({name: audit(model, test) for name, model in models.items()}))
    worst = {name: max(layer.residual for layer in audit(model)) for name, model in models.items()}
    ends = [f"{name} {accuracies[name]:.1%} / {worst[name]:.2f}" for name in models]
    console.print(f"\nTest accuracy / largest distance to the constraint: {'; '.join(ends)}.")


def _train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> float:
    model.train()
    total = 0.0
    for batch in torch.split(torch.randperm(len(images)), BATCH):
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(images)


@torch.no_grad()
def _accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    correct: int = (model(images).argmax(dim=1) == labels).sum().item()
    return correct / len(labels)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:8}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _report(console: Console, progress: Progress, task: TaskID, name: str, epoch: int, epochs: int, note: str) -> None:
    """A moving bar on a terminal, a line in a log."""
    progress.update(task, advance=1, note=note)
    if not console.is_terminal and (epoch % 4 == 0 or epoch == epochs):
        console.print(f"{name:8} epoch {epoch}/{epochs}  {note}")
