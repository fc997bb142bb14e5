"""What can be looked at: a model, how it sees an image, and whatever else is known of it.

Reports, the explorer and the commands take a :class:`Subject` and nothing else, so a network that `bort train` never saw is
looked at like one that it trained.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bort._import_path import import_object, is_import_path
from bort.data import View

if TYPE_CHECKING:
    from bort.train import Run

__all__ = ["Examples", "Missing", "Subject", "resolve", "resolve_all"]

Examples = Callable[[int], tuple[Tensor, Tensor]]
"""Called with a number of images: so many test images as the network sees them, (N, C, H, W), or all that there are, and their
labels (N,)."""


class Missing(Exception):
    """Something that a subject does not have, such as test images. The message says what; what needs it is left out."""


@dataclass(frozen=True)
class Subject:
    """A network to look at."""

    name: str
    """What it is called in tables, legends and addresses."""
    model: nn.Module
    view: View | None = None
    """How it sees an image file; None if that is not known, and then it cannot be shown any."""
    examples: Examples | None = field(default=None, repr=False)
    """Where its test images come from; None if there are none."""
    facts: dict[str, str] = field(default_factory=dict)
    """What was trained and how, as a table shows it: "optimizer": "bort-s"."""
    history: Sequence[dict[str, Any]] = ()
    """One record an epoch, as in a run's history.jsonl: epoch, loss, accuracy, residual, …"""
    accuracy: float | None = None
    """On the test images, from 0 to 1."""

    @classmethod
    def of_run(
        cls,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        device: str | torch.device = "cpu",
        data_root: Path | None = None,
    ) -> Subject:
        """The newest checkpoint of a run. A run that cannot be read, or that has diverged, is a ValueError."""
        from bort import train

        path = Path(folder)
        try:
            run = train.load(path)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise ValueError(f"the run in {path} cannot be read: {error}") from error
        return cls.of_loaded_run(run, name=name, device=device, data_root=data_root)

    @classmethod
    def of_loaded_run(
        cls,
        run: Run,
        *,
        name: str | None = None,
        device: str | torch.device = "cpu",
        data_root: Path | None = None,
    ) -> Subject:
        """A run that has been loaded already (:func:`bort.train.load`)."""
        bad = next((n for n, p in run.model.named_parameters() if not torch.isfinite(p).all()), None)
        if bad is not None:
            raise ValueError(f"the run in {run.path} has diverged: {bad} has NaN or Inf in it")
        name = name or run.path.resolve().name

        def examples(count: int) -> tuple[Tensor, Tensor]:
            try:
                return run.examples(count, data_root)
            except (OSError, ValueError) as error:
                raise Missing(f"the test images of {name} are not at hand: {error}") from error

        model, view = run.model.to(device), run.view(data_root)
        return cls(name, model, view, examples, _facts(run), tuple(run.history), run.accuracy)

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    def test_images(self, count: int) -> tuple[Tensor, Tensor]:
        """Test images on the model's device, and labels, in an order in which any first few are of different classes. Fewer
        if there are fewer; :class:`Missing` if there are none."""
        if self.examples is None:
            raise Missing(f"{self.name} has no test images")
        images, labels = self.examples(count)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        seen: dict[int, int] = {}
        turns = []  # (how many of its class come before it, class, position)
        for place in order.tolist():
            label = int(labels[place])
            seen[label] = seen.get(label, 0) + 1
            turns.append((seen[label], label, place))
        chosen = torch.tensor([place for _, _, place in sorted(turns)])
        return images[chosen].to(self.device), labels[chosen]


def resolve(
    text: str | os.PathLike[str],
    *,
    name: str | None = None,
    device: str | torch.device = "cpu",
    data_root: Path | None = None,
    image_size: int | None = None,
) -> Subject:
    """The subject that a person named: the folder of a run, a network of :func:`bort.nets.create` such as "timm/resnet50"
    (with the weights it starts from), or "package.module:function", a function that returns a model.

    ``image_size`` is for networks without a run whose size can be chosen.
    """
    given = os.fspath(text)
    if Path(given).is_dir():
        if image_size is not None:
            raise ValueError(f"image_size={image_size}: the run in {given} has its own; this is for a network without one")
        return Subject.of_run(given, name=name, device=device, data_root=data_root)
    from bort import nets

    if is_import_path(given):
        model = import_object(given)()
        if not isinstance(model, nn.Module):
            raise ValueError(f"{given} returns a {type(model).__name__}, not a torch.nn.Module")
    elif given in nets.names() or given.startswith("timm/"):
        model = nets.create(given, **({} if image_size is None else {"image_size": image_size}))
    else:
        raise ValueError(
            f"{given!r} is not the folder of a run, nor a network: {', '.join(nets.names())}, timm/<name>, or "
            "package.module:function"
        )
    return Subject(name or given, model.to(device).eval(), facts={"network": given})


def resolve_all(
    texts: Sequence[str | os.PathLike[str]], *, device: str | torch.device = "cpu", data_root: Path | None = None
) -> list[Subject]:
    """Several, under short names that tell them apart, to be looked at beside each other. Subjects that see different images
    are refused."""
    if not texts:
        raise ValueError("name the folder of a run")
    short = [Path(text).resolve().name if Path(text).is_dir() else os.fspath(text) for text in texts]
    if len(set(short)) < len(short):
        short = [f"{number}-{name}" for number, name in enumerate(short, 1)]
    subjects = [
        resolve(text, name=name, device=device, data_root=data_root) for text, name in zip(texts, short, strict=True)
    ]
    seen = {(s.facts.get("data", ""), s.view.size if s.view else 0): s.name for s in subjects}
    if len(seen) > 1:
        words = "; ".join(f"{name} on {data or 'no known data'} at {size} px" for (data, size), name in seen.items())
        raise ValueError(f"the runs are on different data ({words}): look at each by itself")
    return subjects


def _facts(run: Run) -> dict[str, str]:
    """What was trained and how; what a recipe leaves at its usual value is left out."""
    recipe, optim, data = run.recipe, run.recipe.optim, run.recipe.data
    start = run.environment[-1] if run.environment else {}
    options = "".join(f", {name} {value}" for name, value in recipe.net.options.items())
    facts = {
        "recipe": recipe.name,
        "network": recipe.net.name + options,
        "parameters": f"{sum(p.numel() for p in run.model.parameters()):,}",
        "data": data.name,
        "optimizer": optim.name,
        "momentum": f"{optim.momentum:g}" if optim.momentum else "",
        "penalty at each": f"{optim.every}th step" if optim.every > 1 else "",
        "target scale": f"{optim.scale:g}" if optim.scale != 1 else "",
        "schedule": optim.schedule if optim.schedule != "constant" else "",
        "inputs": "" if data.normalise else "as they are",
        "learning rate": f"{optim.lr:g}",
        "λ": f"{optim.constraint:g}" if optim.name.startswith("bort") else "",
        "weight decay": f"{optim.weight_decay:g}",
        "batch, epochs": f"{recipe.batch}, {len(run.history)} of {recipe.epochs}",
        "seed": str(recipe.seed),
        "test accuracy": "" if run.accuracy is None else f"{run.accuracy:.2%}",
        "paper's accuracy": f"{recipe.paper.top1:.2f}%" if recipe.paper else "",
        "seconds": f"{run.history[-1]['seconds']:.1f}" if run.history else "",
        "hardware": str(start.get("hardware", "")),
        "torch": str(start.get("versions", {}).get("torch", "")),
        "commit": str(start.get("commit", "")),
    }
    return {label: text for label, text in facts.items() if text}
