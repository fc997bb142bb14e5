"""What the paper calls its figures, tables and sections, by the labels in its source."""

from __future__ import annotations

from typing import Final

PLACES: Final = {
    "sec:method_condition": "section 3.2",
    "sec:explain": "section 4.2",
    "tab:mnist_cifar10": "table 1",
    "tab:insertion_deletion": "table 3",
    "fig:1_2_model_dist": "figure 3a",
    "fig:1_3_recon_ratio": "figure 3b",
    "fig:2_1_recon": "figure 4",
    "fig:2_2_saliency": "figure 5",
    "fig:3_1_topk64_recon": "figure 6a",
    "fig:3_2_topk64_decom": "figure 6b",
    "fig:3_3_adversary": "figure 6c",
    "fig:ablation_cifar10": "figure 7",
}


def in_paper(label: str) -> str:
    """ "Paper, figure 4" """
    return f"Paper, {PLACES[label]}"
