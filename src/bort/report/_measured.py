"""A subject with what is measured of it: computed when it is first asked for, and shared by all figures and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from bort import explain, invert, measure
from bort._inspect import all_outputs, decisions_of
from bort._sample_sizes import SampleSizes
from bort.data import View, spread
from bort.subject import ImageSet, Missing, Subject

Say = Callable[[str, int, int], None]
"""Called with (what, done, total) as slow work goes on."""

_FIRST_OF_0_1_0: Final = 32
FIRST: Final = SampleSizes.measured
"""The order of test images begins with so many that are spread evenly over all of them."""


@dataclass(frozen=True)
class Reconstructions:
    """What a network makes of its top map, for the first test images."""

    signals: Tensor
    """(shown, C, H, W)"""
    correlations: Tensor
    """(measured,): with the input."""


Pairs = tuple[tuple[int, ...], tuple[int, ...]]
"""The numbers of test images: sources, and the target of each."""


class Measured:
    """Everything that a report says of one subject, each thing computed once.

    Example:
        >>> (lenet,) = subject.of_models(nets.create("lenet"), torch.rand(4, 1, 28, 28))
        >>> own = report.Measured(lenet)
        >>> own.layer, own.channels
        ('conv2', 16)
    """

    def __init__(self, subject: Subject, sizes: SampleSizes | None = None, beside: Measured | None = None) -> None:
        """``beside``: another subject that sees the same images; they then come in the same order."""
        self.subject, self.sizes, self._beside = subject, sizes or SampleSizes(), beside
        self.name, self.model = subject.name, subject.model
        self._given: tuple[Tensor, Tensor] | None = None
        self._evaluations: dict[str, measure.Evaluation] = {}
        self._reconstructions: dict[int | None, Reconstructions] = {}
        self._adversaries: dict[Pairs, invert.Synthesis] = {}

    @property
    def first(self) -> Measured:
        """The subject whose images, order and pairs are those of all."""
        return self._beside or self

    @property
    def view(self) -> View:
        if self.subject.view is None:
            raise Missing(f"it is not known how {self.name} sees an image")
        return self.subject.view

    @cached_property
    def image_set(self) -> ImageSet:
        """The subject's test images by their places. Only of a subject with a function in its place do the sizes matter."""
        return self.subject.image_set(max(FIRST, self.most))

    @cached_property
    def order(self) -> Tensor:
        """(N,): the places of all test images in the order of report and explorer: image ``test-7`` of the explorer is at
        place ``order[7]``. It does not depend on the sizes. Two networks may have different classes, and so labels, for the
        same images: the order of the first is that of all."""
        beside = self._beside
        if beside is not None and len(beside.image_set) == len(self.image_set):
            return beside.order
        return _order(self.image_set)

    @property
    def most(self) -> int:
        """How many test images are needed for everything."""
        sizes = self.sizes
        return max(sizes.measured, sizes.evaluated, sizes.pairs, sizes.shown)

    @cached_property
    def _test_images(self) -> tuple[Tensor, Tensor]:
        """Enough for everything, and their labels."""
        if self._given is not None:
            if not len(self._given[1]):
                raise Missing(f"{self.name} has no test images that can be read")
            return self._given
        return self.read(range(self.most))

    def read(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The test images with these numbers in :attr:`order`, as the network sees them, and their labels."""
        places = [int(self.order[number]) for number in numbers if number < len(self.order)]
        images, labels = self.image_set.at(places)
        return images.to(self.subject.device, self.subject.dtype), labels

    def take(self, images: Tensor, labels: Tensor) -> None:
        """Use these as the first test images: what has been read by somebody else, who may have left some out."""
        self._given = images, labels

    def images(self, count: int) -> Tensor:
        """The first test images, (N, C, H, W), as the network sees them."""
        return self._test_images[0][:count]

    def labels(self, count: int) -> Tensor:
        return self._test_images[1][:count]

    def pixels(self, count: int) -> Tensor:
        """The first test images as a person sees them, in [0, 1]."""
        return self.view.pixels(self.images(count))

    def predictions(self, count: int) -> Tensor:
        """(N,): the classes that the network predicts for the first test images."""
        return decisions_of(all_outputs(self.model, self.images(count))).cpu()

    @cached_property
    def has_one_logit(self) -> bool:
        """Then maps are of that logit, which is for class 1, whichever of the two classes the network predicts."""
        return all_outputs(self.model, self.images(1)).shape[1] == 1

    @cached_property
    def answers(self) -> Tensor:
        """(tested,): 1 for a test image whose class the network predicts, 0 for a mistake, -1 where its class is not known.
        Spread evenly over the test set, and not in the order of :meth:`images`."""
        images, labels = self.subject.test_images(self.sizes.tested)
        if (labels < 0).all():
            raise Missing("the classes of the test images are not known")
        is_right = decisions_of(all_outputs(self.model, images)).cpu() == labels.cpu()
        return torch.where(labels.cpu() < 0, -1, is_right.long())

    @cached_property
    def layer(self) -> str:
        """The top layer with a map: the paper's Z."""
        try:
            return explain.top_layer(self.model, self.images(1))
        except ValueError as error:
            raise Missing(f"{self.name}: {error}") from error

    @cached_property
    def methods(self) -> list[str]:
        """The saliency methods that this network can be looked at with: without a map, those that ask for no layer."""
        self.images(1)  # Missing if there are none
        try:
            _ = self.layer
        except Missing:
            return [name for name in explain.names() if "layer" not in explain.get(name).options]
        return explain.names()

    @cached_property
    def _top(self) -> tuple[int, invert.Rule]:
        """The channels of that layer, and the rule by which signals go back from it."""
        trace = invert.Backtracker(self.model, self.layer).trace(self.images(1))
        return trace.grid.shape[0], trace.rule

    @property
    def channels(self) -> int:
        """Of that layer."""
        return self._top[0]

    @property
    def is_guided(self) -> bool:
        """Whether the network has activation functions that the guided rule acts on; else signals are gradients."""
        return self._top[1] == "guided"

    @property
    def features(self) -> int:
        """How many of the channels are followed: as many as asked for, or all of a narrower layer."""
        return min(self.sizes.features, self.channels)

    @cached_property
    def audit(self) -> measure.Audit:
        """With the test images if there are any."""
        try:
            x = self.images(self.sizes.measured)
        except Missing:
            return measure.audit(self.model)
        return measure.audit(self.model, x)

    @property
    def mean_ratio(self) -> float | None:
        """Mean reconstruction ratio over the layers: the part of its input that a layer loses. None without test images."""
        ratios = [layer.ratio for layer in self.audit if layer.ratio is not None and math.isfinite(layer.ratio)]
        return sum(ratios) / len(ratios) if ratios else None

    @cached_property
    def grams(self) -> dict[str, measure.Gram]:
        return measure.gram(self.model, smaller=True)

    def reconstructions(self, k: int | None = None) -> Reconstructions:
        """From the whole top map, or from its k most salient channels."""
        if k not in self._reconstructions:
            x = self.images(self.sizes.measured)
            back = invert.reconstruct(self.model, x, self.layer, k)
            signals = back[: self.sizes.shown].cpu()
            self._reconstructions[k] = Reconstructions(signals, invert.correlation(back, x).double().cpu())
        return self._reconstructions[k]

    @cached_property
    def pairs(self) -> Pairs:
        """Each of the first test images with the next one that is of another class, or may be."""
        labels = self.labels(self.sizes.pairs).tolist()
        if -1 in labels:  # pairs that a network does not tell apart are not counted, so any other image will do
            labels = list(range(len(labels)))
        pairs = list(_with_the_next_other(labels))
        if not pairs:
            raise Missing("adversaries need test images of two classes")
        return tuple(source for source, _ in pairs), tuple(target for _, target in pairs)

    def adversaries(self, pairs: Pairs) -> invert.Synthesis:
        """The targets' features at the sources' places."""
        if pairs not in self._adversaries:
            x = self.images(self.sizes.pairs)
            sources, targets = map(list, pairs)
            self._adversaries[pairs] = invert.synthesize(self.model, x[sources], x[targets], self.layer, self.features)
        return self._adversaries[pairs]

    def evaluate(self, methods: Sequence[str], say: Say | None = None) -> dict[str, measure.Evaluation]:
        """Maps, deletion and insertion of these methods, in their order. Each method is computed once, whichever others it is
        asked for with."""
        wanted = [name for name in methods if name not in self._evaluations]
        if wanted:
            options: dict[str, dict[str, object]] = {}
            if "rise" in wanted:
                options["rise"] = {"masks": self.sizes.masks}
            if "sat" in wanted:
                options["sat"] = {"k": self.features}
            self._evaluations |= measure.evaluate(
                self.model,
                self.images(self.sizes.evaluated),
                wanted,
                options=options,
                multi_label=self.subject.multi_label,
                warn=False,  # the figures' words say it
                progress=None if say is None else lambda what, done, total: say(f"{self.name}: {what}", done, total),
            )
        return {name: self._evaluations[name] for name in methods}


def measured(subjects: Sequence[Subject | Measured], sizes: SampleSizes | None = None) -> list[Measured]:
    """Subjects to be measured; those that are Measured already keep what has been computed, and their own sizes.

    Example:
        >>> networks = subject.of_models({"a": nets.create("lenet"), "b": nets.create("lenet")}, torch.rand(4, 1, 28, 28))
        >>> prepared = report.measured(networks)  # once, for several figures
        >>> [report.draw(name, prepared).name for name in ("sigma", "gram")]
        ['sigma', 'gram']
    """
    prepared: list[Measured] = []
    for subject in subjects:
        beside = prepared[0] if prepared else None
        prepared.append(subject if isinstance(subject, Measured) else Measured(subject, sizes, beside))
    return prepared


def shared_methods(subjects: Sequence[Measured]) -> list[str]:
    """The saliency methods that all of them can be looked at with."""
    return [name for name in subjects[0].methods if all(name in subject.methods for subject in subjects)]


def _order(images: ImageSet) -> Tensor:
    """The first are spread evenly over the test set, the others follow; of each part, the classes come in turn. The first
    part is what the explorer of version 0.1.0 had, whose addresses show the same images still."""
    parts: list[Tensor] = []
    is_new = torch.ones(len(images), dtype=torch.bool)
    for count in (_FIRST_OF_0_1_0, FIRST):
        places = torch.tensor(spread(len(images), count))
        places = places[is_new[places]]
        is_new[places] = False
        labels = torch.tensor([images.label(place) for place in places.tolist()])
        parts.append(places[_classes_in_turn(labels)])
    others = is_new.nonzero().flatten()
    return torch.cat([*parts, others[_classes_in_turn(images.labels[others])]])


def _classes_in_turn(labels: Tensor) -> Tensor:
    """(N,): an order that goes round the classes, the images of a class in random but fixed order."""
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).tolist()
    seen: dict[int, int] = {}
    turns = []  # (how many of its class come before it, class, index)
    for index in shuffled:
        label = int(labels[index])
        turns.append((seen.get(label, 0), label, index))
        seen[label] = seen.get(label, 0) + 1
    return torch.tensor([index for _, _, index in sorted(turns)], dtype=torch.long)


def _with_the_next_other(labels: list[int]) -> Iterator[tuple[int, int]]:
    """(place, the next place where the label is another one), round the list."""
    count = len(labels)
    for source in range(count):
        places = ((source + step) % count for step in range(1, count))
        target = next((place for place in places if labels[place] != labels[source]), None)
        if target is not None:
            yield source, target
