"""Images of a folder decoded once and kept as bytes: what they are and where."""

import os
import shutil
import warnings

import numpy as np
import pytest
import torch

from bort.data import Packed, _packed
from bort.data._pack_files import Files
from tests.data.small_folder import (
    COMPLETE,
    COUNT,
    HEIGHT,
    IMAGE,
    WIDTH,
    Counted,
    assert_right,
    by_pillow,
    counted,
    endings,
    packed,
    write_image,
    write_images,
)


@pytest.fixture
def said():
    return []


def test_the_bytes_are_those_of_pillow(pets):
    progress = []
    result = packed(pets, progress=lambda *now: progress.append(now))
    assert_right(result, pets)
    assert result.train_images.dtype == torch.uint8
    assert result.test_labels.dtype == torch.int64
    assert result.path.parent == pets / ".bort"
    assert result.path.stat().st_size == COUNT * IMAGE
    assert progress == [(3, COUNT), (6, COUNT), (9, COUNT), (COUNT, COUNT)]
    assert endings(pets / ".bort") == COMPLETE


@pytest.mark.parametrize("workers", [1, 3, 9])
def test_by_several_processes(pets, workers):
    """Nine are more than there are chunks."""
    progress = []
    assert_right(packed(pets, workers=workers, progress=lambda *now: progress.append(now)), pets)
    assert sorted(total for _, total in progress) == [COUNT] * 4
    assert progress[-1][0] == COUNT


def test_grey_and_palette_images(pets):
    from PIL import Image

    for mode, file in (("L", "train/cat/0.png"), ("P", "val/dog/1.png"), ("RGBA", "val/cat/0.png")):
        image = Image.open(pets / file).convert(mode)
        image.save(pets / file)
    assert_right(packed(pets), pets)


def test_writing_into_the_tensors_leaves_the_file_alone(pets):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = packed(pets)
    before = result.path.read_bytes()
    result.train_images.fill_(7)
    result.test_images.add_(1)
    assert int(result.train_images.sum()) == 7 * 7 * IMAGE
    assert result.path.read_bytes() == before
    assert_right(packed(pets), pets)


def test_files_larger_than_the_memory_can_be_mapped(pets):
    files = Files(pets, "0" * 64)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    count = 2 * memory // IMAGE
    files.data.touch()
    os.truncate(files.data, count * IMAGE)  # a sparse file: it takes no space
    result = _packed._mapped(counted(pets), files, [count, 3, HEIGHT, WIDTH], {})
    assert len(result.test_images) == count - 7
    assert not result.test_images[-1].any()


def test_unreadable_images(pets):
    """Whether they are in the first place where the size is looked for or not."""
    (pets / "train/cat/0.png").write_bytes(b"not an image")
    (pets / "train/dog/2.png").unlink()
    (pets / "train/dog/2.png").symlink_to("nowhere.png")
    content = (pets / "val/cat/1.png").read_bytes()
    (pets / "val/cat/1.png").write_bytes(content[:90])
    for workers in (0, 2, 0):  # the third time the bytes of the second are opened
        result = packed(pets, workers=workers)
        assert {split: list(found) for split, found in result.unreadable.items()} == {"train": [0, 6], "test": [1]}
        assert result.unreadable["train"][0].startswith(f"{pets}/train/cat/0.png is not a readable image")
        assert result.unreadable["train"][6].startswith(f"{pets}/train/dog/2.png is not a readable image")
        assert result.unreadable["test"][1].startswith(f"{pets}/val/cat/1.png is not a readable image")
        assert not result.train_images[[0, 6]].any()
        assert not result.test_images[1].any()
        right = by_pillow(pets, counted(pets).train_files[1:6])
        assert torch.equal(result.train_images[1:6], right)
        if workers == 0:
            os.utime(pets / "val/dog/0.png", ns=(0, 1))


