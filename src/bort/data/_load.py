"""Data sets by name."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Literal, overload

from bort._import_path import import_object, is_import_path
from bort.data._cifar10 import cifar10
from bort.data._dataset import Dataset
from bort.data._digits import mnist5k
from bort.data._folder import Folder, folder
from bort.data._mnist import mnist
from bort.data._published import default_root


@overload
def load(name: Literal["mnist", "cifar10", "mnist5k"], root: str | os.PathLike[str] | None = None) -> Dataset: ...
@overload
def load(name: str, root: str | os.PathLike[str] | None = None) -> Dataset | Folder: ...
def load(name: str, root: str | os.PathLike[str] | None = None) -> Dataset | Folder:
    """The data set called ``name``.

    "mnist5k" is embedded: 5,000 digits, no network needed. "mnist" and "cifar10" are read from ``root`` (default: $BORT_DATA,
    or ~/.cache/bort) in the layouts their makers publish, ``root/mnist/*.gz`` and ``root/cifar-10-batches-bin/*.bin``; what
    is missing is downloaded, and everything is checked against its SHA-256. "folder:<path>" is a tree of images in ImageNet's
    layout, ``train/<class>/<image>`` and ``val/<class>/<image>``, absolute or below ``root``.

    "package.module:function" is any other: a function that returns a :class:`Dataset` or a :class:`Folder`. If it has a
    parameter ``root``, it is called with the folder above, as a Path.

    Example:
        >>> digits = data.load("mnist5k")
        >>> digits.train_images.shape, digits.test_images.shape
        (torch.Size([4000, 1, 28, 28]), torch.Size([1000, 1, 28, 28]))
    """
    base = Path(root) if root is not None else default_root()
    if name == "mnist5k":
        return mnist5k()
    if name == "mnist":
        return mnist(base)
    if name == "cifar10":
        return cifar10(base)
    if name.startswith("folder:"):
        return folder(name, base)
    if is_import_path(name):
        return _imported(name, base)
    raise ValueError(
        f"no data set is called {name!r}; there are mnist5k, mnist, cifar10, folder:<path> and package.module:function"
    )


def _imported(path: str, root: Path) -> Dataset | Folder:
    function = import_object(path)
    data = function(root=root) if "root" in inspect.signature(function).parameters else function()
    if not isinstance(data, (Dataset, Folder)):
        raise ValueError(f"{path} returns a {type(data).__name__}, not a bort.data.Dataset or bort.data.Folder")
    return data
