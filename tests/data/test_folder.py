"""Trees of images in ImageNet's layout."""

import re

import numpy as np
import pytest
from PIL import Image

from bort import data


@pytest.fixture
def root(tmp_path):
    for split, count in (("train", 3), ("val", 2)):
        for label, name in enumerate(("cat", "dog")):
            folder = tmp_path / "pets" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.fromarray(np.full((8, 10, 3), 100 * label + number, np.uint8)).save(folder / f"{number}.png")
    return tmp_path


def test_what_is_in_it(root):
    pets = data.load("folder:pets", root=root)
    assert isinstance(pets, data.Folder)
    assert pets.class_names == ("cat", "dog")
    assert pets.classes == 2
    assert pets.train_files[:2] == [("train/cat/0.png", 0), ("train/cat/1.png", 0)]
    assert len(pets.train_files) == 6
    assert len(pets.test_files) == 4
    image = pets.read("val/dog/1.png")
    assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (10, 8), (101, 101, 101))


def test_absolute_paths_and_the_default_root(root, monkeypatch):
    by_path = data.load(f"folder:{root / 'pets'}")
    monkeypatch.setenv("BORT_DATA", str(root))
    assert data.load("folder:pets").fingerprint == by_path.fingerprint


def test_the_fingerprint_is_that_of_the_files(root):
    before = data.load("folder:pets", root=root).fingerprint
    assert data.load("folder:pets", root=root).fingerprint == before
    (root / "pets/train/cat/0.png").rename(root / "pets/train/cat/9.png")
    assert data.load("folder:pets", root=root).fingerprint != before


def test_images_below_a_class(root):
    """Tiny ImageNet as published has train/<class>/images/*.JPEG, and other files beside."""
    (root / "pets/train/dog/images").mkdir()
    (root / "pets/train/dog/2.png").rename(root / "pets/train/dog/images/2.JPEG")
    (root / "pets/train/dog/boxes.txt").write_text("not an image")
    files = data.load("folder:pets", root=root).train_files
    assert ("train/dog/images/2.JPEG", 1) in files
    assert len(files) == 6


def test_grey_images_become_rgb(root):
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(root / "pets/val/cat/0.png")
    assert data.load("folder:pets", root=root).read("val/cat/0.png").mode == "RGB"


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n truncated"])
def test_an_unreadable_image_is_named(root, content):
    (root / "pets/val/cat/0.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"pets/val/cat/0\.png is not a readable image"):
        data.load("folder:pets", root=root).read("val/cat/0.png")


def test_a_truncated_image_is_named(root):
    path = root / "pets/val/cat/0.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ValueError, match=r"is not a readable image: .*truncated"):
        data.load("folder:pets", root=root).read("val/cat/0.png")


def test_folders_that_are_none(root):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*cars\. It should hold train/<class>/<image>"):
        data.load("folder:cars", root=root)
    with pytest.raises(ValueError, match="names no folder"):
        data.load("folder:", root=root)
    with pytest.raises(FileNotFoundError, match="has no train/"):
        data.load(f"folder:{root}")
    (root / "pets/val/mouse").mkdir()
    with pytest.raises(ValueError, match=r"val has a class 'mouse' that .*train has not"):
        data.load("folder:pets", root=root)
    (root / "pets/val/mouse").rmdir()
    for file in (root / "pets/val").rglob("*.png"):
        file.unlink()
    with pytest.raises(ValueError, match=re.escape("has no images in its class folders (.jpeg, .jpg")):
        data.load("folder:pets", root=root)


def test_held_out_files(root):
    folder = data.load("folder:pets", root)
    part = folder.held_out(2)
    assert part.test_files == folder.train_files[::2]
    assert sorted(part.train_files + part.test_files) == sorted(folder.train_files)
    assert part.fingerprint != folder.fingerprint
