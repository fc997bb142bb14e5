"""Every figure by its name, and by the paper's. To add one, write its function and its entry in FIGURES."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bort._sample_sizes import SampleSizes
from bort.report._curves import deletion, training
from bort.report._illustration import Illustration
from bort.report._images import adversaries, clusters, features, reconstruction, saliency
from bort.report._measured import Measured, Say, measured
from bort.report._weights import gram, ratio, sigma
from bort.subject import Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FigureKind:
    """What is the same for all subjects; the function draws the figure and says what to look for in it."""

    function: Callable[..., tuple[Figure, str]]
    """Of a list of :class:`Measured`, and of ``say`` if it is slow. Raises Missing if it makes no sense for them."""
    title: str
    paper: str
    alt: str
    slow: bool = False
    """Whether it computes saliency maps and reports progress."""


FIGURES: dict[str, FigureKind] = {
    "training": FigureKind(
        training, "Training", "tab:mnist_cifar10", "Training loss, test accuracy and residual by epoch, a line a run"
    ),
    "gram": FigureKind(
        gram,
        "Gram matrices",
        "fig:1_2_model_dist",
        "Histograms of the entries of all layers' Gram matrices, on and off the diagonal, a line a run",
    ),
    "sigma": FigureKind(
        sigma,
        "Singular values",
        "section 3.2",
        "A bar from the smallest to the largest singular value for each layer and run",
    ),
    "ratio": FigureKind(
        ratio,
        "Reconstruction ratio, layer by layer",
        "fig:1_3_recon_ratio",
        "Bars of the reconstruction ratio of each layer, one for each run",
    ),
    "reconstruction": FigureKind(
        reconstruction,
        "What the top layer has kept of an image",
        "fig:2_1_recon",
        "Test images above what each network reconstructs of them from its top feature map",
    ),
    "saliency": FigureKind(
        saliency,
        "Where the evidence is",
        "fig:2_2_saliency",
        "Saliency maps of all methods over the same test images, a row for each run",
        slow=True,
    ),
    "deletion": FigureKind(
        deletion,
        "Deletion and insertion",
        "tab:insertion_deletion",
        "Deletion and insertion curves of each saliency method, a colour a run",
        slow=True,
    ),
    "features": FigureKind(
        features,
        "The same from the most salient features alone",
        "fig:3_1_topk64_recon",
        "Test images above their reconstructions from the most salient binarised features",
    ),
    "clusters": FigureKind(
        clusters,
        "Parts that channels stand for",
        "fig:3_2_topk64_decom",
        "Signals of salient channels, coloured by the group that K-Means puts them in",
    ),
    "adversaries": FigureKind(
        adversaries,
        "The target's features at the source's places",
        "fig:3_3_adversary",
        "Source and target images above the synthesized ones, with the classifier's verdict under each",
    ),
}


def draw(
    name: str,
    subjects: Sequence[Subject | Measured],
    *,
    sizes: SampleSizes | None = None,
    say: Say | None = None,
) -> Illustration:
    """The figure called ``name``; :class:`~bort.subject.Missing` if it makes no sense for these subjects.

    Several figures of the same subjects: hand in :class:`Measured` objects, and what they share is computed once.
    """
    key = resolve(name)
    kind, prepared = FIGURES[key], measured(subjects, sizes)
    figure, look = kind.function(prepared, say) if kind.slow else kind.function(prepared)
    return Illustration(key, kind.title, kind.paper, look, kind.alt, figure)


def resolve(name: str) -> str:
    """A figure's own name for its name in the paper, with or without "fig:"; a ValueError names those near it."""
    papers = {kind.paper: key for key, kind in FIGURES.items()}
    key = papers.get(name) or papers.get(f"fig:{name}") or name
    if key not in FIGURES:
        near = difflib.get_close_matches(name, (*FIGURES, *papers), n=3) or list(FIGURES)
        raise ValueError(f"no figure is called {name!r}; there are {', '.join(near)}")
    return key
