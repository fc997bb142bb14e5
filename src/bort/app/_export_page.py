"""The current view as one self-contained page, for a reader without the explorer."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import Any

from bort import __version__
from bort._colours import stylesheet
from bort._environment import describe
from bort.app._explorer import Explorer
from bort.app._export import VIEWS, RunExport, collect, data_url
from bort.app._export_channel import channel_text
from bort.app._export_inside import bars_before_and_after
from bort.app._page_state import PageState
from bort.measure import COLUMNS, Audit
from bort.pictures import colour, enlarged

_CSS = """
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; }
figure img { image-rendering: pixelated; }
figcaption { color: var(--muted); font-size: .85rem; max-width: 224px; overflow-wrap: anywhere; }
i.bar { display: block; min-width: 1px; height: .4rem; border-radius: .2rem; background: var(--accent); }
i.bar.before, i.bar.less { background: var(--muted); } td:has(i.bar) { width: 14rem; }
figure.curve { max-width: 30rem; margin-top: 1rem; } .curve svg { width: 100%; } .curve figcaption { max-width: none; }
"""


def page(explorer: Explorer, state: PageState) -> str:
    sections = "".join(_section(explorer, export, state) for export in collect(explorer, state))
    css = files("bort.report").joinpath("page.css").read_text() + stylesheet(len(explorer.subjects)) + _CSS
    title = VIEWS[state.view].title.format(**state.to_dict())
    environment = describe(0)
    made_by = (
        f"bort {__version__}, commit {environment['commit']}, {environment['hardware']}, {environment['date']}; the view "
        f"{state.address()}"
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{escape(title)}</title><style>{css}</style></head>
<body><header><h1>{escape(title)}</h1><p>{escape(" and ".join(explorer.subjects))}</p></header><main>{sections}</main>
<footer><p>Made by {escape(made_by)}.</p></footer>
</body></html>
"""


def _section(explorer: Explorer, export: RunExport, state: PageState) -> str:
    figures = "".join(
        f'<figure><img src="{data_url(enlarged(item.picture))}" width="224" height="224" alt="">'
        f"<figcaption>{escape(item.caption)}</figcaption></figure>"
        for item in export.pictures
    )
    text = f"<section><h2>{escape(export.run)}</h2>"
    if "says" in export.facts:
        first = export.facts["says"][0]
        text += f"<p>It says {escape(first['name'])}, {first['probability']:.1%}.</p>"
    text += f'<div class="pictures">{figures}</div>' if figures else ""
    if state.view == "inside" and "classes" in export.facts:
        text += bars_before_and_after(export.facts["classes"])
    if state.view == "channel":
        text += channel_text(export.facts)
    if "curves" in export.facts:
        text += _curve(export.facts["curves"][state.score], state)
    if "like_source" in export.facts:
        like = export.facts["like_source"], export.facts["like_target"]
        text += f"<p>Correlation with the source {like[0]:.2f}, with the target {like[1]:.2f}.</p>"
    if state.view == "audit":
        text += _table(explorer.audit(export.run))
    return text + "</section>"


def _curve(curve: dict[str, Any], state: PageState, width: int = 420, height: int = 160) -> str:
    """Deletion solid, insertion dashed; a sentence where there is no relative score."""
    if None in curve["areas"]:
        return "<p>The clean image's logit of this class is too small for a relative score.</p>"
    both = [*curve["deletion"], *curve["insertion"], 0.0]
    low, high = min(both), max(both)

    def points(values: list[float]) -> str:
        steps = len(values) - 1
        places = ((width * n / steps, height * (1 - (v - low) / (high - low or 1))) for n, v in enumerate(values))
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)

    lines = "".join(
        f'<polyline fill="none" stroke="{colour(number)}" stroke-width="2" stroke-dasharray="{dash}" '
        f'points="{points(curve[name])}"/>'
        for number, (name, dash) in enumerate((("deletion", "none"), ("insertion", "5 3")))
    )
    areas = f"deletion {curve['areas'][0]:.3f} (solid), insertion {curve['areas'][1]:.3f} (dashed); {state.score}"
    box = f'viewBox="-4 -4 {width + 8} {height + 8}" role="img" aria-label="{escape(areas)}"'
    return f'<figure class="curve"><svg {box}>{lines}</svg><figcaption>Areas: {escape(areas)}.</figcaption></figure>'


def _table(audit: Audit) -> str:
    head = "".join(f'<th title="{escape(column.meaning)}">{escape(column.title)}</th>' for column in COLUMNS)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(column.show(layer))}</td>" for column in COLUMNS) + "</tr>" for layer in audit
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
