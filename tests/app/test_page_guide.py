"""What explains the page, in a real browser: sentences, the "?" of each control, the tour, and plain names."""

import re

import pytest
from playwright.sync_api import expect

from bort import explain
from tests.app.pages import open_at, until

pytestmark = pytest.mark.slow

WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
VIEWS = ["inside", "channel", "evidence", "transplant", "draw", "find", "audit"]


def test_the_sentence_follows_the_view(tab, server, client):
    open_at(tab, server, "?image=test-1")
    until(tab, "document.getElementById('story').textContent.includes('correlation')")
    told = client.get("/api/story", params={"view": "inside", "image": "test-1", "layer": "conv5"}).json()
    assert tab.locator("#story").inner_text().split(":")[0] == told["text"].split(":")[0]
    tab.locator("#tab-audit").click()
    expect(tab.locator("#story")).to_have_text(client.get("/api/story", params={"view": "audit"}).json()["text"])


@pytest.mark.busy
def test_the_sentence_waits_for_a_server_that_is_busy(tab, server):
    busy = iter([True, True])

    def answer(route):
        if next(busy, False):
            route.fulfill(status=503, json={"message": "Other calculations have taken more than 30 seconds."})
        else:
            route.continue_()

    tab.route("**/api/story*", answer)
    open_at(tab, server, "?view=audit")
    expect(tab.locator("#story")).to_contain_text("WᵀW", timeout=20_000)


def test_the_title_names_the_networks_and_percentages_say_of_what(tab, server, explorer):
    open_at(tab, server)
    assert tab.title() == "plain and <b>&$\\alpha$ – bort explorer"
    accuracy = explorer.subjects["plain"].accuracy
    assert tab.locator("article.run h2 small").first.inner_text() == f"{100 * accuracy:.1f}% right"


@pytest.mark.parametrize("tab", [{"viewport": PHONE}], indirect=True)
def test_long_names_of_classes_wrap(tab, server):
    name = "a class with a name of sixty letters, of which none is lost!"
    said = [{"class": n, "name": name, "probability": 0.3} for n in range(3)]
    tab.route("**/api/predict*", lambda route: route.fulfill(json=said))
    open_at(tab, server, "?view=evidence")
    words = tab.locator("ol.said li span").first
    assert words.inner_text().replace("\n", " ") == name
    assert words.evaluate("node => node.scrollWidth <= node.clientWidth && node.clientHeight > 30"), (
        "all of it, in lines"
    )
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


# --- the "?"


@pytest.mark.parametrize("view", VIEWS)
def test_every_control_has_a_text(tab, server, view):
    """All controls: those in a line, those that stay in sight, and those of the header."""
    open_at(tab, server, f"?view={view}&difference=1")
    controls = tab.locator("#view [data-control]:has(select, input, button)")
    assert controls.count() > 0
    for control in controls.all():
        assert control.locator(".help").count() == 1, control.get_attribute("data-control")
    bare = "nodes => nodes.filter(node => !node.closest('[data-control]')).map(node => node.name)"
    assert tab.locator("#view .controls :is(select, input), #view .dock :is(select, input)").evaluate_all(bare) == []
    assert tab.locator(".tools .help").count() == 1


@pytest.mark.parametrize("tab", [{"viewport": WIDE}, {"viewport": PHONE, "has_touch": True}], indirect=True)
def test_texts_open_and_close(tab, server):
    open_at(tab, server, "?view=evidence")
    buttons, note = tab.locator(".control .help"), tab.locator(".explained")
    for button in buttons.all():
        (button.tap if tab.evaluate("navigator.maxTouchPoints") else button.click)()
        assert note.count() == 1
        assert button.get_attribute("aria-expanded") == "true"
        assert button.get_attribute("aria-controls") == note.get_attribute("id")
        assert re.match(r"[A-Z].*\.$", note.inner_text(), re.DOTALL), "a sentence"
        box, size = note.bounding_box(), tab.viewport_size
        assert 0 <= box["x"] <= size["width"] - box["width"]
        assert 0 <= box["y"] <= size["height"] - box["height"]
    tab.mouse.click(3, tab.viewport_size["height"] - 3)
    assert note.count() == 0, "a click elsewhere closes it"


