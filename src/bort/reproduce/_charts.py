"""What is drawn out of the result files themselves: the λ grid, and the trade-off of adversaries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bort._files import write_atomically
from bort.pictures import MUTED, colour, panels, style, to_png
from bort.reproduce import _result
from bort.reproduce._cells import Results, accuracy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = {"source": "o", "none": "s", "target": "^"}


def write(folder: Path) -> list[Path]:
    """Those for which there are results, as PNG beside the results."""
    made = []
    for table, name, draw in (("figures", "trade-off", trade_off), ("ablation", "grid", grid)):
        found = [each for each in _result.read(folder / table) if not each["failed"]]
        figure = draw(found) if found else None
        if figure is not None:
            made.append(folder / table / f"{name}.png")
            write_atomically(made[-1], to_png(figure))
    return made


def trade_off(found: Results) -> Figure | None:
    """fig:3_3_adversary over many pairs: how many images fool the network, against how much they look like their source."""
    found = [each for each in found if "adversaries" in each["metrics"]]
    first = {(e["recipe"]["data"]["name"], e["recipe"]["optim"]["name"]): e for e in reversed(found)}
    data = sorted({name for name, _ in first})
    if not data:
        return None
    with style():
        figure, (cells,) = panels(1, len(data), 330, 280)
        for cell, name in zip(cells, data, strict=True):
            for number, optim in enumerate(sorted({o for d, o in first if d == name}, reverse=True)):
                made = first[name, optim]["metrics"]["adversaries"]
                for path, marker in MARKERS.items():
                    at = [(a["like_source"], 100 * a["image_success"], a["k"]) for a in made if a["path"] == path]
                    x, y, k = zip(*sorted(at, key=lambda each: each[2]), strict=True)
                    cell.plot(x, y, color=colour(number), marker=marker, markersize=4, linewidth=1)
                    for place in (0, -1):
                        _note(cell, x[place], y[place], str(k[place]))
                cell.plot([], [], color=colour(number), label=optim)
            for path, marker in MARKERS.items():
                cell.plot([], [], color=MUTED, marker=marker, linestyle="", markersize=4, label=f"path: {path}")
            cell.set_title(name)
            cell.set_xlabel("correlation with the source")
            cell.set_ylim(-3, 103)
        cells[0].set_ylabel("% taken for the target")
        cells[0].legend(fontsize=7)
    return figure


def _note(cell: Axes, x: float, y: float, text: str) -> None:
    cell.annotate(text, (x, y), fontsize=6, color=MUTED, xytext=(3, 3), textcoords="offset points")


def grid(found: Results) -> Figure:
    """fig:ablation_cifar10."""
    decays = sorted({r["recipe"]["optim"]["weight_decay"] for r in found})
    constraints = sorted({r["recipe"]["optim"]["constraint"] for r in found})
    runs: dict[tuple[float, float], Results] = {}
    for each in found:
        optim = each["recipe"]["optim"]
        runs.setdefault((optim["weight_decay"], optim["constraint"]), []).append(each)
    means = {place: accuracy(each)[0] for place, each in runs.items()}
    values = [[float("nan") if (v := means.get((d, c))) is None else v for c in constraints] for d in decays]
    with style():
        figure, ((cell,),) = panels(1, 1, 360, 300)
        shown = cell.imshow(values, cmap="cividis", aspect="auto", origin="lower")
        middle = sum(shown.get_clim()) / 2
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                text = "–" if value != value else f"{value:.1f}"
                cell.text(x, y, text, ha="center", va="center", color="white" if value < middle else "black")
        cell.set_xticks(range(len(constraints)), [f"{c:g}" for c in constraints])
        cell.set_yticks(range(len(decays)), [f"{d:g}" for d in decays])
        cell.set_xlabel("λ (0: SGD)")
        cell.set_ylabel("weight decay")
        cell.set_title("test accuracy, %")
        cell.grid(visible=False)
    return figure
