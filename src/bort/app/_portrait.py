"""The portrait of a channel: the places that excite it most, its pattern there, and what the network says without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from bort import invert
from bort._inspect import class_of_logit
from bort.app._cache import Cache
from bort.app._channel import ChannelFacts
from bort.pictures import scale_of

if TYPE_CHECKING:
    from bort.app._explorer import Explorer

_ENERGY: Final = 0.9  # the part of a pattern's size that its neighbourhood holds
_SMALLEST: Final = 0.08  # of the image's shorter side: half a neighbourhood's side
_CHANGES: Final = 6  # classes whose logits are named


@dataclass(frozen=True)
class Place:
    """Where an image excites the channel most."""

    number: int
    """Of the image: test-7 has the number 7."""
    value: float
    box: tuple[float, float, float, float]
    """The neighbourhood: its left, top, width and height as parts of the image's."""
    pattern: Tensor
    """(C, h, w): the pattern in the neighbourhood."""


@dataclass(frozen=True)
class Portrait:
    places: list[Place]
    mean: Tensor | None
    """(C, h, w): the mean of the patterns, laid on one another at the strongest places; None if no image excites it."""
    is_whole: bool
    """Whether neighbourhoods are whole images: then the mean is that of the patterns where they are."""
    changes: list[dict[str, Any]]
    """The classes whose logits change most when the channel is switched off, the mean over the images; largest first."""

    @property
    def scale(self) -> float:
        """One for all patterns."""
        return scale_of(*(place.pattern for place in self.places)) if self.places else 1.0


class Portraits:
    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._kept = Cache(explorer.lock, size=16)

    def __call__(self, run: str, layer: str, channel: int, facts: ChannelFacts) -> Portrait:
        """Of the images that the facts name."""
        numbers = facts.excited()
        key = (run, layer, channel, tuple(numbers))
        portrait: Portrait | None = self._kept.get(key)
        if portrait is None:  # not under the lock: pages' questions come between the images
            portrait = self._make(run, layer, channel, numbers, facts)
            self._kept.put(key, portrait)
        return portrait

    def _make(self, run: str, layer: str, channel: int, numbers: list[int], facts: ChannelFacts) -> Portrait:
        back = invert.Backtracker(self._explorer.subject(run).model, layer)
        patterns, centres, changes = [], [], []
        for number in numbers:
            x = self._explorer.image(run, f"test-{number}")
            with self._explorer.lock:
                trace = back.trace(x)
                seed, off = torch.zeros_like(trace.maps), trace.maps.clone()
                seed[0, channel].view(-1)[int(facts.places[number])] = 1
                off[0, channel] = 0
                patterns.append(trace.back(seed)[0].cpu())
                changes.append((trace.forward(trace.with_maps(off)) - trace.outputs)[0].cpu())
            centres.append(_centre(int(facts.places[number]), trace.grid.shape, x.shape))
        if not numbers:
            return Portrait([], None, is_whole=False, changes=[])
        half = max(_reach(pattern, *centre) for pattern, centre in zip(patterns, centres, strict=True))
        side = min(patterns[0].shape[-2:])
        is_whole = 2 * half + 1 >= 0.9 * side
        places = []
        for number, pattern, centre in zip(numbers, patterns, centres, strict=True):
            left, top, width, height = _box(pattern, centre, None if is_whole else half)
            high, wide = pattern.shape[-2:]
            places.append(
                Place(
                    number,
                    float(facts.values[number]),
                    (left / wide, top / high, width / wide, height / high),
                    pattern[:, top : top + height, left : left + width],
                )
            )
        mean = _mean(patterns, centres, None if is_whole else half)
        return Portrait(places, mean, is_whole, self._changes(run, torch.stack(changes).mean(dim=0)))

    def _changes(self, run: str, means: Tensor) -> list[dict[str, Any]]:
        view = self._explorer.view(run)
        largest = means.abs().topk(min(_CHANGES, len(means))).indices.tolist()
        classes = [class_of_logit(place, means) for place in largest]
        changes = zip(classes, means[largest].tolist(), strict=True)
        return [{"class": number, "name": view.name(number), "change": change} for number, change in changes]


def _centre(place: int, grid: tuple[int, int, int], image: torch.Size) -> tuple[int, int]:
    """The row and column of the image in the middle of a place of the map."""
    _, rows, columns = grid
    row, column = divmod(place, columns)
    return int((row + 0.5) * image[-2] / rows), int((column + 0.5) * image[-1] / columns)


def _reach(pattern: Tensor, row: int, column: int) -> int:
    """How far from there, in rows or columns, most of the pattern lies."""
    sizes = pattern.abs().sum(dim=0)
    rows = (torch.arange(sizes.shape[0]) - row).abs()[:, None]
    columns = (torch.arange(sizes.shape[1]) - column).abs()[None]
    distances = torch.maximum(rows, columns)
    by_distance = torch.zeros(int(distances.max()) + 1, dtype=sizes.dtype).scatter_add_(
        0, distances.flatten(), sizes.flatten()
    )
    reached = by_distance.cumsum(dim=0) >= _ENERGY * by_distance.sum()
    smallest = max(2, round(_SMALLEST * min(sizes.shape)))
    return max(smallest, int(reached.long().argmax()))


def _box(pattern: Tensor, centre: tuple[int, int], half: int | None) -> tuple[int, int, int, int]:
    """Left, top, width and height of the neighbourhood, moved into the image where it reaches beyond; None: the whole."""
    high, wide = pattern.shape[-2:]
    if half is None:
        return 0, 0, wide, high
    side = 2 * half + 1
    top = min(max(0, centre[0] - half), max(0, high - side))
    left = min(max(0, centre[1] - half), max(0, wide - side))
    return left, top, min(side, wide), min(side, high)


def _mean(patterns: list[Tensor], centres: list[tuple[int, int]], half: int | None) -> Tensor:
    """Laid on one another at their centres, 0 beyond the images' borders; or where they are."""
    if half is None:
        return torch.stack(patterns).mean(dim=0)
    moved = []
    for pattern, (row, column) in zip(patterns, centres, strict=True):
        padded = torch.nn.functional.pad(pattern, (half, half, half, half))
        moved.append(padded[:, row : row + 2 * half + 1, column : column + 2 * half + 1])
    return torch.stack(moved).mean(dim=0)
