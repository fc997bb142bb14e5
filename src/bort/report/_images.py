"""Figures of images: reconstructions, saliency, features, clusters, adversaries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bort import explain, invert
from bort._defaults import CLUSTERS
from bort.pictures import Picture, Row, coloured_groups, overlay, picture, sheet, signal
from bort.report._measured import Measured, Say
from bort.report._words import capital, listed, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reconstruction(subjects: list[Measured]) -> tuple[Figure, str]:
    """fig:2_1_recon: g of the top layer's whole map."""
    rows, means = [_inputs(subjects[0])], {}
    for subject in subjects:
        row, means[subject.name] = _traced_back(subject, None)
        rows.append(row)
    layers = " and ".join(dict.fromkeys(subject.layer for subject in subjects))
    look = (
        f"Each image, traced back from the map of {layers}; under it the correlation with the input. Mean over "
        f"{_count(subjects)} test images: {listed(means)}."
    )
    return sheet(rows), look


def features(subjects: list[Measured]) -> tuple[Figure, str]:
    """fig:3_1_topk64_recon: from the most salient features alone, binarised."""
    rows, means = [_inputs(subjects[0])], {}
    for subject in subjects:
        row, mean = _traced_back(subject, subject.features)
        means[f"{subject.name} ({subject.features} of {subject.channels} channels)"] = mean
        rows.append(row)
    look = (
        "Only the strongest channels count, each as a single 1 at its strongest place. Correlation with the input, mean "
        f"over {_count(subjects)} images: {listed(means)}."
    )
    return sheet(rows), look


def _inputs(subject: Measured) -> Row:
    return "input", _pictures(subject.pixels(subject.sizes.shown))


def _pictures(pixels: Iterable[Tensor]) -> list[tuple[Picture, str]]:
    return [(picture(image), "") for image in pixels]


def _traced_back(subject: Measured, k: int | None) -> tuple[Row, float]:
    """Reconstructions from the top map or its k most salient channels, with their correlations; and the mean of these."""
    x = subject.images(subject.sizes.measured)
    back = invert.reconstruct(subject.model, x, subject.layer, k)
    correlations = invert.correlation(back, x).tolist()
    shown = zip(back[: subject.sizes.shown], correlations, strict=False)
    return (subject.name, [(signal(s), f"{c:.2f}") for s, c in shown]), sum(correlations) / len(correlations)


def _count(subjects: list[Measured]) -> int:
    """How many images were measured; there may be fewer than asked for."""
    return len(subjects[-1].images(subjects[-1].sizes.measured))


def saliency(subjects: list[Measured], say: Say | None = None) -> tuple[Figure, str]:
    """fig:2_2_saliency, all methods."""
    first, methods = subjects[0], explain.names()
    count = min(first.sizes.shown, 4, first.sizes.evaluated)
    count = min(count, len(first.images(count)))
    maps = {s.name: [(name, e.maps) for name, e in s.evaluate(methods, say).items()] for s in subjects}
    pixels = {s.name: s.pixels(count) for s in subjects}
    predictions = {s.name: s.predictions(count) for s in subjects}
    rows: list[Row] = []
    for n in range(count):
        for subject in subjects:
            image = pixels[subject.name][n]
            row = [(picture(image), f"“{subject.view.name(int(predictions[subject.name][n]))}”")]
            row += [(overlay(image, of[n]), method if n == 0 else "") for method, of in maps[subject.name]]
            rows.append((subject.name, row))
    k = listed({s.name: str(s.features) for s in subjects})
    look = (
        f"Bright: what counts for the class that the network names under the image (SAT, k: {k}: what excites its top "
        "layer, whatever the class). Whether bright pixels are the ones that matter is measured below."
    )
    for subject in subjects:
        look += "".join(f" {subject.name}: {words}" for words in explain.about_constant(dict(maps[subject.name])))
    if len(subjects) > 1:
        classes = torch.stack([p.cpu() for p in predictions.values()])
        agree = int((classes == classes[0]).all(dim=0).sum())
        look += f" The networks name the same class for {agree} of {count}."
    return sheet(rows), look


def clusters(subjects: list[Measured], groups: int = CLUSTERS) -> tuple[Figure, str]:
    """fig:3_2_topk64_decom: the signals of the salient channels, in groups."""
    rows, largest = [_inputs(subjects[0])], {}
    for subject in subjects:
        k, count = subject.features, min(groups, subject.features)
        x = subject.images(subject.sizes.shown)
        parts = invert.decompose(subject.model, x, subject.layer, k, clusters=count)
        assert parts.clusters is not None
        sizes = torch.stack([(parts.clusters == group).sum(dim=1) for group in range(count)]).float().amax(dim=0)
        largest[f"{subject.name} ({k} channels, {count} groups)"] = f"{sizes.mean() / k:.0%}"
        coloured = (coloured_groups(s, c, count) for s, c in zip(parts.signals, parts.clusters, strict=True))
        rows.append((subject.name, [(image, "") for image in coloured]))
    look = (
        "The signals of the most salient channels, put in groups by K-Means on their shapes, a colour a group: look whether "
        f"a colour is one part of the image. The largest group has on average, {listed(largest)} of them."
    )
    return sheet(rows), look


def adversaries(subjects: list[Measured]) -> tuple[Figure, str]:
    """fig:3_3_adversary, with the class that the network predicts for each."""
    first = subjects[0]
    sources, targets = map(list, first.pairs)
    count = min(first.sizes.shown, len(sources))
    pixels = first.pixels(first.sizes.pairs)
    rows: list[Row] = [
        ("source", _pictures(pixels[sources[:count]])),
        ("target", _pictures(pixels[targets[:count]])),
    ]
    words = []
    for subject in subjects:
        x = subject.images(subject.sizes.pairs)
        synthesis = invert.synthesize(subject.model, x[sources], x[targets], subject.layer, subject.features)
        names = [subject.view.name(int(label)) for label in synthesis.image_verdicts[:count]]
        images = subject.view.pixels(synthesis.images[:count])
        rows.append((subject.name, [(picture(p), f"“{name}”") for p, name in zip(images, names, strict=True)]))
        words.append(
            f"of the {synthesis.pairs} pairs that {subject.name} tells apart, it takes {percent(synthesis.image_success)} of "
            f"the images and {percent(synthesis.map_success)} of the transplanted maps for what it says of the target; "
            f"correlation with the source {synthesis.source_similarity.mean():.2f}"
        )
    look = (
        "Made to look like the source and to be taken for the target; under each what the network says. "
        f"{capital('; '.join(words))}."
    )
    return sheet(rows), look
