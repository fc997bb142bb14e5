"""A view to take away: what is on the screen, of all runs, as files with a manifest or as one self-contained page."""

from __future__ import annotations

import io
import json
import re
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from bort._environment import describe
from bort.app._explorer import Explorer
from bort.app._page_state import Seen, View
from bort.pictures import Picture, enlarged, npy, png, signal


def data_url(image: Picture) -> str:
    return "data:image/png;base64," + b64encode(png(image)).decode()


@dataclass
class Item:
    """A picture with its words, and the numbers behind it."""

    name: str
    words: str
    picture: Picture
    values: Tensor | None = None


@dataclass
class Side:
    """What a run has in the view."""

    run: str
    pictures: list[Item] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def parts(explorer: Explorer, view: View) -> list[Side]:
    """One a run, in the page's order."""
    make = {"inside": _inside, "evidence": _evidence, "transplant": _transplant, "audit": _audit}[view.view]
    found = []
    for number, run in enumerate(explorer.subjects):
        part = Side(run)
        if view.view != "audit":
            part.facts["says"] = explorer.predict(run, view.image)
        make(explorer, view, view.of(explorer, number), part)
        found.append(part)
    return found


def _inside(explorer: Explorer, view: View, seen: Seen, part: Side) -> None:
    run, image, layer = seen.run, view.image, seen.layer
    k = seen.k if view.part == "k" else None
    back, like = explorer.reconstruct(run, image, layer, k, binary=view.binary, edits=seen.edits)
    source = "the whole map" if k is None else f"{k} features{', binarised' if view.binary else ''}"
    scaled = ", ".join(f"{channel} × {factor:g}" for channel, factor in seen.edits.items())
    words = f"from {layer}, {source}{f', channels scaled: {scaled}' if scaled else ''}: correlation {like:.2f}"
    part.pictures += [
        Item("input", "input", explorer.input(image)),
        Item("reconstruction", words, signal(back), back),
    ]
    sheet = explorer.channels(run, image, layer, 64, min(view.start, explorer.channels_of(run, layer) - 1))
    part.pictures.append(Item("channels", "channels, most salient first", sheet["sheet"]))
    part.facts["channels"] = sheet["channels"]
    if seen.channel is not None:
        pattern = explorer.channel(run, image, layer, seen.channel)
        part.pictures.append(Item(f"channel-{seen.channel}", f"channel {seen.channel}", signal(pattern), pattern))
    if view.clusters:
        coloured, groups = explorer.clusters(run, image, layer, min(64, seen.k), 4)
        part.pictures.append(Item("clusters", "clusters", coloured))
        part.facts["clusters"] = groups
    part.facts |= {"layer": layer, "correlation": like, "edits": seen.edits, "features": k}


def _evidence(explorer: Explorer, view: View, seen: Seen, part: Side) -> None:
    run, image, method = seen.run, view.image, view.method
    sat = (seen.tracked, view.threshold) if method == "sat" else (None, None)
    found = explorer.evidence.saliency(run, image, method, view.target, *sat)
    curve = explorer.evidence.curve(run, image, found, view.target)
    score = curve[view.score][view.which][view.step]
    at = explorer.evidence.step(run, image, found, view.step, view.which)
    part.pictures += [
        Item("input", "input", explorer.input(image)),
        Item(method, method, explorer.evidence.overlay(run, image, found, view.strength), found),
        Item(f"{view.which}-step-{view.step}", f"{view.which}, step {view.step}: {view.score} {score:.3f}", at),
    ]
    part.facts["curves"] = curve


def _transplant(explorer: Explorer, view: View, seen: Seen, part: Side) -> None:
    made, facts = explorer.transplant(seen.run, view.image, view.other, seen.layer, seen.k, view.path)
    part.pictures += [
        Item("source", f"source: “{facts['source']}”", explorer.input(view.image)),
        Item("target", f"target: “{facts['target']}”", explorer.input(view.other)),
        Item("made", f"made: the image is “{facts['image']}”, the map “{facts['map']}”", made),
    ]
    part.facts |= facts | {"layer": seen.layer, "features": seen.k}


def _audit(explorer: Explorer, view: View, seen: Seen, part: Side) -> None:
    part.facts["audit"] = explorer.audit(seen.run)


def archive(explorer: Explorer, view: View) -> bytes:
    """PNG and npy in a folder for each run, and manifest.json: the view, its address, the numbers, and where it was made."""
    found = parts(explorer, view)
    manifest: dict[str, Any] = {"view": view.to_dict(), "address": view.address(), "runs": []} | describe(0)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for folder, part in zip(_folders(found), found, strict=True):
            manifest["runs"].append({"name": part.run, "folder": folder} | part.facts)
            for item in part.pictures:
                packed.writestr(f"{folder}/{item.name}.png", png(enlarged(item.picture)))
                if item.values is not None:
                    packed.writestr(f"{folder}/{item.name}.npy", npy(item.values))
        packed.writestr("manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False))
    return buffer.getvalue()


def _folders(found: list[Side]) -> Iterator[str]:
    """Names that every file system takes, whatever the runs are called."""
    for number, part in enumerate(found, 1):
        yield f"{number}-{re.sub(r'[^A-Za-z0-9._-]+', '-', part.run).strip('-') or 'run'}"
