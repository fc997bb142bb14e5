"""What a layer has kept of an image: its channels, the reconstruction from them, and what edits of them change."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import torch
from torch import Tensor

from bort import invert
from bort._defaults import CLUSTERS
from bort._inspect import class_of_logit, class_probabilities, targets_of
from bort.app._cache import Cache
from bort.app._edits import ChannelEdits
from bort.app._exceptions import Unknown
from bort.pictures import Picture, coloured_groups, grid, reduced, scale_of, signal

if TYPE_CHECKING:
    from bort.app._explorer import Explorer

PATTERNS: Final = 64
"""Channel patterns that the page shows at a time."""
Rank = Literal["strength", "effect"]
"""Channels in the order of their largest activations, or of how much a logit changes without them."""

_COLUMNS: Final = 8  # of a sheet of patterns
_TILE: Final = 96  # pixels of a pattern's side in it, at most
_LARGE_IMAGE: Final = 96**2  # pixels
_LARGE_NETWORK: Final = 4_000_000  # parameters
_CLASSES: Final = 5  # whose probabilities are shown
_MUCH_STRONGER: Final = 4  # times
_PATIENCE: Final = 1.0  # seconds that exact effects may take; where they take longer they are approximated


@dataclass(frozen=True)
class Effects:
    """What each channel does for a class."""

    target: int
    values: Tensor
    """(channels,): the change of the class's logit when the channel is switched off."""
    is_exact: bool
    """False: by gradient × activation."""


@dataclass(frozen=True)
class Edited:
    """What edits of a layer's channels change."""

    before: Tensor
    """(C, H, W): the reconstruction without the edits."""
    after: Tensor
    correlation: float
    """Of the reconstruction after the edits with the input."""
    classes: list[dict[str, Any]]
    """The likeliest classes before or after, with both probabilities, in the order of those before."""

    @cached_property
    def scale(self) -> float:
        """Of the picture before, which the one after is shown with too, unless it would be white all over."""
        return scale_of(self.before)

    @cached_property
    def weaker(self) -> float:
        """How many times weaker than the picture before the one after is shown: 1 unless it is much stronger. A LayerNorm's
        whole map, whose length does not count, has a reconstruction of nearly 0, which any edit makes thousands of times
        stronger."""
        ratio = scale_of(self.after) / self.scale
        return ratio if ratio > _MUCH_STRONGER else 1.0

    @cached_property
    def difference(self) -> Tensor:
        """(1, H, W): after − before, the mean over the input's channels."""
        return (self.after - self.before).mean(dim=0, keepdim=True)

    @property
    def largest(self) -> float:
        """The largest difference, in the levels (255 on each side of zero) of the pictures before and after."""
        return 255 * self.difference.abs().max().item() / self.scale

    @property
    def stronger(self) -> float:
        """How many times stronger than these two pictures the difference is shown; 1 if there is none."""
        return self.scale / scale_of(self.difference) if self.difference.any() else 1.0

    def words(self) -> str:
        """The legend of the picture of the difference."""
        if not self.largest:
            return "no difference"
        if self.largest > 255:
            return f"difference: up to {self.largest / 255:.2g} times the strongest colour of the picture before"
        return f"difference: largest change {self.largest:.2g} of 255 levels, shown {self.stronger:.2g} × stronger"


