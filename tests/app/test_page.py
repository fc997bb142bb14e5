"""Every view of the explorer in a real browser, by clicking: light and dark, narrow and wide."""

import pytest

from tests.app.pages import finished, open_at, until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "tab",
    [
        {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
        for width in (390, 1440)
        for scheme in ("light", "dark")
    ],
    indirect=True,
)
@pytest.mark.parametrize("view", ["inside", "channel", "evidence", "transplant", "audit"])
def test_every_view_fits(tab, server, view):
    open_at(tab, server, f"?view={view}")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    names = tab.locator("h2 .run-name")
    assert (names.count(), names.nth(1).inner_text()) == (2, "<b>&$\\alpha$")
    assert tab.locator("h2 b").count() == 0, "names are escaped"
    for picture in tab.locator("img").all():
        assert picture.get_attribute("alt") is not None
        assert picture.bounding_box()["width"] > 10
    until(tab, "[...document.querySelectorAll('article img')].every(image => image.complete && image.naturalWidth > 0)")
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (min(paper) > 200) == tab.evaluate("matchMedia('(prefers-color-scheme: light)').matches")
    assert tab.locator("#message").inner_text() == ""
    until(tab, "document.getElementById('view').getAttribute('aria-busy') === 'false'")


def test_a_tab_for_every_view(tab, server, client, explorer):
    open_at(tab, server)
    views = client.get("/api/info").json()["defaults"]["choices"]["view"]
    for run in explorer.subjects:
        finished(explorer, run, "conv5")  # an export of a channel's page needs an atlas
    assert [node.get_attribute("data-view") for node in tab.locator("[role=tab]").all()] == views
    drawing = client.post("/api/draw", params={"keep": 1}, content=bytes(224 * 224)).json()["drawing"]
    for view in views:
        of = {"view": view, "image": "test-0", "other": "test-1", "drawing": drawing}
        assert client.get("/api/export.html", params=of).status_code == 200


def test_what_the_network_says(tab, server, explorer):
    open_at(tab, server, "?image=test-1")
    likeliest = explorer.predict("plain", "test-1")[0]
    first = tab.locator("article.run").first.locator("ol.said li").first
    assert first.inner_text().split() == [likeliest["name"], f"{100 * likeliest['probability']:.1f}%"]
    until(  # bars are drawn anew when the channels come
        tab,
        """probability => {
            const bar = document.querySelector("article.run ol.said li .bar i");
            return Math.abs(bar.offsetWidth / bar.parentNode.offsetWidth - probability) < 0.02;
        }""",
        likeliest["probability"],
    )
