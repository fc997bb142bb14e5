"""Subjects of what a program has at hand: models, and images as a tensor, a folder or a data set."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from bort.data import View
from bort.subject import _views
from bort.subject._images import ImageFiles
from bort.subject._look import checked_view, classes_of_outputs, with_files
from bort.subject._resolve import resolve
from bort.subject._subject import Examples, Subject


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
        examples = _of_tensor(images, labels)
    else:
        first = _item(images, 0)[0]
        if isinstance(first, Tensor):
            view = _view_of_tensor(subject.view, first[None], mean, std, classes)
        elif subject.view is None:
            raise ValueError(f"it is not known how {subject.name} sees an image: give size, mean and std")
        else:
            view = subject.view
        examples = _of_items(images, view)
    subject = replace(subject, view=view)
    classes_of_outputs(subject, examples(1)[0])
    return replace(subject, examples=examples, data="the images given", accuracy=None)


def _of_tensor(x: Tensor, labels: Sequence[int] | Tensor | None) -> Examples:
    known = torch.full((len(x),), -1) if labels is None else torch.as_tensor(labels)
    if len(known) != len(x):
        raise ValueError(f"{len(x)} images, but {len(known)} labels")

    def examples(count: int) -> tuple[Tensor, Tensor]:
        chosen = _spread(count, len(x))
        return x[chosen], known[chosen]

    return examples


def _of_items(items: _Items, view: View) -> Examples:
    def examples(count: int) -> tuple[Tensor, Tensor]:
        pairs = [_item(items, int(n)) for n in _spread(count, len(items))]
        tensors = [image[None] if isinstance(image, Tensor) else view(image) for image, _ in pairs]
        return torch.cat(tensors), torch.tensor([label for _, label in pairs])

    return examples


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


def _spread(count: int, total: int) -> Tensor:
    """So many numbers below ``total``, evenly; all if there are fewer."""
    count = min(count, total)
    return torch.arange(count) * total // count


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
