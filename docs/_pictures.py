"""All pictures of README and docs, made anew: `make pictures`. Minutes on a CPU, and a browser.

    python docs/_pictures.py [--runs runs/demo] [--only figures explorer pretrained]

Figures and screenshots are of the demo's runs, which are trained if they are not there; the maps are those of
examples/pretrained.py.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
FIGURES = (
    *("adversaries", "clusters", "deletion", "features", "gram", "ratio", "reconstruction", "saliency", "sigma"),
    "training",
)
SCREENSHOTS = {
    "explorer": "?image=test-3&layer=conv5&rank=effect",
    "explorer-evidence": "?view=evidence&image=test-3&method=ig&step=6",
    "explorer-find": "?view=find&find_order=confidence",
    "explorer-draw": "?view=draw",
}
"""Names of pictures, and the views that they show."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
_SIZE = {"width": 1366, "height": 820}
_STROKES = (((0.25, 0.22), (0.72, 0.22)), ((0.72, 0.22), (0.45, 0.82)))  # a seven, in parts of the canvas


def figures(runs: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = ["figures", *FIGURES, "--runs", str(runs / "SGD"), str(runs / "Bort-S"), "--out", folder]
        subprocess.run([sys.executable, "-m", "bort", *command], check=True)
        for name in FIGURES:
            shutil.copy(Path(folder) / f"{name}.png", PICTURES / f"{name}.png")


def explorer(runs: Path) -> None:
    """Screenshots of the explorer with the demo's runs, Bort-S first."""
    from playwright.sync_api import sync_playwright

    from bort.app import Exploration, Explorer
    from bort.subject import resolve_all

    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"] if os.getuid() == 0 else [])
        with Exploration(Explorer(resolve_all([runs / "Bort-S", runs / "SGD"]))) as page:
            tab = browser.new_page(viewport=_SIZE)
            for name, view in SCREENSHOTS.items():
                tab.goto(page.address + view)
                _wait(tab)
                if name == "explorer":
                    for card in tab.locator("article.run").all():
                        card.locator(".channels button").first.click()
                        _wait(tab)
                        card.locator('.presets [data-factor="0"]').click()
                        _wait(tab)
                if name == "explorer-draw":
                    _draw(tab)
                _wait(tab)
                time.sleep(4)  # until sentences over many images have come
                tab.mouse.move(0, 0)
                tab.evaluate("scrollTo(0, 0)")
                tab.screenshot(path=PICTURES / f"{name}.png")
        browser.close()


def _wait(tab: Any) -> None:
    tab.locator("#view[aria-busy=false]").wait_for()


def _draw(tab: Any) -> None:
    box = tab.locator("canvas").first.bounding_box()
    for start, end in _STROKES:
        place = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
        tab.mouse.move(*place[0])
        tab.mouse.down()
        tab.mouse.move(*place[1], steps=12)
        tab.mouse.up()


def pretrained() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(ROOT / "examples" / "pretrained.py"), "--out", folder], check=True)
        shutil.copy(Path(folder) / "maps.png", PICTURES / "pretrained.png")


def main() -> None:
    parts = ("figures", "explorer", "pretrained")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "demo")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    given = parser.parse_args()
    if not (given.runs / "Bort-S").exists() and set(given.only) != {"pretrained"}:
        subprocess.run([sys.executable, "-m", "bort", "demo", "--out", str(given.runs)], check=True)
    if "figures" in given.only:
        figures(given.runs)
    if "explorer" in given.only:
        explorer(given.runs)
    if "pretrained" in given.only:
        pretrained()


if __name__ == "__main__":
    main()
