"""The view "Draw" in a real browser: by mouse, by finger, by keys."""

import json
import threading
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from bort.app import Explorer
from bort.data import View
from bort.subject import Subject
from tests.app.pages import open_at, until

pytestmark = pytest.mark.slow

INK = """() => {
    const canvas = document.querySelector('.canvas canvas');
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return [...data].filter((_, n) => n % 4 === 0);
}"""
ANSWERED = "document.querySelectorAll('.drawn article.run figure img').length === 4"
KEPT = "location.search.includes('drawing=drawing-')"


def ink(tab):
    return np.array(tab.evaluate(INK), np.uint8).reshape(224, 224)


def stroke(tab, *places, release=True):
    """From place to place, each a part of the canvas's width and height."""
    box = tab.locator(".canvas").bounding_box()
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in places]
    tab.mouse.move(*points[0])
    tab.mouse.down()
    for point in points[1:]:
        tab.mouse.move(*point, steps=4)
    if release:
        tab.mouse.up()


def drawn(tab):
    """The pictures of all runs: input, reconstruction, input, reconstruction."""
    return [image.get_attribute("src") for image in tab.locator(".drawn article.run figure img").all()]


SIZES = [
    {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    for width, scheme in ((390, "light"), (390, "dark"), (1440, "light"), (1440, "dark"))
]


@pytest.mark.parametrize("tab", SIZES, indirect=True)
def test_it_fits_and_says_what_to_do(tab, server):
    open_at(tab, server, "?view=draw")
    assert tab.locator("[role=tab][aria-selected=true]").inner_text() == "Draw"
    assert "Draw one of 0, 1, 2" in tab.locator(".drawn .hint").inner_text()
    for name in ("#undo", "#clear", "#look"):
        assert tab.locator(name).is_disabled(), "there is nothing yet"
    stroke(tab, (0.3, 0.2), (0.6, 0.5), (0.3, 0.8))
    until(tab, KEPT)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.locator(".drawn article.run").count() == 2
    assert tab.locator(".drawn ol.bars li").count() == 20, "ten classes of two networks"
    assert tab.locator(".verdicts").is_visible() == (tab.viewport_size["width"] == 390)
    box = tab.locator(".canvas").bounding_box()
    assert box["width"] == pytest.approx(box["height"], abs=3)
    assert tab.locator("#message").inner_text() == ""


def test_the_networks_follow_before_the_mouse_is_let_go(tab, server, explorer):
    open_at(tab, server, "?view=draw&layer=conv4")
    stroke(tab, (0.3, 0.2), (0.6, 0.5), release=False)
    until(tab, ANSWERED)
    first = drawn(tab)
    assert "drawing=" not in tab.url, "nothing is kept yet"
    stroke_on = tab.locator(".canvas").bounding_box()
    tab.mouse.move(stroke_on["x"] + 20, stroke_on["y"] + 250, steps=5)
    until(tab, "before => document.querySelector('.drawn figure img').src !== before", first[0])
    tab.mouse.up()
    until(tab, KEPT)
    look = explorer.drawings.look("plain", explorer.drawings.inputs(ink(tab).tobytes(), centre=True)["plain"], "conv4")
    caption = tab.locator(".drawn article.run").first.locator("figcaption").nth(1)
    assert caption.inner_text() == f"reconstruction from conv4, correlation {look['correlation']:.2f}"
    best = look["classes"][0]
    line = tab.locator(".drawn article.run").first.locator("ol.bars li.first")
    assert line.inner_text().split() == [best["name"], f"{100 * best['probability']:.1f}%"]


def test_one_request_at_a_time_and_the_newest_wins(tab, server):
    open_at(tab, server, "?view=draw")
    now, most, bodies, lock = 0, 0, [], threading.Lock()

    def slowly(route):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        bodies.append(route.request.post_data_buffer)
        tab.wait_for_timeout(150)
        now -= 1
        route.continue_()

    tab.route("**/api/draw*", slowly)
    stroke(tab, (0.2, 0.2), (0.8, 0.2), (0.2, 0.8), (0.8, 0.8))
    until(tab, KEPT)
    assert most == 1
    assert 1 < len(bodies) < 12, "not one for each of the mouse's moves"
    assert bodies[-1] == ink(tab).tobytes()


def test_it_stays_after_reload_back_and_by_a_link(tab, server):
    open_at(tab, server, "?view=draw")
    stroke(tab, (0.3, 0.2), (0.3, 0.8))
    until(tab, KEPT)
    before, pictures = ink(tab), drawn(tab)
    tab.reload()
    tab.wait_for_selector("body[data-ready]")
    until(tab, ANSWERED)
    assert np.abs(ink(tab).astype(int) - before).max() <= 1
    assert drawn(tab) == pictures
    tab.locator("#tab-audit").click()
    tab.locator("table").first.wait_for()
    tab.go_back()
    until(tab, ANSWERED)
    assert drawn(tab) == pictures
    again = tab.context.new_page()
    open_at(again, "", tab.url)
    until(again, ANSWERED)
    assert drawn(again) == pictures
    again.close()
    open_at(tab, server, "?view=draw&drawing=drawing-0123456789abcdef")
    assert "not there any more" in tab.locator("#message").inner_text()
    assert tab.locator(".drawn .hint").count() == 1


def test_pen_eraser_undo_and_clear(tab, server):
    open_at(tab, server, "?view=draw")
    stroke(tab, (0.2, 0.5), (0.8, 0.5))
    thin = ink(tab)
    tab.locator("#undo").click()
    until(tab, "document.querySelector('.drawn .hint')")
    assert ink(tab).max() == 0
    tab.locator("#pen").fill("5")
    stroke(tab, (0.2, 0.5), (0.8, 0.5))
    thick = ink(tab)
    assert thick.sum() > 1.5 * thin.sum()
    tab.locator("#eraser").click()
    assert tab.locator("#eraser").get_attribute("aria-pressed") == "true"
    stroke(tab, (0.5, 0.3), (0.5, 0.7))
    erased = ink(tab)
    assert erased[112, 112] == 0
    assert erased.sum() < thick.sum()
    tab.locator("#undo").click()
    assert np.array_equal(ink(tab), thick)
    tab.locator("#clear").click()
    until(tab, "document.querySelector('.drawn .hint') && !location.search.includes('drawing=')")
    tab.locator("#undo").click()
    assert np.array_equal(ink(tab), thick)
    until(tab, KEPT)


def test_centred_or_as_drawn(tab, server):
    open_at(tab, server, "?view=draw")
    stroke(tab, (0.1, 0.1), (0.3, 0.3))
    until(tab, KEPT)
    centred = drawn(tab)[0]
    tab.locator("input[name=centre]").uncheck()
    until(tab, "before => document.querySelector('.drawn figure img').src !== before", centred)
    assert "centre=0" in tab.url
    assert tab.locator(".drawn figcaption").first.inner_text() == "as the network sees it"
    tab.locator("select[name=layer]").select_option("conv2")
    tab.locator("figcaption", has_text="reconstruction from conv2").first.wait_for()


def test_look_inside(tab, server):
    open_at(tab, server, "?view=draw")
    stroke(tab, (0.3, 0.2), (0.6, 0.5), (0.3, 0.8))
    tab.locator("#look").click()
    until(tab, "location.search.includes('image=drawing-')")
    tab.locator(".channels button").first.wait_for()
    chosen = tab.locator("#images [aria-selected=true]")
    assert chosen.get_attribute("data-name").startswith("drawing-")
    assert chosen.is_visible()
    tab.locator("#tab-evidence").click()
    tab.locator("#view[data-view=evidence][aria-busy=false]").wait_for()
    assert tab.locator("#message").inner_text() == ""
    tab.locator("#tab-draw").click()
    until(tab, ANSWERED)
    assert ink(tab).max() > 0, "the drawing is still there"


def test_it_is_saved(tab, server):
    open_at(tab, server, "?view=draw")
    stroke(tab, (0.3, 0.2), (0.6, 0.5))
    with tab.expect_download() as download:
        tab.locator("#export").click()  # at once: it waits for the drawing's name
    with zipfile.ZipFile(download.value.path()) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert "1-plain/drawing.png" in archive.namelist()
    assert manifest["view"]["drawing"] in tab.url


def test_by_the_keyboard_alone(tab, server):
    open_at(tab, server, "?view=draw")
    for _ in range(30):
        if tab.evaluate("document.activeElement.classList.contains('canvas')"):
            break
        tab.keyboard.press("Tab")
    said = tab.locator(".canvas [aria-live]")
    scrolled = tab.evaluate("scrollY")
    tab.keyboard.press("ArrowUp")
    assert said.inner_text() == "Row 14, column 15: empty"
    assert tab.locator(".canvas .cursor").is_visible()
    tab.locator("#pen").evaluate("node => { node.value = 1; node.dispatchEvent(new Event('input')); }")
    tab.keyboard.press("Space")
    assert said.inner_text() == "Row 14, column 15: painted"
    expected = np.zeros((224, 224), np.uint8)
    expected[13 * 8 : 14 * 8, 14 * 8 : 15 * 8] = 255
    assert np.array_equal(ink(tab), expected), "a pixel of the network's"
    for _ in range(3):
        tab.keyboard.press("Shift+ArrowDown")
    expected[14 * 8 : 17 * 8, 14 * 8 : 15 * 8] = 255
    assert np.array_equal(ink(tab), expected)
    until(tab, ANSWERED)
    until(tab, KEPT)
    tab.keyboard.press("Control+z")
    expected[16 * 8 : 17 * 8] = 0
    assert np.array_equal(ink(tab), expected)
    for _ in range(40):
        tab.keyboard.press("ArrowLeft")
    assert said.inner_text() == "Row 17, column 1: empty"
    assert tab.evaluate("scrollY") == scrolled, "the keys do not scroll"
    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "eraser"
    tab.keyboard.press("Enter")
    tab.keyboard.press("Shift+Tab")
    tab.keyboard.press("Shift+Tab")
    for _ in range(14):
        tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowUp")
    assert said.inner_text() == "Row 16, column 15: ink"
    tab.keyboard.press("Space")
    assert said.inner_text() == "Row 16, column 15: erased"
    for _ in range(5):
        tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "look"
    tab.keyboard.press("Enter")
    until(tab, "location.search.includes('image=drawing-')")


@pytest.mark.parametrize("tab", [{"viewport": {"width": 390, "height": 700}, "has_touch": True}], indirect=True)
def test_by_finger_without_scrolling(tab, server):
    open_at(tab, server, "?view=draw")
    box = tab.locator(".canvas").bounding_box()
    touches = tab.context.new_cdp_session(tab)

    def touch(kind, *places):
        points = [
            {"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"], "id": n}
            for n, (x, y) in enumerate(places)
        ]
        touches.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    assert tab.evaluate("document.documentElement.scrollHeight > innerHeight"), "there is somewhere to scroll to"
    before = tab.evaluate("scrollY")
    touch("touchStart", (0.5, 0.9))
    for part in range(9, 1, -1):
        touch("touchMove", (0.5, part / 10))
    touch("touchStart", (0.5, 0.2), (0.1, 0.1))  # a second finger draws nothing
    touch("touchEnd")
    until(tab, KEPT)
    assert tab.evaluate("scrollY") == before
    found = ink(tab)
    assert found[60:180, 112].min() == 255
    assert found[:40, :40].max() == 0


