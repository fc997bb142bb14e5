"""What tests of the explorer share."""

import time

import pytest

BASE = "http://localhost:8765"


def until(tab, expression, arg=None):
    """Playwright's own wait evaluates strings in the page, which its policy forbids."""
    for _ in range(400):
        if tab.evaluate(expression, arg):
            return
        time.sleep(0.05)
    pytest.fail(f"never true: {expression}")


def open_at(tab, server, query=""):
    tab.goto(server + query)
    tab.wait_for_selector("body[data-ready]")


def source(tab, number=1):
    return tab.locator("article.run").first.locator("figure img").nth(number).get_attribute("src")


def changes(tab, before, number=1):
    wanted = "([number, src]) => document.querySelectorAll('article.run figure img')[number]?.src !== src"
    until(tab, wanted, arg=[number, before])
