"""A figure as a part of the page."""

from __future__ import annotations

import io
import re
from base64 import b64decode, b64encode
from html import escape
from typing import Final

from bort._colours import DIFFERENT
from bort.pictures import BAD, GOOD, GRID, INK, MUTED, colour, to_svg
from bort.report._illustration import Illustration

_VARIABLES: Final = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    GOOD: "var(--good)",
    BAD: "var(--bad)",
    **{colour(number): f"var(--run-{number})" for number in range(DIFFERENT)},
}


def inline(illustration: Illustration, number: int) -> str:
    """The SVG in the page's own colours and at its size, with a description, and with only those identifiers that it refers
    to."""
    svg = to_svg(illustration.figure)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))

    def change(match: re.Match[str]) -> str:  # inside tags only: text between tags may be the name of a run
        tag = match[0]
        for shown, variable in _VARIABLES.items():
            tag = tag.replace(shown, variable)
        if tag.startswith("<image"):
            tag = re.sub(r"(?<=base64,)[^\"]+", lambda m: _in_few_colours(m[0]), tag)
        tag = re.sub(r' id="([^"]+)"', lambda m: f' id="f{number}-{m[1]}"' if m[1] in used else "", tag)
        return re.sub(r'(href="|url\()#([^")]+)', rf"\1#f{number}-\2", tag)

    svg = re.sub(r"<[^>]+>", change, svg)
    # A <style> inside an SVG applies to the whole page.
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'^(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'^(<svg[^>]*?) height="[^"]*"', r"\1", svg))
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(illustration.alt)}" ', 1)


def _in_few_colours(png: str) -> str:
    """A picture (base64) with 256 colours at most, a third of the bytes of a photograph. Not one that is no smaller so."""
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(b64decode(png))) as picture:
        picture.convert("RGB").quantize(256).save(buffer, "PNG", optimize=True)
    return min(b64encode(buffer.getvalue()).decode(), "".join(png.split()), key=len)
