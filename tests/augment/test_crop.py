"""Random resized crops: drawn as timm draws them, resized as PIL resizes them."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from timm.data.transforms import RandomResizedCropAndInterpolation

from bort.augment import CropBoxes, crop_boxes, crop_with_pil, image_keys, resized_crops
from tests.augment.pictures import natural, to_pil

COUNT = 4000


def one(boxes, place):
    return CropBoxes(*(value[place] for value in boxes))


def timms_boxes(height, width):
    random.seed(0)
    image = Image.new("L", (width, height))
    draws = [RandomResizedCropAndInterpolation.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(COUNT)]
    return np.array(draws).T


@pytest.mark.parametrize(("height", "width"), [(64, 64), (375, 500), (90, 200)])
def test_boxes_are_distributed_as_timms(height, width):
    boxes = crop_boxes(image_keys(1, torch.arange(COUNT)), height, width)
    top, left, tall, wide = (value.numpy() for value in boxes[:4])
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + tall <= height).all()
    assert (left + wide <= width).all()
    other_top, other_left, other_tall, other_wide = timms_boxes(height, width)
    for ours, timms in (
        (tall * wide, other_tall * other_wide),
        (wide / tall, other_wide / other_tall),
        (top / np.maximum(height - tall, 1), other_top / np.maximum(height - other_tall, 1)),
        (left / np.maximum(width - wide, 1), other_left / np.maximum(width - other_wide, 1)),
    ):
        assert stats.ks_2samp(ours, timms).pvalue > 1e-3


@pytest.mark.parametrize("chosen", ["cubic", "flip"])
def test_filters_and_flips_are_equally_likely(chosen):
    drawn = getattr(crop_boxes(image_keys(1, torch.arange(COUNT)), 64, 64), chosen)
    assert stats.binomtest(int(drawn.sum()), COUNT).pvalue > 1e-3


@pytest.mark.parametrize(("height", "width"), [(1000, 10), (10, 1000), (1, 7)])
def test_long_images_are_cropped_in_the_middle_as_in_timm(height, width):
    """No attempt fits, so there is only one answer."""
    expected = RandomResizedCropAndInterpolation.get_params(Image.new("L", (width, height)), (1.0, 1.0), (3 / 4, 4 / 3))
    boxes = crop_boxes(image_keys(1, torch.arange(200)), height, width)
    found = {tuple(int(value[i]) for value in boxes[:4]) for i in range(200)}
    assert expected in found
    if min(height, width) > 1:
        assert found == {expected}


def test_each_image_has_its_own_size():
    keys = image_keys(1, torch.arange(3))
    heights, widths = torch.tensor([64, 300, 20]), torch.tensor([64, 200, 500])
    together = crop_boxes(keys, heights, widths)
    for i in range(3):
        alone = crop_boxes(keys[i : i + 1], int(heights[i]), int(widths[i]))
        assert [int(v) for v in one(together, i)] == [int(v) for v in alone]


@pytest.mark.parametrize("cubic", [False, True])
@pytest.mark.parametrize(
    ("height", "width", "size"), [(64, 64, 64), (64, 64, 33), (75, 50, 64), (33, 47, 80), (200, 150, 48)]
)
def test_crops_are_resized_as_by_pil(height, width, size, cubic):
    """To two levels, all but two of a hundred pixels exactly. They differ where PIL's sum is a half up to its rounding."""
    images = natural(16, height, width)
    boxes = crop_boxes(image_keys(5, torch.arange(16)), height, width)
    boxes = boxes._replace(cubic=torch.full((16,), cubic))
    crops = resized_crops(images, boxes, size)
    expected = torch.stack([crop_with_pil(to_pil(image), one(boxes, i), size) for i, image in enumerate(images)])
    difference = (crops.int() - expected.int()).abs()
    assert crops.dtype == torch.uint8
    assert difference.max() <= 2
    assert (difference > 0).double().mean() < 0.02


def test_resizing_in_two_calls_is_resizing():
    """PIL's one call, which timm uses, may do the columns first, and then rounds and clips other sums."""
    images = natural(16, 90, 70)
    boxes = crop_boxes(image_keys(5, torch.arange(16)), 90, 70)
    for i, image in enumerate(images):
        top, left, height, width, cubic, flip = (int(value) for value in one(boxes, i))
        part = to_pil(image).crop((left, top, left + width, top + height))
        part = part.resize((64, 64), Image.Resampling.BICUBIC if cubic else Image.Resampling.BILINEAR)
        expected = np.array(part)[:, ::-1] if flip else np.array(part)
        difference = np.abs(
            crop_with_pil(to_pil(image), one(boxes, i), 64).permute(1, 2, 0).numpy() - expected.astype(int)
        )
        assert difference.mean() < 0.3
        assert (difference > 1).mean() < 0.002


def test_the_whole_image_in_its_own_size_is_itself():
    images = natural(2, 20, 30)
    whole = CropBoxes(*(torch.tensor(v) for v in ([0, 0], [0, 5], [20, 20], [20, 20], [True, False], [False, True])))
    crops = resized_crops(images, whole, 20)
    assert torch.equal(crops[0], images[0, :, :, :20])
    assert torch.equal(crops[1], images[1, :, :, 5:25].flip(2))


def test_grey_images():
    images = natural(4, 40, 40)[:, :1]
    boxes = crop_boxes(image_keys(5, torch.arange(4)), 40, 40)
    crops = resized_crops(images, boxes, 24)
    expected = [crop_with_pil(Image.fromarray(im[0].numpy()), one(boxes, i), 24) for i, im in enumerate(images)]
    assert (crops.int() - torch.stack(expected).int()).abs().max() <= 1


def test_a_crop_does_not_depend_on_its_batch():
    images, keys = natural(9, 64, 64), image_keys(5, torch.arange(9))
    together = resized_crops(images, crop_boxes(keys, 64, 64), 48)
    for i in range(9):
        alone = resized_crops(images[i : i + 1], crop_boxes(keys[i : i + 1], 64, 64), 48)
        assert torch.equal(together[i : i + 1], alone)
