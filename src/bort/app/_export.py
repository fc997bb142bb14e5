"""The current view to take away: its pictures and numbers, of all runs, as an archive of files with a manifest."""

from __future__ import annotations

import io
import json
import re
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from bort import explain
from bort._environment import describe
from bort.app._exceptions import NoLayer
from bort.app._explorer import Explorer
from bort.app._export_channel import export_channel
from bort.app._export_inside import export_inside
from bort.app._find import Finder
from bort.app._page_state import PageState, RunState
from bort.app._parameters import options_of
from bort.app._saliency import MOST_TRACKED
from bort.pictures import Picture, enlarged, npy, picture, png, scale_of, signal


def data_url(image: Picture) -> str:
    return "data:image/png;base64," + b64encode(png(image)).decode()


@dataclass
class ExportedPicture:
    """A picture with its caption, and the numbers behind it."""

    name: str
    caption: str
    picture: Picture
    values: Tensor | None = None
    scale: float | None = None
    """The size of the values with the strongest colours, of a picture in signed colours."""


@dataclass
class RunExport:
    """What the view shows of one run."""

    run: str
    pictures: list[ExportedPicture] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, caption: str, shown: Picture, values: Tensor | None = None) -> None:
        self.pictures.append(ExportedPicture(name, caption, shown, values))

    def add_signal(self, name: str, caption: str, values: Tensor, scale: float | None = None) -> None:
        """In signed colours, with their scale as a legend."""
        scale = scale or scale_of(values)
        self.pictures.append(ExportedPicture(name, caption, signal(values, scale), values, scale))


def collect(explorer: Explorer, state: PageState) -> list[RunExport]:
    """One for each run, in the page's order. A run that the view cannot show has a sentence in its place, as on the page. If
    all are refused for what is asked of them, that is an error."""
    exports: list[RunExport] = []
    refusals: list[ValueError] = []
    for number, run in enumerate(explorer.subjects):
        facts = {"says": explorer.predict(run, state.image)} if VIEWS[state.view].of_image else {}
        export = RunExport(run, facts=dict(facts))
        own = state.of_run(explorer, number)
        try:
            if VIEWS[state.view].of_layer and not own.layer:
                export.facts["refusal"] = str(NoLayer(run))
            else:
                VIEWS[state.view].collect(explorer, state, own, export)
        except ValueError as error:
            export = RunExport(run, facts=facts | {"refusal": str(error)})
            refusals.append(error)
        exports.append(export)
    if len(refusals) == len(exports):
        raise refusals[0]
    return exports


def _evidence(explorer: Explorer, state: PageState, own: RunState, export: RunExport) -> None:
    run, image, method = own.run, state.image, state.method
    of_sat: dict[str, Any] = {"k": own.tracked, "threshold": state.threshold} if method == "sat" else {}
    options = options_of(method, state.options)
    saliency = explorer.saliency.map(run, image, method, state.target, options=options, **of_sat)
    curve = explorer.saliency.curve(run, image, saliency, state.target)
    score = curve[state.score][state.which][state.step]
    number = explorer.explained(run, image, state.target)
    name = explorer.view(run).name(number)
    signed = explain.get(method).signed
    over_image = explorer.saliency.overlay(run, image, saliency, state.strength, signed=signed)
    colours = "gold: for the class, blue: against it" if signed else "bright: counts much"
    label = ", ".join([explain.get(method).label, *(f"{option} {value:g}" for option, value in options.items())])
    export.pictures += [
        ExportedPicture("input", "input", explorer.input(image)),
        ExportedPicture(method, f"{label} ({colours})", over_image, saliency),
        ExportedPicture(
            f"{state.which}-step-{state.step}",
            f"{state.which}, step {state.step}: {state.score} {'–' if score is None else f'{score:.3f}'} of class {name}",
            explorer.saliency.step(run, image, saliency, state.step, state.which),
        ),
    ]
    first = next(iter(explorer.subjects))
    if state.difference and run != first:
        with suppress(ValueError):  # the first run has no such map, and says why in its own place
            if method == "sat":
                of_sat["k"] = min(state.tracked, MOST_TRACKED, explorer.channel_count(first, explorer.top(first)))
            others = explorer.saliency.map(first, image, method, state.target, options=options, **of_sat)
            less = explorer.saliency.difference(image, {first: others, run: saliency}, state.strength, signed=signed)
            export.add("difference", f"{first} less {run} (gold: more in {first}, blue: more in {run})", less)
    export.facts |= {"options": options, "curves": curve}
    export.facts["curve_class"] = {"class": number, "name": name, "is_chosen": state.target is not None}


