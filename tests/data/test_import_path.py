"""Data sets of other packages: tensors, or files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bort import data


def images(count, seed=0, side=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 3, side, side), dtype=torch.uint8, generator=generator)


def noise():
    return data.Dataset("noise", images(6), torch.arange(6) % 3, images(3, seed=1), torch.arange(3))


def squares(root):
    """Files below ``root``, which the function writes if they are not there."""
    assert isinstance(root, Path)
    for number in range(4):
        Image.fromarray(np.full((8, 8, 3), 40 * number, np.uint8)).save(root / f"{number}.png")
    return data.Folder("squares", root, ("dark", "bright"), [("0.png", 0), ("3.png", 1)], [("1.png", 0), ("2.png", 1)])


def nothing():
    return None


@pytest.mark.parametrize("name", ["noise", "squares"])
def test_what_every_data_set_offers(tmp_path, name):
    """The protocol `ImageData`, of images in memory and of files."""
    source = data.load(f"{__name__}:{name}", root=tmp_path)
    assert source.name == name
    assert len(source.class_names) == source.classes
    assert len(source.fingerprint) == 64
    mean, std = source.statistics()
    view = source.view(6)
    assert (view.size, view.channels, view.class_names) == (6, 3, source.class_names)
    assert view.mean == tuple(mean.tolist())
    assert view.std == tuple(std.tolist())
    examples, labels = source.examples(2, view)
    assert examples.shape == (2, 3, 6, 6)
    assert examples.dtype == torch.float32
    assert labels.shape == (2,)


def test_the_digest_is_that_of_the_content(tmp_path):
    assert noise().fingerprint == noise().fingerprint
    assert replace(noise(), train_images=images(6, seed=2), fingerprint="").fingerprint != noise().fingerprint
    assert noise().to("cpu").fingerprint == noise().fingerprint
    before = squares(tmp_path)
    (tmp_path / "0.png").write_bytes(b"another size")
    assert replace(before, fingerprint="").fingerprint != before.fingerprint


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{__name__}:nothing", "nothing returns a NoneType, not a bort.data.Dataset or bort.data.Folder"),
        (f"{__name__}:missing", "has no 'missing'"),
        ("nowhere.at_all:data", "there is no module 'nowhere'"),
    ],
)
def test_what_is_no_data_set_is_said(name, message):
    with pytest.raises(ValueError, match=message):
        data.load(name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": images(6).float()}, r"train_images are torch\.float32 6×3×6×6, not uint8 of \(N, channels, "),
        ({"test_images": images(3)[:, 0]}, "test_images are torch.uint8 3×6×6, not uint8"),
        ({"test_images": images(3)[:0]}, "test_images are torch.uint8 0×3×6×6"),
        ({"train_labels": torch.arange(5)}, "train_labels are torch.int64 5, not int64, one for each of the 6 images"),
        ({"test_labels": torch.arange(3).int()}, "test_labels are torch.int32 3, not int64"),
        ({"train_labels": torch.arange(6) - 1}, "train_labels has a label -1: classes are counted from 0"),
        ({"test_images": images(3, side=7)}, "train_images are 6×3×6×6, test_images 3×3×7×7; only the number"),
        ({"names": ("a", "b")}, "2 names for 3 classes"),
    ],
)
def test_tensors_that_are_no_images_are_refused(changes, message):
    with pytest.raises(ValueError, match=f"data set 'noise': {message}"):
        replace(noise(), **changes)


def test_files_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(ValueError, match="data set 'squares': train_files has a label 2, for 2 classes"):
        replace(squares(tmp_path), train_files=[("0.png", 2)])
    with pytest.raises(ValueError, match="data set 'squares': test_files is empty"):
        replace(squares(tmp_path), test_files=[])
