"""CIFAR-10 from its published binary version: no pickles."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from bort.data._dataset import Dataset
from bort.data._published import Published, check, obtain

FOLDER = "cifar-10-batches-bin"
ARCHIVE = Published(
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
FILES = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_RECORD = 1 + 3 * 32 * 32  # a byte of label, then the three planes


def cifar10(root: Path, archive: Published = ARCHIVE, files: Mapping[str, str] = FILES) -> Dataset:
    """50,000 and 10,000 colour images of 32 × 32; ``files`` are the batches' names and SHA-256."""
    folder = root / FOLDER
    if not all((folder / name).exists() for name in files):
        unpack(obtain(archive, root), folder)
    parts = {}
    for name, digest in files.items():
        check(folder / name, digest)
        parts[name] = read_batch(folder / name)
    images, labels = (torch.cat([parts[name][i] for name in files if name.startswith("data")]) for i in (0, 1))
    fingerprint = hashlib.sha256("".join(files.values()).encode()).hexdigest()
    return Dataset("cifar10", images, labels, *parts["test_batch.bin"], fingerprint, NAMES)


def unpack(archive: Path, folder: Path) -> None:
    """The batches in the archive, into ``folder``. If anything fails, there is no folder rather than an incomplete one."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fresh = Path(scratch) / FOLDER
        fresh.mkdir()
        with tarfile.open(archive) as tar:
            for member in tar:  # by name: extractall is safe only with a filter, which Python has from 3.11.4 on
                name = member.name.removeprefix(f"{FOLDER}/")
                content = tar.extractfile(member) if name in FILES else None
                if content is not None:
                    with content, (fresh / name).open("wb") as file:
                        shutil.copyfileobj(content, file)
        missing = [name for name in FILES if not (fresh / name).exists()]
        if missing:
            raise ValueError(f"{archive} has no {FOLDER}/{missing[0]} in it")
        if folder.exists():
            shutil.rmtree(folder)  # incomplete: `cifar10` unpacks only if a file is missing
        os.replace(fresh, folder)


def read_batch(path: Path) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels of one batch file."""
    content = path.read_bytes()
    if not content or len(content) % _RECORD:
        raise ValueError(f"{path} is truncated: {len(content)} bytes are not a whole number of records of {_RECORD}")
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, _RECORD)
    labels = records[:, 0].long()
    if int(labels.max()) > 9:
        raise ValueError(
            f"{path}: label {int(labels.max())} is not one of the ten classes; is it CIFAR-10's binary version?"
        )
    return records[:, 1:].reshape(-1, 3, 32, 32).contiguous(), labels
