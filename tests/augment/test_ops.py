"""Each op of RandAugment against timm's on PIL images: the same argument, the same pixels."""

import random
from unittest import mock

import pytest
import torch
from PIL import Image
from timm.data import auto_augment

from bort.augment._ops import NOTHING, OPS, Stage
from bort.augment._randaugment import Choice, RandAugment
from tests.augment.pictures import from_pil, natural, special, to_pil

FILL = (124, 116, 104)
MAGNITUDES = (0, 1, 2.5, 3, 5, 6.66, 7, 8, 9, 9.9, 10)
IMAGES = {(h, w): torch.cat((natural(3, h, w), special(h, w))) for h, w in ((48, 48), (27, 41))}


def alone(name):
    """RandAugment that draws this op only, once, always."""
    randaugment = RandAugment("rand-n1-p1", FILL)
    randaugment.ops = (OPS[name], NOTHING)
    return randaugment


def changed(name, images, argument=0.0, cubic=False):
    shape = len(images), 1
    choice = Choice(
        torch.zeros(shape, dtype=torch.long),
        torch.full(shape, float(argument), dtype=torch.float64),
        torch.full(shape, cubic),
    )
    return alone(name)(images.clone(), choice)


def timms_arguments(name, magnitude, negative):
    level = auto_augment.LEVEL_TO_ARG[name]
    with mock.patch.object(random, "random", return_value=float(negative)):
        return level(magnitude, {}) if level else ()


@pytest.mark.parametrize("name", OPS)
def test_arguments_are_timms(name):
    """To the last bit, beyond the usual range too (mmax)."""
    op, level = torch.tensor([0]), auto_augment.LEVEL_TO_ARG[name]
    for magnitude in (*MAGNITUDES, *range(1, 31)) if level else ():
        for negative in (False, True):
            drawn = torch.tensor([magnitude], dtype=torch.float64), torch.tensor([negative])
            assert (alone(name).arguments(op, *drawn).item(),) == timms_arguments(name, magnitude, negative)


@pytest.mark.parametrize("size", IMAGES, ids=str)
@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.stage is not Stage.AFFINE])
def test_values_are_timms(name, size):
    """Exactly: tables and blends are whole-number arithmetic."""
    images = IMAGES[size]
    for arguments in sorted({timms_arguments(name, m, negative) for m in MAGNITUDES for negative in (False, True)}):
        if "Posterize" in name and arguments < (1,):
            continue  # newer versions of Pillow refuse it; the next test
        for image, result in zip(images, changed(name, images, *arguments)):
            expected = auto_augment.NAME_TO_OP[name](to_pil(image), *arguments)
            assert torch.equal(result, from_pil(expected)), arguments


@pytest.mark.parametrize("bits", [0, -1])
def test_no_bits_are_black(bits):
    """PosterizeIncreasing at magnitude 10; with timm and a Pillow that allows it."""
    assert not changed("PosterizeIncreasing", IMAGES[48, 48], bits).any()


@pytest.mark.parametrize("cubic", [False, True], ids=["bilinear", "cubic"])
@pytest.mark.parametrize("size", IMAGES, ids=str)
@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.stage is Stage.AFFINE])
def test_geometry_is_timms(name, size, cubic):
    """To one level, all but one of a hundred pixels exactly: they differ where PIL, which rounds down, has a sum just below a
    whole number. Rotations with cubic weights are approximate, and all but one of twenty pixels are exact."""
    images = IMAGES[size]
    resample = Image.Resampling.BICUBIC if cubic else Image.Resampling.BILINEAR
    unequal = pixels = 0
    for magnitude in (0, 0.7, 5, 9.3, 10):
        for negative in (False, True):
            (argument,) = timms_arguments(name, magnitude, negative)
            for image, result in zip(images, changed(name, images, argument, cubic)):
                expected = auto_augment.NAME_TO_OP[name](to_pil(image), argument, fillcolor=FILL, resample=resample)
                difference = (result.int() - from_pil(expected).int()).abs()
                assert difference.max() <= 1
                unequal, pixels = unequal + int((difference > 0).sum()), pixels + difference.numel()
    assert unequal / pixels < (0.05 if cubic and name == "Rotate" else 0.01)


@pytest.mark.parametrize("angle", [3.0, -12.0, 27.0])
def test_cubic_rotations_of_noise(angle):
    """The worst that can happen to them: four levels, half a level on average."""
    images = torch.randint(0, 256, (4, 3, 48, 48), dtype=torch.uint8)
    for image, result in zip(images, changed("Rotate", images, angle, cubic=True)):
        expected = from_pil(to_pil(image).rotate(angle, Image.Resampling.BICUBIC, fillcolor=FILL))
        difference = (result.int() - expected.int()).abs()
        assert difference.max() <= 5
        assert difference.double().mean() < 0.6


@pytest.mark.parametrize("size", [(2, 2), (1, 5), (3, 3)])
def test_tiny_images(size):
    images = natural(2, *size)
    for name in ("Sharpness", "Color", "Equalize", "AutoContrast", "Contrast"):
        for image, result in zip(images, changed(name, images, 1.7)):
            argument = (1.7,) if auto_augment.LEVEL_TO_ARG[name] else ()
            assert torch.equal(result, from_pil(auto_augment.NAME_TO_OP[name](to_pil(image), *argument)))


def test_grey_images():
    """With one channel, as PIL's mode L."""
    images = IMAGES[27, 41][:, :1]
    for name in ("Contrast", "Color", "Sharpness", "Equalize", "Brightness"):
        randaugment = alone(name)
        randaugment._fill = FILL[:1]
        choice = Choice(torch.zeros(9, 1).long(), torch.full((9, 1), 1.6).double(), torch.zeros(9, 1) > 0)
        for image, result in zip(images, randaugment(images.clone(), choice)):
            argument = (1.6,) if auto_augment.LEVEL_TO_ARG[name] else ()
            expected = auto_augment.NAME_TO_OP[name](Image.fromarray(image[0].numpy()), *argument)
            assert torch.equal(result[0], from_pil(expected.convert("RGB"))[0])
