"""Every picture of the documentation is one that `make pictures` makes, and is shown somewhere."""

import re

from tests.docs.pages import ROOT
from tests.docs.public import pictures

DRAWN_ELSEWHERE = {"architecture.svg", "scaling.svg"}


def test_pictures_are_made_by_the_command():
    names = {f"{name}.png" for name in (*pictures.FIGURES, *pictures.SCREENSHOTS, "pretrained")}
    assert names | DRAWN_ELSEWHERE == {file.name for file in (ROOT / "docs" / "pictures").iterdir()}


def test_pictures_are_shown():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = set(re.findall(r"pictures/([\w-]+\.\w+)\)", "".join(page.read_text() for page in pages)))
    assert {file.name for file in (ROOT / "docs" / "pictures").iterdir()} <= shown
