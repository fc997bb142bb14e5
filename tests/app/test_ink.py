"""Bright on dark, dark on bright, and transparent: what is sent is not lost, and is offered inverted."""

import io
import tracemalloc

import numpy as np
import pytest
import torch
from PIL import Image

from bort import nets
from bort.app import Explorer
from bort.app._ink import borders, contrast_of, inverted, paper_of
from bort.app._uploads import decode
from bort.data import View, load
from bort.subject import of_models
from tests.app.pages import png_of
from tests.subject.small import network


def stroke(paper, ink, side=28):
    """A vertical bar."""
    image = np.full((side, side), paper, np.uint8)
    image[side // 5 : -side // 5, side * 2 // 5 : side * 3 // 5] = ink
    return image


def as_tensor(image):
    return torch.tensor(image)[None, None] / 255


def test_paper_is_told_from_the_borders():
    digits = load("mnist5k").test_images[:64].float() / 255
    assert paper_of(digits) == "dark"
    assert paper_of(1 - digits) == "bright"
    assert paper_of(torch.cat([digits[:50], 1 - digits[50:]])) is None, "fewer than nine of ten"
    assert paper_of(torch.rand(20, 3, 56, 56)) is None
    assert borders(as_tensor(stroke(51, 255))).item() == pytest.approx(0.2)
    wide = torch.zeros(1, 3, 56, 84)
    wide[:, :, 2:-2, 2:-2] = 1
    assert borders(wide).item() == 0, "a 28th of the shorter side on each edge"


def test_contrast_is_told_where_the_networks_images_are_alike():
    dark_on_bright, bright_on_dark = as_tensor(stroke(200, 30)), as_tensor(stroke(30, 200))
    assert contrast_of(dark_on_bright, "dark") == "dark on bright"
    assert contrast_of(bright_on_dark, "bright") == "bright on dark"
    for image, paper in ((dark_on_bright, "bright"), (bright_on_dark, "dark"), (dark_on_bright, None)):
        assert contrast_of(image, paper) == ""


def test_inverting():
    white = as_tensor(stroke(255, 0))
    assert torch.equal(inverted(white), 1 - white)
    assert torch.equal(inverted(inverted(white)), white)
    grey = inverted(as_tensor(stroke(180, 60)))
    assert grey.min() == 0
    assert grey.max() == 1, "of a photograph the paper becomes black and the ink white"
    assert torch.equal(grey, (as_tensor(stroke(0, 1)) * 255))
    assert torch.equal(inverted(as_tensor(stroke(60, 180))), 1 - grey)
    assert inverted(as_tensor(stroke(200, 200))).max() < 0.3, "an empty sheet"


def transparent(colour, mode="RGBA"):
    """A PNG: a bar of that colour on transparent, under which something else is stored."""
    image = np.zeros((28, 28, 4), np.uint8)
    image[..., :3] = 128
    image[5:-5, 11:17] = (*colour, 255)
    buffer = io.BytesIO()
    Image.fromarray(image, "RGBA").convert(mode).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("colour", "paper", "becomes"),
    [
        ((255, 255, 255), "dark", 0),
        ((255, 255, 255), "bright", 0),
        ((0, 0, 0), "dark", 255),
        ((0, 0, 0), "bright", 255),
        ((200, 60, 40), "dark", 0),
        ((200, 60, 40), "bright", 255),
    ],
)
def test_what_is_visible_decides_what_transparent_becomes(colour, paper, becomes):
    for mode in ("RGBA", "LA"):
        found = np.array(decode(transparent(colour, mode), paper=paper))
        ink = list(colour) if mode == "RGBA" else [Image.new("RGB", (1, 1), colour).convert("L").getpixel((0, 0))] * 3
        assert found[0, 0].tolist() == [becomes] * 3
        assert found[14, 14].tolist() == ink


def test_a_palette_with_a_transparent_colour():
    image = Image.new("P", (28, 28), 0)
    image.putpalette([255, 0, 0, 255, 255, 255])
    image.paste(1, (10, 5, 18, 23))
    buffer = io.BytesIO()
    image.save(buffer, "GIF", transparency=0)
    found = np.array(decode(buffer.getvalue(), paper="bright"))
    assert found[0, 0].tolist() == [0, 0, 0]
    assert found[14, 14].tolist() == [255, 255, 255]


