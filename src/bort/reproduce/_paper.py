"""tab:insertion_deletion of the paper: deletion and insertion with SGD, then with Bort."""

from __future__ import annotations

from typing import Final

TABLE3: Final[dict[str, dict[str, tuple[float, float, float, float]]]] = {
    "mnist": {
        "cam": (0.25, 0.67, 0.31, 0.63),
        "ig": (-0.04, 0.73, -0.07, 0.78),
        "rise": (0.06, 0.64, 0.02, 0.72),
        "xrai": (0.12, 0.73, 0.13, 0.79),
        "guided-ig": (-0.04, 0.71, -0.05, 0.78),
        "sat": (0.26, 0.61, 0.05, 0.80),
    },
    "cifar10": {
        "cam": (0.32, 0.70, 0.29, 0.76),
        "ig": (-0.37, 0.81, -0.44, 0.84),
        "rise": (0.14, 0.75, 0.14, 0.78),
        "xrai": (0.24, 0.76, 0.22, 0.79),
        "guided-ig": (-0.28, 0.78, -0.26, 0.82),
        "sat": (0.31, 0.76, 0.27, 0.81),
    },
    "imagenet": {
        "cam": (0.49, 0.67, 0.44, 0.77),
        "ig": (0.07, 0.79, 0.07, 0.88),
        "rise": (0.43, 0.75, 0.39, 0.82),
        "xrai": (0.39, 0.78, 0.34, 0.84),
        "guided-ig": (0.06, 0.82, 0.07, 0.88),
        "sat": (0.35, 0.78, 0.32, 0.84),
    },
}
