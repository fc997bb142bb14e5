"""How much a report looks at. Apart from the rest, so that the command line can list it without torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SampleSizes:
    shown: int = 6
    """images in the pictures"""
    measured: int = 64
    """test images for ratios and reconstructions"""
    evaluated: int = 24
    """test images for deletion and insertion"""
    masks: int = 1000
    """of RISE"""
    features: int = 64
    """k of SAT and of everything made from the most salient features"""
    pairs: int = 64
    """of images, for adversaries"""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name}={value}: must be 1 or more")
