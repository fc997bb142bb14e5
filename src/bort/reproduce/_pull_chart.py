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
    number: int
    """For its colour; after the last colour they begin again, with another marker."""
    values: dict[str, dict[float, list[float]]]
    """By the panel's title and the pull: one value for each seed."""
    dashed: bool = False


def curves(lines: Sequence[Line], pulls: Sequence[float]) -> Figure:
    """A panel for each title: means over the seeds; where there are several seeds, a small mark for each."""
    from bort._colours import DIFFERENT
    from bort.pictures import MUTED, colour, key, legend, panels, style

    with style():
        figure, rows = panels(2, 3, 300, 245)
        for axes, title in zip((axes for row in rows for axes in row), lines[0].values, strict=True):
            for line in lines:
                points = {pull: seeds for pull, seeds in line.values[title].items() if seeds}
                places = [max(pull, _ZERO) for pull in points]
                means = [statistics.mean(seeds) for seeds in points.values()]
                shade, marker = colour(line.number), "os^"[line.number // DIFFERENT % 3]
                look = f"{marker}{'--' if line.dashed else '-'}"
                axes.plot(places, means, look, color=shade, label=legend(line.label))
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
