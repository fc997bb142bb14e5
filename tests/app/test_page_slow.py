"""Slow methods in a real browser: progress, cancelling, and a page that stays alive."""

import threading
import time

import pytest

from bort import explain
from tests.app.pages import open_at

pytestmark = pytest.mark.slow


class Held:
    """A method that goes on until it is let go, at 30%."""

    def __init__(self):
        self.go, self.stopped = threading.Event(), threading.Event()

    def __call__(self, model, x, target=None, *, progress=None):
        try:
            while not self.go.is_set():
                progress(3, 10)
                time.sleep(0.02)
        except explain.Cancelled:
            self.stopped.set()
            raise
        return x.sum(dim=1)


@pytest.fixture
def held():
    method = Held()
    with explain.local_registry():
        explain.register("held", method, slow=True)
        yield method
        method.go.set()


def test_slow_methods_show_progress_and_the_page_stays_alive(tab, server, held):
    open_at(tab, server, "?view=evidence&image=test-2")
    tab.locator("select[name=method]").select_option("held")
    running = tab.locator(".job", has_text="30%")  # of either run: the one whose request came first
    running.wait_for()
    assert running.locator("progress").evaluate("bar => bar.position") == 0.3
    tab.locator("input[name=strength]").fill("0.3")
    tab.locator("#tab-audit").click()
    tab.locator("table").first.wait_for()
    tab.locator("#tab-evidence").click()
    running.wait_for()
    assert tab.locator(".again").count() == 0, "nothing was cancelled by looking elsewhere"
    held.go.set()
    tab.locator("figcaption", has_text="held").nth(1).wait_for(timeout=60_000)


def test_slow_methods_can_be_cancelled(tab, server, held):
    open_at(tab, server, "?view=evidence&image=test-3&method=held")
    first = tab.locator("article.run").first
    first.locator(".cancel").focus()
    tab.keyboard.press("Enter")
    first.locator(".job", has_text="Cancelled.").wait_for()
    held.go.set()
    first.locator(".again").click()
    first.locator("figcaption", has_text="held").wait_for(timeout=60_000)


def test_cancelling_on_one_page_leaves_the_other_s(tab, server, held):
    address = "?view=evidence&image=test-1&method=held"
    other = tab.context.new_page()
    for page in (tab, other):
        open_at(page, server, address)
        page.locator(".job", has_text="30%").wait_for()
    tab.locator("article.run", has=tab.locator(".job", has_text="30%")).locator(".cancel").click()
    tab.locator(".job", has_text="Cancelled.").wait_for()
    tab.wait_for_timeout(700)  # several times as long as between two questions of how far it is
    assert not held.stopped.is_set(), "the other page waits for it"
    assert tab.locator(".job", has_text="Cancelled.").count() == 1
    assert other.locator(".job", has_text="30%").count() == 1
    held.go.set()
    other.locator("figcaption", has_text="held").nth(1).wait_for(timeout=60_000)
    other.close()


def test_what_no_page_shows_any_more_is_stopped(tab, server, held):
    open_at(tab, server, "?view=evidence&image=test-4&method=held")
    tab.locator(".job", has_text="30%").first.wait_for()
    tab.locator("select[name=method]").select_option("cam")
    tab.locator("figcaption", has_text="cam").first.wait_for()
    assert held.stopped.wait(5)


def test_back_and_forth_cancels_nothing(tab, server, held):
    """Faster than the server answers: what is left and taken up again is computed."""
    open_at(tab, server, "?view=evidence&image=test-5")
    for pause in (0, 20, 60, 150):
        for method in ("held", "cam", "held"):
            tab.locator("select[name=method]").select_option(method)
            tab.wait_for_timeout(pause)
    tab.locator(".job", has_text="30%").first.wait_for()
    tab.wait_for_timeout(600)
    assert tab.locator(".again").count() == 0
    held.go.set()
    tab.locator("figcaption", has_text="held").nth(1).wait_for(timeout=60_000)
