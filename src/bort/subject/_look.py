"""What a subject needs so that images can be shown to it: a view that fits the model, and images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from bort._inspect import evaluating, outputs_of
from bort.data import View
from bort.subject._images import FileImages, ImageFiles
from bort.subject._subject import Subject

GIVE_VIEW = "give size, mean and std, the last two with a number for each channel (in a command --size, --mean, --std)"
"""The end of every error of a network without a view."""


def checked_view(
    known: View | None,
    size: Sequence[int] = (),
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    class_names: Sequence[str] = (),
) -> View | None:
    """The view with what was given in place of what is known; None if that is not enough for one."""
    if len(size) > 2 or any(side < 1 for side in size):
        raise ValueError(f"size {' '.join(map(str, size))}: give a side, or height and width")
    if bool(mean) != bool(std) and known is None:
        raise ValueError(f"{'mean' if mean else 'std'} alone: give mean and std")
    side: int | tuple[int, int] | None = known.size if known else None
    if size:
        side = size[0] if len(size) == 1 or size[0] == size[1] else (size[0], size[1])
    mean, std = tuple(mean or (known.mean if known else ())), tuple(std or (known.std if known else ()))
    names = tuple(class_names or (known.class_names if known else ()))
    if not side or not mean:
        return None
    if len(mean) != len(std):
        raise ValueError(f"mean has {len(mean)} numbers, std {len(std)}: give one for each channel")
    if any(value <= 0 for value in std):
        raise ValueError(f"std {' '.join(map(str, std))}: must be above 0")
    base = known or View(side, len(mean), mean, std)
    return replace(base, size=side, channels=len(mean), mean=mean, std=std, class_names=names)


def with_files(subject: Subject, files: ImageFiles) -> Subject:
    """The subject with the images of a folder as its test images."""
    view = subject.view
    if view is None:
        raise ValueError(f"it is not known how {subject.name} sees an image: {GIVE_VIEW}")
    classes = classes_of_outputs(subject, view.read(files.files[0]))
    labels = files.labels(view.class_names, classes)
    if not view.class_names and len(files.folders) == classes:
        view = replace(view, class_names=files.folders)
    return replace(
        subject,
        view=view,
        examples=FileImages(files, view, labels),
        data=str(Path(files.folder).resolve()),
        accuracy=None,  # that of other images
        facts={label: text for label, text in subject.facts.items() if label != "test accuracy"}
        | {"images": f"{len(files.files):,} in {files.folder}"},
    )


def classes_of_outputs(subject: Subject, x: Tensor) -> int:
    """How many classes the network has, by what it says of an image; a ValueError if it cannot take it. One logit decides
    between two."""
    shape = "×".join(map(str, x.shape[1:]))
    try:
        with torch.no_grad(), evaluating(subject.model):
            outputs = outputs_of(subject.model, x.to(subject.device, subject.dtype))
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        raise ValueError(
            f"{subject.name} fails on an image of {shape} ({str(error).strip()}): do size, mean and std fit it?"
        ) from error
    if outputs.ndim != 2:
        raise ValueError(
            f"{subject.name} gives outputs of shape {tuple(outputs.shape)} for an image, not (1, classes): it is no "
            "classifier"
        )
    classes = max(2, outputs.shape[1])
    names = subject.view.class_names if subject.view else ()
    if len(names) == 1 == outputs.shape[1]:
        raise ValueError(
            f"{names[0]!r} is the only name of a class, but the single logit of {subject.name} decides between two: give "
            "the name of the class that it is against, then of the one that it is for"
        )
    if names and len(names) != classes:
        raise ValueError(f"there are {len(names)} names of classes, but {subject.name} has {classes} classes")
    return classes
