"""Folders with images that cannot be read, too few or of the wrong kind: named, or left out and counted."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bort import data, train
from bort.train._images import feed_for
from bort.train._signals import StopRequest
from bort.train._world import World
from bort.train.recipes import Data
from tests.train.folders import CPU, CROPPED, LAYOUT, PLACES, feed, fit, recipe
from tests.train.small import signal_in_test, stripes


@pytest.mark.parametrize(
    ("workers", "images"), [(0, "files"), (0, "device"), (0, "host"), pytest.param(2, "files", marks=pytest.mark.slow)]
)
def test_a_corrupt_image(root, tmp_path, workers, images):
    shutil.copytree(root / "stripes", tmp_path / "stripes")
    (tmp_path / "stripes/train/b/3.png").write_bytes(b"\x89PNG rubbish")
    (tmp_path / "stripes/val/a/1.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"(?s)train/b/3\.png is not a readable image.*--data\.corrupt skip"):
        fit(tmp_path, tmp_path / "stops", recipe(batch=7, augment=CROPPED), workers=workers, images=images)
    skipping = recipe(batch=7, augment=CROPPED, data=replace(recipe().data, corrupt="skip"))
    run = fit(tmp_path, tmp_path / "skips", skipping, workers=workers, images=images)
    assert [record["skipped"] for record in run.history] == [2, 4], "one of each split, in each epoch"
    assert run.history[-1]["accuracy"] * 5 == pytest.approx(round(run.history[-1]["accuracy"] * 5)), (
        "out of five images"
    )


def test_a_batch_of_corrupt_images(root, tmp_path):
    shutil.copytree(root / "stripes", tmp_path / "stripes")
    for file in Path(tmp_path / "stripes/train").rglob("*.png"):
        file.write_bytes(b"")
    chosen = recipe(data=replace(recipe().data, corrupt="skip"))
    with pytest.raises(ValueError, match=r"not one image of batch 0 of epoch 1 can be read, first: .*train/"):
        fit(tmp_path, tmp_path / "run", chosen, workers=0)


def test_class_counts_must_agree(root):
    with pytest.raises(ValueError, match=r"stripes has 2 classes, the recipe data\.classes=3: set --data\.classes 2"):
        feed(root, recipe(data=replace(recipe().data, classes=3)))


@PLACES
def test_the_partner_of_a_corrupt_image_is_left_out_with_it(root, tmp_path, images):
    """Two images are mixed with each other; with one of them unreadable the other has none."""
    shutil.copytree(root / "stripes", tmp_path / "stripes")
    (tmp_path / "stripes/train/b/3.png").write_bytes(b"")
    chosen = recipe(batch=14, data=replace(recipe().data, corrupt="skip"))
    source = feed(tmp_path, chosen, images=images)
    (batch,) = source.batches(0, 0)
    assert (batch.count, batch.skipped) == (12, 1)
    assert source.read(batch)[0].shape[0] == 12


@pytest.mark.slow
def test_workers_end_with_an_error(root, tmp_path):
    """In a process of its own, since multiprocessing waits for its children when a process ends."""
    shutil.copytree(root / "stripes", tmp_path / "stripes")
    (tmp_path / "stripes/train/b/3.png").write_bytes(b"")
    (tmp_path / "recipe.json").write_text(json.dumps(recipe(batch=7).to_dict()))
    command = [sys.executable, "-m", "bort", "train", "recipe.json", "--device", "cpu", "--data-root", "."]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90)
    assert ended.returncode == 1
    assert ended.stderr.startswith("bort train: ")
    assert "train/b/3.png is not a readable image" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1, "a line, not a trace"


def test_skips_in_an_interrupted_test_count_once(root, tmp_path, monkeypatch):
    shutil.copytree(root / "stripes", tmp_path / "stripes")
    for number in range(10, 300):  # more test images than in one batch
        (tmp_path / f"stripes/val/b/{number}.png").hardlink_to(tmp_path / "stripes/val/b/0.png")
    (tmp_path / "stripes/val/a/1.png").write_bytes(b"")
    chosen = recipe(batch=7, data=replace(recipe().data, corrupt="skip"))
    with monkeypatch.context() as patch:
        signal_in_test(patch, 2)
        with pytest.raises(train.Interrupted):
            fit(tmp_path, tmp_path / "run", chosen, workers=0)
    assert [record["skipped"] for record in fit(tmp_path, tmp_path / "run", chosen, workers=0).history] == [1, 2]


def test_odd_folders(root, tmp_path):
    shutil.copytree(root / "stripes", tmp_path / "stripes")
    (tmp_path / "stripes/train/a/9.png").symlink_to("nowhere.png")
    with pytest.raises(ValueError, match=r"9\.png is not a readable image"):
        fit(tmp_path, tmp_path / "run", recipe(batch=15), workers=0)
    for file in (tmp_path / "stripes/val").rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(ValueError, match="not one of the test images can be read"):
        fit(tmp_path, tmp_path / "skip", recipe(batch=15, data=replace(recipe().data, corrupt="skip")), workers=0)
    with pytest.raises(ValueError, match=r"data\.channels=1: images of a folder are read in colour"):
        feed(root, recipe(data=replace(recipe().data, channels=1)))
    with pytest.raises(ValueError, match=r"augment\.randaugment='rund-m9' is not in timm's notation"):
        feed(root, recipe(augment=replace(recipe().augment, randaugment="rund-m9")))
    with pytest.raises(ValueError, match="batch=4 is too few for 5 processes"):
        feed(root, recipe(), world=World(CPU.device, 0, 5))


def test_held_out_images_are_packed_with_the_others(root, tmp_path):
    """One file of bytes for both: every n-th training image of it is tested on."""
    shutil.copytree(root / "stripes", tmp_path / "stripes")
    (tmp_path / "stripes/train/a/1.png").write_bytes(b"")  # number 1: trained on, if it could be read
    (tmp_path / "stripes/train/b/1.png").write_bytes(b"")  # number 8: held out
    whole = Data("folder:stripes", 40, classes=2, corrupt="skip")
    feed(tmp_path, recipe(data=whole, augment=CROPPED), images="device")
    files = set((tmp_path / "stripes/.bort").iterdir())
    chosen = recipe(data=replace(whole, held_out=4), augment=CROPPED, batch=10)
    source = feed(tmp_path, chosen, images="device")
    assert set((tmp_path / "stripes/.bort").iterdir()) == files
    (batch,) = source.batches(0, 0)
    assert (batch.count, batch.skipped, batch.weight) == (9, 1, 1)
    read_by_files = feed(tmp_path, chosen)
    (one,), (other,) = list(source.test(CPU)), list(read_by_files.test(CPU))
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])
    assert (source.skipped, read_by_files.skipped) == (1, 1)


def test_processes_weigh_what_they_could_read(root, tmp_path):
    """The mean over the processes is that over the images that all of them could read."""
    shutil.copytree(root / "stripes", tmp_path / "stripes")
    (tmp_path / "stripes/train/a/1.png").write_bytes(b"")
    chosen = recipe(data=replace(recipe().data, corrupt="skip"), augment=CROPPED, batch=14)
    parts = [
        next(iter(feed(tmp_path, chosen, world=World(CPU.device, r, 2), images="device").batches(0, 0)))
        for r in range(2)
    ]
    assert sorted(part.count for part in parts) == [6, 7]
    assert [part.weight * 13 / 2 for part in parts] == pytest.approx([part.count for part in parts])


def test_a_signal_while_images_are_decoded(root, tmp_path):
    stripes(tmp_path / "stripes")
    request = StopRequest()
    request.signal_number = signal.SIGTERM
    folder, runtime = data.load("folder:stripes", tmp_path), train.Runtime(workers=0)
    with pytest.raises(train.Interrupted, match="stopped by SIGTERM while the images were decoded"):
        feed_for(folder, recipe(), runtime, CPU, LAYOUT, lambda _: None, request)


def test_too_few_images_for_the_processes(root):
    with pytest.raises(ValueError, match="14 training images are too few for 15 processes"):
        feed(root, recipe(augment=CROPPED, batch=32), world=World(CPU.device, 0, 15))
