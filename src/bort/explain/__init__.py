"""Where the evidence is: saliency maps, every method with the same first three arguments and the same result."""

from bort._budget import memory_budget
from bort._inspect import Cancelled, Progress
from bort.explain._cam import cam
from bort.explain._constant import about_constant, constant
from bort.explain._guided_ig import guided_ig
from bort.explain._integrated import integrated_gradients
from bort.explain._layers import map_layers, top_layer
from bort.explain._registry import Method, get, local_registry, names, options, register
from bort.explain._rise import rise
from bort.explain._sat import Tracked, sat, track
from bort.explain._setting import Setting
from bort.explain._xrai import xrai

__all__ = [
    "Cancelled",
    "Method",
    "Progress",
    "Setting",
    "Tracked",
    "about_constant",
    "cam",
    "constant",
    "get",
    "guided_ig",
    "integrated_gradients",
    "local_registry",
    "map_layers",
    "memory_budget",
    "names",
    "options",
    "register",
    "rise",
    "sat",
    "top_layer",
    "track",
    "xrai",
]
