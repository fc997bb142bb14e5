"""What the page shows, computed: for the subjects that were handed in, and no others."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from bort import explain, invert
from bort._defaults import SALIENT_CHANNELS
from bort._inspect import class_of_logit, class_probabilities, evaluating, finite, outputs_of, targets_of
from bort.app._atlas import Atlases
from bort.app._cache import Cache
from bort.app._drawing import Drawings
from bort.app._edits import ChannelEdits
from bort.app._exceptions import NoLayer, Unknown
from bort.app._exit import at_exit
from bort.app._gallery import Gallery
from bort.app._index import Index
from bort.app._inside import Inside
from bort.app._lock import ComputeLock
from bort.app._portrait import Portraits
from bort.app._saliency import SaliencyMaps
from bort.app._sent import SentImages
from bort.app._test_images import NumberedImages
from bort.app._thumbnails import Thumbnails
from bort.app._verdicts import likeliest
from bort.data import View
from bort.measure import Audit
from bort.pictures import Picture, picture
from bort.report import Measured, Missing, measured
from bort.subject import Subject


class Explorer:
    """Everything that the page asks for, by the names of runs (the subjects), images and layers.

    Pages' questions are computed one at a time under ``lock``; slow saliency methods run beside them, on copies of the
    networks.

    Args:
        subjects: networks that see the same images, see :func:`bort.subject.resolve_all`; each with a view.
        examples: how many test images the page always shows; the others are found in "Find images".
        cache: a folder in which what is computed of the whole test set is kept; None: in memory only.

    Example:
        >>> explorer = app.Explorer(subject.of_models(nets.create("lenet"), torch.rand(4, 1, 28, 28)))
        >>> list(explorer.subjects)
        ['model']
    """

    def __init__(self, subjects: Sequence[Subject], examples: int = 20, cache: Path | None = None) -> None:
        if not subjects:
            raise ValueError("the explorer needs a subject: name the folder of a run")
        for subject in subjects:
            if subject.view is None:
                raise ValueError(
                    f"it is not known how {subject.name} sees an image, so the explorer cannot show it any: give "
                    "size, mean and std, the last two with a number for each channel (in a command --size, --mean, --std)"
                )
        self.subjects = {subject.name: subject for subject in subjects}
        # With the report's sizes, so that its numbers are these. Their images are read when a number first needs them.
        self._measured = {prepared.name: prepared for prepared in measured(subjects)}
        self._first = subjects[0].name
        self._reading, self._is_read = threading.Lock(), False
        self.lock = ComputeLock()
        at_exit(self.lock.end)  # called last: first those who use it are told to stop
        self._results = Cache(self.lock, size=64)
        self._traces = Cache(self.lock, size=12)  # each holds the activations of a pass through the network
        self.test_images = NumberedImages(self._measured)
        self.gallery = Gallery(self.test_images.named)
        self.sent, self.drawings, self.thumbnails = SentImages(self), Drawings(self), Thumbnails(self)
        self.inside = Inside(self)
        self.saliency = SaliencyMaps(self)
        self.index = Index(self, cache)
        self.atlases = Atlases(self, cache)
        self.portraits = Portraits(self)
        at_exit(self.close)
        for number in range(min(examples, self.test_images.count)):  # without any, others can be sent
            with contextlib.suppress(Unknown):  # a file that cannot be read
                self.gallery.offer(self.test_images.named(f"test-{number}"))

    def prepare(self) -> None:
        """Compute what the first view asks for. The first forward and backward pass load much of torch."""
        for run in self.subjects if self.gallery.list() else ():
            with contextlib.suppress(Exception):  # the page gets the error when it asks
                layer = self.top(run)
                self.predict(run, "test-0")
                self.inside.channels(run, "test-0", layer, self.inside.patterns_at_once(run))
                self.inside.reconstruct(run, "test-0", layer, None, binary=True, edits=ChannelEdits())

    def close(self) -> None:
        """End what is computed in the background, and the reading of test images."""
        self.index.close()
        self.atlases.close()
        self.test_images.close()

    # --- what there is

    def info(self) -> dict[str, Any]:
        """For the page's menus."""
        return {
            "runs": [
                {
                    "name": subject.name,
                    "recipe": subject.recipe,
                    "accuracy": subject.accuracy,
                    "colours": self.view(subject.name).channels,
                    "patterns": self.inside.patterns_at_once(subject.name),
                    "layers": self.layers(subject.name),
                    "top": self.top(subject.name),
                }
                for subject in self.subjects.values()
            ],
            "images": [image.info() for image in self.gallery.list()],
            "image_side": max(self.view(self._first).height, self.view(self._first).width),
            "drawing": None if self.drawings.refusal else self.drawings.canvas,
            "no_drawing": self.drawings.refusal,
            "classes": self.classes(),
            "methods": explain.names(),
            "titles": {name: explain.get(name).label for name in explain.names()},
            "signed": [name for name in explain.names() if explain.get(name).signed],
            "slow": [name for name in explain.names() if explain.get(name).slow],
        }

    def classes(self) -> list[str]:
        """The names of the classes that the first run's logits are for, and numbers for those without; a single logit is for
        one of two. None if one run has a single logit and another one has more, whose places mean other classes. Without an
        image to count logits with, the names that are known."""
        view, x = self.view(self._first), self._any_input(self._first)
        if len(view.class_names) > 2 or x is None:
            return list(view.class_names)

        def find() -> list[int]:
            outputs = [self._logits(run, self.gallery.list()[0].name) for run in self.subjects]
            are_single = {logits.shape[1] == 1 for logits in outputs}
            places = range(outputs[0].shape[1]) if len(are_single) == 1 else ()
            return [class_of_logit(place, outputs[0]) for place in places]

        return [view.name(number) for number in self._results("classes", find)]

    def layers(self, run: str) -> list[dict[str, Any]]:
        """Those with a map, found in one pass; none while there is no image to find them with."""
        subject, x = self.subject(run), self._any_input(run)

        def find() -> list[dict[str, Any]]:
            assert x is not None
            shapes = {name: grid.shape for name, grid in explain.map_layers(subject.model, x).items()}
            return [{"name": n, "channels": c, "height": h, "width": w} for n, (c, h, w) in shapes.items()]

        return [] if x is None else self._results(("layers", run), find)

    def top(self, run: str) -> str:
        """The last layer with a map, the paper's Z; empty if there is none, or while there is no image to find it with."""
        subject, x = self.subject(run), self._any_input(run)
        if x is None or not self.layers(run):
            return ""
        return self._results(("top", run), lambda: explain.top_layer(subject.model, x))

    def channel_count(self, run: str, layer: str) -> int:
        layers = self.layers(run)
        for info in layers:
            if info["name"] == layer:
                return int(info["channels"])
        if not layers and self._any_input(run) is not None:
            raise NoLayer(run)
        raise Unknown(f"{run} has no layer {layer!r} with a map.")

    def subject(self, run: str) -> Subject:
        if run not in self.subjects:
            raise Unknown(f"There is no run {run!r}; there are {', '.join(self.subjects)}.")
        return self.subjects[run]

    def view(self, run: str) -> View:
        """How the run's network sees an image."""
        self.subject(run)
        return self._measured[run].view

    def measured(self, run: str) -> Measured:
        """What the report measures of the run, over the same test images; computed under ``lock``."""
        self.subject(run)
        return self._measured[run]

    def audit(self, run: str) -> Audit:
        self._read()
        return self._results(("audit", run), lambda: self.measured(run).audit)

    def image_count(self, run: str) -> int:
        """How many test images the numbers over images are of; 0 if there are none."""
        return len(self.measured_images(run, self.measured(run).sizes.measured))

    def left_out(self, run: str) -> int:
        """How many of the first test images could not be read."""
        own = self.measured(run)
        return min(own.most, self.test_images.count) - len(self.measured_images(run, own.most))

    def measured_images(self, run: str, most: int) -> Tensor:
        """(N, C, H, W): the first of those test images; none if there are none."""
        self._read()
        try:
            return self.measured(run).images(most)
        except Missing:
            return torch.empty(0)

    def _read(self) -> None:
        """The test images that numbers are over, before ``lock`` is taken: reading photographs takes seconds."""
        with self._reading:
            if not self._is_read and self.test_images.count:
                images, labels = self.test_images.first(max(own.most for own in self._measured.values()))
                for run, own in self._measured.items():
                    own.take(images[run], labels[run])
            self._is_read = True

    def measured_pairs(self) -> list[tuple[int, int]]:
        """Sources and targets among them, as in the report; none if there are no images of two classes."""

        def find() -> list[tuple[int, int]]:
            try:
                return list(zip(*self.measured(self._first).pairs, strict=True))
            except Missing:
                return []

        self._read()
        found: list[tuple[int, int]] = self._results("pairs", find)
        return found

    # --- images

    def upload(self, content: bytes) -> str:
        """The name of the image in an image file."""
        return self.sent.add(content)

    def image(self, run: str, image: str) -> Tensor:
        """(1, C, H, W), as the run's network sees it."""
        self.subject(run)
        return self.gallery[image].inputs[run]

    def input(self, image: str) -> Picture:
        """The image as a person sees it, at the size of the first run's input."""
        return picture(self.view(self._first).pixels(self.image(self._first, image))[0])

    def predict(self, run: str, image: str) -> list[dict[str, Any]]:
        """The five likeliest classes."""
        multi_label = self.subject(run).multi_label
        probabilities = class_probabilities(self._outputs(run, image), multi_label=multi_label)[0]
        return likeliest(probabilities, self.view(run))

    def explained(self, run: str, image: str, target: int | None) -> int:
        """The class that maps and curves are of, if ``target`` was asked for."""
        outputs = self._outputs(run, image)
        return class_of_logit(int(targets_of(outputs, target)[0]), outputs)

    def _outputs(self, run: str, image: str) -> Tensor:
        return finite(self._logits(run, image), f"the outputs of {run}")

    def _logits(self, run: str, image: str) -> Tensor:
        model, x = self.subject(run).model, self.image(run, image)
        with self.lock, torch.no_grad(), evaluating(model):
            return outputs_of(model, x)

    # --- two images and a layer

    def transplant(
        self, run: str, source: str, target: str, layer: str, k: int | None, path: Literal["source", "target", "none"]
    ) -> tuple[Tensor, dict[str, Any]]:
        """The target's features at the source's places (paper, "Details of Decomposition and Synthesis"): the image as a
        person sees it, (C, H, W), and what the network says of it."""
        model, view, k = self.subject(run).model, self.view(run), k or self.default_k(run, target, layer)
        with self.lock:
            synthesis = invert.synthesize(model, self.image(run, source), self.image(run, target), layer, k, path=path)
        return view.pixels(synthesis.images)[0], {
            "image": view.name(int(synthesis.image_verdicts[0])),
            "map": view.name(int(synthesis.map_verdicts[0])),
            "source": view.name(int(synthesis.source_classes[0])),
            "target": view.name(int(synthesis.target_classes[0])),
            "like_source": synthesis.source_similarity[0].item(),
            "like_target": synthesis.target_similarity[0].item(),
        }

    # --- shared by the questions above

    def _any_input(self, run: str) -> Tensor | None:
        return next((image.inputs[run] for image in self.gallery.list()), None)

    def trace(self, run: str, image: str, layer: str) -> invert.Trace:
        """The forward pass of an image, from whose layer everything else goes back."""
        model, x = self.subject(run).model, self.image(run, image)
        return self._traces((run, image, layer), lambda: invert.Backtracker(model, layer).trace(x))

    def default_k(self, run: str, image: str, layer: str) -> int:
        """The paper's 64 channels, or all of a narrower layer."""
        return min(SALIENT_CHANNELS, self.trace(run, image, layer).grid.shape[0])
