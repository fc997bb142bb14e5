"""Look inside in a real browser: choosing and editing channels with the mouse, by touch and by the keyboard."""

import re

import pytest

from bort.app._edits import ChannelEdits
from tests.app.pages import changes, open_at, source, until

pytestmark = pytest.mark.slow

BUSY = "document.getElementById('view').getAttribute('aria-busy') === 'false'"


def card(tab, number=0):
    return tab.locator("article.run").nth(number)


def channels(tab, number=0):
    return card(tab, number).locator(".channels button")


def number_of(button):
    return int(button.get_attribute("data-channel"))


def caption(tab, words, number=0):
    return card(tab, number).locator("figcaption", has_text=re.compile(f"^{words}$"))


@pytest.mark.parametrize(
    "tab",
    [
        {"viewport": {"width": 1366, "height": 680}},
        {"viewport": {"width": 390, "height": 844}, "has_touch": True, "color_scheme": "dark"},
    ],
    indirect=True,
)
def test_the_editor_and_the_difference_stay_in_sight(tab, server):
    """Also when the last channel of the grid is chosen, which lies below the first screen."""
    open_at(tab, server)
    last = channels(tab).last
    last.scroll_into_view_if_needed()
    last.click()
    card(tab).locator('.presets [data-factor="0"]').click()
    caption(tab, "difference").wait_for()
    until(tab, BUSY)
    last.scroll_into_view_if_needed()
    height = tab.evaluate("innerHeight")
    for part in (".editor .row input", '[data-slot="difference"] img', '[data-slot="after"] img', ".changes"):
        box = card(tab).locator(part).first.bounding_box()
        assert box["y"] >= 0, part
        assert box["y"] + box["height"] <= height, part
    assert last.evaluate(
        """node => {
        const {left, right, top, bottom} = node.getBoundingClientRect();
        return node.contains(document.elementFromPoint((left + right) / 2, (top + bottom) / 2));
    }"""
    ), "the channel itself is not covered"
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("tab", [{"viewport": {"width": 1366, "height": 680}}], indirect=True)
def test_the_channel_that_is_clicked_stays_under_the_mouse(tab, server):
    """Channels are in sight at once; when one is chosen the editor needs more room, above them."""
    open_at(tab, server, "?layer=conv5")
    first = channels(tab).first
    before = first.bounding_box()
    height = card(tab).locator(".bench").bounding_box()["height"]
    assert before["y"] + before["height"] <= 680
    first.click()
    caption(tab, f"channel {number_of(first)}").wait_for()
    until(tab, BUSY)
    assert card(tab).locator(".bench").bounding_box()["height"] > height + 20
    assert first.bounding_box()["y"] == pytest.approx(before["y"], abs=1)


def test_edits_change_bars_and_pictures(tab, server, explorer):
    open_at(tab, server)
    before = source(tab)
    first, second = channels(tab).nth(1), channels(tab).nth(4)
    chosen = number_of(first), number_of(second)
    first.click()
    caption(tab, f"channel {chosen[0]}").wait_for()
    assert card(tab, 1).locator("figcaption", has_text="channel ").count() == 0, "channels are each network's own"
    second.click(modifiers=["Shift"])
    card(tab).locator(".editor .row.all").wait_for()
    assert channels(tab).and_(tab.locator("[aria-selected=true]")).count() == 2
    card(tab).locator('.presets [data-factor="0"]').click()
    caption(tab, "difference").wait_for()
    until(tab, BUSY)
    edits = ChannelEdits(dict.fromkeys(chosen, 0.0))
    edited = explorer.inside.edit("plain", "test-0", "conv5", None, binary=True, edits=edits)
    rows = card(tab).locator("ol.changes li").all()
    assert len(rows) == 5
    for row, one in zip(rows, edited.classes, strict=True):
        change = row.locator("em").inner_text().replace("−", "-").replace("±", "")
        assert row.locator("span").first.inner_text() == one["name"]
        assert row.locator("b").inner_text() == f"{100 * one['before']:.1f} → {100 * one['after']:.1f}%"
        assert float(change) == pytest.approx(100 * (one["after"] - one["before"]), abs=0.051)
    legend = card(tab).locator(".legend .strength").inner_text()
    levels, stronger = map(float, re.findall(r"[\d.]+", legend.replace("255", "")))
    assert levels == pytest.approx(edited.largest, rel=0.06)
    assert stronger == pytest.approx(edited.stronger, rel=0.06)
    assert source(tab) == before, "the picture before stays"
    after, address = source(tab, 2), tab.url
    assert re.search(r"edits=\d+%3A0%2C\d+%3A0", address)
    again = tab.context.new_page()
    open_at(again, "", address)
    assert source(again, 2) == after, "a link is the view"
    again.close()
    tab.locator("#reset").click()
    until(tab, "!location.search.includes('edits')")
    caption(tab, f"channel {chosen[1]}").wait_for()
    assert card(tab).locator("ol.changes em").count() == 0


