"""Data sets by name, and how a network sees an image."""

from bort.data._dataset import Dataset, spread
from bort.data._folder import Folder
from bort.data._load import load
from bort.data._packed import Packed, pack
from bort.data._protocol import ImageData
from bort.data._published import default_root
from bort.data._view import View, to_eight_bits

__all__ = [
    "Dataset",
    "Folder",
    "ImageData",
    "Packed",
    "View",
    "default_root",
    "load",
    "pack",
    "spread",
    "to_eight_bits",
]
