"""Figures of the weights: Gram matrices, singular values, reconstruction ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bort.pictures import MUTED, colour, legend, panels, style
from bort.report._measured import Measured
from bort.report._words import listed
from bort.subject import Missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOTTED = (0, (2, 2))


def gram(subjects: list[Measured]) -> tuple[Figure, str]:
    """fig:1_2_model_dist: how the entries of all Gram matrices are distributed, on and off the diagonal."""
    diagonals = {s.name: torch.cat([g.diagonal.flatten() for g in s.grams.values()]) for s in subjects}
    others = {s.name: torch.cat([g.off_diagonal.flatten() for g in s.grams.values()]) for s in subjects}
    with style():
        figure, ((left, right),) = panels(1, 2, 400, 260)
        _histogram(left, diagonals, "diagonal", 1.0)
        _histogram(right, others, "off the diagonal", 0.0)
        left.set_ylabel("part of the entries")
        left.legend()
    from_one = {name: (v.double() - 1).square().mean().sqrt().item() for name, v in diagonals.items()}
    from_zero = {name: v.double().square().mean().sqrt().item() for name, v in others.items()}
    look = (
        "WᵀW of tall layers and WWᵀ of wide ones: on the constraint every diagonal entry is 1 and every other 0 (dotted). "
        + "; ".join(
            f"{name}: root mean square distance {from_one[name]:.3f} from 1, {from_zero[name]:.4f} from 0"
            for name in from_one
        )
        + "."
    )
    return figure, look


def _histogram(cell: Axes, entries: dict[str, Tensor], title: str, wanted: float) -> None:
    ends = [torch.quantile(_at_most_a_million(v), q).item() for v in entries.values() for q in (0.005, 0.995)]
    low, high = min(*ends, wanted), max(*ends, wanted)
    margin = 0.05 * (high - low) or 0.1
    edges = torch.linspace(low - margin, high + margin, 81)
    for number, (name, values) in enumerate(entries.items()):
        counts = torch.histc(values.float(), 80, edges[0].item(), edges[-1].item())
        parts = (counts / len(values)).numpy()
        cell.stairs(parts, edges.numpy(), color=colour(number), linewidth=1.5, label=legend(name))
    cell.axvline(wanted, color=MUTED, linewidth=0.8, linestyle=_DOTTED)
    cell.set_yscale("log")
    cell.yaxis.set_major_formatter("{x:g}")  # matplotlib's own labels are TeX, which is switched off
    cell.set_title(title)
    cell.set_xlabel("entry of the Gram matrix")


def sigma(subjects: list[Measured]) -> tuple[Figure, str]:
    """The range of each layer's singular values."""
    names = _layers(subjects)
    with style():
        figure, cell = _panel(names, subjects)
        for number, subject in enumerate(subjects):
            ranges = {layer.name: layer.sigma for layer in subject.audit}
            shown = [(place, name) for place, name in enumerate(names) if name in ranges]
            cell.vlines(
                [_beside(place, number, len(subjects)) for place, _ in shown],
                [ranges[name][0] for _, name in shown],
                [ranges[name][1] for _, name in shown],
                color=colour(number),
                linewidth=4,
                label=legend(subject.name),
            )
        cell.axhline(1, color=MUTED, linewidth=0.8, linestyle=_DOTTED)
        cell.set_ylim(bottom=0)
        cell.set_ylabel("singular values σ")
        _name_layers(cell, names)
        cell.legend()
    words = []
    for subject in subjects:
        low = min(layer.sigma[0] for layer in subject.audit)
        high = max(layer.sigma[1] for layer in subject.audit)
        words.append(f"{subject.name}: {low:.2f} to {high:.2f}")
    look = (
        "From each layer's smallest to its largest singular value; on the constraint all are 1 (dotted), or √(1 − decay/λ) "
        f"where weight decay pulls too. Over all layers, {'; '.join(words)}."
    )
    return figure, look


def ratio(subjects: list[Measured]) -> tuple[Figure, str]:
    """fig:1_3_recon_ratio."""
    if all(layer.ratio is None for s in subjects for layer in s.audit):
        raise Missing("reconstruction ratios need test images")
    names = _layers(subjects)
    with style():
        figure, cell = _panel(names, subjects)
        for number, subject in enumerate(subjects):
            ratios = {layer.name: layer.ratio for layer in subject.audit if layer.ratio is not None}
            shown = [(place, name) for place, name in enumerate(names) if name in ratios]
            places = [_beside(place, number, len(subjects)) for place, _ in shown]
            heights = [ratios[name] for _, name in shown]
            cell.bar(places, heights, 0.8 / len(subjects), color=colour(number), label=legend(subject.name))
        for place, name in enumerate(names):
            if floor := _common_floor(subjects, name):
                cell.hlines(floor, place - 0.45, place + 0.45, color=MUTED, linewidth=1, linestyle=_DOTTED)
        cell.set_ylabel("‖z − Wᵀ(Wz)‖ ÷ ‖z‖")
        _name_layers(cell, names)
        cell.legend()
    means = {subject.name: subject.mean_ratio for subject in subjects}
    wide = len({layer.name for s in subjects for layer in s.audit if layer.floor})
    look = (
        "The part of a layer's input that Wᵀ(Wz) fails to bring back: 0 is perfect, above 1 it is worse than nothing. Mean "
        f"over the layers: {listed(means)}. {wide} of {len(names)} layers are wide and lose a part of their input whatever "
        "is done; dotted: how much of one without preferred directions."
    )
    return figure, look


def _common_floor(subjects: list[Measured], name: str) -> float:
    """The least ratio of a layer, or 0 where networks of other shapes share its name and there is no one least ratio."""
    floors = {next((layer.floor for layer in s.audit if layer.name == name), None) for s in subjects}
    return floors.pop() or 0.0 if len(floors) == 1 else 0.0


def _at_most_a_million(values: Tensor) -> Tensor:
    """Evenly spaced values: torch.quantile takes no more than 16 million."""
    return values.float()[:: max(1, len(values) // 1_000_000)]


def _layers(subjects: list[Measured]) -> list[str]:
    """The names of all subjects' layers."""
    return list(dict.fromkeys(layer.name for subject in subjects for layer in subject.audit))


def _panel(names: list[str], subjects: list[Measured]) -> tuple[Figure, Axes]:
    """One panel, wide enough for every layer of every subject."""
    figure, ((cell,),) = panels(1, 1, max(420, 70 + 24 * len(names) * len(subjects)), 280)
    return figure, cell


def _beside(place: int, number: int, count: int) -> float:
    """Where the number-th of ``count`` subjects stands at a layer's place: beside each other, 0.8 wide together."""
    return place + (number - (count - 1) / 2) * 0.8 / count


def _name_layers(cell: Axes, names: list[str]) -> None:
    every = max(1, len(names) // 40)
    cell.set_xticks(
        range(0, len(names), every),
        [name.removesuffix(".weight") for name in names[::every]],
        rotation=90 if len(names) > 8 else 0,
    )
    cell.grid(axis="x", visible=False)
    cell.set_xlim(-0.6, len(names) - 0.4)
