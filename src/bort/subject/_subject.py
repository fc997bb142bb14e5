"""A network to look at, and what is known of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from bort.data import View
from bort.subject._image_set import ImageSet, InMemory
from bort.subject._training import Training, training_of

if TYPE_CHECKING:
    from bort.data import ImageData
    from bort.train import Run

Examples = Callable[[int], tuple[Tensor, Tensor]]
"""Called with a number of images: returns so many test images as the network sees them, (N, C, H, W), and their labels (N,),
-1 where the class is not known; fewer if there are fewer. An :class:`ImageSet` is one whose images can also be read one by
one."""


class Missing(Exception):
    """A subject does not have something, such as test images. The message says what; a report leaves out what needs it.

    Example:
        >>> subject.Subject("mine", nets.create("lenet")).test_images(3)
        Traceback (most recent call last):
        bort.subject._subject.Missing: ...
    """


@dataclass(frozen=True)
class Subject:
    """A network to look at. Only its name and the model are needed.

    Example:
        >>> model, x = nets.create("lenet"), torch.rand(8, 1, 28, 28)
        >>> mine = subject.Subject("mine", model, examples=lambda n: (x[:n], torch.zeros(len(x[:n]), dtype=torch.int64)))
        >>> mine.test_images(3)[0].shape
        torch.Size([3, 1, 28, 28])
    """

    name: str
    """What it is called in tables, legends and addresses."""
    model: nn.Module
    view: View | None = None
    """How it sees an image file; None if that is not known, and then no image can be shown."""
    examples: Examples | None = field(default=None, repr=False)
    """Where its test images come from; None if there are none."""
    data: str = ""
    """What these images are, the same for subjects that see the same ones; empty if that is not known."""
    recipe: str = ""
    """The recipe that it was trained with, if it was by `bort train`."""
    facts: dict[str, str] = field(default_factory=dict)
    """What was trained and how, as a table shows it: "optimizer": "bort-s"."""
    history: Sequence[dict[str, Any]] = ()
    """One record an epoch, as in a run's history.jsonl: epoch, loss, accuracy, residual, …"""
    accuracy: float | None = None
    """On the test images, from 0 to 1."""
    multi_label: bool = False
    """Whether an image may have several classes: probabilities are then sigmoids of the single logits."""
    training: Training | None = None
    """Whether it was trained with the constraint, and where that draws its singular values; None if that is not known."""

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
        model, view = run.model.to(device), _view(run, data_root)
        return cls(
            name,
            model,
            view,
            _ImagesOfRun(run, name, data_root),
            data=run.recipe.data.name,
            recipe=run.recipe.name,
            facts=_facts(run),
            training=training_of(run),
            history=tuple(run.history),
            accuracy=run.accuracy,
        )

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights, and so of its images."""
        return next((p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32)

    def test_images(self, count: int) -> tuple[Tensor, Tensor]:
        """So many test images on the model's device, and their labels; fewer if there are fewer, :class:`Missing` if there
        are none."""
        if count < 1:
            raise ValueError(f"{count} images: must be 1 or more")
        if self.examples is None:
            raise Missing(
                f"{self.name} has no test images: show it some with images=FOLDER (in a command --images FOLDER)"
            )
        images, labels = self.examples(count)
        return images.to(self.device, self.dtype), labels

    def image_set(self, count: int) -> ImageSet:
        """All test images, to be read one by one; :class:`Missing` if there are none. Where a function is all that there is,
        the images that it returns for this number."""
        if isinstance(self.examples, ImageSet):
            return self.examples
        return InMemory(*self.test_images(count))


_open_data: WeakValueDictionary[tuple[Any, Path | None], Any] = WeakValueDictionary()
"""What has been read for runs that are still looked at: two runs on the same data read them once."""


class _ImagesOfRun(ImageSet):
    """The test images of a run, whose data are read when they are first asked for."""

    def __init__(self, run: Run, name: str, data_root: Path | None) -> None:
        self._run, self._name, self._root = run, name, data_root
        self.skip_unreadable = run.recipe.data.corrupt == "skip"

    @cached_property
    def _data(self) -> ImageData:
        key = self._run.recipe.data, self._root
        data: ImageData | None = _open_data.get(key)
        if data is None:
            try:
                data = _open_data[key] = self._run.data(self._root)
            except (OSError, ValueError) as error:
                raise Missing(f"the test images of {self._name} are not at hand: {error}") from error
        return data

    @cached_property
    def _view(self) -> View:
        return self._data.view(self._run.recipe.data.image_size)

    @property
    def fingerprint(self) -> str:
        return self._data.fingerprint

    @cached_property
    def labels(self) -> Tensor:
        return self._data.test_labels

    def read(self, place: int) -> tuple[Tensor, int]:
        return self._data.test_image(place, self._view), int(self.labels[place])

    def at(self, places: Sequence[int]) -> tuple[Tensor, Tensor]:
        try:
            return super().at(places)
        except ValueError as error:
            raise Missing(f"the test images of {self._name} are not at hand: {error}") from error


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
        "held out": f"each {data.held_out}th training image, to test on" if data.held_out else "",
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
        "paper's accuracy": f"{recipe.paper.top1:.2f}%" if recipe.paper and not data.held_out else "",
        "seconds": f"{run.history[-1]['seconds']:.1f}" if run.history else "",
        "hardware": str(start.get("hardware", "")),
        "torch": str(start.get("versions", {}).get("torch", "")),
        "commit": str(start.get("commit", "")),
    }
    return {label: text for label, text in facts.items() if text}
