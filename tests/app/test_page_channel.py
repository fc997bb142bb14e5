"""The page of a channel in a real browser: by clicking and by the keyboard, while its atlas is made and afterwards."""

import re
import threading

import pytest

from bort.app._channel import ChannelFacts
from tests.app.pages import finished, open_at, until
from tests.app.test_page_inside import BUSY, card, channels, number_of

pytestmark = pytest.mark.slow

COMPLETE = """() => [...document.querySelectorAll('article.run')].every(card => card.querySelector('.levels.signed')
    && [...card.querySelectorAll('.pair.two img')].every(image => image.complete && image.naturalWidth > 0))"""


@pytest.fixture(scope="module")
def known(explorer):
    for run in explorer.subjects:
        finished(explorer, run, "conv5")
    return explorer


def facts(explorer, channel, run="plain"):
    return ChannelFacts(explorer.atlases(run, "conv5").atlas, "conv5", channel)


def title(tab, number=0):
    return card(tab, number).locator("h3").first


@pytest.mark.parametrize(
    "tab",
    [
        {"viewport": {"width": width, "height": height}, "color_scheme": scheme, "has_touch": width < 600}
        for width, height in ((390, 844), (1440, 900))
        for scheme in ("light", "dark")
    ],
    indirect=True,
)
def test_what_it_shows(tab, server, known):
    open_at(tab, server, "?view=channel&channel=0.5,1.7")
    until(tab, COMPLETE)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    own = facts(known, 5)
    tiles = card(tab).locator(".tile")
    assert [tile.get_attribute("data-image") for tile in tiles.all()] == [f"test-{n}" for n in own.excited()]
    assert [float(value) for value in tiles.locator("b").all_inner_texts()] == pytest.approx(
        [own.values[n] for n in own.excited()], abs=0.006
    )
    names = card(tab).locator(".histogram .levels:not(.signed) span:first-child").all_inner_texts()
    assert names == [str(one.number) for one in own.by_class()]
    sentence = f"Active on {own.active} of {own.known} test images; its strongest activation is {own.strongest:.2f}."
    assert card(tab).locator(".sentence").inner_text() == sentence
    portrait = known.portraits("plain", "conv5", 5, own)
    changes = card(tab).locator(".levels.signed b").all_inner_texts()
    assert [float(text.replace("−", "-")) for text in changes] == pytest.approx(
        [one["change"] for one in portrait.changes], abs=0.006
    )
    assert title(tab, 1).inner_text() == "channel 7 of 130 in conv5"


def test_from_the_grid_and_back_to_an_image(tab, server, known):
    open_at(tab, server)
    chosen = number_of(channels(tab).nth(3))
    channels(tab).nth(3).dblclick()
    title(tab).and_(tab.locator("h3", has_text=f"channel {chosen} of 130 in conv5")).wait_for()
    until(tab, COMPLETE)
    third = card(tab).locator(".tile").nth(2)
    image = third.get_attribute("data-image")
    third.hover()
    assert third.locator(".whole").is_visible(), "the whole image, while the mouse is on it"
    assert not third.locator(".cut:not(.pattern)").is_visible()
    third.click()
    card(tab).locator("figcaption", has_text=re.compile(f"^channel {chosen}$")).wait_for()
    assert f"image={image}" in tab.url or image == "test-0"
    assert tab.locator("#tab-inside").get_attribute("aria-selected") == "true"
    assert f"channel=0.{chosen}" in tab.url
    until(tab, f"document.querySelector('#images [aria-selected=true]').dataset.name === '{image}'")
    tab.go_back()
    title(tab).wait_for()
    tab.locator("#images button").nth(1).click()
    until(tab, "location.search.includes('image=test-1')")
    until(tab, BUSY)
    assert title(tab).inner_text() == f"channel {chosen} of 130 in conv5", "it stays when the image changes"
    card(tab).locator(".edit").click()
    card(tab).locator(".editor .row").wait_for()


def test_the_most_alike_channel_of_the_other_network(tab, server, known, client):
    open_at(tab, server, "?view=channel&channel=0.5")
    runs = list(known.subjects)
    ask = {"run": runs[0], "layer": "conv5", "channel": 5, "other": runs[1], "other_layer": "conv5"}
    alike = client.get("/api/alike", params=ask).json()
    words = f"The one most like channel 5 of plain: what excites them has a correlation of {alike['correlation']:.2f}"
    card(tab, 1).locator("p", has_text=words).wait_for()
    assert title(tab, 1).inner_text() == f"channel {alike['channel']} of 130 in conv5"
    card(tab, 1).locator(".after").click()
    until(tab, f"location.search.includes('1.{alike['channel'] + 1}')")


