"""Weights that several processes hold together (DTensors), and penalties that they share out (DDP): README.md in this folder
explains both."""

from bort.optim.sharded._ddp import DdpSharing
from bort.optim.sharded._layout import (
    as_dtensor,
    is_dtensor,
    largest_of_ranks,
    local,
    local_gradient,
    norms_of_wholes,
    unsupported,
)
from bort.optim.sharded._overlap import Overlap
from bort.optim.sharded._plan import ShardedRounds
from bort.optim.sharded._round import whole
from bort.optim.sharded._routes import directions
from bort.optim.sharded._routing import current_routing, routing

__all__ = [
    "DdpSharing",
    "Overlap",
    "ShardedRounds",
    "as_dtensor",
    "current_routing",
    "directions",
    "is_dtensor",
    "largest_of_ranks",
    "local",
    "local_gradient",
    "norms_of_wholes",
    "routing",
    "unsupported",
    "whole",
]
