"""How much a report looks at. A module without torch: `bort --help` lists these settings and stays fast."""

from __future__ import annotations

from dataclasses import dataclass

from bort._defaults import SALIENT_CHANNELS


@dataclass(frozen=True)
class SampleSizes:
    """How many images, features and masks; each field is an option of `bort report` and `bort figures`.

    Example:
        >>> from bort.report import SampleSizes
        >>> SampleSizes(shown=3).evaluated
        24
    """

    shown: int = 6
    """images in the pictures"""
    measured: int = 64
    """test images for ratios and reconstructions"""
    evaluated: int = 24
    """test images for deletion and insertion"""
    masks: int = 1000
    """masks of RISE"""
    features: int = SALIENT_CHANNELS
    """k of SAT and of everything made from the most salient features"""
    pairs: int = 64
    """pairs of test images, for adversaries"""
    tested: int = 1000
    """test images for the accuracy, in a report"""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name}={value}: must be 1 or more")
