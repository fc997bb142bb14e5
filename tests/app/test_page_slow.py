"""Slow methods in a real browser: progress, cancelling, and a page that stays alive."""

import threading
import time

import pytest

from bort.explain import Cancelled
from tests.app.pages import open_at

pytestmark = pytest.mark.slow


@pytest.fixture
def held(explorer, monkeypatch):
    """RISE that goes on until it is let go."""
    go, real = threading.Event(), explorer.evidence.saliency

    def slow(run, image, method, target, *more, progress=None):
        if method == "rise" and progress is not None:
            while not go.is_set():
                progress(3, 10)
                time.sleep(0.02)
        return real(run, image, method, target, *more, progress=progress)

    monkeypatch.setattr(explorer.evidence, "saliency", slow)
    yield go
    go.set()


def test_slow_methods_show_progress_and_the_page_stays_alive(tab, server, held):
    open_at(tab, server, "?view=evidence&image=test-2")
    tab.locator("select[name=method]").select_option("rise")
    running = tab.locator(".job", has_text="30%")  # of either run: whose question came first
    running.wait_for()
    assert running.locator("progress").evaluate("bar => bar.position") == 0.3
    tab.locator("input[name=strength]").fill("0.3")
    tab.locator("#tab-audit").click()
    tab.locator("table").first.wait_for()
    tab.locator("#tab-evidence").click()
    running.wait_for()
    assert tab.locator(".again").count() == 0, "nothing was cancelled by looking elsewhere"
    held.set()
    tab.locator("figcaption", has_text="rise").nth(1).wait_for(timeout=60_000)


def test_slow_methods_can_be_cancelled(tab, server, held):
    open_at(tab, server, "?view=evidence&image=test-3&method=rise")
    first = tab.locator("article.run").first
    first.locator(".cancel").focus()
    tab.keyboard.press("Enter")
    first.locator(".job", has_text="Cancelled.").wait_for()
    held.set()
    first.locator(".again").click()
    first.locator("figcaption", has_text="rise").wait_for(timeout=60_000)


def test_what_nobody_looks_at_any_more_is_stopped(tab, server, held, explorer, monkeypatch):
    stopped, slow = threading.Event(), explorer.evidence.saliency

    def watched(*arguments, **options):
        try:
            return slow(*arguments, **options)
        except Cancelled:
            stopped.set()
            raise

    monkeypatch.setattr(explorer.evidence, "saliency", watched)
    open_at(tab, server, "?view=evidence&image=test-4&method=rise")
    tab.locator(".job", has_text="30%").first.wait_for()
    tab.locator("select[name=method]").select_option("cam")
    tab.locator("figcaption", has_text="cam").first.wait_for()
    assert stopped.wait(5)


def test_back_and_forth_cancels_nothing(tab, server, held):
    """Faster than the server answers: what is left and taken up again is computed."""
    open_at(tab, server, "?view=evidence&image=test-5")
    for pause in (0, 20, 60, 150):
        for method in ("rise", "cam", "rise"):
            tab.locator("select[name=method]").select_option(method)
            tab.wait_for_timeout(pause)
    tab.locator(".job", has_text="30%").first.wait_for()
    tab.wait_for_timeout(600)
    assert tab.locator(".again").count() == 0
    held.set()
    tab.locator("figcaption", has_text="rise").nth(1).wait_for(timeout=60_000)
