"""Weights that several processes hold together: see README.md in this folder."""

from bort.optim.sharded._layout import is_dtensor, whole

__all__ = ["is_dtensor", "whole"]
