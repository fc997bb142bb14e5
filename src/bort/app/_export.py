"""A view to take away: files with a manifest, or one self-contained page."""

from __future__ import annotations

import io
import json
import zipfile
from base64 import b64encode
from html import escape
from importlib.resources import files
from typing import Any

from bort import __version__
from bort._environment import describe
from bort.app._explorer import Explorer
from bort.report._images import Picture, enlarged, npy, png, signal


def data_url(image: Picture) -> str:
    return "data:image/png;base64," + b64encode(png(image)).decode()


def archive(explorer: Explorer, view: dict[str, Any], edits: dict[int, float]) -> bytes:
    """PNG and npy of what is seen of one run, and manifest.json."""
    run, image, method = view["run"], view["image"], view["method"]
    back, like = explorer.reconstruct(run, image, view["layer"], None, binary=True, edits=edits)
    found = explorer.saliency(run, image, method, view["target"], view["k"], view["threshold"])
    manifest = view | {"edits": edits, "correlation": like, "says": explorer.predict(run, image)} | describe(0)
    content = {
        "input.png": png(enlarged(explorer.input(image))),
        "reconstruction.png": png(enlarged(signal(back))),
        "reconstruction.npy": npy(back),
        f"{method}.png": png(enlarged(explorer.overlay(image, found, 0.6))),
        f"{method}.npy": npy(found),
        "manifest.json": json.dumps(manifest, indent=2, ensure_ascii=False).encode(),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, each in content.items():
            packed.writestr(name, each)
    return buffer.getvalue()


def page(explorer: Explorer, view: dict[str, Any], edits: list[dict[int, float]]) -> str:
    """The same of all runs beside each other, for a reader without the explorer."""
    image, method = view["image"], view["method"]
    sections = []
    for number, run in enumerate(explorer.subjects):
        changed = edits[number] if number < len(edits) else {}
        layer = view["layer"] if any(each["name"] == view["layer"] for each in explorer.layers(run)) else ""
        layer = layer or explorer.subjects[run].layer
        back, like = explorer.reconstruct(run, image, layer, None, binary=True, edits=changed)
        found = explorer.saliency(run, image, method, view["target"], view["k"], view["threshold"])
        first = explorer.predict(run, image)[0]
        told = f"{first['name']}, {first['probability']:.1%}"
        what = f", channels scaled: {', '.join(f'{c} × {f:g}' for c, f in changed.items())}" if changed else ""
        pictures = (
            (explorer.input(image), f"input: {told}"),
            (signal(back), f"from {layer}{what}: correlation {like:.2f}"),
            (explorer.overlay(image, found, 0.6), method),
        )
        figures = "".join(
            f'<figure><img src="{data_url(enlarged(each))}" width="224" height="224" alt="{escape(words)}">'
            f"<figcaption>{escape(words)}</figcaption></figure>"
            for each, words in pictures
        )
        sections.append(f'<section><h2>{escape(run)}</h2><div class="three">{figures}</div></section>')
    css = files("bort.report").joinpath("page.css").read_text()
    css += ".three { display: flex; flex-wrap: wrap; gap: 1rem; } figure img { image-rendering: pixelated; }"
    css += " figcaption { color: var(--muted); font-size: .85rem; max-width: 224px; overflow-wrap: anywhere; }"
    title = f"{image} seen by {' and '.join(explorer.subjects)}"
    facts = describe(0)
    where = f"bort {__version__}, commit {facts['commit']}, {facts['hardware']}, {facts['date']}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{escape(title)}</title><style>{css}</style></head>
<body><header><h1>{escape(title)}</h1></header><main>{"".join(sections)}</main>
<footer><p>Made by {escape(where)}.</p></footer>
</body></html>
"""