def test_an_image_that_can_be_read_again(pets, said):
    """A repaired permission leaves the file's size and time as they were."""

    def refuse(file):
        if file == "val/cat/0.png":
            raise ValueError(f"{file} is not a readable image: Permission denied")

    Counted.hook = refuse
    assert list(packed(pets).unreadable["test"]) == [0]
    assert list(packed(pets, say=said.append).unreadable["test"]) == [0]
    assert said == []
    Counted.hook = None
    assert_right(packed(pets, say=said.append), pets)
    assert len(said) == 1
    assert "val/cat/0.png could not be read when it was packed, and can be now" in said[0]


def test_no_image_can_be_read(pets, said):
    for file in pets.rglob("*.png"):
        file.write_bytes(b"")
    assert packed(pets, say=said.append) is None
    assert "cannot be kept as bytes: none of those looked at can be read, first: " in said[0]
    assert "train/cat/0.png is not a readable image" in said[0]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("probed", [128, 1])
def test_images_of_other_sizes(pets, said, monkeypatch, probed, workers):
    """Seen by the first look, or (if that sees one image of each split) when all are decoded. It is remembered."""
    monkeypatch.setattr("bort.data._pack_make._PROBED", probed)
    before = packed(pets).path
    write_image(pets / "val/dog/1.png", np.random.default_rng(1), (5, 9))
    assert packed(pets, workers=workers, say=said.append) is None
    reason = f"{pets} cannot be kept as bytes: val/dog/1.png is 5×9 pixels, others are {WIDTH}×{HEIGHT}"
    assert said == [f"the images of {reason}"]
    assert endings(pets / ".bort") == {"lock", "json"}
    assert not before.exists()
    counted(pets).reads()
    assert packed(pets, workers=workers, say=said.append) is None
    assert counted(pets).reads() == []
    assert said[0] == said[1]
    write_image(pets / "val/dog/1.png", np.random.default_rng(1))
    assert isinstance(packed(pets), Packed)
    assert endings(pets / ".bort") == COMPLETE


def test_a_place_that_cannot_be_written(pets, said):
    """Then the cache folder, where each data set has its own place; and if that is none either, an error with the remedy."""
    (pets / ".bort").write_text("a file, so that there can be no folder")
    result = packed(pets)
    assert_right(result, pets)
    assert result.path.parents[1] == pets.parent / "cache/packed"
    other = pets.parent / "again/pets"
    write_images(other, seed=1)
    (other / ".bort").write_text("")
    assert_right(packed(other), other)
    counted(pets).reads()
    assert_right(packed(pets), pets)
    assert counted(pets).reads() == []
    shutil.rmtree(pets.parent / "cache")
    (pets.parent / "cache").write_text("")
    with pytest.raises(
        OSError, match=r"cannot be written to .*/\.bort \(.*\) or .*/cache/.*choose another folder with cache="
    ):
        packed(pets)
    write_image(pets / "train/cat/0.png", np.random.default_rng(1), (3, 3))
    assert packed(pets, say=said.append) is None, "where images cannot be packed, no place is needed"


def test_a_place_of_ones_choice(pets, tmp_path):
    result = packed(pets, cache=tmp_path / "fast")
    assert_right(result, pets)
    assert tmp_path / "fast" in result.path.parents
    assert not (pets / ".bort").exists()


def test_complete_files_are_opened_where_nothing_can_be_written(pets, monkeypatch):
    packed(pets)
    monkeypatch.setattr(_packed, "locked", None)
    monkeypatch.setattr(_packed, "writable", None)
    assert_right(packed(pets), pets)


def test_files_that_change_while_they_are_decoded(pets):
    with pytest.raises(RuntimeError, match=r"pets were changed while they were decoded: start again"):
        packed(pets, progress=lambda *_: os.utime(pets / "val/dog/1.png", ns=(0, 1)))
    assert endings(pets / ".bort") == {"lock"}
    assert_right(packed(pets), pets)


def test_nonsense_is_refused(pets):
    with pytest.raises(ValueError, match=r"workers=-1, chunk=3: they must be at least 0 and 1"):
        packed(pets, workers=-1)
    with pytest.raises(ValueError, match=r"workers=0, chunk=0"):
        packed(pets, chunk=0)
