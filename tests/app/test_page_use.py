"""Using the explorer in a real browser: uploads, exports, links, mistakes, and the keyboard alone."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.app.pages import open_at, until

pytestmark = pytest.mark.slow


def test_uploads_good_and_bad(tab, server):
    open_at(tab, server)
    buffer = io.BytesIO()
    Image.fromarray(np.eye(28, dtype=np.uint8) * 255).save(buffer, "PNG")
    other = io.BytesIO()
    Image.fromarray(np.tri(28, dtype=np.uint8) * 255).save(other, "PNG")
    tab.locator("#file").set_input_files({"name": "eye.png", "mimeType": "image/png", "buffer": buffer.getvalue()})
    until(tab, "location.search.includes('image=upload-')")
    assert tab.locator("#images button").count() == 7
    tab.evaluate(
        """bytes => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], "dropped.png", {type: "image/png"}));
        const drop = new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true});
        document.querySelector("main").dispatchEvent(drop);
    }""",
        list(other.getvalue()),
    )
    until(tab, "document.querySelectorAll('#images button').length === 8")
    tab.locator("#file").set_input_files({"name": "eye.png", "mimeType": "image/png", "buffer": buffer.getvalue()})
    until(tab, "document.querySelector('[aria-selected=true][title*=eye]')")
    tab.locator(".channels button").first.click()
    tab.locator("figcaption", has_text="channel ").first.wait_for()
    assert "channel=0." in tab.url, "the runs are who they were"
    tab.locator("#file").set_input_files({"name": "x.svg", "mimeType": "image/svg+xml", "buffer": b"<svg/>"})
    until(tab, "document.getElementById('message').textContent.includes('SVG')")
    tab.locator("#images button").nth(1).click()
    until(tab, "location.search.includes('image=test-1')")


def test_exports(tab, server):
    open_at(tab, server, "?part=k&k=3")
    with tab.expect_download() as download:
        tab.locator("#export").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        assert {"manifest.json", "1-plain/reconstruction.npy"} <= set(archive.namelist())
        assert json.loads(archive.read("manifest.json"))["runs"][0]["features"] == 3
    with tab.expect_download() as download:
        tab.locator("#page").click()
    alone = tab.context.new_page()
    asked = []
    alone.on("request", lambda each: asked.append(each.url))
    alone.set_content(Path(download.value.path()).read_text())
    assert alone.locator("section img").count() == 6
    assert alone.locator("h2").nth(1).inner_text() == "<b>&$\\alpha$"
    assert all(url.startswith("data:") for url in asked), "self-contained"
    alone.close()


def test_a_mistake_in_an_export_leaves_the_page_where_it_is(tab, server):
    open_at(tab, server)
    tab.route("**/api/export.zip*", lambda route: route.fulfill(status=404, json={"message": "Start it first."}))
    tab.locator("#export").click()
    tab.locator("#message.warning", has_text="Start it first.").wait_for()
    assert tab.locator("article.run").count() == 2


def test_links_and_the_way_back(tab, server):
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_at(tab, server)
    tab.locator("#tab-transplant").click()
    tab.locator("figcaption", has_text="made").first.wait_for()
    tab.locator("#images button").nth(2).click()
    until(tab, "location.search.includes('image=test-2')")
    tab.locator("#link").click()
    tab.locator("#message.note", has_text="clipboard").wait_for()
    assert tab.evaluate("navigator.clipboard.readText()") == tab.url
    tab.go_back()
    until(tab, "!location.search.includes('image=test-2')")
    tab.go_back()
    tab.locator(".channels button").first.wait_for()
    assert tab.locator("#tab-inside").get_attribute("aria-selected") == "true"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?view=foo", "view=foo"),
        ("?view=constructor", "view=constructor"),
        ("?view=evidence&score=zz&step=99", "score=zz, step=99"),
        ("?view=evidence&threshold=0.97&strength=-1&target=x", "threshold=0.97, strength=-1, target=x"),
        ("?part=k&k=6.5", "k=6.5"),
        ("?edits=9999:2", "the edits 9999:2"),
        ("?target=55", "the class 55"),
        ("?channel=0.99999", "the channel 0.99999"),
        ("?image=upload-gone&layer=conv9&method=magic", "the image upload-gone, the layer conv9, the method magic"),
        ("?k=nonsense&edits=<script>", "k=nonsense, edits=<script>"),
    ],
)
def test_addresses_that_cannot_be_meant(tab, server, query, said):
    open_at(tab, server, query)
    assert tab.locator("#message").inner_text() == f"The address asks for {said}, which is not there."
    assert tab.locator("article.run").count() == 2


def test_a_failed_view_does_not_look_like_the_new_one(tab, server):
    open_at(tab, server)
    tab.route("**/api/reconstruct*", lambda route: route.abort())
    tab.locator("#images button").nth(3).click()
    tab.locator("#message", has_text="The server does not answer. Is bort serve still running?").wait_for()
    assert "stale" in tab.locator("#view").get_attribute("class")
    tab.unroute("**/api/reconstruct*")
    tab.locator("#images button").nth(4).click()
    until(tab, "!document.getElementById('view').classList.contains('stale')")
    assert tab.locator("#message").inner_text() == ""


def focus(tab):
    return tab.evaluate(
        "(({id, name, dataset}) => name || id || dataset.name || dataset.channel)(document.activeElement)"
    )


def press_until(tab, wanted, key="Tab", most=60):
    for _ in range(most):
        if focus(tab) == wanted:
            return
        tab.keyboard.press(key)
    pytest.fail(f"{key} never leads to {wanted}")


def choose(tab, control, key, address, times=1):
    """By the keyboard: to a control, a key on it, and the page's address says so."""
    press_until(tab, control)
    for _ in range(times):
        tab.keyboard.press(key)
    until(tab, f"location.search.includes('{address}')")


