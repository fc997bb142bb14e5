"""Images in folders, ImageNet's layout: ``train/<class>/<image>`` and ``val/<class>/<image>``."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bort.data._dataset import held_out_fingerprint, spread
from bort.data._view import View, to_eight_bits

if TYPE_CHECKING:
    from PIL.Image import Image

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet: images of every folder are normalised by them
_ENDINGS = (".jpeg", ".jpg", ".png", ".webp", ".bmp", ".ppm")


@dataclass(frozen=True)
class Folder:
    """Images in files, in RGB, read when they are needed.

    Example:
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> for place in ("train/cat", "train/dog", "val/cat", "val/dog"):
        ...     Path("pets", place).mkdir(parents=True)
        ...     Image.new("RGB", (8, 8)).save(f"pets/{place}/first.png")
        >>> pets = data.load("folder:pets", root=".")
        >>> pets.class_names, pets.train_files
        (('cat', 'dog'), [('train/cat/first.png', 0), ('train/dog/first.png', 1)])
    """

    name: str
    root: Path
    class_names: tuple[str, ...]
    """The class folders of train/, in alphabetical order: class 0 is the first."""
    train_files: list[tuple[str, int]] = field(repr=False)
    """(path below root, class)"""
    test_files: list[tuple[str, int]] = field(repr=False)
    fingerprint: str = ""
    """SHA-256 over the path and the size of every file, computed if none is given. (ImageNet has 150 GB of bytes.)"""
    whole: Folder | None = field(default=None, repr=False)
    """The folder that this one is made of, where every ``every``-th training image is held out."""
    every: int = 0

    def __post_init__(self) -> None:
        for split, files in (("train", self.train_files), ("test", self.test_files)):
            if not files:
                raise ValueError(f"data set {self.name!r}: {split}_files is empty")
            wrong = next((label for _, label in files if not 0 <= label < len(self.class_names)), None)
            if wrong is not None:
                raise ValueError(
                    f"data set {self.name!r}: {split}_files has a label {wrong}, for {len(self.class_names)} classes"
                )
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", self._digest())

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def test_labels(self) -> Tensor:
        return torch.tensor([label for _, label in self.test_files])

    def held_out(self, n: int) -> Folder:
        """Every ``n``-th training image in place of the test images: to choose settings without looking at those."""
        files = self.train_files
        return replace(
            self,
            train_files=[file for place, file in enumerate(files) if place % n],
            test_files=files[::n],
            fingerprint=held_out_fingerprint(self.fingerprint, n),
            whole=self,
            every=n,
        )

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel, in [0, 1]: ImageNet's, as networks of timm expect them."""
        return torch.tensor(MEAN, dtype=torch.float64), torch.tensor(STD, dtype=torch.float64)

    def read(self, file: str) -> Image:
        """One image in RGB, fully decoded. A ValueError names a file that cannot be read."""
        from PIL import Image as images

        path = self.root / file
        try:
            with images.open(path) as image:
                return to_eight_bits(image).convert("RGB")
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
            try:
                images.append(self.test_image(place, view))
            except ValueError:
                if not skip_unreadable:
                    raise
                continue
            labels.append(self.test_files[place][1])
        if not images:
            raise ValueError(f"not one of the {count} test images chosen in {self.root} can be read")
        return torch.cat(images), torch.tensor(labels)

    def test_image(self, place: int, view: View) -> Tensor:
        """(1, C, H, W) as the view shows it to a network."""
        return view(self.read(self.test_files[place][0]))

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for file, _ in (*self.train_files, *self.test_files):
            digest.update(f"{file}\0{_size(self.root / file)}\n".encode())
        return digest.hexdigest()


def folder(name: str, root: Path) -> Folder:
    """The images of "folder:<path>", the path relative to ``root`` or absolute."""
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
    not_trained = sorted(set(_classes(path, "val")) - set(class_names))
    if not_trained:
        raise ValueError(f"{path}/val has a class {not_trained[0]!r} that {path}/train has not: nothing could learn it")
    return Folder(name, path, class_names, _files(path, "train", class_names), _files(path, "val", class_names))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return -1  # a broken link: reported when the image is read


def _classes(path: Path, split: str) -> tuple[str, ...]:
    if not (path / split).is_dir():
        raise FileNotFoundError(f"{path} has no {split}/: it should hold train/<class>/<image> and val/<class>/<image>")
    names = tuple(sorted(entry.name for entry in os.scandir(path / split) if entry.is_dir()))
    if not names:
        raise ValueError(f"{path / split} has no class folders in it")
    return names


def _files(path: Path, split: str, class_names: tuple[str, ...]) -> list[tuple[str, int]]:
    labelled = []
    for label, name in enumerate(class_names):
        inside = path / split / name
        # Subfolders too: Tiny ImageNet as published has images/ inside each class. Sorting `below` fixes os.walk's order.
        for folder_path, below, files in os.walk(inside) if inside.is_dir() else ():
            below.sort()
            relative = Path(folder_path).relative_to(path)
            labelled += [(str(relative / file), label) for file in sorted(files) if file.lower().endswith(_ENDINGS)]
    if not labelled:
        raise ValueError(f"{path / split} has no images in its class folders ({', '.join(_ENDINGS)})")
    return labelled
