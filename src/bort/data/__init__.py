"""Data by name."""

from bort.data._dataset import Dataset
from bort.data._folder import Folder
from bort.data._load import load

__all__ = ["Dataset", "Folder", "load"]
