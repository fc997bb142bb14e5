"""Figures of the weights: Gram matrices, singular values, reconstruction ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from bort.pictures import MUTED, colour, key, legend, panels, style
from bort.report._illustration import WIDTH, Address, Drawn
from bort.report._measured import Measured
from bort.report._words import listed, plural
from bort.subject import Missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOTTED: Final = (0, (2, 2))
_AUDIT: Final = (Address("the audit", "?view=audit"),)
_NAME: Final = 24  # letters of a layer's name


def gram(subjects: list[Measured]) -> Drawn:
    """fig:1_2_model_dist: how the entries of all Gram matrices are distributed, on and off the diagonal."""
    _check_layers(subjects)
    for subject in subjects:
        if not any(len(g.off_diagonal) for g in subject.grams.values()):
            raise Missing(
                f"the Gram matrices of {subject.name} are single numbers: its singular values say all of them"
            )
    diagonals = {s.name: torch.cat([g.diagonal.flatten() for g in s.grams.values()]) for s in subjects}
    others = {s.name: torch.cat([g.off_diagonal.flatten() for g in s.grams.values()]) for s in subjects}
    with style():
        figure, ((left, right),) = panels(1, 2, WIDTH / 2, 240)
        _histogram(left, diagonals, "diagonal", 1.0)
        _histogram(right, others, "off the diagonal", 0.0)
        left.set_ylabel("part of the entries")
        key(figure, left)
    from_one = {name: (v.double() - 1).square().mean().sqrt().item() for name, v in diagonals.items()}
    from_zero = {name: v.double().square().mean().sqrt().item() for name, v in others.items()}
    words = (
        f"{s.name} ({plural(len(s.grams), 'layer')}, {len(diagonals[s.name]):,} entries on the diagonal, "
        f"{len(others[s.name]):,} off it): root mean square distance {from_one[s.name]:.3f} from 1, "
        f"{from_zero[s.name]:.4f} from 0"
        for s in subjects
    )
    look = (
        "WᵀW of tall layers and WWᵀ of wide ones: on the constraint every diagonal entry is 1 and every other 0 (dotted). "
        f"{'; '.join(words)}."
    )
    return Drawn(figure, look, _AUDIT)


def _histogram(cell: Axes, entries: dict[str, Tensor], title: str, wanted: float) -> None:
    ends = [torch.quantile(_at_most_a_million(v), q).item() for v in entries.values() for q in (0.005, 0.995)]
    low, high = min(*ends, wanted), max(*ends, wanted)
    margin = 0.05 * (high - low) or 0.1
    edges = torch.linspace(low - margin, high + margin, 61)
    for number, (name, values) in enumerate(entries.items()):
        counts = torch.histc(values.float(), 60, edges[0].item(), edges[-1].item())
        parts = (counts / len(values)).numpy()
        cell.stairs(parts, edges.numpy(), color=colour(number), linewidth=1.5, label=legend(name))
    cell.axvline(wanted, color=MUTED, linewidth=0.8, linestyle=_DOTTED)
    cell.set_yscale("log")
    cell.yaxis.set_major_formatter("{x:g}")  # matplotlib's own labels are TeX, which is switched off
    cell.yaxis.set_minor_formatter(lambda value, position: "")
    cell.set_title(title)
    cell.set_xlabel("entry")
    cell.locator_params(axis="x", nbins=4)


def sigma(subjects: list[Measured]) -> Drawn:
    """The range of each layer's singular values, and where penalty and weight decay balance."""
    _check_layers(subjects)
    names = _layers(subjects)
    with style():
        figure, cell = _panel(names, subjects)
        cell.axvline(1, color=MUTED, linewidth=0.8, linestyle=_DOTTED)
        for number, subject in enumerate(subjects):
            ranges = {layer.name: layer.sigma for layer in subject.audit}
            shown = [(place, name) for place, name in enumerate(names) if name in ranges]
            cell.hlines(
                [_beside(place, number, len(subjects)) for place, _ in shown],
                [ranges[name][0] for _, name in shown],
                [ranges[name][1] for _, name in shown],
                color=colour(number),
                linewidth=_thickness(names, subjects),
                label=legend(subject.name),
            )
            if (target := _target(subject)) is not None:
                label = legend(f"target of {subject.name}, σ = {target:.2f}")
                cell.axvline(target, color=colour(number), linewidth=1, linestyle=_DOTTED, label=label)
        cell.set_xlim(left=0)
        cell.set_xlabel("singular values σ")
        key(figure, cell)
    words = []
    for subject in subjects:
        low = min(layer.sigma[0] for layer in subject.audit)
        high = max(layer.sigma[1] for layer in subject.audit)
        words.append(f"{subject.name}: {low:.2f} to {high:.2f} over {plural(len(subject.audit), 'layer')}")
    look = (
        "From each layer's smallest to its largest singular value. On the constraint all are 1 (dotted, grey). "
        f"{_about_targets(subjects)}{'; '.join(words)}."
    )
    return Drawn(figure, look, _AUDIT)


