"""What another package can bring to bort: a saliency method, a network, a data set. None of bort's files is edited."""

from bort_example._method import input_gradient
from bort_example._network import two_convolutions
from bort_example._stripes import stripes

__all__ = ["input_gradient", "stripes", "two_convolutions"]
