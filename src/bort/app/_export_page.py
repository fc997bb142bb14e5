"""The current view as one self-contained page, for a reader without the explorer."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from bort import __version__
from bort._colours import stylesheet
from bort._environment import describe
from bort.app._explorer import Explorer
from bort.app._export import VIEWS, ExportedPicture, RunExport, collect, data_url
from bort.app._export_audit import table
from bort.app._export_channel import channel_text
from bort.app._export_curves import CURVES_CSS, curves, dot
from bort.app._export_inside import bars_before_and_after
from bort.app._page_state import PageState
from bort.pictures import enlarged

_CSS = """
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; }
figure img { image-rendering: pixelated; }
figcaption { color: var(--muted); font-size: .85rem; max-width: 224px; overflow-wrap: anywhere; }
i.bar { display: block; min-width: 1px; height: .4rem; border-radius: .2rem; background: var(--accent); }
i.bar.before, i.bar.less { background: var(--muted); } td:has(i.bar) { width: 14rem; }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .4em; }
.scale { display: flex; gap: .4rem; align-items: center; }
.scale i { flex: 1; height: .5rem; background: var(--signed); } .scale i.rgb { background: var(--signed-rgb); }
"""


def page(explorer: Explorer, state: PageState, story: str = "") -> str:
    """``story``: the view in a sentence."""
    exports = collect(explorer, state)
    sections = "".join(_section(number, export, state) for number, export in enumerate(exports))
    if state.view == "evidence":
        sections = curves(exports, state) + sections
    if state.view == "audit":
        sections = _audits(explorer, exports, state)
    report_css = files("bort.report").joinpath("page.css").read_text()
    css = report_css + stylesheet(len(explorer.subjects)) + _CSS + CURVES_CSS
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
<body><header><h1>{escape(title)}</h1><p>{escape(" and ".join(explorer.subjects))}</p></header>
<main>{f"<p>{escape(story)}</p>" if story else ""}{sections}</main>
<footer><p>Made by {escape(made_by)}.</p></footer>
</body></html>
"""


def _section(number: int, export: RunExport, state: PageState) -> str:
    text = f"<section><h2>{dot(number)}{escape(export.run)}</h2>"
    if "says" in export.facts:
        first = export.facts["says"][0]
        text += f"<p>The network says {escape(first['name'])}, {first['probability']:.1%}.</p>"
    if "refusal" in export.facts:
        return text + f"<p>{escape(export.facts['refusal'])}</p></section>"
    figures = "".join(_figure(item) for item in export.pictures)
    text += f'<div class="pictures">{figures}</div>' if figures else ""
    if state.view == "inside" and "classes" in export.facts:
        text += bars_before_and_after(export.facts["classes"])
    if state.view == "channel":
        text += channel_text(export.facts)
    if "like_source" in export.facts:
        like = export.facts["like_source"], export.facts["like_target"]
        text += f"<p>Correlation with the source {like[0]:.2f}, with the target {like[1]:.2f}.</p>"
    return text + "</section>"


def _figure(item: ExportedPicture) -> str:
    legend = ""
    if item.scale is not None and item.values is not None:
        kind = ' class="rgb"' if len(item.values) == 3 else ""
        legend = f'<span class="scale">−{item.scale:.2g}<i{kind}></i>+{item.scale:.2g}</span>'
    height, width = item.picture.shape[:2]
    size = f'width="{round(224 * width / max(height, width))}" height="{round(224 * height / max(height, width))}"'
    picture = f'<img src="{data_url(enlarged(item.picture))}" {size} alt="">'
    return f"<figure>{picture}<figcaption>{escape(item.caption)}{legend}</figcaption></figure>"


def _audits(explorer: Explorer, exports: list[RunExport], state: PageState) -> str:
    n = exports[0].facts["n"]
    over = f"over {n} test images" if n else "not measured: there are no test images"
    names = " ".join(f"{dot(number)}{escape(export.run)}" for number, export in enumerate(exports))
    audits = {export.run: explorer.audit(export.run) for export in exports}
    return f"<section><h2>{names}</h2><p>Ratio, cosine, claim and agreement are {over}.</p>{table(audits, state)}</section>"
