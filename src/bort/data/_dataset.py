"""Images in memory as bytes, normalised when they are used."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from bort.data._view import View


@dataclass(frozen=True)
class Dataset:
    """Images as uint8 (N, C, H, W) with int64 labels (N,), split in train and test; on any device.

    ``Dataset("mine", train_images, train_labels, test_images, test_labels)`` is all that a data set of one's own needs.

    Example:
        >>> images, labels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
        >>> mine = data.Dataset("mine", images, labels, images, labels, names=("cat", "dog"))
        >>> mine.classes, mine.held_out(2).train_images.shape
        (2, torch.Size([2, 1, 8, 8]))
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    fingerprint: str = ""
    """SHA-256 over the files it was read from; if none is given, over the images and labels."""
    names: tuple[str, ...] = ()
    """Of the classes, in the order of the labels; if none are given, their numbers stand for them."""
    raw: bool = False
    """Whether images are only scaled to [0, 1] and not normalised: `statistics` are then mean 0 and deviation 1."""

    def __post_init__(self) -> None:
        for split in ("train", "test"):
            _check_split(self, split)
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            raise ValueError(
                f"data set {self.name!r}: train_images are {_shape(self.train_images)}, test_images "
                f"{_shape(self.test_images)}; only the number of images may differ"
            )
        if 0 < len(self.names) < self.classes:
            raise ValueError(f"data set {self.name!r}: {len(self.names)} names for {self.classes} classes")
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", self._digest())

    @property
    def classes(self) -> int:
        return int(self.train_labels.max()) + 1

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.names or tuple(str(label) for label in range(self.classes))

    def to(self, device: torch.device | str) -> Dataset:
        """The same, with the images on a device: as bytes, CIFAR-10 is 184 MB there."""
        return replace(
            self,
            train_images=self.train_images.to(device),
            train_labels=self.train_labels.to(device),
            test_images=self.test_images.to(device),
            test_labels=self.test_labels.to(device),
        )

    def held_out(self, n: int) -> Dataset:
        """Every ``n``-th training image in place of the test images: to choose settings without looking at those."""
        chosen = torch.zeros(len(self.train_images), dtype=torch.bool, device=self.train_images.device)
        chosen[::n] = True
        return replace(
            self,
            train_images=self.train_images[~chosen],
            train_labels=self.train_labels[~chosen],
            test_images=self.train_images[chosen],
            test_labels=self.train_labels[chosen],
            fingerprint=held_out_fingerprint(self.fingerprint, n),
        )

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel over the training images, in [0, 1]; 0 and 1 if they are raw."""
        return self._statistics

    @cached_property
    def _statistics(self) -> tuple[Tensor, Tensor]:
        channels = self.train_images.shape[1]
        if self.raw:
            ones = torch.ones(channels, dtype=torch.float64, device=self.train_images.device)
            return torch.zeros_like(ones), ones
        # From a histogram of the 256 values, exactly: a float64 copy of CIFAR-10 would be 1.2 GB.
        counts = torch.stack(
            [torch.bincount(self.train_images[:, c].flatten(), minlength=256) for c in range(channels)]
        ).double()
        values = torch.arange(256, dtype=torch.float64, device=counts.device) / 255
        total = counts.sum(dim=1)
        mean = (counts * values).sum(dim=1) / total
        variance = (counts * (values - mean[:, None]).square()).sum(dim=1) / (total - 1)
        return mean, variance.sqrt()

    @cached_property
    def _factor_and_shift(self) -> tuple[Tensor, Tensor]:
        """(x / 255 − mean) / std as factor · x + shift: two passes over the images instead of four."""
        mean, std = (s.view(1, -1, 1, 1) for s in self.statistics())
        return (1 / (255 * std)).float(), (-mean / std).float()

    def normalise(self, images: Tensor) -> Tensor:
        """Bytes to float32 with mean 0 and deviation 1 over the training images; to [0, 1] if they are raw."""
        factor, shift = self._factor_and_shift
        return images * factor + shift

    def view(self, image_size: int) -> View:
        """How a network that was trained on these images sees any image."""
        mean, std = (tuple(s.tolist()) for s in self.statistics())
        return View(image_size, self.train_images.shape[1], mean, std, self.class_names)

    def examples(self, count: int, view: View, *, skip_unreadable: bool = False) -> tuple[Tensor, Tensor]:
        """Normalised test images (count, C, H, W) and labels, spread evenly over the test set so that every class has its
        part. ``view`` and ``skip_unreadable`` are for data that is read from files: these images are in memory."""
        chosen = spread(len(self.test_images), count)
        return self.normalise(self.test_images[chosen]), self.test_labels[chosen]

    def test_image(self, place: int, view: View) -> Tensor:
        """(1, C, H, W), normalised. ``view`` is for data that is read from files."""
        return self.normalise(self.test_images[place : place + 1])

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for tensor in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(repr(tuple(tensor.shape)).encode())
            digest.update(tensor.cpu().contiguous().numpy().data)
        return digest.hexdigest()


def held_out_fingerprint(fingerprint: str, n: int) -> str:
    return hashlib.sha256(f"{fingerprint} held out {n}".encode()).hexdigest()


def spread(total: int, count: int) -> list[int]:
    """``count`` positions, or all, spread evenly over ``total``.

    Example:
        >>> data.spread(10, 5)
        [0, 2, 4, 6, 8]
    """
    if count < 1:
        raise ValueError(f"{count} images: must be 1 or more")
    return [i * total // min(count, total) for i in range(min(count, total))]


def _check_split(data: Dataset, split: str) -> None:
    images, labels = getattr(data, f"{split}_images"), getattr(data, f"{split}_labels")
    where = f"data set {data.name!r}: {split}"
    if images.dtype != torch.uint8 or images.ndim != 4 or not images.numel():
        raise ValueError(
            f"{where}_images are {images.dtype} {_shape(images)}, not uint8 of (N, channels, height, width)"
        )
    if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{where}_labels are {labels.dtype} {_shape(labels)}, not int64, one for each of the {len(images)} images"
        )
    if int(labels.min()) < 0:
        raise ValueError(f"{where}_labels has a label {int(labels.min())}: classes are counted from 0")


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape))