def test_by_the_keyboard_alone(tab, server):
    open_at(tab, server)
    tab.keyboard.press("Tab")
    assert focus(tab) == "tab-inside"
    tab.keyboard.press("End")
    tab.locator("table").first.wait_for()
    tab.keyboard.press("Home")
    tab.locator(".channels button").first.wait_for()
    choose(tab, "test-0", "ArrowRight", "image=test-2", times=2)
    assert focus(tab) == "test-2"
    choose(tab, "part", "ArrowDown", "part=k")
    choose(tab, "k", "ArrowRight", "k=74", times=10)
    assert focus(tab) == "k", "every press counts, and the focus stays"
    until(tab, "document.getElementById('view').getAttribute('aria-busy') === 'false'")  # the channels of the new image
    first = tab.locator(".channels button").first.get_attribute("data-channel")
    press_until(tab, first)
    tab.keyboard.press("Space")
    tab.locator(".editor .row").first.wait_for()
    assert focus(tab) == first
    tab.keyboard.press("0")
    until(tab, "location.search.includes('edits=')")
    for _ in range(40):  # the editor stands before the grid
        if tab.evaluate("document.activeElement.dataset.factor === '1'"):
            break
        tab.keyboard.press("Shift+Tab")
    tab.keyboard.press("Enter")
    until(tab, "!location.search.includes('edits=')")
    press_until(tab, "tab-inside", "Shift+Tab", 200)
    tab.keyboard.press("ArrowRight")
    until(tab, "location.search.includes('view=channel')")
    tab.keyboard.press("ArrowRight")
    choose(tab, "method", "ArrowUp", "method=")


def test_the_other_views_by_the_keyboard_alone(tab, server):
    open_at(tab, server, "?view=evidence")
    choose(tab, "threshold", "ArrowRight", "threshold=0.25")
    press_until(tab, "step")
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
    tab.locator("figcaption", has_text="deletion, step 3 of 28").first.wait_for()
    press_until(tab, "tab-evidence", "Shift+Tab")
    tab.keyboard.press("ArrowRight")
    tab.locator("figcaption", has_text="made").first.wait_for()
    press_until(tab, "link")
    tab.keyboard.press("Tab")
    with tab.expect_download():
        tab.keyboard.press("Enter")
    press_until(tab, "file")
    choose(tab, "test-1", "ArrowRight", "other=test-2")
    assert focus(tab) == "test-2"
    choose(tab, "path", "ArrowDown", "path=source")
