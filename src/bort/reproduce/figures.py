"""Figures 3 to 6 of the paper: in numbers for each network, drawn with SGD's and Bort-S's beside each other, and the
trade-off of adversaries as a chart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from bort import explain, invert, measure
from bort._defaults import SALIENT_CHANNELS
from bort._files import write_atomically
from bort._sample_sizes import SampleSizes
from bort.pictures import MUTED, colour, panels, style, to_png
from bort.reproduce._cells import by_row, failures, markdown, number_cell, text_and_table, values_of
from bort.reproduce._measure import training
from bort.reproduce._pairs import acnn_small, digits
from bort.reproduce._result import Result
from bort.reproduce._table import Experiment, Table, Trained
from bort.subject import Subject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURES: Final = ("gram", "sigma", "ratio", "reconstruction", "saliency", "features", "clusters", "adversaries")
"""Of `bort figures`: those of the paper that are not in a table or a curve already."""
_PATHS: Final[tuple[invert.Path, ...]] = ("source", "none", "target")
_MARKERS: Final = {"source": "o", "none": "s", "target": "^"}
_AUDITED: Final = 256
"""Images for ratios and cosines."""


def experiments(quick: bool) -> list[Experiment]:
    numbers = partial(in_numbers, images=20, pairs=20) if quick else partial(in_numbers, images=1000, pairs=1000)
    sizes = (
        SampleSizes(shown=4, measured=20, evaluated=4, masks=50, pairs=20)
        if quick
        else SampleSizes(shown=8, measured=1000, evaluated=8, pairs=1000)
    )
    planned = []
    for pair in digits() if quick else acnn_small():
        planned += [Experiment(pair.baseline, numbers), Experiment(pair.bort, numbers)]
        drawing = partial(drawn, sizes=sizes)
        planned.append(Experiment(pair.bort, drawing, name=f"{pair.name}-drawn", baseline=pair.baseline))
    return planned


def in_numbers(trained: Trained, *, images: int, pairs: int) -> dict[str, Any]:
    """Ratios and σ of each layer, correlations of reconstructions, and adversaries: success against similarity."""
    model = trained.model
    x, labels = trained.examples(images)
    fields = ("name", "shape", "sigma", "gram_diagonal", "gram_off_diagonal", "ratio", "floor", "cosine", "claim")
    layers = [{name: getattr(layer, name) for name in fields} for layer in measure.audit(model, x[:_AUDITED])]
    top = explain.top_layer(model, x)
    channels = invert.Backtracker(model, top, "gradient").trace(x[:1]).maps.shape[1]
    reconstruction = {
        str(k or "all"): round(invert.correlation(invert.reconstruct(model, x, top, k), x).double().mean().item(), 4)
        for k in (None, SALIENT_CHANNELS, 4)
        if not k or k <= channels
    }
    return training(trained) | {
        "layers": layers,
        "reconstruction": reconstruction,
        "images": len(x),
        "adversaries": _adversaries(model, x, labels, top, channels, pairs),
    }


def _adversaries(
    model: nn.Module, x: Tensor, labels: Tensor, top: str, channels: int, pairs: int
) -> list[dict[str, Any]]:
    """The trade-off: for each path and k, how many fool the classifier, and how much they look like their source."""
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randint(len(x), (4 * pairs,), generator=generator) for _ in range(2))
    different = (labels[source] != labels[target]).nonzero()[:pairs, 0].cpu()
    source, target = source[different], target[different]
    rows = []
    for path in _PATHS:
        for k in (1, 4, 16, 64, 256):
            if k > channels:
                continue
            synthesis = invert.synthesize(model, x[source], x[target], top, k, path=path)
            rows.append(
                {
                    "path": path,
                    "k": k,
                    "pairs": len(source),
                    "told_apart": synthesis.pairs,
                    "map_success": round(synthesis.map_success, 4),
                    "image_success": round(synthesis.image_success, 4),
                    "like_source": round(synthesis.source_similarity.mean().item(), 4),
                    "like_target": round(synthesis.target_similarity.mean().item(), 4),
                }
            )
    return rows


def drawn(trained: Trained, *, sizes: SampleSizes) -> dict[str, Any]:
    """Draws the figures of both runs into a folder beside the result; the metrics are their titles and texts."""
    from bort import report

    assert trained.baseline is not None
    subjects = [
        Subject.of_loaded_run(run, name=run.recipe.optim.name, device=trained.device, data_root=trained.data_root)
        for run in (trained.baseline, trained.run)
    ]
    trained.pictures.mkdir(parents=True, exist_ok=True)
    pictures = []
    for name in FIGURES:
        figure = report.draw(name, subjects, sizes=sizes)
        write_atomically(trained.pictures / f"{name}.png", to_png(figure.figure))
        texts = {"title": figure.title, "paper": figure.paper, "look": figure.look, "alt": figure.alt}
        pictures.append({"name": name, **texts})
    return {"pictures": pictures}


def section(results: list[Result]) -> str:
    drawings = [result for result in results if "pictures" in result.metrics]
    numbers = [result for result in results if not result.failed and "pictures" not in result.metrics]
    if not numbers:
        return failures(results) + _pictures(drawings)
    rows: list[Sequence[str]] = []
    trade_off: list[Sequence[str]] = []
    for result in numbers:
        is_only_seed = sum(other.row == result.row for other in numbers) == 1
        label = result.row if is_only_seed else f"{result.row}, seed {result.seed}"
        rows.append((label, *_layer_cells(result.metrics), f"[json]({result.file})"))
        trade_off += [(label, *_adversary_cells(adversary)) for adversary in result.metrics["adversaries"]]
    header = ("row", "σ", "ratio by layer", "cosine by layer", "correlation with the input, by features kept", "file")
    text = (
        "`bort reproduce figures`. The numbers behind the paper's figures 3b, 4 and 6a. *σ*: the "
        "smallest and the largest singular value of all layers. *ratio*: the part of a layer's input that Wᵀ(Wz) fails to "
        "bring back. *cosine*: how much a weight looks like the patches that excite it most (Definition 1). Both of "
        f"{_AUDITED} test images."
    )
    adversary_header = ("row", "path of g", "k", "map is target", "image is target", "like source", "like target")
    return (
        text_and_table(text, header, rows)
        + failures(results)
        + _pictures(drawings)
        + "\n## Adversaries (figure 6c): a trade-off\n\n"
        f"{numbers[0].metrics['adversaries'][0]['pairs']} random pairs of two classes, not those drawn above. "
        "*is target*: of the pairs that the network itself tells apart, the part that it takes for what it says of the "
        "target; *like* is the correlation with source and target. The chart has the first seed of each; numbers in it are "
        "the smallest and the largest k.\n\n"
        f"{_TRADE_OFF}\n\n" + markdown(adversary_header, trade_off)
    )


_TRADE_OFF = (
    "![How many images are taken for the target, against how much they look like the source](figures/trade-off.png)"
)


def summary(results: list[Result]) -> str:
    """How much of the input comes back, and the chart of adversaries."""
    numbers = [result for result in results if not result.failed and "pictures" not in result.metrics]
    if not numbers:
        return failures(results)
    kept = list(numbers[0].metrics["reconstruction"])
    rows = []
    for name, seeds in by_row(numbers).items():
        values = (values_of(seeds, "reconstruction", k) for k in kept)
        rows.append((name, *(number_cell(statistics.mean(v) if v else None, 3) for v in values), str(len(seeds))))
    text = "Correlation of the reconstruction from the top map with the input, by how many features are kept"
    return f"{text}:\n\n{markdown(('network', *kept, 'n'), rows)}\n{_TRADE_OFF}\n"


def _layer_cells(metrics: dict[str, Any]) -> tuple[str, ...]:
    """σ, ratios, cosines, correlations."""
    layers = metrics["layers"]
    low, high = min(layer["sigma"][0] for layer in layers), max(layer["sigma"][1] for layer in layers)
    ratios = " ".join(f"{layer['ratio']:.2f}" for layer in layers if layer["ratio"] is not None)
    cosines = " ".join(f"{layer['cosine']:.2f}" for layer in layers if layer["cosine"] is not None)
    correlations = ", ".join(f"{kept}: {number_cell(value, 3)}" for kept, value in metrics["reconstruction"].items())
    return f"{low:.2f} … {high:.2f}", ratios, cosines, correlations


def _adversary_cells(adversary: dict[str, Any]) -> tuple[str, ...]:
    parts = (adversary[name] for name in ("map_success", "image_success"))
    successes = ("–" if part is None else f"{part:.0%}" for part in parts)
    similarities = (number_cell(adversary[name]) for name in ("like_source", "like_target"))
    return adversary["path"], str(adversary["k"]), *successes, *similarities


def _pictures(drawings: list[Result]) -> str:
    """The figures that were drawn, with their titles and texts."""
    from bort.report import FIGURES

    text = ""
    for result in drawings:
        text += f"\n## Drawn: {result.stem}\n\n[json]({result.file})\n\n"
        for picture in result.metrics["pictures"]:
            image = f"![{picture['alt']}]({result.table}/{result.stem}/{picture['name']}.png)"
            text += f"**{picture['title']}** ({FIGURES[picture['name']].paper}). {picture['look']}\n\n{image}\n\n"
    return text


def trade_off_chart(results: list[Result]) -> Figure | None:
    """fig:3_3_adversary over many pairs: how many images fool the network, against how much they look like their source."""
    first_seeds = {
        (result.recipe.data.name, result.recipe.optim.name): result.metrics["adversaries"]
        for result in reversed(results)
        if "adversaries" in result.metrics
    }
    data = sorted({name for name, _ in first_seeds})
    if not data:
        return None
    with style():
        figure, (row,) = panels(1, len(data), 330, 280)
        for axes, name in zip(row, data, strict=True):
            for number, optimizer in enumerate(sorted({o for d, o in first_seeds if d == name}, reverse=True)):
                for path, marker in _MARKERS.items():
                    _line(axes, [a for a in first_seeds[name, optimizer] if a["path"] == path], colour(number), marker)
                axes.plot([], [], color=colour(number), label=optimizer)
            for path, marker in _MARKERS.items():
                axes.plot([], [], color=MUTED, marker=marker, linestyle="", markersize=4, label=f"path: {path}")
            axes.set_title(name)
            axes.set_xlabel("correlation with the source")
            axes.set_ylim(-3, 103)
        row[0].set_ylabel("% taken for the target")
        row[0].legend(fontsize=7)
    return figure


def _line(axes: Axes, adversaries: list[dict[str, Any]], line_colour: str, marker: str) -> None:
    """From the smallest k to the largest, whose points have their k beside them."""
    drawable = [a for a in adversaries if None not in (a["like_source"], a["image_success"])]
    if not drawable:
        return
    by_k = sorted(drawable, key=lambda adversary: adversary["k"])
    x = [adversary["like_source"] for adversary in by_k]
    y = [100 * adversary["image_success"] for adversary in by_k]
    axes.plot(x, y, color=line_colour, marker=marker, markersize=4, linewidth=1)
    for end in (0, -1):
        k, place = str(by_k[end]["k"]), (x[end], y[end])
        axes.annotate(k, place, fontsize=6, color=MUTED, xytext=(3, 3), textcoords="offset points")


TABLE = Table("Figures 3 to 6", experiments, section, summary, seeds=(0,), charts={"trade-off": trade_off_chart})
