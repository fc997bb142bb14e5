"""The page of a channel to take away."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from bort.app._channel import ChannelFacts, most_alike
from bort.app._exceptions import Unknown
from bort.app._explorer import Explorer
from bort.app._export_inside import bar
from bort.app._page_state import PageState, RunState
from bort.pictures import Picture, picture

if TYPE_CHECKING:
    from bort.app._export import RunExport

_CLASSES = 10  # as on the page


def export_channel(explorer: Explorer, state: PageState, own: RunState, export: RunExport) -> None:
    run, layer = own.run, own.layer
    atlas = explorer.atlases(run, layer).atlas
    if not atlas.known:
        raise Unknown(f"The test images have not been looked at for {layer} of {run} yet; try again in a moment.")
    channel, words = _shown(explorer, state, own)
    facts = ChannelFacts(atlas, layer, channel)
    portrait = explorer.portraits(run, layer, channel, facts)
    pattern = explorer.inside.channel(run, state.image, layer, channel)
    export.add_signal("pattern", f"its pattern in {state.image}", pattern)
    if portrait.mean is not None:
        export.add_signal("mean", "mean pattern of what excites it most", portrait.mean)
    for rank, place in enumerate(portrait.places, 1):
        name = f"test-{place.number}"
        shown = picture(explorer.view(run).pixels(explorer.image(run, name))[0])
        export.add(f"excited-{rank}", f"{name}: {place.value:.2f}", _cut(shown, place.box))
        export.add_signal(f"excited-{rank}-pattern", f"its pattern in {name}", place.pattern, portrait.scale)
    export.facts |= {"layer": layer, "channel": channel, "chosen": words, "images": facts.known}
    export.facts |= facts.described(explorer.view(run)) | {"changes": portrait.changes}


def _shown(explorer: Explorer, state: PageState, own: RunState) -> tuple[int, str]:
    """The channel that the page shows, and why: the chosen one, the one most like another run's, or the most salient."""
    if own.channels:
        return own.channels[-1], "chosen"
    for number, run in enumerate(explorer.subjects):
        other = state.of_run(explorer, number)
        if other.channels:
            there, here = explorer.atlases(run, other.layer).atlas, explorer.atlases(own.run, own.layer).atlas
            found = most_alike(there, other.channels[-1], here)
            if found is not None:
                return found[0], f"most like channel {other.channels[-1]} of {run}, correlation {found[1]:.2f}"
    return explorer.inside.channels(own.run, state.image, own.layer, 1)["channels"][0]["channel"], "most salient"


def _cut(image: Picture, box: tuple[float, float, float, float]) -> Picture:
    height, width = image.shape[:2]
    left, top = round(box[0] * width), round(box[1] * height)
    return image[top : top + round(box[3] * height), left : left + round(box[2] * width)]


def channel_text(facts: dict[str, Any]) -> str:
    """What is said of the channel, as HTML."""
    text = f"<p>Channel {facts['channel']} of {escape(facts['layer'])} ({escape(facts['chosen'])}): "
    text += (
        f"active on {facts['active']} of {facts['known']} test images, at most {facts['strongest']:.2f}.</p>"
        if facts["active"]
        else f"dead, not one of {facts['known']} test images excites it.</p>"
    )
    title = "Classes that excite it: mean of its largest activation"
    text += _levels(title, [(one["name"], one["mean"]) for one in facts["classes"][:_CLASSES]], "{:.2f}")
    changes = [(one["name"], one["change"]) for one in facts["changes"]]
    return text + _levels("Without it the logits of these images change by", changes, "{:+.2f}")


def _levels(title: str, levels: list[tuple[str, float]], form: str) -> str:
    largest = max((abs(value) for _, value in levels), default=0) or 1
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{bar(value / largest, 'less' if value < 0 else '')}</td>"
        f"<td>{form.format(value)}</td></tr>"
        for name, value in levels
    )
    return f'<h3>{title}</h3><div class="wide"><table><tbody>{rows}</tbody></table></div>' if levels else ""
