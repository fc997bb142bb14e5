"""Data by name, and how networks see images."""

from bort.data._dataset import Dataset
from bort.data._folder import Folder
from bort.data._load import load
from bort.data._view import View, to_eight_bits

__all__ = ["Dataset", "Folder", "View", "load", "to_eight_bits"]