class Inside:
    def __init__(self, explorer: Explorer) -> None:
        self._explorer, self._lock = explorer, explorer.lock
        self._sheets = Cache(self._lock, size=12)
        self._reconstructions = Cache(self._lock, size=24)  # without edits
        self._effects = Cache(self._lock, size=24)
        self._slow_layers: set[tuple[str, str]] = set()  # (run, layer) of which exact effects take too long

    def patterns_at_once(self, run: str) -> int:
        """How many patterns the page asks for at a time: of large images and networks it shows the first ones while others
        are made, and a click comes between."""
        view, model = self._explorer.view(run), self._explorer.subject(run).model
        is_large = (
            view.height * view.width > _LARGE_IMAGE or sum(p.numel() for p in model.parameters()) > _LARGE_NETWORK
        )
        return _COLUMNS if is_large else PATTERNS

    def channels(
        self,
        run: str,
        image: str,
        layer: str,
        k: int | None = None,
        start: int = 0,
        rank: Rank = "strength",
        target: int | None = None,
        scale: float | None = None,
    ) -> dict[str, Any]:
        """k channels in the order of the rank, from the start-th on, and a sheet of their patterns. Effects are those on the
        logit of the class ``target``, or of the predicted one. All patterns have one scale, their own or the one given."""
        count, target = k or PATTERNS, None if rank == "strength" else target
        key = (run, image, layer, count, start, rank, target, scale)
        return self._sheets(key, lambda: self._sheet(run, image, layer, count, start, rank, target, scale))

    def _sheet(
        self,
        run: str,
        image: str,
        layer: str,
        k: int,
        start: int,
        rank: Rank,
        target: int | None,
        scale: float | None,
    ) -> dict[str, Any]:
        trace = self._explorer.trace(run, image, layer)
        count, _, width = trace.grid.shape
        if start >= count:
            raise Unknown(f"The layer {layer} has {count} channels: there is none behind the {start}th.")
        strongest = trace.salient(count)
        effects = None if rank == "strength" else self.effects(run, image, layer, target)
        of_class = None if effects is None else class_of_logit(effects.target, trace.outputs)
        chosen = torch.arange(count)
        if effects is not None:  # equal effects in the order of strength
            sizes = effects.values[strongest.channels[0]].abs()
            chosen = sizes.argsort(descending=True, stable=True).cpu()
        shown = strongest.part(chosen[start : start + k])
        signals = trace.back(shown.seeds())[:, 0]
        scale = scale or scale_of(signals)
        patterns = [reduced(signal(pattern, scale), _TILE) for pattern in signals]
        rows = [patterns[i : i + _COLUMNS] for i in range(0, len(patterns), _COLUMNS)]
        return {
            "sheet": grid(rows, gap=0, colour=0),
            "scale": scale,
            "columns": min(_COLUMNS, len(patterns)),
            "count": count,
            "channels": [
                {
                    "channel": int(c),
                    "value": float(v),
                    "row": int(p) // width,
                    "column": int(p) % width,
                    "effect": None if effects is None else effects.values[int(c)].item(),
                }
                for c, v, p in zip(shown.channels[0], shown.values[0], shown.places[0], strict=True)
            ],
            "target": None if of_class is None else self._explorer.view(run).name(of_class),
            "is_exact": effects is None or effects.is_exact,
        }

    def effects(self, run: str, image: str, layer: str, target: int | None = None) -> Effects:
        """On the logit of a class, or of the predicted one."""
        trace = self._explorer.trace(run, image, layer)
        number = int(targets_of(trace.outputs, target)[0])
        return self._effects((run, image, layer, number), lambda: self._compute_effects(run, image, layer, number))

    def _compute_effects(self, run: str, image: str, layer: str, target: int) -> Effects:
        trace = self._explorer.trace(run, image, layer)
        if (run, layer) not in self._slow_layers:
            try:
                return Effects(target, invert.channel_effects(trace, target, step=_in_time()), is_exact=True)
            except TimeoutError:
                self._slow_layers.add((run, layer))  # the same for every image, so that numbers can be compared
        model, x = self._explorer.subject(run).model, self._explorer.image(run, image)
        by_gradients = invert.Backtracker(model, layer, "gradient").trace(x)
        return Effects(target, invert.approximate_effects(by_gradients, target), is_exact=False)

    def channel(self, run: str, image: str, layer: str, channel: int) -> Tensor:
        """(C, H, W): the pattern of one channel, at its strongest place."""
        trace = self._explorer.trace(run, image, layer)
        self.check_channel(trace, layer, channel)
        maps = trace.maps
        seed = torch.zeros_like(maps)
        seed[0, channel].view(-1)[maps[0, channel].argmax()] = 1
        with self._lock:
            return trace.back(seed)[0]

    def reconstruct(
        self, run: str, image: str, layer: str, k: int | None, *, binary: bool, edits: ChannelEdits
    ) -> tuple[Tensor, float]:
        """(C, H, W) from the whole map or its k most salient channels, scaled by the edits; and the correlation with the
        input."""
        if not edits:
            key = (run, image, layer, k, binary)
            return self._reconstructions(key, lambda: self._reconstruct(run, image, layer, k, binary, edits))
        with self._lock:
            return self._reconstruct(run, image, layer, k, binary, edits)

    def _reconstruct(
        self, run: str, image: str, layer: str, k: int | None, binary: bool, edits: ChannelEdits
    ) -> tuple[Tensor, float]:
        trace = self._explorer.trace(run, image, layer)
        if k is None:
            seed = trace.maps
        else:
            salient = trace.salient(k)
            seed = salient.seed(None if binary else salient.values)
        back = trace.back(edits(seed, layer))
        return back[0], invert.correlation(back, self._explorer.image(run, image))[0].item()

    def edit(self, run: str, image: str, layer: str, k: int | None, *, binary: bool, edits: ChannelEdits) -> Edited:
        """The reconstruction before and after, and what the network says of the layer's whole map before and after."""
        trace = self._explorer.trace(run, image, layer)
        before, _ = self.reconstruct(run, image, layer, k, binary=binary, edits=ChannelEdits())
        after, correlation = self.reconstruct(run, image, layer, k, binary=binary, edits=edits)
        with self._lock:
            logits = trace.forward(trace.with_maps(edits(trace.maps, layer)))
        return Edited(before, after, correlation, self._classes(run, trace.outputs[0], logits[0]))

    def _classes(self, run: str, before: Tensor, after: Tensor) -> list[dict[str, Any]]:
        multi_label = self._explorer.subject(run).multi_label
        both = class_probabilities(torch.stack([before, after]), multi_label=multi_label).double().cpu()
        likeliest = both.amax(dim=0).topk(min(_CLASSES, both.shape[1])).indices
        ordered = likeliest[both[0, likeliest].argsort(descending=True, stable=True)].tolist()
        view = self._explorer.view(run)
        return [
            {"class": n, "name": view.name(n), "before": both[0, n].item(), "after": both[1, n].item()} for n in ordered
        ]

    def clusters(
        self, run: str, image: str, layer: str, k: int | None = None, groups: int = CLUSTERS
    ) -> tuple[Picture, list[int]]:
        """The signals of the k most salient channels, a colour a group, and the group of each channel."""
        model, k = self._explorer.subject(run).model, k or self._explorer.default_k(run, image, layer)
        with self._lock:
            parts = invert.decompose(model, self._explorer.image(run, image), layer, k, clusters=min(groups, k))
        assert parts.clusters is not None
        return coloured_groups(parts.signals[0], parts.clusters[0], groups), parts.clusters[0].tolist()

    @staticmethod
    def check_channel(trace: invert.Trace, layer: str, channel: int) -> None:
        count = trace.grid.shape[0]
        if not 0 <= channel < count:
            raise Unknown(f"The layer {layer} has channels 0 to {count - 1}, not {channel}.")


def _in_time() -> Any:
    """A function for the steps of :func:`invert.channel_effects` that raises TimeoutError once the rest would take too long,
    judged from the second step on: the first one also prepares."""
    first: list[tuple[float, int]] = []

    def step(done: int, total: int) -> None:
        now = time.thread_time()  # not perf_counter: what else the machine computes does not count
        first.append((now, done))
        start, before = first[0]
        if done > before and (now - start) / (done - before) * (total - before) > _PATIENCE:
            raise TimeoutError

    return step