def _transplant(explorer: Explorer, state: PageState, own: RunState, export: RunExport) -> None:
    made, facts = explorer.transplant(own.run, state.image, state.other, own.layer, own.k, state.path)
    verdict = f"made: the image is “{facts['image']}”, the map “{facts['map']}”"
    export.pictures += [
        ExportedPicture("source", f"source: “{facts['source']}”", explorer.input(state.image)),
        ExportedPicture("target", f"target: “{facts['target']}”", explorer.input(state.other)),
        ExportedPicture("made", verdict, picture(made)),
    ]
    if state.difference:
        source = explorer.view(own.run).pixels(explorer.image(own.run, state.image))[0]
        export.add_signal("difference", "difference: made less source", made - source)
    export.facts |= facts | {"layer": own.layer, "features": own.k}


def _draw(explorer: Explorer, state: PageState, own: RunState, export: RunExport) -> None:
    content = explorer.drawings.named(state.drawing)
    look = explorer.drawings.look(own.run, explorer.drawings.inputs(content, centre=state.centre)[own.run], state.layer)
    back, layer, correlation = look["reconstruction"], look["layer"], look["correlation"]
    export.pictures += [
        ExportedPicture("drawing", "as drawn", explorer.drawings.picture(state.drawing)),
        ExportedPicture(
            "input", f"input{', centred' if state.centre else ''}", explorer.drawings.seen(content, centre=state.centre)
        ),
    ]
    if back is not None:
        export.add_signal("reconstruction", f"from {layer}: correlation {correlation:.2f}", back)
    export.facts |= {"says": look["classes"][:5], "layer": layer, "correlation": correlation}


def _find(explorer: Explorer, state: PageState, own: RunState, export: RunExport) -> None:
    explorer.index.start()
    found, place = Finder(explorer).find(state.question), list(explorer.subjects).index(own.run)
    for image in found.pop("images"):
        said = image["runs"][place]
        verdict = "" if said["right"] is None else ", right" if said["right"] else ", wrong"
        label = f"{image['name']}, “{image['label']}”" if image["label"] else image["name"]
        words = f"{label}: says “{said['said']}”, {said['probability']:.1%}{verdict}"
        export.pictures.append(ExportedPicture(image["name"], words, explorer.input(image["name"])))
        export.facts.setdefault("images", []).append({"name": image["name"], "label": image["label"]} | said)
    export.facts |= {"matches": found["matches"], "page": found["page"], "of": found["predicted"]}


def _audit(explorer: Explorer, state: PageState, own: RunState, export: RunExport) -> None:
    export.facts |= {"audit": explorer.audit(own.run).to_dict(), "n": explorer.image_count(own.run)}


@dataclass(frozen=True)
class ExportedView:
    collect: Callable[[Explorer, PageState, RunState, RunExport], None]
    """Adds the view's pictures and facts to a run's export."""
    title: str
    """Of the exported page, with fields of the page's state in braces."""
    of_layer: bool = False
    """Whether it shows a layer's map."""
    of_image: bool = True
    """Whether it is about the image that is chosen, so that what the network says of it belongs to it."""


VIEWS = {
    "inside": ExportedView(export_inside, "Inside: {image}", of_layer=True),
    "channel": ExportedView(export_channel, "Channels, and {image}", of_layer=True, of_image=False),
    "evidence": ExportedView(_evidence, "Evidence: {image}, {method}"),
    "transplant": ExportedView(_transplant, "Transplant: features of {other} at the places of {image}", of_layer=True),
    "draw": ExportedView(_draw, "A drawing", of_image=False),
    "find": ExportedView(_find, "Test images that were found", of_image=False),
    "audit": ExportedView(_audit, "Audit", of_image=False),
}
"""By their names in the page's address (PageState.view); views.js draws them on the page."""


def archive(explorer: Explorer, state: PageState) -> bytes:
    """PNG and npy in a folder for each run, and manifest.json: the state, its address, the numbers, and where it was made."""
    exports = collect(explorer, state)
    manifest: dict[str, Any] = {"view": state.to_dict(), "address": state.address(), "runs": []} | describe(0)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for folder, export in zip(_folders(exports), exports, strict=True):
            scales = {item.name: item.scale for item in export.pictures if item.scale is not None}
            manifest["runs"].append({"name": export.run, "folder": folder, "scales": scales} | export.facts)
            for item in export.pictures:
                packed.writestr(f"{folder}/{item.name}.png", png(enlarged(item.picture)))
                if item.values is not None:
                    packed.writestr(f"{folder}/{item.name}.npy", npy(item.values))
        packed.writestr("manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False))
    return buffer.getvalue()


def _folders(exports: list[RunExport]) -> Iterator[str]:
    """Names that every file system takes, whatever the runs are called."""
    for number, export in enumerate(exports, 1):
        yield f"{number}-{re.sub(r'[^A-Za-z0-9._-]+', '-', export.run).strip('-') or 'run'}"
