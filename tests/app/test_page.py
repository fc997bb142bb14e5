"""The explorer in a real browser: every feature by clicking, by the keyboard alone, light and dark, narrow and wide."""

import io
import re
import socket
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import uvicorn
from PIL import Image

from bort.app._guard import Guard
from bort.app._server import create

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(explorer):
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        create(explorer, Guard((f"localhost:{port}",))), log_level="error", timeout_graceful_shutdown=1
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.02)
    yield f"http://localhost:{port}/"
    running.should_exit = True
    thread.join(timeout=10)


@pytest.fixture
def tab(browser, server, request):
    """A page whose console stays empty and whose requests stay on this machine."""
    options = {"viewport": {"width": 1440, "height": 900}} | getattr(request, "param", {})
    context = browser.new_context(**options)
    made = context.new_page()
    said, asked = [], []
    made.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: said.append(str(error)))
    made.on("request", lambda each: asked.append(each.url))
    yield made
    assert [line for line in said if "400" not in line and "413" not in line] == []
    assert all(url.startswith((server, "data:", "blob:")) for url in asked), "no request beyond loopback"
    context.close()


def until(tab, expression, arg=None):
    """Playwright's own wait evaluates strings in the page, which its policy forbids."""
    for _ in range(400):
        if tab.evaluate(expression, arg):
            return
        time.sleep(0.05)
    pytest.fail(f"never true: {expression}")


def open_at(tab, server, query=""):
    tab.goto(server + query)
    tab.wait_for_selector("body[data-ready]")


