"""Subjects of what a program has at hand: models, and images as a tensor, a folder or a data set."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from bort.data import View
from bort.subject import _views
from bort.subject._image_set import ImageSet, InMemory
from bort.subject._images import ImageFiles
from bort.subject._look import GIVE_VIEW, checked_view, classes_of_outputs, with_files
from bort.subject._resolve import resolve
from bort.subject._subject import Subject


class _Items(Protocol):
    """A torch Dataset, or a list."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


Images: TypeAlias = Tensor | str | os.PathLike[str] | _Items
"""A batch (N, C, H, W) as the networks see them; a folder; or a data set of images, or of (image, label), where an image is a
tensor (C, H, W) as the networks see it, or a PIL image."""

Model: TypeAlias = nn.Module | Subject | str | os.PathLike[str]


def of_models(
    models: Mapping[str, Model] | Model,
    images: Images | None = None,
    *,
    labels: Sequence[int] | Tensor | None = None,
    size: int | tuple[int, int] | None = None,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    classes: Sequence[str] = (),
    multi_label: bool = False,
) -> list[Subject]:
    """Subjects to be looked at beside each other.

    Args:
        models: by name, or one: modules, Subjects, or texts that :func:`resolve` understands.
        images: what all of them are shown; Subjects may have their own.
        labels: of the images of a tensor; -1 where a class is not known.
        size, mean, std: how the models see an image file; what timm's networks say of themselves by default. For a tensor
            only mean and std count, to show it to a person: without them, values from 0 to 1 are shown as they are, others
            from the smallest to the largest.
        classes: their names.
        multi_label: whether an image may have several classes: probabilities are then sigmoids of the single logits.

    Example:
        >>> a, b, x = nets.create("lenet"), nets.create("lenet"), torch.rand(8, 1, 28, 28)
        >>> [each.name for each in subject.of_models({"baseline": a, "bort": b}, images=x)]
        ['baseline', 'bort']
    """
    named = models if isinstance(models, Mapping) else {"model": models}
    if not named:
        raise ValueError("there is no model: give {name: model, …}")
    shape = () if size is None else (size,) if isinstance(size, int) else size
    subjects = []
    for name, model in named.items():
        subject = _subject(name, model, shape, mean, std, classes)
        subject = replace(subject, multi_label=subject.multi_label or multi_label)
        subjects.append(subject if images is None else _with_images(subject, images, labels, mean, std, classes))
    return subjects


def _subject(
    name: str, model: Model, size: Sequence[int], mean: Sequence[float], std: Sequence[float], classes: Sequence[str]
) -> Subject:
    if isinstance(model, Subject):
        return replace(model, name=name if name != "model" else model.name)
    if isinstance(model, nn.Module):
        view = checked_view(_views.of_timm(model), size, mean, std, classes)
        facts = {"network": type(model).__name__, "parameters": f"{sum(p.numel() for p in model.parameters()):,}"}
        return Subject(name, model, view, facts=facts)
    return resolve(model, name=name if name != "model" else None)


def _with_images(
    subject: Subject,
    images: Images,
    labels: Sequence[int] | Tensor | None,
    mean: Sequence[float],
    std: Sequence[float],
    classes: Sequence[str],
) -> Subject:
    if isinstance(images, (str, os.PathLike)):
        return with_files(subject, ImageFiles.of(Path(images)))
    if isinstance(images, Tensor):
        view = _view_of_tensor(subject.view, images, mean, std, classes)
        known = torch.full((len(images),), -1) if labels is None else torch.as_tensor(labels)
        examples: ImageSet = InMemory(images, known)
    else:
        first = _item(images, 0)[0]
        if isinstance(first, Tensor):
            view = _view_of_tensor(subject.view, first[None], mean, std, classes)
        elif subject.view is None:
            raise ValueError(f"it is not known how {subject.name} sees an image: {GIVE_VIEW}")
        else:
            view = subject.view
        examples = _ItemImages(images, view)
    subject = replace(subject, view=view)
    classes_of_outputs(subject, examples(1)[0])
    return replace(subject, examples=examples, data="the images given", accuracy=None)


class _ItemImages(ImageSet):
    """The images of a data set."""

    def __init__(self, items: _Items, view: View) -> None:
        self._items, self._view = items, view

    @cached_property
    def labels(self) -> Tensor:
        """As torchvision's data sets list them; elsewhere only an item itself knows its label."""
        unknown = torch.full((len(self._items),), -1)
        try:
            listed = torch.as_tensor(getattr(self._items, "targets", unknown))
        except (TypeError, ValueError):  # they may be anything, such as names of files
            return unknown
        is_fitting = listed.shape == unknown.shape and not listed.is_floating_point()
        return listed.long() if is_fitting else unknown

    def label(self, place: int) -> int:
        listed = int(self.labels[place])
        return listed if listed >= 0 else _item(self._items, place)[1]

    def read(self, place: int) -> tuple[Tensor, int]:
        image, label = _item(self._items, place)
        return image[None] if isinstance(image, Tensor) else self._view(image), label


def _item(items: _Items, number: int) -> tuple[Any, int]:
    """An image and its label, -1 if there is none."""
    if not len(items):
        raise ValueError("the data set has no images in it")
    item = items[number]
    if isinstance(item, Mapping):
        image = next((item[key] for key in ("pixel_values", "image", "img") if key in item), None)
        label = next((item[key] for key in ("label", "labels") if key in item), -1)
        if image is None:
            raise ValueError(f"the data set's items have no image, but {', '.join(map(str, item))}")
        return image, int(label)
    if isinstance(item, (tuple, list)):
        return item[0], int(item[1]) if len(item) > 1 else -1
    return item, -1


def _view_of_tensor(
    known: View | None, x: Tensor, mean: Sequence[float], std: Sequence[float], classes: Sequence[str]
) -> View:
    """A view for images that are tensors already: how a person sees them."""
    if x.ndim != 4 or not len(x) or not x.is_floating_point():
        raise ValueError(
            f"images of shape {tuple(x.shape)} and type {x.dtype}: give floats (N, channels, height, width)"
        )
    channels, height, width = x.shape[1:]
    names = tuple(classes or (known.class_names if known else ()))
    size = height if height == width else (height, width)
    if mean and std:
        means, stds = tuple(mean), tuple(std)
    elif known is not None and known.channels == channels:
        means, stds = known.mean, known.std
    else:
        low, high = x.min().item(), x.max().item()
        is_pixels = low >= 0 and high <= 1
        means, stds = (0.0 if is_pixels else low,) * channels, (1.0 if is_pixels else max(high - low, 1e-6),) * channels
    if len(means) != channels:
        raise ValueError(f"mean has {len(means)} numbers, the images have {channels} channels")
    base = known or View(size, channels, means, stds)
    return replace(base, size=size, channels=channels, mean=means, std=stds, class_names=names)
