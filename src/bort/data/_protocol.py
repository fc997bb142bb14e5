"""What every data set offers, wherever its images are."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from bort.data._view import View


class ImageData(Protocol):
    """What training, reports and the explorer ask of a data set.

    There are two kinds, and a function that another package brings (`load`) returns one of them: :class:`Dataset` holds its
    images in memory, :class:`Folder` reads them from files.

    Example:
        >>> images, labels = torch.zeros(8, 1, 4, 4, dtype=torch.uint8), torch.arange(8)
        >>> mine: data.ImageData = data.Dataset("mine", images, labels, images, labels)
        >>> mine.examples(4, mine.view(4))[1]  # spread evenly
        tensor([0, 2, 4, 6])
    """

    @property
    def name(self) -> str:
        """What it is called in records and messages."""

    @property
    def classes(self) -> int:
        """How many classes there are; labels are 0 … classes − 1."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name a class, in the order of the labels."""

    @property
    def fingerprint(self) -> str:
        """A digest of the content. A run records it and refuses to go on with data that has another one."""

    @property
    def test_labels(self) -> Tensor:
        """int64 (N,): the class of each test image, known without reading it."""

    def test_image(self, place: int, view: View) -> Tensor:
        """One normalised test image, (1, C, H, W), by its place in the test set. A ValueError if it cannot be read."""

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (C,) of each channel, for pixels in [0, 1]; images are normalised by them."""

    def held_out(self, n: int) -> ImageData:
        """The same with every ``n``-th training image in place of the test images."""

    def view(self, image_size: int) -> View:
        """How a network that was trained on these images sees any image."""

    def examples(self, count: int, view: View, *, skip_unreadable: bool = False) -> tuple[Tensor, Tensor]:
        """``count`` normalised test images (count, C, H, W), or all if there are fewer, and their labels, spread evenly over
        the test set so that every class has its part. An image that cannot be read is a ValueError, or is left out."""
