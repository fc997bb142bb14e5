"""What can be looked at: a model, how it sees an image, and whatever else is known of it.

Reports, the explorer and the commands take a :class:`Subject`, so a network that `bort train` never saw is looked at like one
that it trained::

    subject = Subject("mine", model, View(224, 3, mean, std, class_names), examples)
    report.make([subject]).write(Path("mine.html"))
    app.serve([subject])
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
"""Called with a number of images: returns so many test images as the network sees them, (N, C, H, W), and their labels (N,);
fewer if there are fewer."""


class Missing(Exception):
    """A subject does not have something, such as test images. The message says what; a report leaves out what needs it."""


@dataclass(frozen=True)
class Subject:
    """A network to look at. Only its name and the model are needed."""

    name: str
    """What it is called in tables, legends and addresses."""
    model: nn.Module
    view: View | None = None
    """How it sees an image file; None if that is not known, and then no image can be shown."""
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
        diverged = next((n for n, p in run.model.named_parameters() if not torch.isfinite(p).all()), None)
        if diverged is not None:
            raise ValueError(f"the run in {run.path} has diverged: {diverged} has NaN or Inf in it")
        name = name or run.path.resolve().name

        def examples(count: int) -> tuple[Tensor, Tensor]:
            try:
                return run.examples(count, data_root)
            except (OSError, ValueError) as error:
                raise Missing(f"the test images of {name} are not at hand: {error}") from error

        model, view = run.model.to(device), _view(run, data_root)
        return cls(name, model, view, examples, _facts(run), tuple(run.history), run.accuracy)

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    def test_images(self, count: int) -> tuple[Tensor, Tensor]:
        """So many test images on the model's device, and their labels; fewer if there are fewer, :class:`Missing` if there
        are none."""
        if count < 1:
            raise ValueError(f"{count} images: must be 1 or more")
        if self.examples is None:
            raise Missing(f"{self.name} has no test images")
        images, labels = self.examples(count)
        return images.to(self.device), labels


def resolve(
    text: str | os.PathLike[str],
    *,
    name: str | None = None,
    device: str | torch.device = "cpu",
    data_root: Path | None = None,
    image_size: int | None = None,
) -> Subject:
    """The subject that a person named, by one of:

    - the folder of a run, for its newest checkpoint, or one of its checkpoints, RUN/checkpoints/step-…;
    - a network of :func:`bort.nets.create`, such as "timm/resnet50", with the weights it starts from;
    - "package.module:function", a function that returns a model, or a Subject with everything that is known of it.

    ``image_size`` is for networks without a run whose size can be chosen.
    """
    given = os.fspath(text)
    path = Path(given)
    if path.is_dir():
        if image_size is not None:
            raise ValueError(f"image_size={image_size}: a run has its own; this is for a network without a run")
        return Subject.of_run(given, name=name, device=device, data_root=data_root)
    from bort import nets

    options = {} if image_size is None else {"image_size": image_size}
    if is_import_path(given):
        model = _call(given, options)
    elif given in nets.names() or given.startswith("timm/"):
        model = nets.create(given, **options)
    else:
        raise ValueError(
            f"{given!r} is neither the folder of a run nor a network: {', '.join(nets.names())}, timm/<name>, or "
            "package.module:function"
        )
    if isinstance(model, Subject):
        return replace(model, name=name or model.name, model=model.model.to(device))
    return Subject(name or given, model.to(device).eval(), facts={"network": given})


def resolve_all(
    texts: Sequence[str | os.PathLike[str]], *, device: str | torch.device = "cpu", data_root: Path | None = None
) -> list[Subject]:
    """Several subjects to be looked at beside each other, under short names that differ. Subjects that see different images
    are refused."""
    if not texts:
        raise ValueError("name the folder of a run")
    subjects = [
        resolve(text, name=name, device=device, data_root=data_root)
        for text, name in zip(texts, _short_names(texts), strict=True)
    ]
    inputs = {(s.facts.get("data", "unknown data"), s.view.size if s.view else None): s.name for s in subjects}
    if len(inputs) > 1:
        words = (f"{name} on {data}{f' at {size} px' if size else ''}" for (data, size), name in inputs.items())
        raise ValueError(f"the runs are on different data ({'; '.join(words)}): look at each by itself")
    return subjects


def _short_names(texts: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The last part of a run's folder, or a network's name; numbered where two are the same."""
    names = [Path(text).resolve().name if Path(text).is_dir() else os.fspath(text) for text in texts]
    if len(set(names)) == len(names):
        return names
    return [f"{number}-{name}" for number, name in enumerate(names, 1)]


def _call(path: str, options: dict[str, int]) -> nn.Module | Subject:
    """What the function at an import path returns."""
    function = import_object(path)
    try:
        inspect.signature(function).bind(**options)
    except TypeError as error:
        words = ", ".join(f"{name}={value}" for name, value in options.items())
        raise ValueError(f"{path}({words}) cannot be called: {error}") from error
    result = function(**options)
    if not isinstance(result, (nn.Module, Subject)):
        raise ValueError(f"{path} returns a {type(result).__name__}, not a torch.nn.Module or a bort.subject.Subject")
    return result


def _view(run: Run, data_root: Path | None) -> View | None:
    """None if the run has no record of it, as version 0.1.0's first runs had none, and its data are not at hand either."""
    try:
        return run.view(data_root)
    except (OSError, ValueError):
        return None


def _facts(run: Run) -> dict[str, str]:
    """What was trained and how, without what the recipe leaves at its usual value."""
    recipe, optim, data = run.recipe, run.recipe.optim, run.recipe.data
    start = run.environment[-1] if run.environment else {}
    facts = {
        "recipe": recipe.name,
        "network": recipe.net.name,
        "network's options": ", ".join(f"{name} {value}" for name, value in recipe.net.options.items()),
        "parameters": f"{sum(p.numel() for p in run.model.parameters()):,}",
        "data": data.name,
        "optimizer": optim.name,
        "momentum": f"{optim.momentum:g}" if optim.momentum else "",
        "penalty at each": f"{optim.every}th step" if optim.every > 1 else "",
        "target scale": f"{optim.scale:g}" if optim.scale != 1 else "",
        "schedule": optim.schedule if optim.schedule != "constant" else "",
        "inputs": "" if data.normalise else "as they are",
        "learning rate": f"{optim.lr:g}",
        "λ": f"{optim.constraint:g}" if optim.constraint else "",
        "pull": f"{run.history[-1].get('pull', 0):.3g}" if run.history and run.history[-1].get("pull") else "",
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
