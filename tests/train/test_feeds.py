"""Training on images of folders, out of memory and out of files: augmentation depends on its key only, and neither
interruptions nor the number of processes change it."""

import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from bort import data, train
from bort.train._file_feed import FileFeed
from bort.train._images import feed_for
from bort.train._memory_feed import MemoryFeed
from bort.train._world import World
from bort.train.recipes import Augment, Data
from tests.train.folders import CPU, LAYOUT, PLACES, PLAIN, SPLITS, feed, fit, recipe
from tests.train.small import assert_same, stop_at


def batches(root, chosen, epoch=0, start=0, **kwargs):
    source = feed(root, chosen, **kwargs)
    return [source.read(batch) for batch in source.batches(epoch, start)]


def same(one, other):
    return len(one) == len(other) and all(
        torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(one, other, strict=True)
    )


@PLACES
@pytest.mark.parametrize("augment", [recipe().augment, SPLITS, PLAIN], ids=["mixed", "splits", "plain"])
def test_a_batch_depends_on_its_place_only(root, augment, images):
    """Not on workers, on what came before, or on the generators; but on the epoch and the seed."""
    chosen = recipe(augment=augment, data=Data("folder:stripes", 40, classes=2))
    expected = batches(root, chosen, images=images)
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002
    assert same(batches(root, chosen, workers=2, images=images), expected)
    assert same(batches(root, chosen, start=2, images=images), expected[2:])
    assert not same(batches(root, chosen, epoch=1, images=images), expected)
    assert not same(batches(root, replace(chosen, seed=1), images=images), expected)