def test_sixteen_bits_with_a_transparent_value():
    grey = np.full((28, 28), 1000, np.uint16)
    grey[5:-5, 11:17] = 65535
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "PNG", transparency=1000)
    found = np.array(decode(buffer.getvalue(), paper="bright"))
    assert (found[0, 0].max(), found[14, 14].min()) == (0, 255), "white on transparent is seen on dark"


def test_what_is_opaque_stays():
    image = Image.fromarray(stroke(255, 0)).convert("RGBA")
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    for paper in ("dark", "bright"):
        assert np.array_equal(np.array(decode(buffer.getvalue(), paper=paper))[..., 0], stroke(255, 0))
    assert np.array(decode(png_of(np.zeros((8, 8, 4), np.uint8)), paper="dark")).max() == 0
    assert np.array(decode(png_of(np.zeros((8, 8, 4), np.uint8)), paper="bright")).min() == 255


def test_a_large_transparent_picture_takes_no_more_memory_than_its_pixels():
    """The ink is judged by a sample."""
    image = np.zeros((2000, 2000, 4), np.uint8)
    image[900:1100, 100:1900] = 255
    content = png_of(image)
    tracemalloc.start()
    found = decode(content, paper="bright")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array(found)[0, 0].tolist() == [0, 0, 0]
    assert peak < 2 * image.nbytes, "numpy's arrays; Pillow's own are as before"


# --- offered by the explorer


@pytest.fixture(scope="module")
def digits():
    """A network on digits."""
    data = load("mnist5k")
    torch.manual_seed(0)
    model = nets.create("lenet")
    images = data.normalise(data.test_images[:20])
    mean, std = (tuple(part.tolist()) for part in data.statistics())
    return Explorer(of_models(model, images, labels=data.test_labels[:20], mean=mean, std=std))


def test_paper_is_offered_inverted(client_of, digits):
    client = client_of(digits)
    name = client.post("/api/upload", content=png_of(stroke(230, 20, 280))).json()["image"]
    info = {image["name"]: image for image in client.get("/api/info").json()["images"]}
    assert info[name]["contrast"] == "dark on bright"
    assert all(image["contrast"] == "" for other, image in info.items() if other != name)
    other = client.post("/api/invert", params={"image": name}).json()["image"]
    assert client.post("/api/invert", params={"image": name}).json()["image"] == other
    about = client.get("/api/image", params={"image": other}).json()
    assert (about["contrast"], about["inverse_of"]) == ("", name)
    picture = digits.input(other)
    assert (picture[0, 0].max(), picture[14, 14].min()) == (0, 255)
    assert digits.image("model", other).min().item() == pytest.approx(digits.image("model", "test-0").min().item())
    assert client.get("/api/image", params={"image": name}).status_code == 200, "it can be undone"
    digit = client.post("/api/upload", content=png_of(stroke(0, 255))).json()["image"]
    assert client.get("/api/image", params={"image": digit}).json()["contrast"] == ""
    assert client.post("/api/invert", params={"image": "upload-gone"}).status_code == 404


def test_white_on_transparent_is_not_lost(client_of, digits):
    client = client_of(digits)
    white, black = (client.post("/api/upload", content=transparent((level,) * 3)).json()["image"] for level in (255, 0))
    assert (digits.input(white)[0, 0, 0], digits.input(white)[14, 14, 0]) == (0, 255)
    assert (digits.input(black)[0, 0, 0], digits.input(black)[14, 14, 0]) == (255, 0), "and is offered inverted"
    assert client.get("/api/image", params={"image": black}).json()["contrast"] == "dark on bright"
    assert client.get("/api/image", params={"image": white}).json()["contrast"] == ""


def test_photographs_are_not_offered_inverted(client_of):
    torch.manual_seed(0)
    view = View(8, 3, (0.5,) * 3, (0.25,) * 3)
    explorer = Explorer(of_models(network(), torch.rand(6, 3, 8, 8), mean=view.mean, std=view.std))
    client = client_of(explorer)
    for image in (stroke(255, 0), stroke(0, 255)):
        name = client.post("/api/upload", content=png_of(image)).json()["image"]
        assert client.get("/api/image", params={"image": name}).json()["contrast"] == ""
