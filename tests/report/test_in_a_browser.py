"""The page in a browser: on a phone and on a large screen, on light and on dark paper, and printed."""

import re

import pytest

from bort.pictures import colour

pytestmark = pytest.mark.slow

OVERFLOWING = """() => [...document.querySelectorAll('body *')].filter(element => {
    const box = element.getBoundingClientRect()
    return box.width && box.right > innerWidth + 1 && !element.closest('.wide table')
}).map(element => element.outerHTML.slice(0, 80))"""

LETTERS = """() => [...document.querySelectorAll('figure svg text')].map(text =>
    parseFloat(getComputedStyle(text).fontSize) * text.closest('svg').getScreenCTM().a)"""


@pytest.fixture(params=[(390, "light"), (390, "dark"), (1440, "light"), (1440, "dark")], ids=str)
def tab(request, browser, page):
    width, scheme = request.param
    messages, requests = [], []
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    opened.on("console", lambda message: messages.append(message.text))
    opened.on("pageerror", lambda error: messages.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(page[0].as_uri())
    yield opened, width, scheme
    assert messages == []
    assert [url for url in requests if not url.startswith("data:")] == [page[0].as_uri()], "no request leaves"
    opened.close()


def test_everything_fits_and_can_be_read(tab):
    opened, width, _ = tab
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.evaluate(OVERFLOWING) == [], "only tables are wider than the screen, inside their boxes"
    pictures = opened.locator("svg[role=img]").all()
    assert len(pictures) == 10
    widths = set()
    for picture in pictures:
        box = picture.bounding_box()
        widths.add(round(box["width"]))
        assert box["height"] > 100
        assert len(picture.get_attribute("aria-label")) > 20
    assert len(widths) == 1, "figures of one width"
    assert min(widths) > min(340, width - 40)
    assert min(opened.evaluate(LETTERS)) > 8.9


def test_colours_follow_the_paper(tab):
    opened, _, scheme = tab
    ink = opened.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
    paper = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (_brightness(ink) > _brightness(paper)) == (scheme == "dark"), "figures follow the page's colours"
    square = opened.locator(".runs i").nth(1)
    of_run = square.evaluate("element => getComputedStyle(element).backgroundColor")
    lines = opened.evaluate(
        "[...document.querySelectorAll('#training path')].map(path => getComputedStyle(path).stroke)"
    )
    assert of_run in lines, "a run has one colour"


def _brightness(shown):
    return sum(map(int, re.findall(r"\d+", shown)[:3]))


def test_names_are_escaped_and_links_lead_somewhere(tab):
    opened, _, _ = tab
    assert "<b>&$\\alpha$" in opened.locator("h1").inner_text()
    assert opened.locator("h1 b").count() == 0
    opened.locator('nav a[href="#sigma"]').click()
    opened.wait_for_function("() => Math.abs(document.querySelector('#sigma').getBoundingClientRect().top) < 5")


def test_print(browser, page, tmp_path):
    """Contents and addresses are left out, dark paper is not printed, and no figure is higher than a sheet."""
    opened = browser.new_page(viewport={"width": 680, "height": 1000}, color_scheme="dark")
    opened.goto(page[0].as_uri())
    opened.emulate_media(media="print", color_scheme="dark")
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    colours = "getComputedStyle(document.documentElement).getPropertyValue('--run-1')"
    assert opened.evaluate(colours).strip() == colour(1)
    hidden = opened.evaluate(
        "['nav', 'figcaption', '.explorer'].map(s => getComputedStyle(document.querySelector(s)).display)"
    )
    assert hidden == ["none"] * 3
    heights = opened.evaluate("[...document.querySelectorAll('figure')].map(f => f.getBoundingClientRect().height)")
    assert max(heights) < 267 / 25.4 * 96, "A4 without its margins"
    breaks = opened.evaluate("[...document.querySelectorAll('figure')].map(f => getComputedStyle(f).breakInside)")
    assert set(breaks) == {"avoid"}
    opened.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    pages = len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "report.pdf").read_bytes()))
    assert 5 <= pages <= 14
    opened.close()
