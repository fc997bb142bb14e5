"""The page, opened in a browser."""

import re
from pathlib import Path

import pytest

from bort.report import SampleSizes, make, subjects

AMOUNT = SampleSizes(shown=3, measured=12, evaluated=3, masks=20, features=8, pairs=12)


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        from tests.pages import network

        patch.setattr("bort.train._run.build", network)
        seen = []
        file = tmp_path_factory.mktemp("page") / "report.html"
        made = make(subjects(runs, AMOUNT), lambda *call: seen.append(call))
        written = made.write(file)
    assert seen[-1] == ("report", 10, 10)
    assert made.missing == {}
    return file, written


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_in_a_browser(browser, page, scheme, width):
    said, asked = [], []
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(page[0].as_uri())
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [page[0].as_uri()], "no request leaves"
    assert tab.evaluate("document.documentElement.scrollWidth") <= width, "no overflow"
    pictures = tab.locator("svg[role=img]").all()
    assert len(pictures) == 10
    for picture in pictures:
        box = picture.bounding_box()
        assert box["width"] > 100
        assert box["height"] > 50
        assert len(picture.get_attribute("aria-label")) > 20
    ink = tab.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (_brightness(ink) > _brightness(paper)) == (scheme == "dark"), "figures follow the page's colours"
    assert _brightness(ink) != _brightness(paper)
    assert "<b>&$\\alpha$" in tab.locator("h1").inner_text()
    assert tab.locator("h1 b").count() == 0, "names are escaped"
    tab.close()


def _brightness(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def test_anchors_and_identifiers_are_unique(page):
    text = page[0].read_text()
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    assert targets <= set(ids)
    assert page[0].stat().st_size < 6 * 2**20


def test_every_figure_in_two_forms(page):
    names = {Path(file).name for file in page[1]}
    assert len(names) == 21
    assert {"ratio.png", "ratio.svg", "saliency.png", "adversaries.svg"} <= names
    for file in page[1][1:]:
        content = file.read_bytes()
        assert content.startswith(b"\x89PNG" if file.suffix == ".png" else b"<?xml")