def test_texts_by_the_keyboard(tab, server):
    open_at(tab, server, "?view=evidence")
    button = tab.locator("[data-control='evidence.method'] .help")
    button.focus()
    tab.keyboard.press("Enter")
    note = tab.locator(".explained", has_text="which pixels count")
    note.wait_for()
    tab.keyboard.press("Escape")
    assert note.count() == 0
    assert button.get_attribute("aria-expanded") == "false"
    assert button.evaluate("node => node === document.activeElement")
    tab.keyboard.press("Space")
    note.wait_for()
    tab.keyboard.press("Tab")
    assert note.count() == 0, "it closes when the focus leaves"


def test_the_meaning_of_a_column(tab, server):
    open_at(tab, server, "?view=audit")
    tab.locator("th.title .help").nth(6).click()
    assert tab.locator(".explained").inner_text() == "Distance to the constraint, 0 on it."


def test_titles_of_other_packages_methods(tab, server):
    def glow(model, x, target=None):
        return x.mean(dim=1)

    with explain.local_registry():
        explain.register("glow", glow, title="Glow in the dark", slow=True)
        open_at(tab, server, "?view=evidence")
        assert tab.locator("option[value=glow]").inner_text() == "Glow in the dark (slow)"


# --- the tour


@pytest.fixture
def visit(browser, server):
    """A function: a page of a browser that has never been here."""
    contexts = []

    def new(viewport, script="", query=""):
        context = browser.new_context(viewport=viewport)
        contexts.append(context)
        if script:
            context.add_init_script(script)
        page = context.new_page()
        open_at(page, server, query)
        return page

    yield new
    for context in contexts:
        context.close()


BESIDE = """() => {
    const [panel, target] = [".tour", ".toured"].map(name => document.querySelector(name).getBoundingClientRect());
    return (panel.top >= target.bottom || panel.bottom <= target.top)
        && panel.left >= 0 && panel.right <= innerWidth && panel.top >= 0 && panel.bottom <= innerHeight;
}"""
"""The tour's panel is in the window and covers nothing of what it explains."""


@pytest.mark.parametrize("viewport", [WIDE, PHONE, {"width": 1366, "height": 680}])
def test_the_tour_by_the_keyboard(visit, viewport):
    page = visit(viewport)
    panel = page.locator(".tour")
    seen = []
    for number in range(1, 5):
        assert panel.locator(".count").inner_text() == f"{number} of 4"
        seen.append(panel.locator("h2").inner_text())
        page.wait_for_function(BESIDE, timeout=10_000)  # an answer that arrives moves both, the panel in the next frame
        page.keyboard.press("ArrowRight")
    assert len(set(seen)) == 4
    assert panel.count() == 0, "it ends after the last step"
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert panel.count() == 0, "it opens by itself once"


def test_the_tour_by_the_mouse(visit):
    page = visit(WIDE)
    panel = page.locator(".tour")
    assert panel.locator(".back").is_disabled()
    panel.locator(".next").click()
    panel.locator(".next").click()
    panel.locator(".back").click()
    assert panel.locator(".count").inner_text() == "2 of 4"
    page.locator("#images button").nth(2).click()  # the page can be used meanwhile
    until(page, "location.search.includes('image=test-2')")
    panel.locator(".end").click()
    assert panel.count() == 0
    assert page.locator(".toured").count() == 0
    page.locator("#tour").click()
    assert panel.locator(".count").inner_text() == "1 of 4"
    assert panel.locator(".next").evaluate("node => node === document.activeElement")
    page.keyboard.press("Escape")
    assert panel.count() == 0
    assert page.locator("#tour").evaluate("node => node === document.activeElement"), "the focus goes back"


def test_who_follows_a_link_sees_what_it_leads_to(visit):
    page = visit(WIDE, query="?view=audit")
    assert page.locator(".tour").count() == 0
    assert visit(WIDE, query="?token=x").locator(".tour").count() == 1, "a token asks for no view"


def test_a_browser_that_keeps_nothing(visit):
    """Without storage the tour still works, and can be ended."""
    forbidden = (
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } })"
    )
    page = visit(PHONE, script=forbidden)
    errors = []
    page.on("pageerror", lambda error: errors.append(error))
    page.keyboard.press("Escape")
    assert page.locator(".tour").count() == 0
    page.locator("#tab-evidence").click()
    page.locator("svg.curves path").first.wait_for()
    assert page.locator(".tour").count() == 0
    assert errors == []