@pytest.mark.parametrize(
    "tab",
    [
        {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
        for width in (390, 1440)
        for scheme in ("light", "dark")
    ],
    indirect=True,
)
@pytest.mark.parametrize("view", ["inside", "evidence", "transplant", "audit"])
def test_every_view_fits(tab, server, view):
    open_at(tab, server, f"?view={view}")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.locator("article.run").count() == 2
    assert tab.locator("article.run h2").nth(1).inner_text().startswith("<b>&$\\alpha$")
    assert tab.locator("h2 b").count() == 0, "names are escaped"
    for picture in tab.locator("img").all():
        assert picture.get_attribute("alt") is not None
        assert picture.bounding_box()["width"] > 10
    assert tab.locator("#message").inner_text() == ""


def test_channels_by_clicking(tab, server):
    open_at(tab, server)
    first = tab.locator("article.run").first
    second = tab.locator("article.run").nth(1)
    before = first.locator("figure img").nth(1).get_attribute("src")
    first.locator(".channels button").nth(1).click()
    first.locator("figcaption", has_text="channel ").wait_for()
    assert second.locator("figcaption", has_text="channel ").count() == 0, "channels are each network's own"
    first.locator(".toggle").click()
    first.locator(".toggle", has_text="Switch on").wait_for()
    after = first.locator("figure img").nth(1).get_attribute("src")
    assert after != before, "the reconstruction changes with the latent variable"
    address = tab.url
    assert re.search(r"edits=\d+%3A0", address)
    again = tab.context.new_page()
    open_at(again, "", address)
    assert again.locator("article.run").first.locator("figure img").nth(1).get_attribute("src") == after, (
        "a link is the view"
    )
    again.close()
    tab.locator("#reset").click()
    until(tab, "!location.search.includes('edits')")
    first.locator(".toggle", has_text="Switch off").wait_for()
    assert first.locator("figure img").nth(1).get_attribute("src") == before


def test_sliders_and_clusters(tab, server):
    open_at(tab, server)
    tab.locator("select[name=part]").select_option("k")
    tab.locator("input[name=k]").fill("2")
    tab.locator("input[name=k]").dispatch_event("change")
    until(tab, "document.querySelector('.channels')?.children.length === 2")
    tab.locator("input[name=clusters]").check()
    tab.locator("figcaption", has_text="clusters").first.wait_for()
    tab.locator("select[name=layer]").select_option("conv2")
    until(tab, "location.search.includes('layer=conv2')")
    assert "k=2" in tab.url


def test_evidence_and_its_scrubber(tab, server):
    open_at(tab, server, "?view=evidence&k=4")
    first = tab.locator("article.run").first
    map_before = first.locator("figure img").first.get_attribute("src")
    tab.locator("input[name=threshold]").fill("0.6")
    tab.locator("input[name=threshold]").dispatch_event("change")
    until(tab, "location.search.includes('threshold=0.6')")
    until(tab, "src => document.querySelector('article.run figure img').src !== src", arg=map_before)
    tab.locator("input[name=step]").fill("14")
    tab.locator("input[name=step]").dispatch_event("change")
    first.locator("figcaption", has_text="deletion, step 14 of 28").wait_for()
    tab.locator("select[name=which]").select_option("insertion")
    first.locator("figcaption", has_text="insertion, step 14 of 28").wait_for()
    assert first.locator("svg.curve path").count() == 2
    assert "Deletion area" in first.locator("svg.curve").get_attribute("aria-label")
    tab.locator("select[name=method]").select_option("cam")
    tab.locator("figcaption", has_text="cam").first.wait_for()


def test_slow_methods_show_progress_and_can_be_cancelled(tab, server):
    open_at(tab, server, "?view=evidence&image=test-2")
    tab.locator("select[name=method]").select_option("rise")
    tab.locator("figcaption", has_text="rise").first.wait_for(timeout=60_000)
    tab.locator("select[name=method]").select_option("guided-ig")
    tab.locator(".cancel").first.click()
    tab.locator("article.run").first.locator(
        ".again, figcaption", has_text=re.compile("Start again|guided-ig")
    ).wait_for(timeout=60_000)
    tab.locator("#tab-audit").click()
    tab.locator("table").first.wait_for()


def test_transplants(tab, server):
    open_at(tab, server, "?view=transplant")
    tab.locator("select[name=other]").select_option("test-3")
    until(tab, "location.search.includes('other=test-3')")
    tab.locator("figcaption", has_text="made: the image is").first.wait_for()
    before = tab.locator("article.run figure img").nth(2).get_attribute("src")
    tab.locator("select[name=path]").select_option("target")
    until(tab, "src => document.querySelectorAll('article.run figure img')[2]?.src !== src", arg=before)


def test_uploads_good_and_bad(tab, server):
    open_at(tab, server)
    buffer = io.BytesIO()
    Image.fromarray(np.eye(28, dtype=np.uint8) * 255).save(buffer, "PNG")
    tab.locator("#file").set_input_files({"name": "eye.png", "mimeType": "image/png", "buffer": buffer.getvalue()})
    until(tab, "location.search.includes('image=upload-')")
    assert tab.locator("#images button").count() == 7
    tab.locator("#file").set_input_files({"name": "x.svg", "mimeType": "image/svg+xml", "buffer": b"<svg/>"})
    until(tab, "document.getElementById('message').textContent.includes('SVG')")
    tab.locator("#images button").nth(1).click()
    until(tab, "location.search.includes('image=test-1')")


def test_exports(tab, server):
    open_at(tab, server)
    with tab.expect_download() as download:
        tab.locator("#export").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        assert {"manifest.json", "reconstruction.npy", "sat.png"} <= set(archive.namelist())
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


def test_by_the_keyboard_alone(tab, server):
    open_at(tab, server)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "tab-inside"
    tab.keyboard.press("ArrowRight")
    until(tab, "location.search.includes('view=evidence')")
    assert tab.evaluate("document.activeElement.id") == "tab-evidence"
    tab.keyboard.press("ArrowLeft")
    tab.locator(".channels button").first.wait_for()
    tab.locator("#images button").nth(2).focus()
    tab.keyboard.press("Enter")
    until(tab, "location.search.includes('image=test-2')")
    tab.locator(".channels button").first.wait_for()
    tab.locator(".channels button").first.focus()
    tab.keyboard.press("Space")
    tab.locator(".toggle").first.wait_for()
    until(tab, "document.activeElement.dataset.channel !== undefined")
    tab.locator(".toggle").first.focus()
    tab.keyboard.press("Enter")
    until(tab, "location.search.includes('edits=')")
    until(tab, "document.activeElement.textContent === 'Switch on'")
    tab.keyboard.press("Enter")
    until(tab, "!location.search.includes('edits=')")
