"""From feature maps back to the input: g of the paper, and what can be seen with it."""

from bort.invert._backtrack import Backtracker, Trace
from bort.invert._decompose import Decomposition, LayerReconstruction, decompose, reconstruct, reconstruct_layer
from bort.invert._synthesize import Synthesis, synthesize

__all__ = [
    "Backtracker",
    "Decomposition",
    "LayerReconstruction",
    "Synthesis",
    "Trace",
    "decompose",
    "reconstruct",
    "reconstruct_layer",
    "synthesize",
]
