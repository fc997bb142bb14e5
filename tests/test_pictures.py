"""Tensors as pictures, and figures as files."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from bort.pictures import (
    colour,
    coloured_groups,
    enlarged,
    grid,
    heat,
    legend,
    npy,
    overlay,
    panels,
    picture,
    png,
    scale_of,
    signal,
    style,
    to_png,
    to_svg,
)


def test_an_image_in_grey_and_in_colour():
    assert picture(torch.full((1, 2, 2), 0.5)).tolist() == [[[128] * 3] * 2] * 2
    assert picture(torch.tensor([-1.0, 0.5, 2.0]).view(3, 1, 1)).tolist() == [[[0, 128, 255]]]


def test_zero_is_neutral_in_a_signal():
    """Whatever the other values: black with one channel, mid-grey with three."""
    for channels, neutral in ((1, 0), (3, 128), (4, 0)):
        values = torch.randn(channels, 5, 5)
        values[:, 2, 3] = 0
        assert signal(values)[2, 3].tolist() == [neutral] * 3
        assert signal(values, 1e-3)[2, 3].tolist() == [neutral] * 3
        assert (signal(torch.zeros(channels, 2, 2)) == neutral).all()
        assert (signal(torch.full((channels, 2, 2), torch.nan)) == neutral).all()


def test_a_signal_and_its_negative():
    """Gold above zero and cyan below, equally light; in colour the two are each other's complements."""
    ramp = torch.linspace(-1, 1, 101).view(1, 1, 101)
    shown, turned = signal(ramp, 1.0)[0], signal(-ramp, 1.0)[0]
    assert np.array_equal(shown, turned[::-1])
    red, blue = shown[..., 0].astype(int), shown[..., 2].astype(int)
    assert (red[53:] > blue[53:]).all()
    assert (red[:48] < blue[:48]).all()
    values = torch.randn(3, 4, 4)
    assert np.abs(signal(values).astype(int) + signal(-values) - 255).max() <= 1


def test_one_scale_for_several_signals():
    strong = torch.randn(1, 20, 20)
    weak = 0.1 * strong
    assert np.array_equal(signal(strong), signal(weak)), "each by its own scale"
    scale = scale_of(strong, weak)
    assert signal(weak, scale).max() < 60 < signal(strong, scale).max()
    sizes = torch.stack([strong, weak]).abs().flatten().sort().values
    assert scale == scale_of(torch.stack([strong, weak])) == sizes[round(0.99 * 799)].item()
    sparse = torch.zeros(1, 50, 50)
    sparse[0, 3, 4] = -2
    assert scale_of(sparse) == 2, "of a signal that is nearly everywhere 0 the largest value"
    assert signal(sparse)[3, 4].tolist() == signal(torch.full((1, 1, 1), -1.0), 1.0)[0, 0].tolist()


def test_heat_keeps_the_order_of_the_values():
    ramp = torch.linspace(-3, 5, 100).view(10, 10)
    assert (np.diff(heat(ramp).astype(int).sum(axis=2).flatten()) >= 0).all()


@pytest.mark.parametrize("value", [0.0, -3.0, 1e30])
def test_flat_maps(value):
    assert (heat(torch.full((4, 4), value)) == heat(torch.zeros(4, 4))).all()


def test_a_sparse_map_is_not_flat():
    sparse = torch.zeros(100, 100)
    sparse[3, 4] = 1
    brightness = heat(sparse).astype(int).sum(axis=2)
    assert brightness.argmax() == 304


def test_a_map_over_an_image():
    image, saliency = torch.full((3, 2, 2), 0.5), torch.rand(2, 2)
    assert np.array_equal(overlay(image, saliency, 0.0), picture(image))
    assert np.array_equal(overlay(image, saliency, 1.0), heat(saliency))
    with pytest.raises(ValueError, match="strength=2: must be from 0"):
        overlay(image, saliency, 2)


def test_a_signed_map_over_an_image():
    """Zero shows the image, darkened by half the strength; a value covers it in proportion to its size."""
    image, values = torch.full((1, 2, 2), 0.5), torch.tensor([[0.0, 1.0], [-1.0, 0.5]])
    shown = overlay(image, values, 0.5, signed=True)
    (zero, gold), (cyan, half) = shown.tolist()
    assert zero == [96, 96, 96]
    assert gold == [round(48 + 255 / 2), 48 + 170 // 2, 48]
    assert cyan == [48, 48 + 150 // 2, 48 + 200 // 2]
    assert half == [round(0.75 * 96 + 0.25 * part) for part in (255, 170, 0)]
    assert np.array_equal(overlay(image, values, 0.0, signed=True), picture(image))
    assert heat(values, signed=True)[0, 0].tolist() == [0, 0, 0]
    assert np.array_equal(heat(values, signed=True), signal(values[None]))
    assert (overlay(image, torch.zeros(2, 2), 1.0, signed=True) == 64).all()


def test_small_images_are_enlarged_by_whole_pixels():
    image = np.arange(28 * 28 * 3, dtype=np.uint8).reshape(28, 28, 3)
    large = enlarged(image)
    assert large.shape == (224, 224, 3)
    assert np.array_equal(large[::8, ::8], image)
    assert np.array_equal(enlarged(large), large)


def test_rows_of_pictures():
    black, white = np.zeros((2, 3, 3), np.uint8), np.full((2, 3, 3), 255, np.uint8)
    sheet = grid([[black, white], [white]], gap=1, colour=128)
    assert sheet.shape == (5, 7, 3)
    assert sheet[:, :, 0].tolist() == [
        [0, 0, 0, 128, 255, 255, 255],
        [0, 0, 0, 128, 255, 255, 255],
        [128] * 7,
        [255, 255, 255, 128, 128, 128, 128],
        [255, 255, 255, 128, 128, 128, 128],
    ]


def test_each_group_of_signals_has_a_colour():
    """Two groups, one at the left and one at the right: hue 0 is red, half the circle further is cyan."""
    signals = torch.zeros(2, 1, 2, 2)
    signals[0, 0, :, 0], signals[1, 0, :, 1] = 3.0, -5.0
    left, right = coloured_groups(signals, torch.tensor([0, 1]), 2)[0]
    assert left.argmax() == 0
    assert right.argmin() == 0
    assert coloured_groups(signals, torch.tensor([0, 0]), 3).shape == (2, 2, 3), "empty groups"


def test_files_can_be_read_back():
    image = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    assert np.array_equal(np.array(Image.open(io.BytesIO(png(image)))), image)
    values = torch.rand(2, 3, requires_grad=True)
    assert np.array_equal(np.load(io.BytesIO(npy(values))), values.detach().numpy())


def test_figures():
    def drawn():
        with style():
            figure, ((cell,),) = panels(1, 1, 200, 100)
            cell.plot([0, 1], [0, 1], color=colour(0), label=legend("_a$\\alpha$"))
            cell.legend()
        return figure

    svg = to_svg(drawn())
    assert svg.startswith("<svg")
    assert svg == to_svg(drawn()), "the same figure is the same file"
    assert "_a$\\alpha$" in svg, "matplotlib would leave an underscore out, and read dollars as TeX"
    with Image.open(io.BytesIO(to_png(drawn()))) as image:
        assert image.size == (400, 200), "twice the pixels"


def test_the_style_is_left_as_it_was():
    import matplotlib

    before = dict(matplotlib.rcParams)
    with style():
        assert matplotlib.rcParams["text.parse_math"] is False
    assert dict(matplotlib.rcParams) == before
