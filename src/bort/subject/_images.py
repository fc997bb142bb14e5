"""Images to look at: a folder of files, a tensor, a data set."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bort.data import View
from bort.subject._image_set import ImageSet

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


@dataclass(frozen=True)
class ImageFiles:
    """Image files of a folder: all in it, or one folder a class."""

    folder: Path
    files: tuple[Path, ...]
    folders: tuple[str, ...]
    """The names of the class folders in their order; empty if the folder is flat."""

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> ImageFiles:
        path = Path(folder)
        if not path.is_dir():
            raise ValueError(f"there is no folder {path} of images")
        inside = sorted(entry for entry in path.iterdir() if entry.is_dir() and _images(entry))
        if inside:
            files = [file for entry in inside for file in _images(entry)]
            return cls(path, tuple(files), tuple(entry.name for entry in inside))
        if not (files := _images(path)):
            raise ValueError(f"{path} has no images in it ({', '.join(ENDINGS)}), and no folders of them")
        return cls(path, tuple(files), ())

    def labels(self, class_names: Sequence[str], classes: int) -> Tensor:
        """(N,): the class of each file, -1 if it is not known. Folders are classes by name; if the names are not those of the
        network, but there is one folder a class, in their order, as torchvision has it."""
        if not self.folders:
            return torch.full((len(self.files),), -1)
        if set(self.folders) <= set(class_names):
            numbers = {name: class_names.index(name) for name in self.folders}
        elif len(self.folders) == classes:
            numbers = {name: number for number, name in enumerate(self.folders)}
        else:
            numbers = dict.fromkeys(self.folders, -1)
        return torch.tensor([numbers[file.parent.name] for file in self.files])


class FileImages(ImageSet):
    """The images of files as a network with this view sees them."""

    def __init__(self, files: ImageFiles, view: View, labels: Tensor) -> None:
        self._files, self._view, self._labels = files, view, labels

    @property
    def labels(self) -> Tensor:
        return self._labels

    def read(self, place: int) -> tuple[Tensor, int]:
        return self._view.read(self._files.files[place]), int(self._labels[place])

    @property
    def fingerprint(self) -> str:
        """Over path, size and time of change of every file."""
        digest = hashlib.sha256()
        for file in self._files.files:
            try:
                status = file.stat()
            except OSError:  # it has gone since the folder was listed
                digest.update(os.fsencode(file.absolute()) + b"\0gone\n")
                continue
            digest.update(os.fsencode(file.resolve()) + f"\0{status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()


def _images(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in ENDINGS and file.is_file())
