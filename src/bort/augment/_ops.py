"""RandAugment's ops: how timm turns a magnitude into the op's argument, and what the argument does.

All ops are special cases of three functions: a table for each image (`_point`), an affine map (`_affine`) and a blend of the
image with a degenerate version of it (`_blend`). So an op is a row of numbers, and a batch in which each image has drawn its
own op is a lookup of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum


class Stage(IntEnum):
    """Which of the three functions an op needs; `NONE` if the image is left alone."""

    POINT = 0
    AFFINE = 1
    BLEND = 2
    NONE = 3


class Sign(IntEnum):
    """Of what is added to a level's offset."""

    MINUS = -1
    RANDOM = 0
    PLUS = 1


@dataclass(frozen=True)
class Level:
    """argument = max(least, offset ± min(ceiling, slope · magnitude / 10)); what is added is rounded down if ``whole``."""

    slope: float = 0.0
    offset: float = 0.0
    sign: Sign = Sign.PLUS
    whole: bool = False
    ceiling: float = math.inf
    least: float = -math.inf


@dataclass(frozen=True)
class Op:
    stage: Stage
    kind: str = ""
    """Which parameter of the stage is the argument, or which table or degenerate image is used."""
    level: Level = Level()
    fixed: dict[str, float] = field(default_factory=dict)
    """Other parameters of a table that are not neutral."""


_ENHANCE = Level(1.8, offset=0.1)
_ENHANCE_MORE = Level(0.9, offset=1.0, sign=Sign.RANDOM, least=0.1)
_SHEAR = Level(0.3, sign=Sign.RANDOM)
_SHIFT = Level(0.45, sign=Sign.RANDOM)
_POSTERIZE = Level(4.0, whole=True)
_POSTERIZE_MORE = Level(4.0, offset=4.0, sign=Sign.MINUS, whole=True)
_POSTERIZE_ORIGINAL = Level(4.0, offset=4.0, whole=True)
_SOLARIZE = Level(256.0, whole=True, ceiling=256.0)
_SOLARIZE_MORE = Level(256.0, offset=256.0, sign=Sign.MINUS, whole=True, ceiling=256.0)
_SOLARIZE_ADD = Level(110.0, whole=True, ceiling=128.0)
_MIRRORED = {"pivot": 127.5, "factor": -1.0}  # v ↦ 255 − v

OPS = {
    "AutoContrast": Op(Stage.POINT, "autocontrast"),
    "Equalize": Op(Stage.POINT, "equalize"),
    "Invert": Op(Stage.POINT, fixed={"threshold": 0.0} | _MIRRORED),
    "Rotate": Op(Stage.AFFINE, "angle", Level(30.0, sign=Sign.RANDOM)),
    "Posterize": Op(Stage.POINT, "bits", _POSTERIZE),
    "PosterizeIncreasing": Op(Stage.POINT, "bits", _POSTERIZE_MORE),
    "PosterizeOriginal": Op(Stage.POINT, "bits", _POSTERIZE_ORIGINAL),
    "Solarize": Op(Stage.POINT, "threshold", _SOLARIZE, _MIRRORED),
    "SolarizeIncreasing": Op(Stage.POINT, "threshold", _SOLARIZE_MORE, _MIRRORED),
    "SolarizeAdd": Op(Stage.POINT, "add", _SOLARIZE_ADD, {"threshold": 128.0}),
    "Color": Op(Stage.BLEND, "color", _ENHANCE),
    "ColorIncreasing": Op(Stage.BLEND, "color", _ENHANCE_MORE),
    "Contrast": Op(Stage.BLEND, "contrast", _ENHANCE),
    "ContrastIncreasing": Op(Stage.BLEND, "contrast", _ENHANCE_MORE),
    "Brightness": Op(Stage.POINT, "factor", _ENHANCE, {"threshold": 0.0}),
    "BrightnessIncreasing": Op(Stage.POINT, "factor", _ENHANCE_MORE, {"threshold": 0.0}),
    "Sharpness": Op(Stage.BLEND, "sharpness", _ENHANCE),
    "SharpnessIncreasing": Op(Stage.BLEND, "sharpness", _ENHANCE_MORE),
    "ShearX": Op(Stage.AFFINE, "shear_x", _SHEAR),
    "ShearY": Op(Stage.AFFINE, "shear_y", _SHEAR),
    "TranslateXRel": Op(Stage.AFFINE, "shift_x", _SHIFT),
    "TranslateYRel": Op(Stage.AFFINE, "shift_y", _SHIFT),
}
"""By timm's names."""

NOTHING = Op(Stage.NONE)