def _target(subject: Measured) -> float | None:
    """Where the training draws σ, if that is not 1."""
    training = subject.subject.training
    return None if training is None or training.sigma in (None, 1.0) else training.sigma


def _about_targets(subjects: list[Measured]) -> str:
    """A sentence for each subject whose σ is drawn elsewhere than to 1."""
    sentences = []
    for subject in subjects:
        training, target = subject.subject.training, _target(subject)
        if training is None or target is None:
            continue
        decay, constraint = f"{training.weight_decay:g}", f"{training.constraint:.3g}"
        if target:
            sentences.append(
                f"Where the loss does not pull, λ and the weight decay of {subject.name} balance at "
                f"σ = √({training.scale:g} − {decay}/{constraint}) = {target:.2f} (dotted, in its colour). "
            )
        else:
            sentences.append(
                f"The weight decay {decay} of {subject.name} outweighs its λ = {constraint}: σ goes to 0. "
            )
    return "".join(sentences)


def ratio(subjects: list[Measured]) -> Drawn:
    """fig:1_3_recon_ratio."""
    _check_layers(subjects)
    if all(layer.ratio is None for s in subjects for layer in s.audit):
        raise Missing("reconstruction ratios need test images")
    names = _layers(subjects)
    with style():
        figure, cell = _panel(names, subjects)
        for number, subject in enumerate(subjects):
            ratios = {layer.name: layer.ratio for layer in subject.audit if layer.ratio is not None}
            shown = [(place, name) for place, name in enumerate(names) if name in ratios]
            places = [_beside(place, number, len(subjects)) for place, _ in shown]
            lengths = [ratios[name] for _, name in shown]
            cell.barh(places, lengths, 0.8 / len(subjects), color=colour(number), label=legend(subject.name))
        for place, name in enumerate(names):
            if floor := _common_floor(subjects, name):
                cell.vlines(floor, place - 0.45, place + 0.45, color=MUTED, linewidth=1, linestyle=_DOTTED)
        cell.set_xlabel("‖z − Wᵀ(Wz)‖ ÷ ‖z‖")
        key(figure, cell)
    means = {subject.name: subject.mean_ratio for subject in subjects}
    wide = len({layer.name for s in subjects for layer in s.audit if layer.floor})
    images = len(subjects[0].images(subjects[0].sizes.measured))
    look = (
        "The part of a layer's input that Wᵀ(Wz) fails to bring back: 0 is perfect, above 1 it is worse than nothing. Mean "
        f"over {plural(len(names), 'layer')}, on {plural(images, 'test image')}: {listed(means)}. {wide} of the layers "
        "are wide and lose a part of their input whatever is done; dotted: how much of one without preferred directions."
    )
    return Drawn(figure, look, _AUDIT)


def _check_layers(subjects: list[Measured]) -> None:
    for subject in subjects:
        if not len(subject.audit):
            raise Missing(f"{subject.name} has no linear layer and no convolution whose weight could be looked at")


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
    """One panel with the layers below each other, the first at the top; the deeper the network, the longer it is."""
    figure, ((cell,),) = panels(1, 1, WIDTH, 100 + 18 * len(subjects) + _pitch(names, subjects) * len(names))
    every = max(1, round(14 / _pitch(names, subjects)))
    cell.set_yticks(range(0, len(names), every), [_short(name) for name in names[::every]])
    cell.grid(axis="y", visible=False)
    cell.set_ylim(len(names) - 0.4, -0.6)
    return figure, cell


def _pitch(names: list[str], subjects: list[Measured]) -> float:
    """Pixels from one layer to the next: room for all subjects' bars, and less in deep networks."""
    return max(6 + 2 * len(subjects), min(10 + 8 * len(subjects), 700 / len(names)))


def _thickness(names: list[str], subjects: list[Measured]) -> float:
    """Of a bar, in points."""
    return min(4.0, 0.55 * _pitch(names, subjects) / len(subjects))


def _beside(place: int, number: int, count: int) -> float:
    """Where the number-th of ``count`` subjects stands at a layer's place: below each other, 0.8 high together."""
    return place + (number - (count - 1) / 2) * 0.8 / count


def _short(name: str) -> str:
    """A layer's name, without its middle if it is long."""
    name = name.removesuffix(".weight")
    return name if len(name) <= _NAME else f"{name[: _NAME // 2 - 1]}…{name[-_NAME // 2 :]}"
