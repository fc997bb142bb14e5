"""Images with maps and signals beside each other, for notebooks and files."""

import io
import re
from base64 import b64decode

import numpy as np
import pytest
import torch
from PIL import Image

import bort
from bort.data import View
from bort.pictures import overlay, picture, signal


def pictures(shown):
    """The pictures in the HTML, as arrays."""
    files = re.findall(r'src="data:image/png;base64,([^"]*)"', shown._repr_html_())
    return [np.array(Image.open(io.BytesIO(b64decode(file)))) for file in files]


def rows(shown):
    """(name, words below its pictures) of each row in the HTML."""
    lines = re.findall(r"<tr>(.*?)</tr>", shown._repr_html_())
    return [
        (re.search(r"<th[^>]*>(.*?)</th>", line)[1], re.findall(r"<td><img [^>]*>(?:<br>)?(.*?)</td>", line))
        for line in lines
    ]


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_images_maps_and_signals_are_drawn_as_everywhere(channels):
    x, maps, signals = torch.rand(2, channels, 6, 9), torch.randn(2, 6, 9), torch.randn(2, channels, 6, 9)
    shown = bort.show(x, {"a": maps, "b": -maps}, signals=signals, names=["one", "two"], strength=0.3)
    expected = [
        *(picture(image) for image in x),
        *(overlay(image, values, 0.3) for of in (maps, -maps) for image, values in zip(x, of, strict=True)),
        *(signal(values) for values in signals),
    ]
    for one, other in zip(pictures(shown), expected, strict=True):
        assert np.array_equal(one, other)
    correlations = [np.corrcoef(a.flatten(), b.flatten())[0, 1] for a, b in zip(x, signals, strict=True)]
    assert rows(shown) == [
        ("image", ["one", "two"]),
        ("a", ["", ""]),
        ("b", ["", ""]),
        ("signal", [f"{c:.2f}" for c in correlations]),
    ]
    assert re.findall(r'alt="([^"]*)"', shown._repr_html_())[2:4] == ["a 1", "a 2"]
    assert 'width="112"' in shown._repr_html_(), "the longer side"


def test_signed_maps():
    """All of them, or those that are named."""
    x, maps = torch.rand(1, 1, 4, 4), torch.randn(1, 4, 4)
    both = {"ig": maps, "sat": maps}
    signed, plain = overlay(x[0], maps[0], signed=True), overlay(x[0], maps[0])
    assert not np.array_equal(signed, plain)
    for given, expected in ((True, [signed, signed]), (["ig"], [signed, plain]), (False, [plain, plain])):
        for one, other in zip(pictures(bort.show(x, both, signed=given))[1:], expected, strict=True):
            assert np.array_equal(one, other)


def test_normalised_images_are_shown_as_pixels():
    pixels = torch.rand(2, 3, 4, 4)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.4, 0.3)
    view = View(4, 3, mean, std)
    for shown in (
        bort.show(view.normalised(pixels), view=view),
        bort.show(view.normalised(pixels), mean=mean, std=std),
    ):
        assert np.array_equal(pictures(shown)[0], picture(pixels[0]))
        assert shown.notes == ()


def test_images_of_unknown_scale_are_stretched_and_that_is_said():
    x = torch.linspace(-2, 6, 16).view(1, 1, 4, 4)
    shown = bort.show(x)
    assert np.array_equal(pictures(shown)[0], picture((x[0] + 2) / 8))
    assert shown.notes == ("Values from -2.00 (black) to 6.00 (white); mean and std would give the pixels.",)
    assert "Values from -2.00 (black)" in shown._repr_html_()
    assert bort.show(torch.full((1, 1, 2, 2), 7.0)).notes, "also if they are all the same"


def test_bytes():
    x = torch.arange(12, dtype=torch.uint8).view(1, 3, 2, 2) * 20
    assert np.array_equal(pictures(bort.show(x))[0], x[0].permute(1, 2, 0).numpy())


def test_many_images_go_below_each_other_up_to_a_limit():
    x = torch.rand(20, 1, 3, 3)
    shown = bort.show(x, torch.rand(20, 3, 3), names=range(20), limit=10)
    assert [(name, len(words)) for name, words in rows(shown)] == [("image", 8), ("map", 8), ("image", 2), ("map", 2)]
    assert rows(shown)[2][1] == ["8", "9"]
    assert re.findall(r'alt="([^"]*)"', shown._repr_html_())[-1] == "map 10"
    assert shown.notes == ("The first 10 of 20 images.",)
    assert repr(shown) == "<10 images of 3×3 with map: shown in a notebook, elsewhere use save(file)>"
    assert rows(bort.show(x, names=torch.arange(20)))[0][1][:3] == ["0", "1", "2"]


def test_large_images_are_reduced_and_keep_their_proportions():
    (shown,) = pictures(bort.show(torch.rand(1, 3, 300, 600)))
    assert shown.shape == (112, 224, 3)


def test_names_are_not_read_as_markup():
    x = torch.rand(1, 1, 3, 3)
    page = bort.show(x, {'<script>"': torch.rand(1, 3, 3)}, names=["<b>&"])._repr_html_()
    assert "<script>" not in page
    assert "<b>" not in page
    assert 'alt="&lt;script&gt;&quot; 1"' in page


def test_arrays_are_taken_for_tensors():
    x, maps = torch.rand(2, 1, 4, 4), torch.rand(2, 4, 4)
    assert bort.show(x.numpy(), maps.numpy())._repr_html_() == bort.show(x, maps)._repr_html_()


def test_gradients_and_doubles_do_not_matter():
    x = torch.rand(2, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    maps = (x * 2).mean(dim=1)
    assert len(pictures(bort.show(x, maps, signals=x * 3))) == 6


def test_files(tmp_path):
    shown = bort.show(torch.rand(3, 1, 4, 6), torch.rand(3, 4, 6), names=["a<b", "c", "d"])
    shown.save(tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as image:
        assert image.width > image.height > 50
    shown.save(str(tmp_path / "sheet.svg"))
    text = (tmp_path / "sheet.svg").read_text()
    assert text.startswith("<?xml")
    assert "a&lt;b" in text
    with pytest.raises(ValueError, match=r"sheet\.pdf: the name must end in \.png or \.svg"):
        shown.save(tmp_path / "sheet.pdf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sheet.png", "sheet.svg"]


X = torch.rand(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": X[0]}, r"shape \(3, 4, 5\): give \(N, channels, height, width\); one image is images\[None\]"),
        ({"images": X[:0]}, r"shape \(0, 3, 4, 5\): give"),
        ({"images": X.long()}, r"torch.int64: give floats, or bytes"),
        ({"images": X / 0}, "the images have NaN or Inf"),
        ({"maps": X[:1, 0]}, r"the map 'map' has the shape \(1, 4, 5\): for these images it must be \(2, 4, 5\)"),
        ({"maps": {"ig": X[:, 0].log() / 0}}, "the map 'ig' has NaN or Inf in it"),
        ({"signals": {"conv": X[:, :1]}}, r"'conv' has the shape \(2, 1, 4, 5\): for these images it must be \(2, 3"),
        ({"names": ["a"]}, "1 names for 2 images"),
        ({"mean": (0.5,) * 3}, "mean has 3 numbers, std 0, the images have 3 channels"),
        ({"view": View(4, 1, (0.5,), (0.5,))}, "mean has 1 numbers, std 1, the images have 3 channels"),
        ({"limit": 0}, "limit=0"),
        ({"maps": X[:, 0], "strength": 2.0}, "strength=2.0"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ValueError, match=message):
        bort.show(**({"images": X} | arguments))
