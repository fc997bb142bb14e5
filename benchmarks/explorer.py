"""How long the explorer keeps one waiting: from the command to the address, to the first view, from a click to its picture,
from a stroke on the canvas to what the networks make of it.

    python benchmarks/explorer.py [RUN AGAINST | --wide] [--repeats 5] [--clicks 12] --out FILE.json

Each repeat starts `bort serve RUN --against AGAINST` anew and opens it in a fresh Chromium tab with nothing in its cache, so
that every first view is a server's first; then it clicks on channels that have not been computed before. A click counts from
the press of the button, by the page's own clock, to the frame after the one in which the picture is there. The API's answers
for other such channels, over one connection that is kept open, say how much of that is the network's work. Then the channel
is switched off, which counts until the bars and the pictures of the edit are there.

Then it draws for two seconds without letting the mouse go, a move every 16 ms. Ink that comes right after a request was sent
waits longest: for the picture of the next one. This wait is what counts, for every two requests in turn, until both networks'
pictures are drawn.

With --wide it is the same, without drawing, for two ACNN-Small of the paper's width with random weights, on 40 digits.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from bort._environment import describe
from bort._table import table

START, VIEW, CLICK, ANSWER = "command to address", "address to first view", "click to picture", "API, channel.png"
EDIT, STROKE, PICTURES = "switched off to bars and pictures", "stroke to picture", "between two pictures of a stroke"
TARGETS = {VIEW: 2.0, CLICK: 0.150, EDIT: 0.150, STROKE: 0.150, PICTURES: 0.100}
WIDE_TARGETS = {CLICK: 0.400, EDIT: 0.400}
WIDE = "bort.nets:ACNNSmall"
PATIENCE = 60  # seconds after which anything counts as failed
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
"""Those with windows first, as people have them."""
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")

# Put on a button before it is clicked: `window.drawn` will be the milliseconds from its press until the picture with this
# caption, a pattern, is drawn.
WATCH = """(button, [caption, patience]) => {
  const name = new RegExp(caption);
  const run = button.closest("article.run");
  const drawn = () => [...run.querySelectorAll("figure")].some((figure) => {
    const image = figure.querySelector("img");
    return name.test(figure.querySelector("figcaption")?.textContent ?? "") && image?.complete && image.naturalWidth > 0;
  });
  window.drawn = new Promise((resolve, reject) => button.addEventListener("pointerdown", ({ timeStamp }) => {
    const look = () => {
      if (drawn()) requestAnimationFrame(() => resolve(performance.now() - timeStamp));
      else if (performance.now() - timeStamp > patience * 1000) reject(new Error(`${name} was never drawn`));
      else requestAnimationFrame(look);
    };
    look();
  }, { once: true }));
}"""

# Notes when drawings are sent, and when the pictures of both runs have changed in answer to them.
FOLLOW = """() => {
  const times = window.strokes = { sent: [], drawn: [] };
  const original = window.fetch;
  window.fetch = (request, options) => {
    if (String(request).startsWith("api/draw?")) times.sent.push(performance.now());
    return original(request, options);
  };
  const sources = () => [...document.querySelectorAll(".drawn article.run figure:last-child img")].map(({ src }) => src);
  let before = sources();
  const look = () => {
    const now = sources();
    if (times.drawn.length < times.sent.length && now.length && now.every((source, run) => source !== before[run])) {
      before = now;
      times.drawn.push(performance.now());
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""


def write_digits(folder: Path, count: int = 40) -> list[str]:
    """Some test digits as files, and the options that show them to a network."""
    from bort import data
    from bort.pictures import picture, png

    digits = data.load("mnist5k")
    for number in range(count):
        (folder / f"{number}.png").write_bytes(png(picture(digits.test_images[number].float() / 255)))
    return ["--images", str(folder), "--size", "28", "--mean", "0.13", "--std", "0.3"]


@contextmanager
def serving(subjects: list[str], options: list[str]) -> Iterator[tuple[str, float]]:
    """The address that `bort serve` prints, and how long it took to."""
    command = [sys.executable, "-m", "bort", "serve", subjects[0], "--against", subjects[1], "--port", "0", *options]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            seconds = time.perf_counter() - start
            if not line.startswith("http"):
                raise RuntimeError(f"{' '.join(command)} printed no address")
            yield line.split()[0], seconds
        finally:
            process.terminate()


def press(page: Page, button: Locator, caption: str) -> float:
    """Seconds from the press of a button to the picture."""
    button.evaluate(WATCH, [caption, PATIENCE])
    button.click()
    return float(page.evaluate("window.drawn")) / 1000


def visit(browser: Browser, address: str, clicks: int, *, drawing: bool) -> dict[str, list[float]]:
    """Seconds of one first view, of some clicks, and of as many requests to the API, the two runs in turn."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    view = time.perf_counter() - start
    drawn, answers, edits = [], [], []
    with httpx.Client(timeout=PATIENCE) as client:
        client.get(address)  # opens the connection
        for number in range(clicks):
            card = page.locator("article.run").nth(number % 2)
            buttons = card.locator(".channels button")
            if buttons.count() < 2 * clicks:
                raise ValueError(
                    f"clicks={clicks}: a run shows {buttons.count()} channels, half of them to be clicked on"
                )
            button, other = buttons.nth(number), buttons.nth(clicks + number)
            drawn.append(press(page, button, f"^channel {button.get_attribute('data-channel')}$"))
            picture = card.locator("img[src*='channel.png']").first
            channel = other.get_attribute("data-channel") or ""
            url = httpx.URL(address).join(picture.get_attribute("src") or "").copy_set_param("channel", channel)
            start = time.perf_counter()
            client.get(url).raise_for_status()
            answers.append(time.perf_counter() - start)
            edits.append(press(page, card.locator('.presets [data-factor="0"]'), "^difference$"))
            card.locator('.presets [data-factor="1"]').click()
            card.locator("figcaption", has_text="difference").wait_for(state="detached")
    seconds = {VIEW: [view], CLICK: drawn, ANSWER: answers, EDIT: edits}
    if drawing:
        seconds[STROKE], seconds[PICTURES] = draw(page, address)
    context.close()
    return seconds


def draw(page: Page, address: str, seconds: float = 2.0) -> tuple[list[float], list[float]]:
    """The longest waits of ink while one draws, and the seconds between pictures."""
    page.goto(f"{address}?view=draw")
    page.wait_for_selector("body[data-ready]")
    box = page.locator(".canvas").bounding_box()
    assert box is not None
    page.evaluate(FOLLOW)
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.1)
    page.mouse.down()
    end, turn = time.perf_counter() + seconds, 0.0
    while time.perf_counter() < end:
        turn += 0.05
        at = (0.5 + 0.3 * math.sin(turn) * math.cos(0.37 * turn), 0.5 - 0.4 * math.cos(turn))
        page.mouse.move(box["x"] + box["width"] * at[0], box["y"] + box["height"] * at[1])
        page.wait_for_timeout(16)
    times = page.evaluate("window.strokes")
    page.mouse.up()
    sent, drawn = times["sent"], times["drawn"]
    if len(drawn) < 3:
        raise RuntimeError(f"of {len(sent)} drawings that were sent in {seconds} s, {len(drawn)} had pictures")
    waits = [(after - before) / 1000 for before, after in zip(sent, drawn[1:], strict=False)]
    return waits, [(after - before) / 1000 for before, after in itertools.pairwise(drawn)]


def measure(
    subjects: list[str], options: list[str], repeats: int, clicks: int, *, drawing: bool
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        browser.new_page().close()  # the browser's own start is not measured
        for number in range(repeats):
            with serving(subjects, options) as (address, seconds):
                times.setdefault(START, []).append(seconds)
                for what, seconds_of_a_visit in visit(browser, address, clicks, drawing=drawing).items():
                    times.setdefault(what, []).extend(seconds_of_a_visit)
            worst = ", ".join(f"{what} {max(measured):.3f} s" for what, measured in times.items())
            print(f"{number + 1} of {repeats}; worst so far: {worst}", flush=True)
        browser.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", default=["runs/demo/Bort-S", "runs/demo/SGD"])
    parser.add_argument("--wide", action="store_true", help="networks of the paper's width in the place of runs")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clicks", type=int, default=12, help="of a repeat; each run needs twice as many channels")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if len(arguments.runs) != 2:
        parser.error(f"{len(arguments.runs)} runs: give two, one to open and one beside it")
    subjects, targets = ([WIDE, WIDE], WIDE_TARGETS) if arguments.wide else (arguments.runs, TARGETS)
    with tempfile.TemporaryDirectory() as folder:
        options = write_digits(Path(folder)) if arguments.wide else []
        times = measure(subjects, options, arguments.repeats, arguments.clicks, drawing=not arguments.wide)
    rows: list[dict[str, Any]] = [
        {
            "what": what,
            "median_s": statistics.median(measured),
            "worst_s": max(measured),
            "target_s": targets.get(what),
            "all_s": [round(seconds, 4) for seconds in measured],
        }
        for what, measured in times.items()
    ]
    wide = "--wide " if arguments.wide else ""
    command = f"python benchmarks/explorer.py {wide}--repeats {arguments.repeats} --clicks {arguments.clicks}"
    facts = {"rows": rows, "runs": subjects, "command": command, **describe(0)}
    arguments.out.write_text(json.dumps(facts, indent=2) + "\n")
    cells = [
        (row["what"], str(len(row["all_s"])), f"{row['median_s']:.3f}", f"{row['worst_s']:.3f}", _target(row))
        for row in rows
    ]
    print(table(("what", "times", "median s", "worst s", "target s"), cells, right=(1, 2, 3, 4)))


def _target(row: dict[str, Any]) -> str:
    return "" if row["target_s"] is None else f"{row['target_s']:.3f}"


if __name__ == "__main__":
    main()