def test_by_the_keyboard(tab, server, known):
    open_at(tab, server, "?view=channel&channel=0.5")
    until(tab, COMPLETE)
    card(tab).locator(".channel-head .after").focus()
    for key, number in (("ArrowRight", 6), ("ArrowRight", 7), ("ArrowLeft", 6)):
        tab.keyboard.press(key)
        tab.locator("h3", has_text=f"channel {number} of 130").first.wait_for()
    until(tab, COMPLETE)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.getAttribute('aria-label')") == "Next channel"
    for _ in range(10):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.classList.contains('tile')"):
            break
    image = tab.evaluate("document.activeElement.dataset.image")
    assert card(tab).locator(".tile").first.locator(".whole").is_visible(), "with the focus as with the mouse"
    tab.keyboard.press("Enter")
    tab.locator(".channels").first.wait_for()
    until(tab, f"document.querySelector('#images [aria-selected=true]').dataset.name === '{image}'")
    tab.go_back()
    title(tab).wait_for()
    open_at(tab, server, "?view=channel&channel=0.0")
    card(tab).locator(".channel-head .before").click()
    tab.locator("h3", has_text="channel 129 of 130").first.wait_for()


def test_a_dead_channel_says_so(tab, server, known, monkeypatch):
    atlas = known.atlases("plain", "conv5").atlas
    before = atlas.values[:, 9].copy()
    atlas.values[:, 9] = 0
    try:
        open_at(tab, server, "?view=channel&channel=0.9")
        words = f"Channel 9 is dead: not one of {atlas.known} test images excites it."
        card(tab).locator(".sentence.caution", has_text=words).wait_for()
        assert card(tab).locator(".tile").count() == 0
        open_at(tab, server)
        card(tab).locator(".atlas", has_text="of 130 channels are dead").wait_for()
    finally:
        atlas.values[:, 9] = before


def test_progress_while_it_is_made(tab, server, explorer, monkeypatch):
    """A layer that nobody has looked at: numbers grow, the page can be used, and it is complete at the end."""
    monkeypatch.setattr("bort.app._atlas._LARGEST_BATCH", 1)
    images = threading.Semaphore(0)
    monkeypatch.setattr(explorer.lock, "give_way", lambda *_: images.acquire())

    def grown(before):
        """The bar's value when it is larger: meanwhile one more image after the other is looked at."""
        for _ in range(60):
            if (value := tab.evaluate("document.querySelector('.atlas progress')?.value ?? 0")) > before:
                return value
            images.release()
            tab.wait_for_timeout(150)
        return pytest.fail(f"the bar stays at {before}")

    open_at(tab, server, "?view=channel&layer=conv3&channel=0.1")
    card(tab).locator("progress").wait_for()
    grown(grown(0))
    card(tab).locator(".after").click()
    tab.locator("h3", has_text="channel 2 of ").first.wait_for()
    for view in ("evidence", "inside"):
        tab.locator(f"#tab-{view}").click()
        until(tab, BUSY)
    grown(grown(0))  # it goes on after one has looked elsewhere
    tab.locator("#tab-channel").click()
    monkeypatch.undo()
    images.release(1000)
    until(tab, COMPLETE)
    until(tab, "document.querySelectorAll('progress').length === 0")


@pytest.mark.busy
def test_what_the_server_has_let_go_of_is_made_again(tab, server, known, monkeypatch):
    open_at(tab, server, "?view=channel&channel=0.5,1.5")
    until(tab, COMPLETE)
    own = facts(known, 6)
    known.atlases._jobs.clear()
    card(tab).locator(".after").click()
    card(tab).locator("h3", has_text="channel 6 of 130").wait_for()
    sentence = f"Active on {own.active} of {own.known} test images; its strongest activation is {own.strongest:.2f}."
    card(tab).locator(".sentence", has_text=sentence).wait_for()
    assert tab.locator("#message").inner_text() == ""


def test_a_failure_can_be_tried_again(tab, server, explorer, monkeypatch):
    def fail(*_):
        raise RuntimeError("no luck")

    monkeypatch.setattr(explorer.atlases, "_batch", fail)
    open_at(tab, server, "?view=channel&layer=conv2&channel=0.1")
    card(tab).locator(".atlas", has_text="no luck").wait_for()
    monkeypatch.undo()
    card(tab).locator(".again").click()
    card(tab).locator(".tile").first.wait_for()
