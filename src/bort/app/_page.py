"""A view as one self-contained page, for a reader without the explorer."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import Any

from bort import __version__
from bort._environment import describe
from bort.app._explorer import Explorer
from bort.app._export import Side, data_url, parts
from bort.app._page_state import View
from bort.pictures import enlarged

_TITLES = {
    "inside": "Inside: {image}",
    "evidence": "Evidence: {image}, {method}",
    "transplant": "Transplant: features of {other} at the places of {image}",
    "audit": "Audit",
}
_COLUMNS = {"residual": 3, "ratio": 2, "floor": 2, "cosine": 2, "claim": 2}


def page(explorer: Explorer, view: View) -> str:
    sections = "".join(_section(part, view) for part in parts(explorer, view))
    css = files("bort.report").joinpath("page.css").read_text()
    css += ".three { display: flex; flex-wrap: wrap; gap: 1rem; } figure img { image-rendering: pixelated; }"
    css += " figcaption { color: var(--muted); font-size: .85rem; max-width: 224px; overflow-wrap: anywhere; }"
    css += " figure.curve { max-width: 30rem; margin-top: 1rem; } .curve svg { width: 100%; }"
    css += " .curve figcaption { max-width: none; }"
    title = _TITLES[view.view].format(**view.to_dict())
    facts = describe(0)
    where = (
        f"bort {__version__}, commit {facts['commit']}, {facts['hardware']}, {facts['date']}; the view {view.address()}"
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{escape(title)}</title><style>{css}</style></head>
<body><header><h1>{escape(title)}</h1><p>{escape(" and ".join(explorer.subjects))}</p></header><main>{sections}</main>
<footer><p>Made by {escape(where)}.</p></footer>
</body></html>
"""


def _section(part: Side, view: View) -> str:
    figures = "".join(
        f'<figure><img src="{data_url(enlarged(item.picture))}" width="224" height="224" alt="">'
        f"<figcaption>{escape(item.words)}</figcaption></figure>"
        for item in part.pictures
    )
    text = f"<section><h2>{escape(part.run)}</h2>"
    if "says" in part.facts:
        first = part.facts["says"][0]
        text += f"<p>It says {escape(first['name'])}, {first['probability']:.1%}.</p>"
    text += f'<div class="three">{figures}</div>' if figures else ""
    if "curves" in part.facts:
        text += _curve(part.facts["curves"][view.score], view)
    if "like_source" in part.facts:
        like = part.facts["like_source"], part.facts["like_target"]
        text += f"<p>Correlation with the source {like[0]:.2f}, with the target {like[1]:.2f}.</p>"
    if "audit" in part.facts:
        text += _table(part.facts["audit"])
    return text + "</section>"


def _curve(curve: dict[str, Any], view: View, width: int = 420, height: int = 160) -> str:
    """Deletion solid, insertion dashed."""
    both = [*curve["deletion"], *curve["insertion"], 0.0]
    low, high = min(both), max(both)

    def path(values: list[float]) -> str:
        steps = len(values) - 1
        at = ((width * n / steps, height * (1 - (v - low) / (high - low or 1))) for n, v in enumerate(values))
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in at)

    lines = "".join(
        f'<polyline fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}" points="{path(curve[name])}"/>'
        for name, colour, dash in (("deletion", "#0072b2", "none"), ("insertion", "#d55e00", "5 3"))
    )
    areas = f"deletion {curve['areas'][0]:.3f} (solid), insertion {curve['areas'][1]:.3f} (dashed); {view.score}"
    box = f'viewBox="-4 -4 {width + 8} {height + 8}" role="img" aria-label="{escape(areas)}"'
    return f'<figure class="curve"><svg {box}>{lines}</svg><figcaption>Areas: {escape(areas)}.</figcaption></figure>'


def _table(layers: list[dict[str, Any]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("layer", "matrix", "invertible", "σ", "‖row‖", *_COLUMNS))
    rows = ""
    for layer in layers:
        numbers = ("–" if layer[name] is None else f"{layer[name]:.{digits}f}" for name, digits in _COLUMNS.items())
        sigma, norms = (f"{low:.2f} … {high:.2f}" for low, high in (layer["sigma"], layer["row_norms"]))
        matrix, wide = " × ".join(map(str, layer["shape"])), "yes" if layer["invertible"] else "no, wide"
        cells = (layer["name"], matrix, wide, sigma, norms, *numbers)
        rows += "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
