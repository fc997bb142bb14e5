"""MNIST from its four published idx files."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from bort.data._dataset import Dataset
from bort.data._published import Published, obtain

_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FILES = {
    name: Published(f"{name}-ubyte.gz", f"{_URL}{name}-ubyte.gz", digest)
    for name, digest in {
        "train-images-idx3": "8e590d63f1d106cdbdae54317b2acd9c456301d9b7f894a8775c3460f1a28953",
        "train-labels-idx1": "a0b6a102bc6ad5a56a53e64a6b5bddbd6312b6ba14a71397be29024778172397",
        "t10k-images-idx3": "c67815901b894108c0e6cf7fa285bd6af92df6c44ee29c8eec071c36f5db9c80",
        "t10k-labels-idx1": "46cf7e4ed79b6328a07c85bdda937b5da51bacd75e6ae6bda9656ed7e53f6e6d",
    }.items()
}


def mnist(root: Path, files: Mapping[str, Published] = FILES) -> Dataset:
    """60,000 and 10,000 digits of 28 × 28; ``files`` in the order of :data:`FILES`."""
    folder = root / "mnist"
    paths = [obtain(file, folder) for file in files.values()]
    train_images, train_labels, test_images, test_labels = map(read_idx, paths)
    for images, labels in ((train_images, train_labels), (test_images, test_labels)):
        if len(images) != len(labels):
            raise ValueError(
                f"{folder}: {len(images)} images with {len(labels)} labels; the files do not belong together"
            )
    fingerprint = hashlib.sha256("".join(file.sha256 for file in files.values()).encode()).hexdigest()
    return Dataset(
        "mnist", train_images[:, None], train_labels.long(), test_images[:, None], test_labels.long(), fingerprint
    )


def read_idx(path: Path) -> Tensor:
    """A gzipped idx file of bytes: images (N, H, W) or labels (N,)."""
    try:
        with gzip.open(path) as stream:
            content = stream.read()
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is damaged or truncated: {error}") from error
    dims = content[3] if len(content) >= 4 else 0
    if content[:3] != b"\0\0\x08" or dims not in (1, 3):
        raise ValueError(
            f"{path} is not an idx file of bytes: it begins with {content[:4].hex(' ')}, not 00 00 08 01 or 03"
        )
    kind = "images" if dims == 3 else "labels"
    expected = next((word for word in ("images", "labels") if word in path.name), kind)
    if kind != expected:
        raise ValueError(f"{path} has {kind} in it, not {expected}: was it renamed?")
    shape = struct.unpack(f">{dims}I", content[4 : 4 + 4 * dims])
    values = torch.frombuffer(bytearray(content[4 + 4 * dims :]), dtype=torch.uint8)
    if len(values) != torch.Size(shape).numel():
        raise ValueError(f"{path} is truncated: {len(values)} bytes for a shape of {'×'.join(map(str, shape))}")
    if dims == 1 and len(values) and int(values.max()) > 9:
        raise ValueError(f"{path}: label {int(values.max())} is not a digit")
    return values.view(shape)
