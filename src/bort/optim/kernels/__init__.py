"""The penalty on an NVIDIA GPU, by grouped Triton kernels: README.md in this folder explains them.

Triton is imported when the first weight is given to the kernels, so this package can be imported anywhere.
"""

from bort.optim.kernels._division import Division, is_capturing
from bort.optim.kernels._gradients import PenalisedGradients
from bort.optim.kernels._run import Kernels, launch, scalars_of, scratch_size
from bort.optim.kernels._tuning import Tuning

__all__ = [
    "Division",
    "Kernels",
    "PenalisedGradients",
    "Tuning",
    "is_capturing",
    "launch",
    "scalars_of",
    "scratch_size",
]
