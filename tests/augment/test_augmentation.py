"""The whole way from bytes to a network's input."""

import random

import numpy as np
import pytest
import torch
from scipy import stats
from timm.data import create_transform

from bort.augment import Augmentation, CropBoxes, crop_with_pil, image_keys, resized_crops
from tests.augment.pictures import natural, to_pil

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EVERYTHING = {"randaugment": "rand-m9-mstd0.5", "erase": 0.6}
SETTINGS = [{}, EVERYTHING, EVERYTHING | {"splits": 3}, {"color_jitter": 0.4, "splits": 2}, {"erase": 0.25}]


def augmentation(size=32, **settings):
    return Augmentation(size, MEAN, STD, **settings)


def normalised(images):
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (MEAN, STD))
    return (images.float() / 255 - mean) / std


def test_a_crop_alone_is_normalised():
    augment, images, keys = augmentation(), natural(8, 40, 40), image_keys(1, torch.arange(8))
    result = augment(images, keys)
    torch.testing.assert_close(result, normalised(resized_crops(images, augment.boxes(keys, 40, 40), 32)))


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_result_of_an_image_depends_on_its_key_alone(settings):
    """Not on its batch, its place, or what was drawn before."""
    augment, images, keys = augmentation(**settings), natural(10, 40, 40), image_keys(1, torch.arange(10))
    together = augment(images, keys).unflatten(0, (-1, 10))
    order = torch.randperm(10)
    assert torch.equal(augment(images[order], keys[order]).unflatten(0, (-1, 10)), together[:, order])
    assert torch.equal(augment(images[3:4], keys[3:4]), together[:, 3])
    assert torch.equal(augment(images, keys).unflatten(0, (-1, 10)), together)
    assert not torch.equal(augment(images, image_keys(2, torch.arange(10))).unflatten(0, (-1, 10)), together)


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_layout_changes_no_value(settings):
    augment, images, keys = augmentation(**settings), natural(6, 40, 40), image_keys(1, torch.arange(6))
    result = augment(images, keys, torch.channels_last)
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(result, augment(images, keys))


def statistics(images):
    """Of each image: mean, deviation, how rough it is, its largest value, and the mean of its lower right quarter."""
    flat = images.flatten(1)
    rough = (images[..., 1:] - images[..., :-1]).abs().flatten(1).mean(1)
    return flat.mean(1), flat.std(1), rough, flat.amax(1), images[..., 16:, 16:].flatten(1).mean(1)


@pytest.mark.parametrize("settings", [EVERYTHING, {"color_jitter": 0.4}, {"randaugment": "rand-m7-mstd0.5-tweights"}])
def test_results_are_distributed_as_timms(settings):
    """One image, many times, through this and through timm's transforms."""
    count, image = 1500, natural(1, 40, 48, seed=3)
    ours = augmentation(**settings)(image.expand(count, -1, -1, -1), image_keys(1, torch.arange(count)))
    transform = create_transform(
        32,
        is_training=True,
        color_jitter=settings.get("color_jitter"),
        auto_augment=settings.get("randaugment"),
        interpolation="random",
        mean=MEAN,
        std=STD,
        re_prob=settings.get("erase", 0.0),
        re_mode="pixel",
    )
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002, timm's
    theirs = torch.stack([transform(to_pil(image[0])) for _ in range(count)])
    for a, b in zip(statistics(ours), statistics(theirs)):
        assert stats.ks_2samp(a.numpy(), b.numpy()).pvalue > 1e-3


def test_the_first_view_is_clean_and_the_others_differ():
    augment, images, keys = augmentation(**EVERYTHING, splits=3), natural(32, 40, 40), image_keys(1, torch.arange(32))
    clean, second, third = augment(images, keys).chunk(3)
    crops = resized_crops(images, augment.boxes(keys, 40, 40), 32)
    torch.testing.assert_close(clean, normalised(crops))
    differ = [(a != b).flatten(1).any(1).sum() for a, b in ((clean, second), (clean, third), (second, third))]
    assert min(differ) > 20


