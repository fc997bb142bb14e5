"""Curves over the pull: what each pull gains and costs, a line a network."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Line:
    """A network in all panels."""

    label: str
    values: dict[str, dict[float, list[float]]]
    """By the panel's title and the pull: one value for each seed."""
    variant: bool = False
    """Of the network before it: in the same colour, dashed."""


def curves(lines: Sequence[Line], pulls: Sequence[float]) -> Figure:
    """Six panels of means over the seeds; where there are several seeds, a small mark for each."""
    from bort.pictures import MUTED, colour, key, legend, panels, style

    with style():
        figure, rows = panels(2, 3, 300, 245)
        for axes, title in zip((axes for row in rows for axes in row), lines[0].values, strict=True):
            number = -1
            for line in lines:
                number += not line.variant
                points = {pull: seeds for pull, seeds in line.values[title].items() if seeds}
                places = [max(pull, _ZERO) for pull in points]
                means = [statistics.mean(seeds) for seeds in points.values()]
                shade = colour(number)
                axes.plot(
                    places, means, "--" if line.variant else "-", marker="o", color=shade, label=legend(line.label)
                )
                for place, seeds in zip(places, points.values(), strict=True):
                    if len(set(seeds)) > 1:
                        axes.plot([place] * len(seeds), seeds, "_", color=shade, markersize=9)
            if title.startswith("change"):
                axes.axhline(0, color=MUTED, linewidth=1, zorder=0)
            axes.set_xscale("log")
            axes.set_xticks([_ZERO, *pulls[1:]], ["0", *(f"{pull:g}" for pull in pulls[1:])])
            axes.minorticks_off()
            axes.set_title(title)
        for axes in rows[-1]:
            axes.set_xlabel("pull")
        key(figure, rows[0][0])
    return figure


_ZERO: Final = 0.05
"""Where 0 is drawn, which has no place on a logarithmic axis."""
