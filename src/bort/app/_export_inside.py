"""The view "Look inside" to take away."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from bort.app._edits import ChannelEdits
from bort.app._explorer import Explorer
from bort.app._inside import PATTERNS
from bort.app._page_state import PageState, RunState
from bort.pictures import scale_of

if TYPE_CHECKING:
    from bort.app._export import RunExport


def export_inside(explorer: Explorer, state: PageState, own: RunState, export: RunExport) -> None:
    run, image, layer, inside = own.run, state.image, own.layer, explorer.inside
    k = own.k if state.part == "k" else None
    before, correlation = inside.reconstruct(run, image, layer, k, binary=state.binary, edits=ChannelEdits())
    source = "the whole map" if k is None else f"{k} features{', binarised' if state.binary else ''}"
    scale = scale_of(before)
    export.add("input", "input", explorer.input(image))
    words = f"from {layer}, {source}: correlation {correlation:.2f}"
    export.add_signal("reconstruction", words, before, scale)
    if own.edits:
        edited = inside.edit(run, image, layer, k, binary=state.binary, edits=own.edits)
        correlation = edited.correlation
        words = f"after the edits, channels scaled: {own.edits.words()}: correlation {correlation:.2f}"
        words += f", shown {edited.weaker:.2g} × weaker" if edited.weaker != 1 else ""
        export.add_signal("after", words, edited.after, scale * edited.weaker)
        export.add_signal("difference", edited.words(), edited.difference)
        export.facts["classes"] = edited.classes
        export.facts["difference"] = {"largest": edited.largest, "stronger": edited.stronger}
    start = min(state.start, explorer.channel_count(run, layer) - 1)
    sheet = inside.channels(run, image, layer, PATTERNS, start, state.rank, state.target)
    export.add("channels", _ranked(sheet), sheet["sheet"])
    export.facts["channels"] = [
        {name: value for name, value in channel.items() if value is not None} for channel in sheet["channels"]
    ]
    for channel in own.channels:
        pattern = inside.channel(run, image, layer, channel)
        export.add_signal(f"channel-{channel}", f"channel {channel}", pattern)
    if state.clusters:
        coloured, groups = inside.clusters(run, image, layer, min(PATTERNS, own.k))
        export.add("clusters", "clusters", coloured)
        export.facts["clusters"] = groups
    export.facts |= {"layer": layer, "correlation": correlation, "edits": own.edits.to_dict(), "features": k}


def _ranked(sheet: dict[str, Any]) -> str:
    if sheet["target"] is None:
        return "channels, most salient first"
    how = "" if sheet["is_exact"] else ", approximated by gradient × activation"
    return f"channels, largest effect on the logit of “{sheet['target']}” first{how}"


def bars_before_and_after(classes: list[dict[str, Any]]) -> str:
    """What the network says before and after the edits, as HTML."""
    rows = "".join(
        f"<tr><td>{escape(one['name'])}</td><td>{bar(one['before'], 'before')}{bar(one['after'])}</td>"
        f"<td>{one['before']:.1%} → {one['after']:.1%}</td><td>{100 * (one['after'] - one['before']):+.1f}</td></tr>"
        for one in classes
    )
    head = "<tr><th>class</th><th></th><th>before → after</th><th>points</th></tr>"
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def bar(part: float, kind: str = "") -> str:
    """As HTML; the part of its full length is from -1 to 1."""
    side = "margin-left" if part >= 0 else "margin-right"
    return f'<i class="bar {kind}" style="width: {100 * abs(part):.1f}%; {side}: 0"></i>'
