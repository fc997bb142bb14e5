"""What a report and its figures show in a notebook."""

import re
from html import unescape

import pytest
from torch import nn

from bort.report import Report, make
from bort.subject import Subject


@pytest.fixture(scope="module")
def report():
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    return make([Subject("<plain>", model)])


def test_the_page_is_in_a_frame(report):
    shown = report._repr_html_()
    (inside,) = re.findall(r'srcdoc="([^"]*)"', shown)
    assert unescape(inside).replace('\n<base href="about:srcdoc">', "") == report.page
    words = f"report of {len(report.page) / 1000:,.0f} kB with gram, sigma; left out: reconstruction, features"
    assert f"<p>R{words[1:]}" in shown
    assert repr(report).startswith(f"<{words}")


def test_a_large_page_is_not():
    shown = Report("x" * 4_000_001, [], {})._repr_html_()
    assert len(shown) < 2000
    assert "Report of 4,000 kB with no figures." in shown
    assert "write(file)" in shown


def test_links_stay_inside_the_frame(report, browser, tmp_path):
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><meta charset=utf-8>{report._repr_html_()}")
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(file.as_uri())
    frame = page.frames[1]
    assert frame.locator("h1").inner_text() == "Inside <plain>"
    before = frame.locator("#sigma").bounding_box()["y"]
    frame.locator('nav a[href="#sigma"]').click()
    frame.wait_for_function("() => document.scrollingElement.scrollTop > 0")
    assert frame.locator("#sigma").bounding_box()["y"] < before
    assert frame.locator("h1").count() == 1, "the page is still there"
    assert problems == []
    page.close()


def test_a_figure(report):
    shown = report.illustrations[0]._repr_html_()
    assert "<h4>Gram matrices</h4>" in shown
    assert shown.count('src="data:image/svg+xml') == 1
    assert "&lt;plain&gt; (2 layers, 10 entries on the diagonal, 58 off it): root mean square distance" in shown
