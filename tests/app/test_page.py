"""Every view of the explorer in a real browser, by clicking: light and dark, narrow and wide."""

import pytest

from bort.measure import COLUMNS
from tests.app.pages import changes, finished, open_at, source, until

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
    assert tab.locator("article.run").count() == 2
    assert tab.locator("article.run h2").nth(1).inner_text().startswith("<b>&$\\alpha$")
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


def test_what_the_network_says_and_the_audit(tab, server, explorer):
    open_at(tab, server, "?image=test-1")
    likeliest = explorer.predict("plain", "test-1")[0]
    first = tab.locator("article.run").first.locator("ol.said li").first
    assert first.inner_text().split() == [likeliest["name"], f"{100 * likeliest['probability']:.1f}%"]
    tab.locator("#tab-audit").click()
    table = tab.locator("article.run").first.locator("table")
    table.wait_for()
    assert table.locator("thead th").all_inner_texts() == [column.title for column in COLUMNS]
    layer = next(iter(explorer.audit("plain")))
    row = table.locator("tbody tr").first.locator("th, td")
    assert row.all_inner_texts() == [column.show(layer) for column in COLUMNS]
    assert tab.locator("dl.columns dd").all_inner_texts() == [column.meaning for column in COLUMNS]


def test_evidence_and_its_scrubber(tab, server, explorer):
    open_at(tab, server, "?view=evidence")
    first = tab.locator("article.run").first
    for name, value in (("tracked", "4"), ("threshold", "0.6"), ("strength", "0.9")):
        before = source(tab)
        tab.locator(f"input[name={name}]").fill(value)
        changes(tab, before)
    tab.locator("input[name=step]").fill("14")
    first.locator("figcaption", has_text="deletion, step 14 of 28: relative logit").wait_for()
    tab.locator("select[name=which]").select_option("insertion")
    first.locator("figcaption", has_text="insertion, step 14 of 28").wait_for()
    assert first.locator("svg.curve path").count() == 2
    tab.locator("select[name=method]").select_option("cam")
    first.locator("figcaption", has_text="cam").wait_for()
    tab.locator("select[name=target]").select_option("3")
    tab.locator("select[name=score]").select_option("logit")
    saliency = explorer.saliency.map("plain", "test-0", "cam", 3)
    expected = explorer.saliency.curve("plain", "test-0", saliency, 3)["logit"]["insertion"][14]
    first.locator("figcaption", has_text=f"step 14 of 28: logit {expected:.3f}").wait_for()


def test_transplants(tab, server):
    open_at(tab, server, "?view=transplant")
    tab.locator(".controls .strip button").nth(3).click()
    until(tab, "location.search.includes('other=test-3')")
    tab.locator("figcaption", has_text="made: the image is").first.wait_for()
    before = source(tab, 2)
    tab.locator("select[name=path]").select_option("target")
    changes(tab, before, 2)
    before = source(tab, 2)
    tab.locator("input[name=k]").fill("1")
    changes(tab, before, 2)
    tab.locator("p", has_text="1 features of conv5").first.wait_for()
