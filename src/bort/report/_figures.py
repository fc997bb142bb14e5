"""Every figure by its name, and by the paper's. To add one, write its function and its entry in FIGURES."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bort._sample_sizes import SampleSizes
from bort.report._curves import deletion, training
from bort.report._illustration import Drawn, Illustration
from bort.report._images import adversaries, clusters, features, reconstruction, saliency
from bort.report._measured import Measured, Say, measured
from bort.report._paper import PLACES, in_paper
from bort.report._pulls import FEWEST_PULLS, pulls
from bort.report._weights import gram, ratio, sigma
from bort.subject import Subject

Group = Literal["images", "layers", "training"]
"""The part of the page that a figure stands in."""


@dataclass(frozen=True)
class FigureKind:
    """What is the same for all subjects; the function draws the figure and says what to look for in it."""

    function: Callable[..., Drawn]
    """Of a list of :class:`Measured`, and of ``say`` if it is slow. Raises Missing if it makes no sense for them."""
    group: Group
    title: str
    label: str
    """In the source of the paper."""
    alt: str
    slow: bool = False
    """Whether it computes saliency maps and reports progress."""
    fewest: int = 1
    """Of fewer networks it says nothing, and a report does not mention it."""

    @property
    def paper(self) -> str:
        return in_paper(self.label)


FIGURES: dict[str, FigureKind] = {
    "reconstruction": FigureKind(
        reconstruction,
        "images",
        "What the top layer has kept of an image",
        "fig:2_1_recon",
        "Test images above what each network reconstructs of them from its top feature map",
    ),
    "features": FigureKind(
        features,
        "images",
        "The same from the most salient features alone",
        "fig:3_1_topk64_recon",
        "Test images above their reconstructions from the most salient binarised features",
    ),
    "clusters": FigureKind(
        clusters,
        "images",
        "Parts that channels stand for",
        "fig:3_2_topk64_decom",
        "Signals of salient channels, coloured by the group that K-Means puts them in",
    ),
    "saliency": FigureKind(
        saliency,
        "images",
        "Where the evidence is",
        "fig:2_2_saliency",
        "Saliency maps of all methods over the same test images, the runs beside each other",
        slow=True,
    ),
    "deletion": FigureKind(
        deletion,
        "images",
        "Deletion and insertion",
        "tab:insertion_deletion",
        "Deletion and insertion curves of each saliency method, a colour a run",
        slow=True,
    ),
    "adversaries": FigureKind(
        adversaries,
        "images",
        "The target's features at the source's places",
        "fig:3_3_adversary",
        "Source and target images above the synthesized ones, with what the classifier says under each",
    ),
    "gram": FigureKind(
        gram,
        "layers",
        "Gram matrices",
        "fig:1_2_model_dist",
        "Histograms of the entries of all layers' Gram matrices, on and off the diagonal, a line a run",
    ),
    "sigma": FigureKind(
        sigma,
        "layers",
        "Singular values",
        "sec:method_condition",
        "A bar from the smallest to the largest singular value for each layer and run",
    ),
    "ratio": FigureKind(
        ratio,
        "layers",
        "Reconstruction ratio, layer by layer",
        "fig:1_3_recon_ratio",
        "Bars of the reconstruction ratio of each layer, one for each run",
    ),
    "training": FigureKind(
        training,
        "training",
        "Training curves",
        "tab:mnist_cifar10",
        "Training and test loss, test accuracy and residual by epoch, a line a run",
    ),
    "pulls": FigureKind(
        pulls,
        "training",
        "What each pull gains and costs",
        "fig:ablation_cifar10",
        "Accuracy, residual, insertion less deletion and reconstructions over the pull, a mark a run",
        slow=True,
        fewest=FEWEST_PULLS,
    ),
}
"""The figures by name, in the report's order: what draws each, its title, its place in the paper and what it shows."""


def draw(
    name: str,
    subjects: Sequence[Subject | Measured],
    *,
    sizes: SampleSizes | None = None,
    say: Say | None = None,
) -> Illustration:
    """The figure called ``name``; :class:`~bort.subject.Missing` if it makes no sense for these subjects.

    Several figures of the same subjects: hand in :class:`Measured` objects, and what they share is computed once.

    Example:
        >>> drawn = report.draw("sigma", subject.of_models(nets.create("lenet")))
        >>> drawn.figure.savefig("sigma.png")
    """
    key = resolve(name)
    kind, prepared = FIGURES[key], measured(subjects, sizes)
    drawn = kind.function(prepared, say) if kind.slow else kind.function(prepared)
    return Illustration(key, kind.title, kind.paper, drawn.look, kind.alt, drawn.figure, drawn.addresses)


def resolve(name: str) -> str:
    """A figure's own name for its name in the paper: its label, with or without "fig:", or its number, such as "figure 4". A
    ValueError names those near it.

    Example:
        >>> report.resolve("fig:3_3_adversary")
        'adversaries'
    """
    papers = {alias: key for key, kind in FIGURES.items() for alias in (kind.label, PLACES[kind.label], kind.paper)}
    key = papers.get(name) or papers.get(f"fig:{name}") or name
    if key not in FIGURES:
        near = difflib.get_close_matches(name, (*FIGURES, *papers), n=3) or list(FIGURES)
        raise ValueError(f"no figure is called {name!r}; there are {', '.join(near)}")
    return key
