"""Defaults that several packages, commands and the explorer's page share. Without torch, so that `bort --help` is fast."""

from __future__ import annotations

from typing import Final

SALIENT_CHANNELS: Final = 64
"""k of the paper: how many of a layer's most salient channels are followed (SAT, decomposition, synthesis)."""

SAT_THRESHOLD: Final = 0.2
"""γ of algorithm 1, as a part of each signal's maximum: the best of seven values for k = 64, judged by deletion and insertion
with SGD and Bort-S (benchmarks/results/choices-cpu.json)."""

DELETION_STEPS: Final = 28
"""Steps of deletion and insertion: on MNIST each one changes a row's worth of pixels."""

CLUSTERS: Final = 4
"""Groups of signals in a decomposition's picture."""

OVERLAY_STRENGTH: Final = 0.6
"""How much of a saliency map is seen over its image, from 0 to 1."""
