"""What the page shows, computed: one object for the runs that were named on the command line, and no others."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any, Final, Literal, get_args

import torch
from torch import Tensor, nn

from bort import explain, invert, measure
from bort.app._kept import Gallery, Kept, Unknown
from bort.app._uploads import decode
from bort.explain._common import Progress, map_layers
from bort.invert._backtrack import Backtracker, Trace
from bort.invert._grid import Grid, grid_of
from bort.invert._salient import joint_seed, salient, single_seeds
from bort.invert._similar import correlation
from bort.measure._deletion import _ranks
from bort.report import Amount, Missing, Subject, subjects
from bort.report._images import Picture, grid, overlay, picture, signal
from bort.report._pictures import _coloured

Slow = Literal["guided-ig", "rise", "xrai"]
"""Methods that go through the queue."""
SLOW: Final[tuple[str, ...]] = get_args(Slow)


class Explorer:
    """Two threads use it: the page's, one call at a time, and the queue's, which has networks of its own."""

    def __init__(
        self, folders: list[Path], device: str = "cpu", data_root: Path | None = None, examples: int = 20
    ) -> None:
        amount = Amount(measured=max(32, examples), evaluated=1, pairs=1)
        self.subjects = {s.name: s for s in subjects(folders, amount, device, data_root)}
        self._first = next(iter(self.subjects.values()))
        self._lock = threading.RLock()
        self._kept = Kept(self._lock)
        self._gallery = Gallery(self._lock)
        self.images = self._gallery.images
        self._models: dict[str, nn.Module] = {}
        try:
            view = self._first.view
            x, labels = self._first.images(examples), self._first.labels(examples)
            for n in range(len(x)):
                self._gallery.add(f"test-{n}", x[n : n + 1], view.name(int(labels[n])))
        except Missing:
            pass  # then there are uploads only

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
                    "top": self._top(s),
                }
                for s in self.subjects.values()
            ],
            "images": [{"name": i.name, "label": i.label} for i in self.images.values()],
            "classes": list(self._first.view.class_names),
            "methods": explain.names(),
            "slow": list(SLOW),
        }

    def layers(self, run: str) -> list[dict[str, Any]]:
        """Those with a map, found in one pass."""
        subject = self._subject(run)

        def find() -> list[dict[str, Any]]:
            if not self.images:
                return []
            maps, _ = map_layers(subject.model, next(iter(self.images.values())).x)
            shapes = {name: grid_of(subject.model, name, output).shape for name, output in maps}
            return [{"name": n, "channels": c, "height": h, "width": w} for n, (c, h, w) in shapes.items()]

        return self._kept(("layers", run), find)

    def _top(self, subject: Subject) -> str:
        return self._kept(("top", subject.name), lambda: subject.layer) if self.images else ""

    def upload(self, content: bytes) -> str:
        """The name of the image."""
        return self._gallery.upload(content, self._first.view(decode(content)).to(self._first.device))

    # --- an image and a layer

    def input(self, image: str) -> Picture:
        return picture(self._first.view.pixels(self._gallery[image])[0])

    def predict(self, run: str, image: str) -> list[dict[str, Any]]:
        """The five likeliest classes."""
        subject = self._subject(run)
        with self._lock, torch.no_grad():
            chances = subject.model(self._gallery[image]).softmax(dim=1)[0]
        top = chances.topk(min(5, len(chances)))
        return [
            {"class": int(c), "name": subject.view.name(int(c)), "probability": float(p)}
            for p, c in zip(top.values, top.indices, strict=True)
        ]

    def channels(self, run: str, image: str, layer: str, k: int | None) -> dict[str, Any]:
        """The k most salient, with a sheet of their patterns; eight in a row."""
        trace, where = self._trace(run, image, layer)
        found = salient(where.to_map(trace.features), k or self._usual(run, image, layer))
        signals = trace(where.from_map(single_seeds(found, where.shape, 1.0)))[:, 0]
        pictures = [signal(s) for s in signals]
        rows = [pictures[i : i + 8] for i in range(0, len(pictures), 8)]
        width = where.shape[2]
        return {
            "sheet": grid(rows, gap=0, colour=0),
            "columns": min(8, len(pictures)),
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
        back = trace(where.from_map(seed))
        return back[0], correlation(back, self._gallery[image])[0].item()

    def clusters(self, run: str, image: str, layer: str, k: int | None, groups: int) -> tuple[Picture, list[int]]:
        """The signals of the k most salient channels in as many colours, and the group of each."""
        subject, k = self._subject(run), k or self._usual(run, image, layer)
        with self._lock:
            found = invert.decompose(subject.model, self._gallery[image], layer, k, clusters=groups)
        assert found.clusters is not None
        return _coloured(found.signals[0], found.clusters[0], groups), found.clusters[0].tolist()

    # --- evidence

    def saliency(
        self,
        run: str,
        image: str,
        method: str,
        target: int | None,
        k: int | None = None,
        threshold: float | None = None,
        progress: Progress | None = None,
    ) -> Tensor:
        """(H, W). SAT's k and threshold need no new pass; a slow method is computed on a network of the queue's own."""
        if method not in explain.names():
            raise Unknown(f"There is no method {method!r}.")
        x = self._gallery[image]
        if method == "sat":
            subject = self._subject(run)

            def track() -> explain.Tracked:
                most = min(256, subject.channels)
                return explain.track(subject.model, x, layer=subject.layer, k=most)

            tracked = self._kept(("sat", run, image), track)
            count = min(64, tracked.values.shape[1]) if k is None else k
            return tracked.map(count, 0.2 if threshold is None else threshold)[0]
        key = ("map", run, image, method, target)
        if method not in SLOW:
            return self._kept(key, lambda: explain.get(method)(self._subject(run).model, x, target)[0])
        kept: Tensor | None = self._kept.get(key)
        if kept is not None:
            return kept
        if progress is None:
            raise Unknown(f"{method} has not been computed for this image yet: start it first.")
        made = explain.get(method)(self._model_of_the_queue(run), x, target, progress=progress)[0]
        self._kept.put(key, made)
        return made

    def overlay(self, image: str, saliency: Tensor, strength: float) -> Picture:
        return overlay(self._first.view.pixels(self._gallery[image])[0], saliency, strength)

    def curve(self, run: str, image: str, saliency: Tensor, target: int | None) -> dict[str, Any]:
        """Deletion and insertion by all scores."""
        with self._lock:
            found = measure.all_scores(self._subject(run).model, self._gallery[image], saliency[None], target)
        return {
            score: {
                "deletion": each.deletion_curves[0].tolist(),
                "insertion": each.insertion_curves[0].tolist(),
                "areas": each.means,
            }
            for score, each in found.items()
        }

    def step(
        self,
        run: str,
        image: str,
        saliency: Tensor,
        step: int,
        which: Literal["deletion", "insertion"],
        steps: int = 28,
    ) -> tuple[Picture, float]:
        """The image at a step of deletion or insertion, and the probability of what the network says of the clean one."""
        subject, x = self._subject(run), self._gallery[image]
        if not 0 <= step <= steps:
            raise Unknown(f"There are steps 0 to {steps}, not {step}.")
        rank, count = _ranks(saliency[None].to(x.device)), round(step * saliency.numel() / steps)
        gone = (rank < count) if which == "deletion" else (rank >= count)
        mixed = torch.where(gone[:, None], torch.zeros_like(x), x)
        with self._lock, torch.no_grad():
            label = subject.model(x).argmax(dim=1)
            chance = subject.model(mixed).softmax(dim=1)[0, label].item()
        return picture(subject.view.pixels(mixed)[0]), chance

    # --- two images, and all of it

    def transplant(
        self, run: str, source: str, target: str, layer: str, k: int | None, path: Literal["source", "target", "none"]
    ) -> tuple[Picture, dict[str, Any]]:
        subject, k = self._subject(run), k or self._usual(run, target, layer)
        with self._lock:
            made = invert.synthesize(subject.model, self._gallery[source], self._gallery[target], layer, k, path=path)
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
        subject = self._subject(run)
        return self._kept(("audit", run), lambda: subject.audit.to_dict())

    # --- inside

    def require(self, run: str, image: str) -> None:
        """Say what is not there before anything is begun."""
        self._subject(run)
        self._gallery[image]

    def _subject(self, run: str) -> Subject:
        if run not in self.subjects:
            raise Unknown(f"There is no run {run!r}; there are {', '.join(self.subjects)}.")
        return self.subjects[run]

    def _trace(self, run: str, image: str, layer: str) -> tuple[Trace, Grid]:
        subject = self._subject(run)

        def make() -> tuple[Trace, Grid]:
            trace = Backtracker(subject.model, layer).trace(self._gallery[image])
            return trace, grid_of(subject.model, layer, trace.features)

        return self._kept(("trace", run, image, layer), make)

    def _usual(self, run: str, image: str, layer: str) -> int:
        """How many channels, if nobody says: 64 as in the paper, or all of a narrower layer."""
        return min(64, self._trace(run, image, layer)[1].shape[0])

    def _model_of_the_queue(self, run: str) -> nn.Module:
        """A copy: hooks that the page's calls put on a network would be met by the queue's passes."""
        with self._lock:
            if run not in self._models:
                self._models[run] = copy.deepcopy(self._subject(run).model)
            return self._models[run]
