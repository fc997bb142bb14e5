"""Figures of the weights: Gram matrices, singular values, reconstruction ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bort.report._illustration import Illustration
from bort.pictures import MUTED, colour, legend, panels, style
from bort.report._subject import Missing, Subject, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def gram(subjects: list[Subject]) -> Illustration:
    """fig:1_2_model_dist: how the entries of all Gram matrices are distributed, diagonal and beside it."""
    diagonals = {s.name: torch.cat([g.diagonal.flatten() for g in s.grams.values()]) for s in subjects}
    others = {s.name: torch.cat([g.off_diagonal.flatten() for g in s.grams.values()]) for s in subjects}
    with style():
        figure, ((left, right),) = panels(1, 2, 400, 260)
        for cell, values, title, wanted in (
            (left, diagonals, "diagonal", 1.0),
            (right, others, "off the diagonal", 0.0),
        ):
            ends = [torch.quantile(_few(v), q).item() for v in values.values() for q in (0.005, 0.995)]
            low, high = min(*ends, wanted), max(*ends, wanted)
            margin = 0.05 * (high - low) or 0.1
            edges = torch.linspace(low - margin, high + margin, 81)
            for place, (name, found) in enumerate(values.items()):
                counts = torch.histc(found.float(), 80, edges[0].item(), edges[-1].item())
                cell.stairs(
                    (counts / len(found)).numpy(), edges.numpy(), color=colour(place), linewidth=1.5, label=legend(name)
                )
            cell.axvline(wanted, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
            cell.set_yscale("log")
            cell.yaxis.set_major_formatter("{x:g}")  # matplotlib's own is TeX, which is switched off
            cell.set_title(title)
            cell.set_xlabel("entry of the Gram matrix")
        left.set_ylabel("part of the entries")
        left.legend()
    spreads = {name: (v.double() - 1).square().mean().sqrt().item() for name, v in diagonals.items()}
    sizes = {name: v.double().square().mean().sqrt().item() for name, v in others.items()}
    return Illustration(
        "gram",
        "Gram matrices",
        "fig:1_2_model_dist",
        "WᵀW of tall layers and WWᵀ of wide ones: on the constraint every diagonal entry is 1 and every other 0 (dotted). "
        + "; ".join(f"{n}: root mean square distance {spreads[n]:.3f} from 1, {sizes[n]:.4f} from 0" for n in spreads)
        + ".",
        "Histograms of the entries of all layers' Gram matrices, on and off the diagonal, a line a run",
        figure,
    )


def sigma(subjects: list[Subject]) -> Illustration:
    """The range of each layer's singular values."""
    with style():
        names = _layers(subjects)
        figure, ((cell,),) = panels(1, 1, max(420, 70 + 24 * len(names) * len(subjects)), 280)
        for place, subject in enumerate(subjects):
            audit = {layer.name: layer for layer in subject.audit}
            places = [_place(i, place, len(subjects)) for i, name in enumerate(names) if name in audit]
            ranges = [audit[name].sigma for name in names if name in audit]
            cell.vlines(
                places,
                [r[0] for r in ranges],
                [r[1] for r in ranges],
                color=colour(place),
                linewidth=4,
                label=legend(subject.name),
            )
        cell.axhline(1, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        cell.set_ylim(bottom=0)
        cell.set_ylabel("singular values σ")
        _name_layers(cell, names)
        cell.legend()
    words = []
    for subject in subjects:
        low = min(layer.sigma[0] for layer in subject.audit)
        high = max(layer.sigma[1] for layer in subject.audit)
        words.append(f"{subject.name}: {low:.2f} to {high:.2f}")
    return Illustration(
        "sigma",
        "Singular values",
        "section 3.2",
        "From each layer's smallest to its largest singular value; on the constraint all are 1 (dotted), or √(1 − decay/λ) "
        f"where weight decay pulls too. Over all layers, {'; '.join(words)}.",
        "A bar from the smallest to the largest singular value for each layer and run",
        figure,
    )


def ratio(subjects: list[Subject]) -> Illustration:
    """fig:1_3_recon_ratio."""
    if all(layer.ratio is None for s in subjects for layer in s.audit):
        raise Missing("reconstruction ratios need test images")
    with style():
        names = _layers(subjects)
        figure, ((cell,),) = panels(1, 1, max(420, 70 + 24 * len(names) * len(subjects)), 280)
        width = 0.8 / len(subjects)
        every = [{layer.name: layer.floor for layer in s.audit} for s in subjects]
        floors = {n: every[0].get(n, 0.0) if len({e.get(n) for e in every}) == 1 else 0.0 for n in names}
        for place, subject in enumerate(subjects):
            ratios = {layer.name: layer.ratio for layer in subject.audit if layer.ratio is not None}
            places = [_place(i, place, len(subjects)) for i, name in enumerate(names) if name in ratios]
            heights = [ratios[name] for name in names if name in ratios]
            cell.bar(places, heights, width, color=colour(place), label=legend(subject.name))
        # Where two networks of other shapes share a layer's name, there is no one floor.
        for i, name in enumerate(names):
            if floors[name]:
                cell.hlines(floors[name], i - 0.45, i + 0.45, color=MUTED, linewidth=1, linestyle=(0, (2, 2)))
        cell.set_ylabel("‖z − Wᵀ(Wz)‖ ÷ ‖z‖")
        _name_layers(cell, names)
        cell.legend()
    means = {subject.name: subject.mean_ratio for subject in subjects}
    wide = len({layer.name for s in subjects for layer in s.audit if layer.floor})
    return Illustration(
        "ratio",
        "Reconstruction ratio, layer by layer",
        "fig:1_3_recon_ratio",
        "The part of a layer's input that Wᵀ(Wz) fails to bring back: 0 is perfect, above 1 it is worse than nothing. Mean "
        f"over the layers: {', '.join(f'{n} {number(mean)}' for n, mean in means.items())}. {wide} of {len(names)} layers "
        "are wide and lose a part of their input whatever is done; dotted: how much of one without preferred directions.",
        "Bars of the reconstruction ratio of each layer, one for each run",
        figure,
    )


def _few(values: torch.Tensor) -> torch.Tensor:
    """What torch.quantile can take."""
    return values.float()[:: max(1, len(values) // 1_000_000)]


def _layers(subjects: list[Subject]) -> list[str]:
    return list(dict.fromkeys(layer.name for subject in subjects for layer in subject.audit))


def _place(layer: int, run: int, runs: int) -> float:
    return layer + (run - (runs - 1) / 2) * 0.8 / runs


def _name_layers(cell: Axes, names: list[str]) -> None:
    every = max(1, len(names) // 40)
    cell.set_xticks(
        range(0, len(names), every),
        [n.removesuffix(".weight") for n in names[::every]],
        rotation=90 if len(names) > 8 else 0,
    )
    cell.grid(axis="x", visible=False)
    cell.set_xlim(-0.6, len(names) - 0.4)
