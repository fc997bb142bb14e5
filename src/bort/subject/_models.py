"""Subjects of what a program has at hand: models, and images as a tensor, a folder or a data set."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from bort.data import View
from bort.subject import _views
from bort.subject._image_set import ImageSet, InMemory
from bort.subject._images import ImageFiles
from bort.subject._items import ItemImages, Items, first_item
from bort.subject._look import GIVE_VIEW, checked_view, classes_of_outputs, with_files
from bort.subject._resolve import Details, refuse, resolve
from bort.subject._subject import Subject

Images: TypeAlias = Tensor | np.ndarray[Any, Any] | str | os.PathLike[str] | Items
"""A batch (N, C, H, W) as the networks see them, of torch or numpy; a folder; or a data set of images, or of (image, label),
where an image is a tensor or array (C, H, W) as the networks see it, or a PIL image."""

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
        size, mean, std: how the models see an image file; what timm's networks say of themselves by default. Of a tensor
            the size is known, and mean and std show it to a person: without them, values from 0 to 1 are shown as they are,
            others from the smallest to the largest.
        classes: their names.
        multi_label: whether an image may have several classes: probabilities are then sigmoids of the single logits. Networks
            of Hugging Face may say it themselves.

    Runs, and Subjects with a view, have a size, mean, std and names of classes of their own. Beside other models these keep
    them; if there are no others, to give them is an error. With images that are tensors, they describe the images, and so
    hold for all models. A run never has several classes an image.

    Example:
        >>> a, b, x = nets.create("lenet"), nets.create("lenet"), torch.rand(8, 1, 28, 28)
        >>> [each.name for each in subject.of_models({"baseline": a, "bort": b}, images=x)]
        ['baseline', 'bort']
    """
    named = models if isinstance(models, Mapping) else {"model": models}
    if not named:
        raise ValueError("there is no model: give {name: model, …}")
    if isinstance(images, np.ndarray):
        images = torch.as_tensor(images)
    if labels is not None and not isinstance(images, Tensor):
        raise ValueError(
            "labels are of images given as a tensor: a folder says them by a folder for each class, a data set by items "
            "(image, label)"
        )
    shape = () if size is None else (size,) if isinstance(size, int) else tuple(size)
    given = Details(size=shape, mean=tuple(mean), std=tuple(std), classes=tuple(classes), multi_label=multi_label)
    tensors = _tensors(images)
    to_runs = given
    if not all(_has_a_view(model) for model in named.values()):
        to_runs = Details()  # the others take it
    elif tensors is not None:
        to_runs = Details(multi_label=multi_label)  # the images take the rest
    subjects = []
    for name, model in named.items():
        subject = _subject(name, model, to_runs if _has_a_view(model) else given)
        if not _is_run(model):  # which was trained with one class an image
            subject = replace(subject, multi_label=subject.multi_label or multi_label)
        subjects.append(subject if images is None else _with_images(subject, images, tensors, labels, given))
    if tensors is None and all(_view(each.view, given) != each.view for each in subjects):  # texts that return Subjects
        refuse(given, f"{' and '.join(map(str, named.values()))} have their own", "size", "mean", "std", "classes")
    return subjects


def _has_a_view(model: Model) -> bool:
    """Whether it knows how it sees an image, and what its classes are called, or should."""
    if isinstance(model, Subject):
        return model.view is not None
    return _is_run(model)


def _is_run(model: Model) -> bool:
    return isinstance(model, (str, os.PathLike)) and Path(model).is_dir()


def _subject(name: str, model: Model, given: Details) -> Subject:
    own_name = None if name == "model" else name
    if isinstance(model, (str, os.PathLike)):
        return resolve(model, given, name=own_name, shared=True)
    if isinstance(model, Subject):
        if model.view is not None:
            refuse(given, f"the Subject {model.name} has its own, in its view", "size", "mean", "std", "classes")
            return replace(model, name=own_name or model.name)
        return replace(model, name=own_name or model.name, view=_view(None, given))
    facts = {"network": type(model).__name__, "parameters": f"{sum(p.numel() for p in model.parameters()):,}"}
    several = _views.is_multi_label(model)
    return Subject(name, model, _view(_views.of_timm(model), given), facts=facts, multi_label=several)


def _view(known: View | None, given: Details, size: Sequence[int] = ()) -> View | None:
    return checked_view(known, size or given.size, given.mean, given.std, given.class_names())


def _tensors(images: Images | None) -> Tensor | None:
    """The images if they are tensors; of a data set the first of them."""
    if isinstance(images, Tensor):
        return images
    if images is None or isinstance(images, (str, os.PathLike)):
        return None
    first = first_item(images)
    return first[None] if isinstance(first, Tensor) else None


def _with_images(
    subject: Subject,
    images: Images,
    tensors: Tensor | None,
    labels: Sequence[int] | Tensor | None,
    given: Details,
) -> Subject:
    if isinstance(images, (str, os.PathLike)):
        return with_files(subject, ImageFiles.of(Path(images)))
    view = subject.view if tensors is None else _view_of_tensors(subject.view, tensors, given)
    if view is None:
        raise ValueError(f"it is not known how {subject.name} sees an image: {GIVE_VIEW}")
    examples: ImageSet = (
        InMemory(images, _known(labels, len(images))) if isinstance(images, Tensor) else ItemImages(images, view)
    )
    subject = replace(subject, view=view)
    classes_of_outputs(subject, examples(1)[0])
    return replace(subject, examples=examples, data="the images given", accuracy=None)


def _known(labels: Sequence[int] | Tensor | None, count: int) -> Tensor:
    """int64 (N,): the class of each image of a tensor."""
    if labels is None:
        return torch.full((count,), -1)
    advice = "give the number of one class for each image, -1 where there is none or more than one"
    try:
        known = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"labels cannot be read ({error}): {advice}") from error
    if known.ndim != 1 or known.is_floating_point() or known.is_complex():
        raise ValueError(f"labels of shape {tuple(known.shape)} and type {known.dtype}: {advice}")
    return known.long()


def _view_of_tensors(known: View | None, x: Tensor, given: Details) -> View:
    """A view for images that are tensors already: how a person sees them."""
    if x.ndim != 4 or not len(x) or not x.is_floating_point():
        raise ValueError(
            f"images of shape {tuple(x.shape)} and type {x.dtype}: give floats (N, channels, height, width)"
        )
    channels, height, width = x.shape[1:]
    if given.size and (given.size * 2)[:2] != (height, width):
        raise ValueError(
            f"size {' '.join(map(str, given.size))}: the images given are {height} × {width}, as the networks see them"
        )
    if known is None or known.channels != channels:
        low, high = x.min().item(), x.max().item()
        is_pixels = low >= 0 and high <= 1
        mean = (0.0 if is_pixels else low,) * channels
        std = (1.0 if is_pixels else max(high - low, 1e-6),) * channels
        known = replace(known or View(height, channels, mean, std), channels=channels, mean=mean, std=std)
    view = _view(known, given, (height, width))
    assert view is not None  # size, mean and std are known
    if view.channels != channels:
        raise ValueError(f"mean has {view.channels} numbers, the images have {channels} channels")
    return view
