"""The images of a data set: a torch Dataset, a list, or whatever has a length and items by number."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bort.data import View
from bort.subject._image_set import ImageSet


class Items(Protocol):
    """A torch Dataset, or a list."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class _Unreadable(ValueError):
    """The data set raises an error instead of giving the image, or the image itself does when it is decoded."""


class ItemImages(ImageSet):
    """The images of a data set."""

    def __init__(self, items: Items, view: View) -> None:
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
        try:
            return listed if listed >= 0 else _item(self._items, place)[1]
        except _Unreadable:
            return -1

    def read(self, place: int) -> tuple[Tensor, int]:
        image, label = _item(self._items, place)
        if isinstance(image, Tensor):
            return image[None], label
        try:
            return self._view(image), label
        except OSError as error:  # an image file that PIL decodes only now
            raise _Unreadable(f"image {place} of the data set cannot be read: {error}") from error


def first_item(items: Items) -> Any:
    """The first image; a ValueError if these are no images by number."""
    if not hasattr(items, "__getitem__") or not hasattr(items, "__len__"):
        raise ValueError(
            f"images is a {type(items).__name__}, whose items have no numbers: give a tensor, a folder, a list or a data "
            "set; of a DataLoader give its dataset"
        )
    if not len(items):
        raise ValueError("the data set has no images in it")
    return _item(items, 0)[0]


def _item(items: Items, number: int) -> tuple[Any, int]:
    """An image and its label, -1 if there is none."""
    try:
        item = items[number]
    except Exception as error:  # whatever the code of a data set raises
        raise _Unreadable(f"image {number} of the data set cannot be read: {type(error).__name__}: {error}") from error
    image, label = item, None
    if isinstance(item, Mapping):
        image = next((item[key] for key in ("pixel_values", "image", "img") if key in item), None)
        label = next((item[key] for key in ("label", "labels") if key in item), None)
        if image is None:
            raise ValueError(f"the data set's items have no image, but {', '.join(map(str, item))}")
    elif isinstance(item, (tuple, list)):
        image, label = item[0], item[1] if len(item) > 1 else None
    try:
        known = -1 if label is None else operator.index(label)
    except TypeError as error:
        raise ValueError(
            f"the label of image {number} is {label!r}: give the number of one class, -1 where there is none or more than one"
        ) from error
    if not isinstance(image, (Tensor, np.ndarray)) and not hasattr(image, "mode"):  # which PIL's images have
        raise ValueError(
            f"image {number} of the data set is a {type(image).__name__}: give tensors or arrays (C, H, W), or PIL images; "
            "for files give their folder"
        )
    return torch.as_tensor(image) if isinstance(image, np.ndarray) else image, known
