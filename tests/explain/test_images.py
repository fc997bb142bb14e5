"""Images of any size and number of channels, in any layout of memory, and callers in any mode of autograd."""

import pytest
import torch
from torch import nn

from bort.explain._regions import segments
from tests.explain.test_regions import picture
from tests.functions import FUNCTIONS, architectures

SIZES = [(24, 40), (33, 20)]


def network(channels=3):
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(channels, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)),
    ).double()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 2, 4, 7])
def test_every_function(channels, size):
    """Shapes, finite numbers, single images as in a batch, the model as it was; no warnings."""
    model, x = network(channels).train(), architectures.images(2, (channels, *size))
    for name in FUNCTIONS:
        if name != "xrai" or size == SIZES[0]:
            architectures.check(FUNCTIONS[name], model, x)


def test_segments_do_not_depend_on_how_often_a_colour_is_there():
    """The distance between pixels of six channels is scaled to that of three."""
    image = picture(3, 48, 64)
    assert torch.equal(segments(image.repeat(2, 1, 1), 0), segments(image, 0))


def test_jpeg_has_one_or_three_channels():
    from bort import data, measure

    x, view = torch.zeros(1, 4, 8, 8), data.View(8, 4, (0.5,) * 4, (0.25,) * 4)
    with pytest.raises(ValueError, match="JPEG has 1 or 3 channels, these images have 4: leave jpeg out"):
        measure.robustness(network(4).float(), x, torch.tensor([0]), view, ["jpeg 50"])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_channels_last_in_memory(name):
    model, x = network(), architectures.images(2, (3, 24, 40))
    expected = FUNCTIONS[name].call(model, x)
    there = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    torch.testing.assert_close(FUNCTIONS[name].call(*there), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "xrai"])
def test_the_callers_mode_of_autograd(name, mode):
    model, x = network(), architectures.images(2, (3, 24, 40))
    expected = FUNCTIONS[name].call(model, x)
    with mode():
        made_there = x.clone()
        torch.testing.assert_close(FUNCTIONS[name].call(model, made_there), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(FUNCTIONS[name].call(model, made_there), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "xrai"])
def test_images_and_weights_with_and_without_gradients(name):
    model, x = network(), architectures.images(2, (3, 24, 40))
    expected = FUNCTIONS[name].call(model, x)
    result = FUNCTIONS[name].call(model.requires_grad_(False), x.clone().requires_grad_())
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-12)
    assert not result.requires_grad
