"""Which of a layer's channels are scaled, as the page's address says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from torch import Tensor

from bort.app._exceptions import Unknown

LARGEST_FACTOR: Final = 100
_OTHERS: Final = "*"


@dataclass(frozen=True)
class ChannelEdits:
    """A factor for each channel that is named, and one for all others."""

    factors: Mapping[int, float] = field(default_factory=dict)
    others: float = 1.0

    @classmethod
    def parse(cls, text: str) -> ChannelEdits:
        """Of ``12:0,40:2.5``, or ``*:0,12:1``: all channels but 12 switched off."""
        factors: dict[int, float] = {}
        others = 1.0
        for part in filter(None, text.split(",")):
            channel, _, number = part.partition(":")
            try:
                factor = float(number)
                if channel == _OTHERS:
                    others = factor
                else:
                    factors[int(channel)] = factor
            except ValueError:
                raise ValueError(f"edits: {part!r} is not channel:factor, such as 12:0.5.") from None
            if not abs(factor) <= LARGEST_FACTOR:
                raise ValueError(f"edits: the factor of {part!r} must be from -{LARGEST_FACTOR} to {LARGEST_FACTOR}.")
        return cls(factors, others)

    def __bool__(self) -> bool:
        """Whether anything is changed."""
        return self.others != 1 or any(factor != 1 for factor in self.factors.values())

    def __call__(self, maps: Tensor, layer: str) -> Tensor:
        """The maps (N, C, H, W) of the layer with its channels scaled."""
        count = maps.shape[1]
        scales = maps.new_full((count, 1, 1), self.others)
        for channel, factor in self.factors.items():
            if not 0 <= channel < count:
                raise Unknown(f"The layer {layer} has channels 0 to {count - 1}, not {channel}.")
            scales[channel] = factor
        return maps * scales

    def words(self) -> str:
        """For a caption; empty if nothing is changed."""
        words = [f"{channel} × {factor:g}" for channel, factor in self.factors.items() if factor != self.others]
        return ", ".join(words + ([f"all others × {self.others:g}"] if self.others != 1 else []))

    def to_dict(self) -> dict[str, float]:
        others = {_OTHERS: self.others} if self.others != 1 else {}
        return others | {str(channel): factor for channel, factor in self.factors.items()}
