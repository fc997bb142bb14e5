"""What the page shows, computed: one object for the runs that were named on the command line, and no others."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from bort import explain, invert
from bort.app._saliency import MOST_TRACKED, SLOW, STEPS, Evidence
from bort.app._cache import Gallery, Kept, Unknown
from bort.app._lock import Turn
from bort.app._uploads import decode
from bort.explain._common import map_layers, top_layer
from bort.invert._backtrack import Backtracker, Trace
from bort.invert._grid import Grid, grid_of
from bort.invert._salient import Salient, joint_seed, salient, single_seeds
from bort.invert._similar import correlation
from bort.report import SampleSizes, Missing, Subject, subjects
from bort.pictures import Picture, grid, picture, signal
from bort.report._pictures import _coloured


class Explorer:
    """What is computed for pages is computed in turn, one thing at a time; the queue has networks of its own."""

    def __init__(
        self, folders: list[Path], device: str = "cpu", data_root: Path | None = None, examples: int = 20
    ) -> None:
        amount = SampleSizes(measured=max(32, examples), evaluated=1, pairs=1)
        self.subjects = {s.name: s for s in subjects(folders, amount, device, data_root)}
        self._first = next(iter(self.subjects.values()))
        self.turn = Turn()
        self._kept = Kept(self.turn, most=64)
        self._traces = Kept(self.turn, most=12)  # each has the network's activations in it
        self._sheets = Kept(self.turn, most=12)
        self.gallery = Gallery()
        self.evidence = Evidence(self)
        with contextlib.suppress(Missing):  # then there are uploads only
            self._add_tests(examples)

    def _add_tests(self, examples: int) -> None:
        view, labels = self._first.view, self._first.labels(examples)
        same = {s.name: (self._first if s.view == view else s).images(examples) for s in self.subjects.values()}
        for n in range(len(labels)):
            x = {run: images[n : n + 1] for run, images in same.items()}
            self.gallery.add(f"test-{n}", x, view.name(int(labels[n])))

    def prepare(self) -> None:
        """What the first view will ask, asked before: the first pass and the first way back load much of torch."""
        for run in self.subjects if self.gallery.list() else ():
            with contextlib.suppress(Exception):  # it is said to who asks for it
                layer = self.top(run)
                self.predict(run, "test-0")
                self.channels(run, "test-0", layer, None)
                self.reconstruct(run, "test-0", layer, None, binary=True, edits={})

    # --- what there is

    def info(self) -> dict[str, Any]:
        """For the page's menus."""
        return {
            "runs": [
                {
                    "name": s.name,
                    "recipe": s.run.recipe.name,
                    "accuracy": s.run.accuracy,
                    "layers": self.layers(s.name),
                    "top": self.top(s.name),
                }
                for s in self.subjects.values()
            ],
            "images": [{"name": i.name, "label": i.label} for i in self.gallery.list()],
            "classes": list(self._first.view.class_names),
            "methods": explain.names(),
            "slow": list(SLOW),
            "steps": STEPS,
            "most_tracked": MOST_TRACKED,
        }

    def layers(self, run: str) -> list[dict[str, Any]]:
        """Those with a map, found in one pass; none while there is no image to find them with."""
        subject, x = self.subject(run), self._any(run)

        def find() -> list[dict[str, Any]]:
            assert x is not None
            maps, _ = map_layers(subject.model, x)
            shapes = {name: grid_of(subject.model, name, output).shape for name, output in maps}
            return [{"name": n, "channels": c, "height": h, "width": w} for n, (c, h, w) in shapes.items()]

        return [] if x is None else self._kept(("layers", run), find)

    def top(self, run: str) -> str:
        """The last layer with a map, the paper's Z."""
        subject, x = self.subject(run), self._any(run)
        return "" if x is None else self._kept(("top", run), lambda: top_layer(subject.model, x))

    def channels_of(self, run: str, layer: str) -> int:
        found = [each["channels"] for each in self.layers(run) if each["name"] == layer]
        if not found:
            raise Unknown(f"{run} has no layer {layer!r} with a map.")
        return int(found[0])

    def _any(self, run: str) -> Tensor | None:
        return next((shown.x[run] for shown in self.gallery.list()), None)

    def upload(self, content: bytes) -> str:
        """The name of the image."""
        image = decode(content)
        return self.gallery.upload(content, {s.name: s.view(image).to(s.device) for s in self.subjects.values()})

    # --- an image and a layer

    def image(self, run: str, image: str) -> Tensor:
        """(1, C, H, W), as the run's network sees it."""
        self.subject(run)
        return self.gallery[image][run]

    def input(self, image: str) -> Picture:
        return picture(self._first.view.pixels(self.gallery[image][self._first.name])[0])

    def strip(self) -> Picture:
        """All images beside each other, small, in the order of `info`."""
        small = [_thumbnail(self.input(shown.name)) for shown in self.gallery.list()]
        return grid([small], gap=0) if small else np.zeros((1, 1, 3), np.uint8)

    def predict(self, run: str, image: str) -> list[dict[str, Any]]:
        """The five likeliest classes."""
        subject, x = self.subject(run), self.image(run, image)
        with self.turn, torch.no_grad():
            chances = subject.model(x).softmax(dim=1)[0]
        top = chances.topk(min(5, len(chances)))
        return [
            {"class": int(c), "name": subject.view.name(int(c)), "probability": float(p)}
            for p, c in zip(top.values, top.indices, strict=True)
        ]

    def channels(self, run: str, image: str, layer: str, k: int | None, start: int = 0) -> dict[str, Any]:
        """k in the order of salience, from the start-th on, with a sheet of their patterns; eight in a row."""
        count = k or 64
        return self._sheets((run, image, layer, count, start), lambda: self._sheet(run, image, layer, count, start))

    def _sheet(self, run: str, image: str, layer: str, k: int, start: int) -> dict[str, Any]:
        trace, where = self._trace(run, image, layer)
        count = where.shape[0]
        if start >= count:
            raise Unknown(f"The layer {layer} has {count} channels: there is none behind the {start}th.")
        ranked = salient(where.to_map(trace.features), min(count, start + k))
        found = Salient(*(each[:, start:] for each in (ranked.channels, ranked.values, ranked.places)))
        signals = trace(where.from_map(single_seeds(found, where.shape, 1.0)))[:, 0]
        pictures = [signal(s) for s in signals]
        rows = [pictures[i : i + 8] for i in range(0, len(pictures), 8)]
        width = where.shape[2]
        return {
            "sheet": grid(rows, gap=0, colour=0),
            "columns": min(8, len(pictures)),
            "count": count,
            "channels": [
                {"channel": int(c), "value": float(v), "row": int(p) // width, "column": int(p) % width}
                for c, v, p in zip(found.channels[0], found.values[0], found.places[0], strict=True)
            ],
        }

    def channel(self, run: str, image: str, layer: str, channel: int) -> Tensor:
        """(C, H, W): the pattern of one channel, at its strongest place."""
        trace, where = self._trace(run, image, layer)
        maps = where.to_map(trace.features)
        if not 0 <= channel < where.shape[0]:
            raise Unknown(f"The layer {layer} has channels 0 to {where.shape[0] - 1}, not {channel}.")
        seed = torch.zeros_like(maps)
        seed[0, channel].view(-1)[maps[0, channel].argmax()] = 1
        with self.turn:
            return trace(where.from_map(seed))[0]

    def reconstruct(
        self, run: str, image: str, layer: str, k: int | None, *, binary: bool, edits: dict[int, float]
    ) -> tuple[Tensor, float]:
        """(C, H, W) from the whole map or its k most salient features, channels scaled as told; and how like the input."""
        trace, where = self._trace(run, image, layer)
        maps = where.to_map(trace.features)
        if k is None:
            seed = maps.clone()
        else:
            found = salient(maps, k)
            strengths = torch.ones_like(found.values) if binary else found.values
            seed = joint_seed(found, found.places, strengths, where.shape)
        for channel, factor in edits.items():
            if not 0 <= channel < where.shape[0]:
                raise Unknown(f"The layer {layer} has channels 0 to {where.shape[0] - 1}, not {channel}.")
            seed[0, channel] *= factor
        with self.turn:
            back = trace(where.from_map(seed))
        return back[0], correlation(back, self.image(run, image))[0].item()

    def clusters(self, run: str, image: str, layer: str, k: int | None, groups: int) -> tuple[Picture, list[int]]:
        """The signals of the k most salient channels in as many colours, and the group of each."""
        subject, k = self.subject(run), k or self._usual(run, image, layer)
        with self.turn:
            found = invert.decompose(subject.model, self.image(run, image), layer, k, clusters=min(groups, k))
        assert found.clusters is not None
        return _coloured(found.signals[0], found.clusters[0], groups), found.clusters[0].tolist()

    # --- two images, and all of it

    def transplant(
        self, run: str, source: str, target: str, layer: str, k: int | None, path: Literal["source", "target", "none"]
    ) -> tuple[Picture, dict[str, Any]]:
        subject, k = self.subject(run), k or self._usual(run, target, layer)
        with self.turn:
            pair = self.image(run, source), self.image(run, target)
            made = invert.synthesize(subject.model, *pair, layer, k, path=path)
        name = subject.view.name
        return picture(subject.view.pixels(made.images)[0]), {
            "image": name(int(made.image_verdicts[0])),
            "map": name(int(made.map_verdicts[0])),
            "source": name(int(made.source_classes[0])),
            "target": name(int(made.target_classes[0])),
            "like_source": made.source_similarity[0].item(),
            "like_target": made.target_similarity[0].item(),
        }

    def audit(self, run: str) -> list[dict[str, Any]]:
        subject = self.subject(run)
        return self._kept(("audit", run), lambda: subject.audit.to_dict())

    # --- inside

    def subject(self, run: str) -> Subject:
        if run not in self.subjects:
            raise Unknown(f"There is no run {run!r}; there are {', '.join(self.subjects)}.")
        return self.subjects[run]

    def _trace(self, run: str, image: str, layer: str) -> tuple[Trace, Grid]:
        subject = self.subject(run)

        def make() -> tuple[Trace, Grid]:
            trace = Backtracker(subject.model, layer).trace(self.image(run, image))
            return trace, grid_of(subject.model, layer, trace.features)

        return self._traces((run, image, layer), make)

    def _usual(self, run: str, image: str, layer: str) -> int:
        """How many channels, if nobody says: 64 as in the paper, or all of a narrower layer."""
        return min(64, self._trace(run, image, layer)[1].shape[0])


def _thumbnail(image: Picture, side: int = 56) -> Picture:
    """At most so large, for a page that shows dozens."""
    from PIL.Image import Resampling, fromarray

    if image.shape[0] <= side:
        return image
    return np.array(fromarray(image).resize((side, side), Resampling.LANCZOS))
