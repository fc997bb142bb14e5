"""Networks by name."""

from bort.nets._acnn import ACNNBase, ACNNSmall
from bort.nets._create import create, names
from bort.nets._lenet import LeNet

__all__ = ["ACNNBase", "ACNNSmall", "LeNet", "create", "names"]