def test_all_but_these_and_undo(tab, server, explorer):
    open_at(tab, server)
    chosen = number_of(channels(tab).first)
    channels(tab).first.click()
    card(tab).locator(".only").click()
    caption(tab, "difference").wait_for()
    until(tab, BUSY)
    assert "edits=*%3A0%2C" in tab.url
    edited = explorer.inside.edit(
        "plain", "test-0", "conv5", None, binary=True, edits=ChannelEdits({chosen: 1.0}, others=0.0)
    )
    first = edited.classes[0]
    shown = card(tab).locator("ol.changes b").first.inner_text()
    assert shown == f"{100 * first['before']:.1f} → {100 * first['after']:.1f}%"
    assert card(tab).locator(".channels .off").count() == channels(tab).count() - 1
    assert card(tab).locator(".only").inner_text() == "Others on"
    card(tab).locator(".only").click()
    until(tab, "!location.search.includes('edits')")
    card(tab).locator('.presets [data-factor="2"]').click()
    until(tab, f"location.search.includes('{chosen}%3A2')")
    card(tab).locator(".undo").click()
    until(tab, "!location.search.includes('edits')")


@pytest.mark.parametrize("tab", [{"viewport": {"width": 390, "height": 844}, "has_touch": True}], indirect=True)
def test_several_by_touch(tab, server):
    open_at(tab, server)
    card(tab).locator(".several").tap()
    assert card(tab, 1).locator(".several").get_attribute("aria-pressed") == "true", "for both networks"
    for number in (0, 2, 3):
        channels(tab).nth(number).tap()
        until(tab, BUSY)
    assert card(tab).locator(".editor .row").count() == 4, "three and all of them"
    assert card(tab).locator(".editor .row.all span").inner_text() == "all 3 of them"
    channels(tab).nth(2).tap()
    until(tab, "document.querySelectorAll('article.run')[0].querySelectorAll('.editor .row').length === 3")
    card(tab).locator(".several").tap()
    channels(tab).nth(5).tap()
    until(tab, "document.querySelectorAll('article.run')[0].querySelectorAll('.editor .row').length === 1")


def test_ranked_by_effect(tab, server, explorer):
    open_at(tab, server)
    tab.locator("select[name=rank]").select_option("effect")
    expected = explorer.inside.channels("plain", "test-0", "conv5", rank="effect")
    card(tab).locator(".pager", has_text=f"the logit of “{expected['target']}” changes").wait_for()
    until(tab, BUSY)
    shown = [(number_of(node), node.inner_text()) for node in channels(tab).all()[:8]]
    wanted = [(one["channel"], f"{one['effect']:+.2f}".replace("-", "−")) for one in expected["channels"][:8]]
    assert shown == wanted
    tab.locator("select[name=target]").select_option("3")
    card(tab).locator(".pager", has_text="the logit of “3” changes").wait_for()
    assert "rank=effect" in tab.url
    assert "target=3" in tab.url


def test_by_the_keyboard(tab, server):
    open_at(tab, server)
    numbers = [number_of(node) for node in channels(tab).all()]
    across = tab.evaluate("getComputedStyle(document.querySelector('.channels')).gridTemplateColumns.split(' ').length")

    def focused():
        return int(tab.evaluate("document.activeElement.dataset.channel"))

    channels(tab).first.focus()
    for key, at in (("ArrowRight", 1), ("ArrowDown", 1 + across), ("ArrowLeft", across), ("ArrowUp", 0)):
        tab.keyboard.press(key)
        assert focused() == numbers[at]
    tab.keyboard.press("ArrowUp")
    assert focused() == numbers[0], "nothing is above"
    tab.keyboard.press("Space")
    until(tab, f"location.search.includes('channel=0.{numbers[0]}')")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Space")
    until(tab, f"location.search.includes('channel=0.{numbers[0]}%2C0.{numbers[1]}')")
    tab.keyboard.press("0")
    until(tab, f"location.search.includes('edits={numbers[0]}%3A0%2C{numbers[1]}%3A0')")
    for _ in range(5):
        tab.keyboard.press("+")
    until(tab, f"location.search.includes('edits={numbers[0]}%3A2.5%2C{numbers[1]}%3A2.5')")
    tab.keyboard.press("-")
    until(tab, f"location.search.includes('{numbers[1]}%3A2')")
    tab.keyboard.press("1")
    until(tab, "!location.search.includes('edits')")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("0")
    until(tab, f"location.search.includes('channel=0.{numbers[2]}&edits={numbers[2]}%3A0')")
    until(tab, BUSY)
    assert focused() == numbers[2], "the focus stays"
    tab.keyboard.press("Escape")
    until(tab, "!location.search.includes('channel')")
    tab.keyboard.press("PageDown")
    until(tab, "location.search.includes('start=64')")
    until(tab, BUSY)
    assert focused() not in numbers
    tab.keyboard.press("PageUp")
    until(tab, "!location.search.includes('start')")
    until(tab, BUSY)
    tab.keyboard.press("Home")
    tab.keyboard.press("Enter")
    tab.locator("h3", has_text=re.compile(f"^channel {numbers[0]} of 130 in conv5$")).wait_for()