def test_views_are_views_of_one_crop():
    """Without anything else they are equal."""
    augment, images = augmentation(splits=2), natural(5, 40, 40)
    first, second = augment(images, image_keys(1, torch.arange(5))).chunk(2)
    assert torch.equal(first, second)


def test_crops_made_by_pil_are_finished_alike():
    augment, images, keys = augmentation(**EVERYTHING), natural(16, 64, 64), image_keys(1, torch.arange(16))
    boxes = augment.boxes(keys, 64, 64)
    crops = [crop_with_pil(to_pil(image), CropBoxes(*(v[i] for v in boxes)), 32) for i, image in enumerate(images)]
    expected, result = augment(images, keys), augment.finish(torch.stack(crops), keys)
    assert (expected - result).abs().median() < 1e-6
    # A level more or less seldom matters, but equalize may make several of one.
    assert ((expected - result).abs() > 0.1).double().mean() < 0.01


def test_neither_crops_nor_images_are_changed():
    augment, crops = augmentation(**EVERYTHING), natural(8, 32, 32)
    before = crops.clone()
    augment.finish(crops, image_keys(1, torch.arange(8)))
    assert torch.equal(crops, before)


def test_colour_jitter_is_left_out_with_randaugment():
    images, keys = natural(8, 40, 40), image_keys(1, torch.arange(8))
    one = augmentation(randaugment="rand-m9", color_jitter=0.4)(images, keys)
    assert torch.equal(one, augmentation(randaugment="rand-m9")(images, keys))
    assert not torch.equal(augmentation(color_jitter=0.4)(images, keys), augmentation()(images, keys))


def test_grey_images():
    augment = Augmentation(20, (0.1,), (0.3,), **EVERYTHING, splits=2)
    assert augment(natural(4, 28, 28)[:, :1], image_keys(1, torch.arange(4))).shape == (8, 1, 20, 20)


def test_geometric_ops_fill_with_the_mean():
    augment = Augmentation(32, (0.5, 0.25, 1.0), (0.2, 0.2, 0.2), randaugment="rand-m10-n1-p1")
    white = torch.full((200, 3, 32, 32), 10, dtype=torch.uint8)
    result = augment.finish(white, image_keys(1, torch.arange(200)))
    levels = ((result * 0.2 + torch.tensor([0.5, 0.25, 1.0]).view(3, 1, 1)) * 255).round()
    corners = levels[:, :, 0, 0]
    filled = (corners == torch.tensor([128.0, 64.0, 255.0])).all(1)
    assert filled.sum() > 20


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"splits": 1}, "splits=1"),
        ({"color_jitter": -0.1}, "color_jitter=-0.1"),
        ({"erase": 1.5}, "erase=1.5"),
        ({"erase": 0.5, "size": 1500}, "size=1500"),
        ({"randaugment": "rand-q9"}, "'q9'"),
    ],
)
def test_wrong_settings_are_named(settings, named):
    with pytest.raises(ValueError, match=named):
        augmentation(**settings)


def test_wrong_tensors_are_named():
    augment, keys = augmentation(), image_keys(1, torch.arange(2))
    with pytest.raises(ValueError, match=r"\(2, 1, 40, 40\) in torch.uint8: \(B, 3, H, W\)"):
        augment(natural(2, 40, 40)[:, :1], keys)
    with pytest.raises(ValueError, match=r"torch.float32"):
        augment.finish(natural(2, 32, 32).float(), keys)
    with pytest.raises(ValueError, match=r"keys are \(3,\)"):
        augment(natural(2, 40, 40), image_keys(1, torch.arange(3)))
    with pytest.raises(ValueError, match="both need"):
        Augmentation(32, (0.5, 0.5), (0.1, 0.1))
