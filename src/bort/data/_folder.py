"""Images in folders, ImageNet's layout: ``train/<class>/<image>`` and ``val/<class>/<image>``."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bort.data._dataset import spread
from bort.data._view import View

if TYPE_CHECKING:
    from PIL.Image import Image

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, which every folder is normalised by
_ENDINGS = (".jpeg", ".jpg", ".png", ".webp", ".bmp", ".ppm")


@dataclass(frozen=True)
class Folder:
    """Where the images are. They are read when they are needed."""

    name: str
    root: Path
    class_names: tuple[str, ...]
    """The class folders of train/, in alphabetical order: class 0 is the first."""
    train_files: list[tuple[str, int]] = field(repr=False)
    """(path below root, class)"""
    test_files: list[tuple[str, int]] = field(repr=False)
    fingerprint: str = ""
    """SHA-256 over every file's path and size. (Not over its bytes: ImageNet has 150 GB of them.)"""

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel, in [0, 1]: ImageNet's, as networks of timm expect them."""
        return torch.tensor(MEAN, dtype=torch.float64), torch.tensor(STD, dtype=torch.float64)

    def read(self, file: str) -> Image:
        """One image, in RGB, wholly decoded. A ValueError names one that cannot be."""
        from PIL import Image as images

        path = self.root / file
        try:
            with images.open(path) as image:
                return image.convert("RGB")
        except Exception as error:  # damaged files make decoders throw anything
            raise ValueError(f"{path} is not a readable image: {error}") from error

    def view(self, image_size: int) -> View:
        """How a network that was trained on these images sees any image."""
        mean, std = (tuple(s.tolist()) for s in self.statistics())
        return View(image_size, 3, mean, std, self.class_names)

    def examples(self, count: int, view: View, *, skip_unreadable: bool = False) -> tuple[Tensor, Tensor]:
        """Test images as the view shows them to a network, (count, C, H, W), and labels, spread evenly over the test set so
        that every class has its part. An image that cannot be read is an error, or is left out."""
        images, labels = [], []
        for place in spread(len(self.test_files), count):
            file, label = self.test_files[place]
            try:
                images.append(view(self.read(file)))
            except ValueError:
                if not skip_unreadable:
                    raise
                continue
            labels.append(label)
        if not images:
            raise ValueError(f"not one of the {count} test images chosen in {self.root} can be read")
        return torch.cat(images), torch.tensor(labels)


def folder(name: str, root: Path) -> Folder:
    """``name`` is "folder:<path>", the path relative to ``root`` or absolute."""
    given = name.removeprefix("folder:")
    if not given:
        raise ValueError(f"{name!r} names no folder: write folder:<path>")
    path = root / Path(given).expanduser()
    if not path.is_dir():
        raise FileNotFoundError(
            f"there is no folder {path}. It should hold train/<class>/<image> and val/<class>/<image>; a path that does not "
            "begin with / is looked for in root, $BORT_DATA or ~/.cache/bort."
        )
    class_names = _classes(path, "train")
    tested = _classes(path, "val")
    strange = sorted(set(tested) - set(class_names))
    if strange:
        raise ValueError(f"{path}/val has a class {strange[0]!r} that {path}/train has not: nothing could learn it")
    train = _files(path, "train", class_names)
    test = _files(path, "val", class_names)
    digest = hashlib.sha256()
    for file, _ in (*train, *test):
        digest.update(f"{file}\0{_size(path / file)}\n".encode())
    return Folder(name, path, class_names, train, test, digest.hexdigest())


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return -1  # a link to nowhere: found out when it is read


def _classes(path: Path, split: str) -> tuple[str, ...]:
    if not (path / split).is_dir():
        raise FileNotFoundError(f"{path} has no {split}/: it should hold train/<class>/<image> and val/<class>/<image>")
    found = tuple(sorted(entry.name for entry in os.scandir(path / split) if entry.is_dir()))
    if not found:
        raise ValueError(f"{path / split} has no class folders in it")
    return found


def _files(path: Path, split: str, class_names: tuple[str, ...]) -> list[tuple[str, int]]:
    found = []
    for label, name in enumerate(class_names):
        inside = path / split / name
        for folder_path, below, files in os.walk(inside) if inside.is_dir() else ():
            below.sort()  # Tiny ImageNet as published has images/ inside each class
            relative = Path(folder_path).relative_to(path)
            found += [(str(relative / file), label) for file in sorted(files) if file.lower().endswith(_ENDINGS)]
    if not found:
        raise ValueError(f"{path / split} has no images in its class folders ({', '.join(_ENDINGS)})")
    return found