def test_one_stop_of_tab_for_the_grid(tab, server):
    open_at(tab, server)
    channels(tab).nth(5).click()
    until(tab, BUSY)
    assert [node.get_attribute("tabindex") for node in channels(tab).all()].count("0") == 1
    assert channels(tab).nth(5).get_attribute("tabindex") == "0"


def test_channels_and_edits_stay_when_the_image_changes(tab, server):
    open_at(tab, server)
    chosen = number_of(channels(tab).nth(2))
    channels(tab).nth(2).click()
    card(tab).locator('.presets [data-factor="0"]').click()
    caption(tab, "difference").wait_for()
    tab.locator("#images button").nth(3).click()
    until(tab, "location.search.includes('image=test-3')")
    until(tab, BUSY)
    assert f"channel=0.{chosen}&edits={chosen}%3A0" in tab.url
    assert card(tab).locator(".editor .row").count() == 1
    assert caption(tab, "difference").count() == 1
    tab.locator("select[name=layer]").select_option("conv2")
    until(tab, "!location.search.includes('channel') && !location.search.includes('edits')")


def test_features_clusters_and_pages_of_channels(tab, server):
    open_at(tab, server)
    assert tab.locator("input[name=k]").is_disabled(), "of the whole map all features count"
    whole = source(tab)
    tab.locator("select[name=part]").select_option("k")
    changes(tab, whole)
    few = source(tab)
    tab.locator("input[name=k]").fill("2")
    changes(tab, few)
    two = source(tab)
    tab.locator("input[name=binary]").uncheck()
    changes(tab, two)
    tab.locator("input[name=k]").fill(tab.locator("input[name=k]").get_attribute("max"))
    until(tab, "location.search.includes('k=130')")
    tab.locator("input[name=clusters]").check()
    tab.locator("figcaption", has_text="clusters of 64 channels").first.wait_for()
    assert tab.locator(".pager span").first.inner_text() == "channels 1 to 64 of 130, most salient first"
    tab.locator(".after").first.dblclick()  # the second click comes before the first page is drawn
    until(tab, "document.querySelector('.channels').children.length === 2")
    assert "start=128" in tab.url
    assert tab.locator(".after").first.is_disabled()
    tab.locator("select[name=layer]").select_option("conv2")
    until(tab, "!location.search.includes('start')")


def test_patterns_that_come_in_parts(tab, server, monkeypatch):
    """The first ones can be used at once; the focus stays while others come."""
    monkeypatch.setattr("bort.app._inside._LARGE_NETWORK", 10)
    held, is_held = [], True
    tab.route("**/api/channels*start=16*", lambda route: held.append(route) if is_held else route.continue_())
    open_at(tab, server)
    assert channels(tab).count() in (8, 16)
    chosen = channels(tab).nth(3)
    chosen.click()
    is_held = False
    for route in held:
        route.continue_()
    until(tab, "document.querySelectorAll('article.run')[0].querySelectorAll('.channels button').length === 64")
    assert tab.evaluate("Number(document.activeElement.dataset.channel)") == number_of(chosen)
    assert len({number_of(node) for node in channels(tab).all()}) == 64
    assert tab.locator(".pager span").first.inner_text() == "channels 1 to 64 of 130, most salient first"


def test_dragging_is_live(tab, server):
    """Before the mouse is let go, and without losing the slider that is held."""
    open_at(tab, server)
    channels(tab).first.click()
    held = tab.locator(".editor input").first
    held.wait_for()
    held.evaluate(
        "node => { node.mine = true; node.value = 3; node.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    caption(tab, "after the edits").wait_for()
    assert held.evaluate("node => node.mine"), "the same slider"
    assert tab.locator(".editor output").first.inner_text() == "× 3"


def test_the_last_of_many_clicks_wins(tab, server):
    open_at(tab, server)
    last = tab.evaluate("""() => {
        const all = [...document.querySelectorAll('article.run .channels button')].slice(0, 50);
        all.forEach(each => each.click());
        return all.at(-1).dataset.channel;
    }""")
    caption(tab, f"channel {last}").wait_for()
    selected = tab.locator('.channels [aria-selected="true"]')
    assert [each.get_attribute("data-channel") for each in selected.all()] == [last]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?channel=0.3,1.99999", "the channel 0.3,1.99999"),
        ("?channel=7.1", "the channel 7.1"),
        ("?edits=*:101", "the edits *:101"),
        ("?rank=beauty", "rank=beauty"),
    ],
)
def test_addresses_that_cannot_be_meant(tab, server, query, said):
    open_at(tab, server, query)
    assert tab.locator("#message").inner_text() == f"The address asks for {said}, which is not there."
    assert tab.locator("article.run").count() == 2
