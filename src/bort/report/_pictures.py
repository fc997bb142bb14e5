"""Figures of images: reconstructions, saliency, features, clusters, adversaries."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bort import explain, invert
from bort.invert._similar import correlation
from bort.report._illustration import Illustration
from bort.pictures import Picture, overlay, picture, signal
from bort.pictures import MUTED, panels, style
from bort.report._subject import Missing, Say, Subject, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = tuple[str, list[tuple[Picture, str]]]
"""What a row shows, and its pictures with a word under each."""


def sheet(rows: list[Row], side: int = 92) -> Figure:
    """Rows of pictures, named at their left."""
    columns = max(len(pictures) for _, pictures in rows)
    with style():
        words = any(word for _, pictures in rows for _, word in pictures)
        figure, axes = panels(len(rows), columns, side, side + (16 if words else 0))
        layout: Any = figure.get_layout_engine()
        layout.set(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
        for line, (name, pictures) in zip(axes, rows, strict=True):
            for cell, (image, word) in zip(line, pictures, strict=False):
                cell.imshow(image, interpolation="none")
                cell.set_xlabel(word, fontsize=7.5, labelpad=2, color=MUTED)
            for cell in line:
                cell.set_xticks([])
                cell.set_yticks([])
                cell.grid(visible=False)
                cell.spines[:].set_visible(False)
            line[0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=6, fontsize=8.5)
            for cell in line[len(pictures) :]:
                cell.set_visible(False)
    return figure


def reconstruction(subjects: list[Subject]) -> Illustration:
    """fig:2_1_recon: g of the top layer's whole map."""
    first = subjects[0]
    count, many = first.amount.shown, first.amount.measured
    rows: list[Row] = [("input", [(picture(p), "") for p in first.view.pixels(first.images(count))])]
    means = {}
    for subject in subjects:
        x = subject.images(many)
        back = invert.reconstruct(subject.model, x, subject.layer)
        alike = correlation(back, x).tolist()
        means[subject.name] = sum(alike) / len(alike)
        rows.append((subject.name, [(signal(s), f"{c:.2f}") for s, c in zip(back[:count], alike, strict=False)]))
    return Illustration(
        "reconstruction",
        "What the top layer has kept of an image",
        "fig:2_1_recon",
        f"Each image, traced back from the map of {_layer(subjects)}; under it the correlation with the input. Mean over "
        f"{len(x)} test images: {_list(means)}.",
        "Test images above what each network reconstructs of them from its top feature map",
        sheet(rows),
    )


def saliency(subjects: list[Subject], say: Say | None = None) -> Illustration:
    """fig:2_2_saliency, all methods."""
    first = subjects[0]
    methods = explain.names()
    count = min(first.amount.shown, 4, first.amount.evaluated)
    maps = {subject.name: subject.evaluate(methods, say) for subject in subjects}
    rows: list[Row] = []
    for n in range(min(count, len(first.images(count)))):
        for subject in subjects:
            pixels = subject.view.pixels(subject.images(count))[n]
            said = subject.view.name(int(subject.model(subject.images(count)[n : n + 1]).argmax()))
            shown = [(picture(pixels), f"“{said}”")]
            found = ((method, maps[subject.name][method].maps[n]) for method in methods)
            shown += [(overlay(pixels, each), method if n == 0 else "") for method, each in found]
            rows.append((subject.name, shown))
    k = _list({s.name: str(min(s.amount.features, s.channels)) for s in subjects})
    with torch.no_grad():
        verdicts = torch.stack([subject.model(subject.images(count)).argmax(dim=1) for subject in subjects])
    agree = int((verdicts == verdicts[0]).all(dim=0).sum())
    together = f" The networks name the same class for {agree} of {verdicts.shape[1]}." if len(subjects) > 1 else ""
    return Illustration(
        "saliency",
        "Where the evidence is",
        "fig:2_2_saliency",
        f"Bright: what counts for the class that the network names under the image (SAT, k: {k}: what excites its top "
        "layer, whatever the class). Whether bright pixels are the ones that matter is measured below." + together,
        "Saliency maps of all methods over the same test images, a row for each run",
        sheet(rows),
    )


def features(subjects: list[Subject]) -> Illustration:
    """fig:3_1_topk64_recon: from the most salient features alone, binarised."""
    first = subjects[0]
    count, many = first.amount.shown, first.amount.measured
    rows: list[Row] = [("input", [(picture(p), "") for p in first.view.pixels(first.images(count))])]
    means = {}
    for subject in subjects:
        k = min(subject.amount.features, subject.channels)
        x = subject.images(many)
        back = invert.reconstruct(subject.model, x, subject.layer, k)
        alike = correlation(back, x).tolist()
        means[f"{subject.name} ({k} of {subject.channels} channels)"] = sum(alike) / len(alike)
        rows.append((subject.name, [(signal(s), f"{c:.2f}") for s, c in zip(back[:count], alike, strict=False)]))
    return Illustration(
        "features",
        "The same from the most salient features alone",
        "fig:3_1_topk64_recon",
        "Only the strongest channels count, each as a single 1 at its strongest place. Correlation with the input, mean "
        f"over {len(x)} images: {_list(means)}.",
        "Test images above their reconstructions from the most salient binarised features",
        sheet(rows),
    )


