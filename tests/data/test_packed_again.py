"""Packed bytes are used again if they are those of the same files and undamaged, and made anew if not."""

import json
import os
import shutil

import numpy as np
import pytest
import torch

from bort.data import Folder, pack
from bort.data._folder import folder
from bort.data._pack_files import Files, stamp
from bort.data._pack_record import Damaged, chunks_to_check, read_manifest
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
    set_times_of,
    write_image,
    write_images,
)


def test_the_second_time_nothing_is_decoded(pets, said):
    first = packed(pets)
    kept = first.train_images.clone()
    counted(pets).reads()
    file = pets / "train/cat/0.png"
    before = file.stat()
    write_image(file, np.random.default_rng(1))
    assert file.stat().st_size == before.st_size
    set_times_of(file, before)
    again = packed(pets, workers=2, say=said.append)
    assert counted(pets).reads() == []
    assert said == []
    assert torch.equal(again.train_images, kept)
    assert not torch.equal(again.train_images, by_pillow(pets, counted(pets).train_files)), "the file did change"


def test_the_folder_may_be_moved(pets):
    packed(pets)
    counted(pets).reads()
    moved = pets.rename(pets.parent / "moved")
    assert_right(packed(moved), moved)
    assert counted(moved).reads() == []


def touched(pets):
    os.utime(pets / "val/dog/1.png", ns=(0, 1))


def added(pets):
    write_image(pets / "train/dog/9.png", np.random.default_rng(1))


def removed(pets):
    (pets / "val/dog/1.png").unlink()


def renamed(pets):
    (pets / "val/dog/1.png").rename(pets / "val/cat/1.bmp.png")


def with_another_order_of_labels(pets):
    for split in ("train", "val"):
        (pets / split / "cat").rename(pets / split / "zebra")


@pytest.mark.parametrize("change", [touched, added, removed, renamed, with_another_order_of_labels])
def test_changed_files_are_decoded_again(pets, change):
    """And the bytes of before are removed, but nothing that has another name."""
    before = packed(pets).path
    (pets / ".bort/notes.txt").write_text("mine")
    (pets / ".bort/packed-mine.bytes").write_text("mine")
    change(pets)
    result = packed(pets)
    assert_right(result, pets)
    assert result.path != before
    assert {file.name for file in (pets / ".bort").iterdir()} == {
        "lock",
        "notes.txt",
        "packed-mine.bytes",
        result.path.name,
        result.path.with_suffix(".json").name,
    }


def test_other_labels_for_the_same_files(pets):
    data = counted(pets)
    swapped = [(file, 1 - label) for file, label in data.train_files]
    first = pack(data, workers=0)
    second = pack(Counted(data.name, pets, data.class_names, swapped, data.test_files), workers=0)
    assert torch.equal(first.train_labels, 1 - second.train_labels)
    assert first.path != second.path


def test_another_size_of_a_file_at_the_same_time(pets):
    """Also where the folder's fingerprint is the user's own and does not tell."""
    data = counted(pets)
    given = Counted(data.name, pets, data.class_names, data.train_files, data.test_files, fingerprint="mine")
    before = pack(given, workers=0).path
    file = pets / "train/cat/0.png"
    status = file.stat()
    file.write_bytes(file.read_bytes() + b"more")
    set_times_of(file, status)
    assert pack(given, workers=0).path != before


def test_a_class_that_reads_otherwise_has_its_own_bytes(pets):
    class Small(Folder):
        def read(self, file):
            return super().read(file).resize((4, 2))

    plain = folder(f"folder:{pets}", pets)
    pack(plain, workers=0)
    small = pack(Small(plain.name, pets, plain.class_names, plain.train_files, plain.test_files), workers=0)
    assert small.train_images.shape == (7, 3, 2, 4)


def truncated(data, manifest):
    os.truncate(data, COUNT * IMAGE - 1)
    return rf"\.bytes has {COUNT * IMAGE - 1:,} bytes, not {COUNT * IMAGE:,}"


def lengthened(data, manifest):
    os.truncate(data, COUNT * IMAGE + 1)
    return rf"\.bytes has {COUNT * IMAGE + 1:,} bytes, not {COUNT * IMAGE:,}"


def flipped(data, manifest):
    content = bytearray(data.read_bytes())
    content[7 * IMAGE + 5] ^= 16
    data.write_bytes(content)
    return r"\.bytes is damaged: chunk 2 of 4 has another CRC-32"


def missing(data, manifest):
    data.unlink()
    return r"\.bytes cannot be read \(No such file or directory\)"


def manifest_cut(data, manifest):
    manifest.write_text(manifest.read_text()[:100])
    return r"\.json is damaged: JSONDecodeError"


def manifest_empty(data, manifest):
    manifest.write_text("{}")
    return r"\.json is damaged: KeyError\('content'\)"


def manifest_changed(data, manifest):
    record = json.loads(manifest.read_text())
    record["content"]["shape"][2:] = WIDTH, HEIGHT
    manifest.write_text(json.dumps(record))
    return r"\.json is damaged: its SHA-256 is not the one in it"


def manifest_of_another_folder(data, manifest):
    other = data.parents[2] / "other"
    write_images(other, seed=1)
    shutil.copy(packed(other).path.with_suffix(".json"), manifest)
    return r"\.json is of other images"


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        lengthened,
        flipped,
        missing,
        manifest_cut,
        manifest_empty,
        manifest_changed,
        manifest_of_another_folder,
    ],
)
def test_damage_is_noticed_and_repaired(pets, said, damage):
    data = packed(pets).path
    words = damage(data, data.with_suffix(".json"))
    result = packed(pets, say=said.append)
    assert len(said) == 1
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(said[0])
    assert_right(result, pets)
    assert endings(pets / ".bort") == COMPLETE
    counted(pets).reads()
    packed(pets, say=said.append)
    assert len(said) == 1
    assert counted(pets).reads() == []


def test_every_byte_of_the_manifest_counts(pets):
    packed(pets)
    files = Files(pets / ".bort", stamp(counted(pets)))
    right = files.manifest.read_bytes()
    assert read_manifest(files.manifest, files.stamp) is not None
    for position in range(len(right)):
        wrong = bytearray(right)
        wrong[position] ^= 1
        files.manifest.write_bytes(wrong)
        with pytest.raises(Damaged):
            read_manifest(files.manifest, files.stamp)


def test_which_chunks_are_checked():
    assert chunks_to_check(1000, 8 * 10**9 - 1) == list(range(1000))
    some = chunks_to_check(1000, 8 * 10**9)
    assert len(some) == 18
    assert some[0] == 0
    assert some[-1] == 999
    assert max(np.diff(some)) < 60
    assert chunks_to_check(1, 8 * 10**9) == [0]
