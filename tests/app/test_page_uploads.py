"""Images that are sent, in a real browser: paper is offered inverted."""

import numpy as np
import pytest
import torch

from bort import nets
from bort.app import Explorer
from bort.data import load
from bort.subject import of_models
from tests.app.pages import open_at, png_of, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def explorer():
    """A network on digits."""
    data = load("mnist5k")
    torch.manual_seed(0)
    mean, std = (tuple(part.tolist()) for part in data.statistics())
    images = data.normalise(data.test_images[:10])
    explorer = Explorer(of_models(nets.create("lenet"), images, labels=data.test_labels[:10], mean=mean, std=std))
    yield explorer
    explorer.close()


def send(tab, name, pixels):
    tab.locator("#file").set_input_files({"name": name, "mimeType": "image/png", "buffer": png_of(pixels)})


@pytest.fixture
def paper():
    image = np.full((60, 60), 210, np.uint8)
    image[12:48, 25:35] = 40
    return image


def test_paper_is_inverted_and_back(tab, server, paper):
    open_at(tab, server)
    assert tab.locator("#offer").inner_text() == ""
    send(tab, "paper.png", paper)
    tab.locator("#offer", has_text="This image is dark on bright, the network's images are bright on dark.").wait_for()
    tab.locator("#invert").click()
    until(tab, "location.search.includes('-inverted')")
    tab.locator("#offer", has_text="Dark and bright are exchanged").wait_for()
    assert tab.locator("#images [aria-selected=true]").get_attribute("title").endswith("paper.png, inverted")
    tab.reload()
    tab.wait_for_selector("body[data-ready]")
    tab.locator("#undo-invert").click()
    until(tab, "!location.search.includes('-inverted')")
    assert tab.locator("#invert").is_visible(), "it is offered again"
    tab.locator("#images button").first.click()
    until(tab, "document.getElementById('offer').textContent === ''")


def test_by_the_keyboard(tab, server, paper):
    open_at(tab, server)
    send(tab, "paper.png", paper[::-1].copy())
    tab.locator("#invert").wait_for()
    tab.locator("#file").focus()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "invert"
    tab.keyboard.press("Enter")
    until(tab, "document.activeElement.id === 'undo-invert'")
    tab.keyboard.press("Enter")
    until(tab, "!location.search.includes('-inverted')")


def test_a_digit_is_not_offered_inverted(tab, server):
    open_at(tab, server)
    digit = np.zeros((28, 28), np.uint8)
    digit[5:-5, 11:17] = 255
    send(tab, "digit.png", digit)
    until(tab, "location.search.includes('image=upload-')")
    assert tab.locator("#offer").inner_text() == ""


def test_sent_from_a_view_without_images_it_is_shown(tab, server, paper):
    open_at(tab, server, "?view=draw")
    assert not tab.locator("#picker").is_visible()
    send(tab, "paper.png", paper)
    until(tab, "location.search.includes('image=upload-')")
    tab.locator(".channels button").first.wait_for()
    assert tab.locator("#picker").is_visible()


def test_the_strip_shows_what_is_there(tab, server, paper):
    """Another sheet after each upload: sent again, an image becomes the last one as it was before."""
    open_at(tab, server)
    sheets = []
    for name, picture in (("one.png", paper // 2), ("other.png", paper // 3), ("one.png", paper // 2)):
        send(tab, name, picture)
        tab.locator("#images button:last-child[aria-selected=true]").and_(tab.get_by_title(name)).wait_for()
        sheets.append(tab.locator("#images .thumb").last.evaluate("node => node.style.backgroundImage"))
    assert len(set(sheets)) == 3


@pytest.mark.parametrize("view", ["inside", "audit"])
def test_the_first_image_is_shown(tab, serve, paper, view):
    explorer = Explorer(of_models(nets.create("lenet"), size=28, mean=(0.5,), std=(0.5,)))
    open_at(tab, serve(explorer), f"?view={view}")
    send(tab, "paper.png", paper)
    until(tab, "location.search.includes('image=upload-')")
    tab.locator(".channels button").first.wait_for()
    assert tab.locator("#message").inner_text() == ""
    explorer.close()