def test_a_server_that_does_not_answer(tab, server):
    open_at(tab, server, "?view=draw")
    tab.route("**/api/draw*", lambda route: route.abort())
    stroke(tab, (0.3, 0.2), (0.6, 0.5))
    tab.locator("#message", has_text="The server does not answer").wait_for()
    tab.unroute("**/api/draw*")
    stroke(tab, (0.3, 0.5), (0.6, 0.2))
    until(tab, ANSWERED)
    assert tab.locator("#message").inner_text() == ""


def test_not_for_photographs(tab, serve):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    photographs = View(16, 3, (0.5,) * 3, (0.5,) * 3)
    images = torch.rand(3, 3, 16, 16)
    subject = Subject("photographs", model, photographs, lambda count: (images[:count], torch.tensor([-1] * 3)))
    address = serve(Explorer([subject]))
    open_at(tab, address, "?view=draw")
    assert tab.locator("#tab-draw").count() == 0
    assert tab.locator("#message").inner_text() == (
        "The address asks for the view “Draw”. Only small grey images can be drawn (1 channel, at most 64 × 64 pixels), "
        "and photographs takes 3 × 16 × 16."
    )
    assert tab.locator("[role=tab][aria-selected=true]").inner_text() == "Look inside"


def test_without_any_image(tab, serve):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
    address = serve(
        Explorer(
            [Subject("mine", model, View(28, 1, (0.5,), (0.5,), ("circle", "square", "a very long name of a class")))]
        )
    )
    open_at(tab, address, "?view=draw")
    stroke(tab, (0.3, 0.2), (0.6, 0.5), (0.3, 0.8))
    until(tab, KEPT)
    assert tab.locator(".drawn article.run").count() == 1
    assert tab.locator("ol.bars li").count() == 3
    tab.locator("#look").click()
    tab.locator(".channels button").first.wait_for()
    open_at(tab, address, "?view=find")
    assert "There are no test images to look through" in tab.locator(".indexing").inner_text()
