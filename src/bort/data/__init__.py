"""Data by name."""

from bort.data._dataset import Dataset, load

__all__ = ["Dataset", "load"]
