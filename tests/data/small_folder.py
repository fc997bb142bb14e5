"""A small tree of images, and folders that count or disturb what is read of it."""

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from PIL import Image

from bort.data import Folder
from bort.data._folder import folder
from bort.data._pack_record import Journal
from bort.data._packed import pack

WIDTH, HEIGHT = 8, 6
IMAGE = 3 * WIDTH * HEIGHT
COUNTS = {"train": (4, 3), "val": (2, 2)}  # of cats and dogs
COUNT = 11
CHUNK = 3  # four chunks, of which the third has images of both splits and the last has two images
COMPLETE = {"lock", "bytes", "json"}


@dataclass(frozen=True)
class Counted(Folder):
    """Notes which files are read, in a file since several processes may read them."""

    hook: ClassVar = None
    """Called with the name of each file before it is read."""

    def read(self, file):
        with (self.root / "reads").open("a") as reads:
            reads.write(file + "\n")
        if Counted.hook:
            Counted.hook(file)
        return super().read(file)

    def reads(self):
        """What was read since the last time this was asked."""
        path = self.root / "reads"
        names = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return names


def write_images(root, seed=0):
    generator = np.random.default_rng(seed)
    for split, counts in COUNTS.items():
        for name, count in zip(("cat", "dog"), counts, strict=True):
            (root / split / name).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                write_image(root / split / name / f"{number}.png", generator)


def write_image(file, generator, size=(WIDTH, HEIGHT)):
    pixels = generator.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, compress_level=0)  # the same number of bytes for all of one size


def counted(root):
    found = folder(f"folder:{root}", root)
    return Counted(found.name, found.root, found.class_names, found.train_files, found.test_files)


def packed(root, **options):
    return pack(counted(root), **{"workers": 0, "chunk": CHUNK, **options})


def by_pillow(root, files):
    """The oracle: (N, 3, H, W)."""
    pixels = [np.asarray(Image.open(root / file).convert("RGB")) for file, _ in files]
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)


def assert_right(result, root):
    data = counted(root)
    assert torch.equal(result.train_images, by_pillow(root, data.train_files))
    assert torch.equal(result.test_images, by_pillow(root, data.test_files))
    assert result.train_labels.tolist() == [label for _, label in data.train_files]
    assert result.test_labels.tolist() == [label for _, label in data.test_files]
    assert result.unreadable == {"train": {}, "test": {}}


def endings(place):
    """What kinds of files are there. Two of a kind are an error."""
    found = [file.name.rpartition(".")[2] for file in place.iterdir()]
    assert len(found) == len(set(found)), found
    return set(found)


def in_a_process(function):
    """Run it in a forked process, which has all of this one's patches, and return the exit code."""
    process = multiprocessing.get_context("fork").Process(target=function)
    process.start()
    process.join(60)
    return process.exitcode


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as status:
            return status.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def set_times_of(file, status):
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def with_append(monkeypatch, change):
    append = Journal.append
    chunks = []

    def changed(journal, batch):
        chunks.extend(batch)
        if len(chunks) >= 2:
            change(journal, batch)
        append(journal, batch)

    monkeypatch.setattr(Journal, "append", changed)


def with_replace(monkeypatch, ending, before=None, after=None):
    replace = os.replace

    def changed(source, target):
        ours = str(target).endswith(ending)
        if ours and before:
            before()
        replace(source, target)
        if ours and after:
            after()

    monkeypatch.setattr(os, "replace", changed)


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()
