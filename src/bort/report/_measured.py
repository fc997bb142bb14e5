"""A subject with what is measured of it: computed when it is first asked for, and used in many figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

from torch import Tensor

from bort import explain, invert, measure
from bort._sample_sizes import SampleSizes
from bort.data import View
from bort.subject import Missing, Subject

Say = Callable[[str, int, int], None]
"""Called with (what, done, total) as slow work goes on."""


class Measured:
    """Everything that a report says of one subject, each thing computed once."""

    def __init__(self, subject: Subject, sizes: SampleSizes) -> None:
        self.subject, self.sizes = subject, sizes
        self.name, self.model = subject.name, subject.model
        self._evaluations: dict[str, measure.Evaluation] = {}

    @property
    def view(self) -> View:
        if self.subject.view is None:
            raise Missing(f"it is not known how {self.name} sees an image")
        return self.subject.view

    @cached_property
    def _test(self) -> tuple[Tensor, Tensor]:
        """Enough test images for everything."""
        sizes = self.sizes
        return self.subject.test_images(max(sizes.measured, sizes.evaluated, sizes.pairs, sizes.shown))

    def images(self, count: int) -> Tensor:
        return self._test[0][:count]

    def labels(self, count: int) -> Tensor:
        return self._test[1][:count]

    @cached_property
    def layer(self) -> str:
        """The top layer with a map: the paper's Z."""
        try:
            return explain.top_layer(self.model, self.images(1))
        except ValueError as error:
            raise Missing(f"{self.name}: {error}") from error

    @cached_property
    def channels(self) -> int:
        """Of that layer."""
        return invert.Backtracker(self.model, self.layer, "gradient").trace(self.images(1)).grid.shape[0]

    @property
    def features(self) -> int:
        """How many of them are followed: as many as asked for, or all of a narrower layer."""
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
        """Over the layers: the part of its input that a layer loses. None without test images."""
        ratios = [layer.ratio for layer in self.audit if layer.ratio is not None and math.isfinite(layer.ratio)]
        return sum(ratios) / len(ratios) if ratios else None

    @cached_property
    def grams(self) -> dict[str, measure.Gram]:
        return measure.gram(self.model, smaller=True)

    def evaluate(self, methods: Sequence[str], say: Say | None = None) -> dict[str, measure.Evaluation]:
        """Maps, deletion and insertion of these methods, in their order; each method is computed once."""
        wanted = [name for name in methods if name not in self._evaluations]
        if wanted:
            options: dict[str, dict[str, object]] = {
                "rise": {"masks": self.sizes.masks},
                "sat": {"k": self.features},
            }
            self._evaluations |= measure.evaluate(
                self.model,
                self.images(self.sizes.evaluated),
                wanted,
                options={name: options[name] for name in wanted if name in options},
                progress=None if say is None else lambda what, done, total: say(f"{self.name}: {what}", done, total),
            )
        return {name: self._evaluations[name] for name in methods}
