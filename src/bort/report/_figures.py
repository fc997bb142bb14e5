"""Every figure by its name, and by the paper's."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from bort.report._curves import deletion, training
from bort.report._illustration import Illustration
from bort.report._inside import gram, ratio, sigma
from bort.report._pictures import adversaries, clusters, features, reconstruction, saliency
from bort.report._subject import Say, Subject

FIGURES: dict[str, Callable[..., Illustration]] = {
    "training": training,
    "gram": gram,
    "sigma": sigma,
    "ratio": ratio,
    "reconstruction": reconstruction,
    "saliency": saliency,
    "deletion": deletion,
    "features": features,
    "clusters": clusters,
    "adversaries": adversaries,
}
PAPER = {
    "fig:1_2_model_dist": "gram",
    "fig:1_3_recon_ratio": "ratio",
    "fig:2_1_recon": "reconstruction",
    "fig:2_2_saliency": "saliency",
    "fig:3_1_topk64_recon": "features",
    "fig:3_2_topk64_decom": "clusters",
    "fig:3_3_adversary": "adversaries",
}
_SLOW = ("saliency", "deletion")


def draw(name: str, subjects: list[Subject], say: Say | None = None) -> Illustration:
    """The figure called ``name``; :class:`Missing` if it makes no sense for these runs."""
    known = resolve(name)
    if known in _SLOW:
        return FIGURES[known](subjects, say)
    return FIGURES[known](subjects)


def resolve(name: str) -> str:
    known = PAPER.get(name) or PAPER.get(f"fig:{name}") or name
    if known not in FIGURES:
        near = difflib.get_close_matches(name, (*FIGURES, *PAPER), n=3) or list(FIGURES)
        raise ValueError(f"no figure is called {name!r}; there are {', '.join(near)}")
    return known
