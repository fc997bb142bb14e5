"""The explorer: a local web page to look inside networks."""

from bort.app._explorer import Explorer
from bort.app._serve import Exploration, explore, serve

__all__ = ["Exploration", "Explorer", "explore", "serve"]
