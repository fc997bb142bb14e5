"""Networks that others have made: a ResNet and a ViT side by side on photographs, and one without images."""

import pytest
import timm
import torch
from skimage import data as photographs

from bort.app import Explorer
from bort.subject import of_models
from tests.app.pages import open_at, until
from tests.app.test_page_inside import BUSY

pytestmark = pytest.mark.slow

CLASSES = ("cat", "cup of coffee", "person", "rocket")


def pictures():
    """Four photographs and their mirror images, (8, 3, 48, 48) in [0, 1]."""
    read = (photographs.chelsea, photographs.coffee, photographs.astronaut, photographs.rocket)
    whole = [torch.from_numpy(one().copy()).permute(2, 0, 1)[None].float() / 255 for one in read]
    small = torch.cat([torch.nn.functional.interpolate(one, (48, 48), mode="area") for one in whole])
    return torch.cat([small, small.flip(-1)])


def networks():
    torch.manual_seed(0)
    transformer = {"img_size": 48, "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 3}
    return {
        "ResNet": timm.create_model("resnet10t", num_classes=4),
        "ViT": timm.create_model("vit_tiny_patch16_224", num_classes=4, **transformer),
    }


@pytest.fixture(scope="module")
def photo_server(serve):
    labels = torch.arange(4).repeat(2)
    return serve(Explorer(of_models(networks(), pictures(), labels=labels, classes=CLASSES), examples=4))


@pytest.mark.parametrize(
    "tab",
    [{"viewport": {"width": 1366, "height": 680}}, {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}],
    indirect=True,
)
@pytest.mark.parametrize("view", ["inside", "channel", "evidence", "transplant", "find", "audit"])
def test_every_view_of_networks_on_photographs(tab, photo_server, view):
    open_at(tab, photo_server, f"?view={view}")
    until(tab, BUSY)
    assert tab.locator("#message").inner_text() == ""
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    until(tab, "[...document.querySelectorAll('#view img')].every(image => image.complete && image.naturalWidth > 0)")
    shown = tab.locator("#view").inner_text()
    assert "ResNet" in shown
    assert "ViT" in shown
    if view == "audit":
        assert "only in ResNet" in shown
        assert "only in ViT" in shown
    elif view == "find":
        until(tab, "document.querySelector('.found-image .truth')?.textContent === 'cat'")
    else:
        assert tab.locator("#view img").count() >= 2


def test_a_channel_of_each_is_switched_off(tab, photo_server):
    open_at(tab, photo_server)
    for number in (0, 1):
        card = tab.locator("article.run").nth(number)
        card.locator(".channels button").first.click()
        until(tab, BUSY)
        card.locator('.presets [data-factor="0"]').click()
        card.locator("figcaption", has_text="difference").wait_for()
        until(tab, BUSY)
    assert tab.locator("#message").inner_text() == ""


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("inside", "There is no image to look at yet"),
        ("evidence", "There is no image to look at yet"),
        ("find", "There are no test images to look through"),
        ("audit", "conv1.0.weight"),
    ],
)
def test_a_network_without_images(tab, serve, view, words):
    (subject,) = of_models({"ResNet": networks()["ResNet"]}, size=48, mean=(0.5,) * 3, std=(0.5,) * 3)
    open_at(tab, serve(Explorer([subject])), f"?view={view}")
    until(tab, "words => document.body.innerText.includes(words)", words)
    until(tab, BUSY)