@pytest.mark.parametrize("augment", [recipe().augment, SPLITS, PLAIN], ids=["mixed", "splits", "plain"])
def test_memory_and_files_give_the_same_images(root, augment):
    """Crops from files are PIL's; those in memory differ from them by a level or two in few pixels."""
    chosen = recipe(augment=replace(augment, randaugment=""), data=Data("folder:stripes", 40, classes=2))
    for (one, labels), (other, same_labels) in zip(
        batches(root, chosen), batches(root, chosen, images="device"), strict=True
    ):
        assert torch.equal(labels, same_labels)
        assert ((one - other).abs() < 2.5 / 255 / 0.224).all()
        assert (one - other).abs().mean() < 1e-3
    for one, other in zip(feed(root, chosen).test(CPU), feed(root, chosen, images="host").test(CPU), strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


def test_where_images_are_kept(root, tmp_path):
    shutil.copytree(root / "stripes", tmp_path / "stripes")
    chosen = recipe()
    assert isinstance(feed(tmp_path, chosen, images="auto"), MemoryFeed)
    assert isinstance(feed(tmp_path, chosen), FileFeed)
    notes = []
    plain = recipe(augment=PLAIN)
    runtime = train.Runtime(workers=0)
    assert isinstance(
        feed_for(data.load("folder:stripes", tmp_path), plain, runtime, CPU, LAYOUT, notes.append), FileFeed
    )
    Image.new("RGB", (41, 40)).save(tmp_path / "stripes/train/a/0.png")
    mixed_sizes = data.load("folder:stripes", tmp_path)
    assert isinstance(feed_for(mixed_sizes, chosen, runtime, CPU, LAYOUT, notes.append), FileFeed)
    assert "they are 40×40, are resized to 32 px and not augmented" in notes[0]
    assert "41" in notes[1]
    with pytest.raises(ValueError, match=r"images=device: .* Use images=auto or files"):
        feed(tmp_path, chosen, images="device")


@PLACES
def test_preparing_leaves_the_generators_alone(root, images):
    torch.manual_seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    batches(root, recipe(), images=images)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002


def test_an_epoch_is_every_image_once(root):
    chosen = recipe(augment=Augment(), batch=7)
    seen = torch.cat([images for images, _ in batches(root, chosen)])
    assert len(seen) == 14
    assert len({tuple(image.flatten()[:50].tolist()) for image in seen}) == 14


@PLACES
def test_splits_begin_with_the_clean_views(root, images):
    """timm's JSD loss takes the first third as clean, the rest as augmented views of the same images."""
    chosen, place = recipe(augment=SPLITS, loss="jsd"), images
    images, labels = batches(root, chosen, images=place)[0]
    assert images.shape == (12, 3, 32, 32)
    assert torch.equal(labels[:4], labels[4:8])
    unchanged = recipe(augment=replace(SPLITS, randaugment="", erase=0.0), loss="jsd")
    plain, _ = batches(root, unchanged, images=place)[0]
    assert torch.equal(plain[:4], plain[4:8]), "without augmentation all views are the shared crop"
    assert torch.equal(images[:4], plain[:4]), "the first is never augmented nor erased"
    assert not torch.equal(images[4:8], images[8:])


def test_mixed_labels(root):
    _, labels = batches(root, recipe())[0]
    assert labels.shape == (4, 2)
    torch.testing.assert_close(labels.sum(dim=1), torch.ones(4))


@PLACES
@pytest.mark.parametrize("augment", [recipe().augment, SPLITS, PLAIN], ids=["mixed", "splits", "plain"])
def test_another_number_of_processes_sees_the_same_images(root, augment, images):
    """Images that are mixed with each other are on one process."""
    chosen = recipe(augment=augment, data=Data("folder:stripes", 40, classes=2))
    whole = batches(root, chosen, images=images)
    halves = [batches(root, chosen, world=World(CPU.device, rank, 2), images=images) for rank in range(2)]
    views = max(1, augment.splits)
    for (inputs, targets), *parts in zip(whole, *halves, strict=True):
        inputs, targets = inputs.unflatten(0, (views, 4)), targets.unflatten(0, (views, 4))
        for rank, (own, own_targets) in enumerate(parts):
            places = [2 * rank, 2 * rank + 1] if augment.mixup else [rank, rank + 2]
            assert torch.equal(own, inputs[:, places].flatten(0, 1))
            assert torch.equal(own_targets, targets[:, places].flatten(0, 1))


def test_images_are_normalised_and_cropped_as_on_imagenet(root):
    test = next(iter(feed(root, recipe()).test(CPU)))[0]
    assert test.shape == (6, 3, 32, 32)
    whole = feed(root, recipe(data=Data("folder:stripes", 40, classes=2)))
    pixels = np.asarray(Image.open(root / "stripes/val/a/0.png")).transpose(2, 0, 1) / 255
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    expected = (pixels - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_allclose(next(iter(whole.test(CPU)))[0][0], expected, atol=1e-5)


def in_other_colours(root):
    """The stripes of the fixture ``root``, normalised by other numbers than ImageNet's."""
    return OtherColours(**vars(data.load("folder:stripes", root)))


class OtherColours(data.Folder):
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)

    def statistics(self):
        return torch.tensor(self.mean, dtype=torch.float64), torch.tensor(self.std, dtype=torch.float64)


def test_augmented_images_are_normalised_like_test_images(root):
    """By the mean and deviation of the data set, whatever timm's defaults are: also the places that RandAugment fills."""
    plain = Augment(crop_and_flip=True)
    chosen = recipe(data=Data(f"{__name__}:in_other_colours", 32, classes=2), augment=plain)
    mean, std = (torch.tensor(values)[:, None, None] for values in (OtherColours.mean, OtherColours.std))
    imagenet_mean, imagenet_std = (s.float()[:, None, None] for s in data.load("folder:stripes", root).statistics())
    for (images, _), (usual, _) in zip(batches(root, chosen), batches(root, recipe(augment=plain)), strict=True):
        torch.testing.assert_close(images * std + mean, usual * imagenet_std + imagenet_mean, rtol=0, atol=1e-5)
    shifted = Augment("rand-m9-n4", crop_and_flip=True)
    images = torch.cat([images for images, _ in batches(root, replace(chosen, augment=shifted))])
    pixels = ((images * std + mean) * 255).round().permute(0, 2, 3, 1).flatten(0, 2)
    fill = torch.tensor(OtherColours.mean).mul(255).round()
    assert (pixels == fill).all(dim=1).float().mean() > 0.01


@pytest.mark.slow
@PLACES
@pytest.mark.parametrize("augment", [recipe().augment, SPLITS], ids=["mixed", "splits"])
def test_resumed(root, tmp_path, augment, images):
    """Mid-epoch, with two workers that were ahead of the step, then with none: the same to the bit."""
    chosen = recipe(augment=augment, loss="jsd" if augment.splits else "bce")
    whole = fit(root, tmp_path / "whole", chosen, images=images)
    for step in (2, 4):
        with pytest.raises(train.Interrupted):
            fit(root, tmp_path / "cut", chosen, stop_at(step, signal.SIGINT), images=images)
    assert_same(fit(root, tmp_path / "cut", chosen, workers=0, images=images), whole)