def clusters(subjects: list[Subject], parts: int = 4) -> Illustration:
    """fig:3_2_topk64_decom: the signals of the salient channels, in groups."""
    first = subjects[0]
    count = first.amount.shown
    rows: list[Row] = [("input", [(picture(p), "") for p in first.view.pixels(first.images(count))])]
    words = {}
    for subject in subjects:
        k = min(subject.amount.features, subject.channels)
        groups = min(parts, k)
        found = invert.decompose(subject.model, subject.images(count), subject.layer, k, clusters=groups)
        assert found.clusters is not None
        sizes = torch.stack([(found.clusters == g).sum(dim=1) for g in range(groups)]).float().amax(dim=0)
        words[f"{subject.name} ({k} channels, {groups} groups)"] = f"{sizes.mean() / k:.0%}"
        rows.append(
            (subject.name, [(_coloured(s, c, groups), "") for s, c in zip(found.signals, found.clusters, strict=True)])
        )
    return Illustration(
        "clusters",
        "Parts that channels stand for",
        "fig:3_2_topk64_decom",
        "The signals of the most salient channels, put in groups by K-Means on their shapes, a colour a group: look whether "
        f"a colour is one part of the image. The largest group has on average, {_list(words)} of them.",
        "Signals of salient channels, coloured by the group that K-Means puts them in",
        sheet(rows),
    )


def adversaries(subjects: list[Subject]) -> Illustration:
    """fig:3_3_adversary, with what the classifier says of each."""
    first = subjects[0]
    source, target = _pairs(first)
    count = min(first.amount.shown, len(source))
    pixels = first.view.pixels(first.images(first.amount.pairs))
    rows: list[Row] = [
        ("source", [(picture(pixels[i]), "") for i in source[:count]]),
        ("target", [(picture(pixels[i]), "") for i in target[:count]]),
    ]
    words = []
    for subject in subjects:
        x = subject.images(subject.amount.pairs)
        k = min(subject.amount.features, subject.channels)
        made = invert.synthesize(subject.model, x[source], x[target], subject.layer, k)
        names = [subject.view.name(int(label)) for label in made.image_verdicts[:count]]
        images = subject.view.pixels(made.images[:count])
        rows.append((subject.name, [(picture(p), f"“{name}”") for p, name in zip(images, names, strict=True)]))
        words.append(
            f"of the {made.pairs} pairs that {subject.name} tells apart, it takes {_part(made.image_success)} of the images "
            f"and {_part(made.map_success)} of the transplanted maps for what it says of the target; correlation with the "
            f"source {made.source_similarity.mean():.2f}"
        )
    return Illustration(
        "adversaries",
        "The target's features at the source's places",
        "fig:3_3_adversary",
        "Made to look like the source and to be taken for the target; under each what the network says. "
        f"{_capital('; '.join(words))}.",
        "Source and target images above the synthesized ones, with the classifier's verdict under each",
        sheet(rows),
    )


def _pairs(subject: Subject) -> tuple[list[int], list[int]]:
    """Images of two classes, each with a later one."""
    labels = subject.labels(subject.amount.pairs).tolist()
    half = len(labels) // 2
    pairs = [(i, (i + half) % len(labels)) for i in range(len(labels))]
    shifted = [(i, j if labels[i] != labels[j] else (j + 1) % len(labels)) for i, j in pairs]
    good = [(i, j) for i, j in shifted if labels[i] != labels[j]]
    if not good:
        raise Missing("adversaries need test images of two classes")
    return [i for i, _ in good], [j for _, j in good]


def _coloured(signals: Tensor, groups: Tensor, count: int) -> Picture:
    """(H, W, 3): each place in the colours of the groups whose signals are strong there."""
    strength = signals.abs().sum(dim=1).cpu()
    strength = strength / strength.amax(dim=(1, 2), keepdim=True).clamp(min=1e-12)
    canvas = torch.zeros(*strength.shape[1:], 3)
    for group in range(count):
        members = strength[groups.cpu() == group]
        if len(members):
            colour = torch.tensor(colorsys.hsv_to_rgb(group / count, 0.75, 1.0))
            canvas += members.mean(dim=0)[..., None] * colour
    top = canvas.quantile(0.99).item() or 1.0
    return ((canvas / top).clamp(0, 1) * 255).round().byte().numpy().astype(np.uint8)


def _part(value: float) -> str:
    return "none (not defined)" if value != value else f"{value:.0%}"


def _layer(subjects: list[Subject]) -> str:
    return " and ".join(dict.fromkeys(subject.layer for subject in subjects))


def _list(values: Mapping[str, float | str]) -> str:
    return ", ".join(f"{n} {v if isinstance(v, str) else number(v)}" for n, v in values.items())


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
