"""The explorer: a local web page to look inside networks."""

from bort.app._explorer import Explorer
from bort.app._serve import serve

__all__ = ["Explorer", "serve"]
