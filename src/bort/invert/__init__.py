"""From feature maps back to the input: g of the paper, and what can be seen with it."""

from bort._budget import memory_budget
from bort.invert._backtrack import Backtracker, forward_from
from bort.invert._correlation import correlation
from bort.invert._decompose import Decomposition, decompose, reconstruct
from bort.invert._effects import approximate_effects, channel_effects
from bort.invert._grid import Grid, grid_of
from bort.invert._reconstruct_layer import LayerReconstruction, reconstruct_layer
from bort.invert._rules import RULES, Rule
from bort.invert._salient import Salient
from bort.invert._synthesize import Path, Synthesis, synthesize
from bort.invert._trace import Trace

__all__ = [
    "RULES",
    "Backtracker",
    "Decomposition",
    "Grid",
    "LayerReconstruction",
    "Path",
    "Rule",
    "Salient",
    "Synthesis",
    "Trace",
    "approximate_effects",
    "channel_effects",
    "correlation",
    "decompose",
    "forward_from",
    "grid_of",
    "memory_budget",
    "reconstruct",
    "reconstruct_layer",
    "synthesize",
]
