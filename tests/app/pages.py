"""What tests of the explorer share."""

import base64
import io
import time
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

BASE = "http://localhost:8765"


def pixels(data):
    """Of a PNG, as bytes or as a data URL."""
    content = base64.b64decode(data.partition(",")[2]) if isinstance(data, str) else data
    return np.array(Image.open(io.BytesIO(content)))


def png_of(pixels):
    """An image file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


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


def finished(explorer, run="one", layer="conv5"):
    """The job of an atlas, when it has ended."""
    job = explorer.atlases(run, layer)
    for _ in range(1000):
        if job.state not in ("waiting", "running"):
            return job
        time.sleep(0.02)
    pytest.fail("it never ended")


@contextmanager
def no_passes(explorer, run="plain"):
    """Inside, the run's network refuses to compute."""
    hook = explorer.subjects[run].model.register_forward_pre_hook(lambda *_: pytest.fail("a new pass"))
    yield
    hook.remove()
