"""Test images that can be read one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from bort.data import spread


class ImageSet(ABC):
    """The images of a test set by their places in it, read when they are asked for.

    An ImageSet is an :data:`Examples`: called with a number it returns so many images, spread evenly over the set. To offer
    the images of one's own to reports and the explorer, write the two abstract methods.

    Example:
        >>> class Squares(subject.ImageSet):
        ...     labels = torch.tensor([0, 1, 0, 1])
        ...     def read(self, place):
        ...         return torch.full((1, 1, 8, 8), place / 4), int(self.labels[place])
        >>> images, labels = Squares()(2)
        >>> images.shape
        torch.Size([2, 1, 8, 8])
    """

    skip_unreadable: bool = False
    """Whether images that cannot be read are left out; otherwise they are errors."""

    @property
    def fingerprint(self) -> str:
        """A digest of the content; empty if that is not known."""
        return ""

    @property
    @abstractmethod
    def labels(self) -> Tensor:
        """int64 (N,): the class of each image, -1 where it is not known, or would take reading the image."""

    @abstractmethod
    def read(self, place: int) -> tuple[Tensor, int]:
        """One image as the network sees it, (1, C, H, W), and its label. A ValueError if it cannot be read."""

    def label(self, place: int) -> int:
        """The class of one image, -1 where it is not known."""
        return int(self.labels[place])

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, places: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The images (N, C, H, W) at these places, and their labels (N,); those that cannot be read are an error, or are left
        out."""
        images, labels = [], []
        for place in places:
            try:
                image, label = self.read(place)
            except ValueError:
                if not self.skip_unreadable:
                    raise
                continue
            images.append(image)
            labels.append(label)
        if not images:
            raise ValueError(f"not one of the {len(places)} test images chosen can be read")
        return torch.cat(images), torch.tensor(labels)

    def __call__(self, count: int) -> tuple[Tensor, Tensor]:
        return self.at(spread(len(self), count))


class InMemory(ImageSet):
    """Images that are a tensor already, as the network sees them."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        if len(labels) != len(images):
            raise ValueError(f"{len(images)} images, but {len(labels)} labels")
        self._images, self._labels = images, labels

    @property
    def labels(self) -> Tensor:
        return self._labels

    def read(self, place: int) -> tuple[Tensor, int]:
        return self._images[place : place + 1], int(self._labels[place])

    def at(self, places: Sequence[int]) -> tuple[Tensor, Tensor]:
        chosen = torch.as_tensor(places)
        return self._images[chosen.to(self._images.device)], self._labels[chosen]

    @property
    def fingerprint(self) -> str:
        return digest_of([self._images, self._labels])


def digest_of(tensors: Sequence[Tensor]) -> str:
    """SHA-256 over types, shapes and values."""
    import hashlib

    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
