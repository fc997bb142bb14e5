"""RESULTS.md out of results/**/*.json: every figure of it can be traced to a file, and by that to a command and a commit."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bort import train
from bort.measure._deletion import SCORES
from bort.reproduce import _result
from bort.reproduce._paper import TABLE3

Results = list[dict[str, Any]]

_HEAD = """# Results

Made by `bort results` out of the files beside it; do not edit. Each file has the command, commit, versions, hardware, seed
and data hash of its figures. *n* is the number of seeds, ± their standard deviation. Runs that failed stay in the tables.
"""


def results(folder: Path) -> str:
    """The whole text."""
    parts = [_HEAD]
    for table, write in _SECTIONS.items():
        found = _result.read(folder / table)
        if found:
            parts.append(write(found))
    if len(parts) == 1:
        parts.append("There are no results yet: `bort reproduce table1`.\n")
    return "\n".join(parts)


def _table1(found: Results) -> str:
    rows = []
    for name, runs in _by_row(found).items():
        paper = _paper(name)
        mean, shown = _accuracy(runs)
        difference = f"{mean - paper:+.2f}" if paper is not None and mean is not None else "–"
        rows.append((name, _cell(paper), shown, difference, _status(runs, mean, paper), _residual(runs), _files(runs)))
    header = ("row", "paper %", "ours %", "difference", "status", "residual", "files")
    text = _QUICK if found[0]["quick"] else _TABLE1
    return _section("Table 1: accuracy on MNIST and CIFAR-10", text, header, rows)


_QUICK = "`bort reproduce table1 --quick`: the recipes of `bort recipes` on embedded digits. Not the paper's data."
_TABLE1 = (
    "`bort reproduce table1`. ACNN-Small and LeNet, 40 epochs, batch 256, lr 0.01, momentum 0.9, weight decay 0.01, λ 0.1, "
    "inputs normalised by channel. *matches*: within one point of the paper."
)


def _lenet(found: Results) -> str:
    rows = []
    for (data, words), runs in _grouped(found).items():
        means, cells = [], []
        for constraint in (0.0, 0.01, 0.1):
            mean, shown = _accuracy([r for r in runs if r["recipe"]["optim"]["constraint"] == constraint])
            means.append(mean)
            cells.append("–" if mean is None else shown.replace(" (n = 1)", ""))
        gaps = [
            abs(ours - paper)
            for ours, paper in zip(
                (means[0], means[2]), (_paper(f"{data}-lenet-{o}") for o in ("sgd", "bort-s")), strict=True
            )
            if ours is not None and paper is not None
        ]
        gap = f"{sum(gaps) / 2:.1f}" if len(gaps) == 2 else "–"
        rows.append((data, words.replace("-", ", "), *cells, gap, _files(runs)))
    told = "; ".join(
        f"{data} {_cell(_paper(f'{data}-lenet-sgd'))} → {_cell(_paper(f'{data}-lenet-bort-s'))}"
        for data in ("mnist", "cifar10")
    )
    text = (
        "`bort reproduce lenet`. The paper does not describe its LeNet. One seed each, otherwise as in Table 1; weight decay "
        f"0.01, and 0.001 with λ 0.01. The paper, SGD → Bort-S: {told}. *gap*: mean distance to those two, λ 0.1."
    )
    header = ("data", "LeNet, momentum, inputs", "SGD %", "λ 0.01 %", "λ 0.1 %", "gap", "files")
    return _section("Which LeNet?", text, header, rows)


def _grouped(found: Results) -> dict[tuple[str, str], Results]:
    groups: dict[tuple[str, str], Results] = {}
    for each in found:
        groups.setdefault((each["recipe"]["data"]["name"], each["note"]), []).append(each)
    return groups


def _settings(found: Results) -> str:
    rows = []
    for name, runs in _by_row(found).items():
        rows.append((name, runs[0]["note"], _accuracy(runs)[1], _residual(runs), _files(runs)))
    text = "`bort reproduce settings`. Rows of Table 1 with one thing changed, to be held against the rows above."
    return _section("Other settings", text, ("row", "changed", "ours %", "residual", "files"), rows)


def _table2(found: Results) -> str:
    rows = []
    for name, runs in _by_row(found).items():
        full = name.replace("tiny-imagenet", "imagenet", 1)
        top5 = [100 * r["metrics"]["top5"] for r in runs if not r["failed"]]
        rows.append((name, _accuracy(runs)[1], _mean(top5), _cell(_paper(full)), f"`bort train {full}`", _files(runs)))
    text = (
        "`bort reproduce table2`. **Not ImageNet**: 100 classes of Tiny ImageNet at 64 px, the recipes' own augmentation and "
        f"schedule, epochs cut to {found[0]['recipe']['epochs']} for baseline and Bort alike. The paper's figures are of "
        "ImageNet at 224 px after 300 epochs and stand beside for the order only; the last command is the full-size row."
    )
    header = ("row", "top-1 % here", "top-5 % here", "paper, ImageNet %", "full size", "files")
    return _section("Table 2 in small", text, header, rows)


def _table3(found: Results) -> str:
    good = [each for each in found if not each["failed"]]
    if not good:
        return "## Table 3: deletion and insertion\n\n" + _lost(found)
    first = good[0]["metrics"]
    head = (
        f"`bort reproduce table3`. {first['images']} test images, the class that each network says, pixels to and from the "
        f"mean colour, 28 steps, RISE with {first['masks']} masks. *better* or *worse* with Bort where the difference is "
        f"more than two standard errors of it, = otherwise. Files: {_files(found)}.\n\n"
    )
    parts = [_table3_by_score(good, score) for score in ("relative", *(s for s in SCORES if s != "relative"))]
    return "## Table 3: deletion and insertion\n\n" + head + _lost(found) + "\n".join(parts)


def _lost(found: Results) -> str:
    lines = [f"- {r['row']}, seed {r['seed']}: failed, {r['failed']}\n" for r in found if r["failed"]]
    return "".join(lines) + "\n" if lines else ""


def _table3_by_score(found: Results, score: str) -> str:
    """With the relative score beside the paper's table, which it alone fits."""
    pairs: dict[str, dict[str, Results]] = {}
    for each in found:
        optim = each["recipe"]["optim"]["name"]
        pairs.setdefault(each["row"].removesuffix(f"-{optim}"), {}).setdefault(optim, []).append(each)
    rows = []
    for base, both in pairs.items():
        if set(both) != {"sgd", "bort-s"}:
            continue
        for method in both["sgd"][0]["metrics"]["methods"]:
            cells = []
            paper = (
                TABLE3.get(both["sgd"][0]["recipe"]["data"]["name"], {}).get(method) if score == "relative" else None
            )
            for place, end in enumerate(("deletion", "insertion")):
                a, b = (_over_seeds(both[o], method, f"{score} {end}") for o in ("sgd", "bort-s"))
                cells += [f"{a[0]:.3f}", f"{b[0]:.3f}", _verdict(a, b, lower=end == "deletion")]
                if score == "relative":
                    cells.append(f"{paper[place]:.2f} → {paper[2 + place]:.2f}" if paper else "–")
            rows.append((base, method, *cells))
    more = ("paper",) if score == "relative" else ()
    header = ("network", "method", "deletion SGD ↓", "Bort-S ↓", "", *more, "insertion SGD ↑", "Bort-S ↑", "", *more)
    return f"### Score: {score}\n\n{_capital(_SCORE[score])}.\n\n" + _markdown(header, rows)


def _over_seeds(runs: Results, method: str, name: str) -> tuple[float, float]:
    """Mean of the seeds' means, and its standard error from theirs."""
    cells = [run["metrics"]["methods"][method][name] for run in runs]
    return statistics.mean(c[0] for c in cells), sum(c[1] ** 2 for c in cells) ** 0.5 / len(cells)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_SCORE = {
    "relative": "the logit divided by that of the clean image: of the three the one that comes nearest to the paper's table, "
    "which has areas below 0; but the paper has none above 1",
    "logit": "the logit of the class, whose scale is each network's own: compare methods, not networks",
    "probability": "the probability of the class, as RISE's authors do it",
}


def _verdict(one: Sequence[float], other: Sequence[float], *, lower: bool) -> str:
    difference, error = other[0] - one[0], (one[1] ** 2 + other[1] ** 2) ** 0.5
    if abs(difference) <= 2 * error:
        return "="
    return "better" if (difference < 0) == lower else "worse"


def _figures(found: Results) -> str:
    rows: list[Sequence[str]] = []
    trade: list[Sequence[str]] = []
    good = [each for each in found if not each["failed"]]
    if not good:
        return "## Figures 1 to 3 in numbers\n\n" + _lost(found)
    for each in good:
        m = each["metrics"]
        row = (
            each["row"]
            if sum(other["row"] == each["row"] for other in good) == 1
            else f"{each['row']}, seed {each['seed']}"
        )
        ratios = " ".join(f"{layer['ratio']:.2f}" for layer in m["layers"] if layer["ratio"] is not None)
        low, high = min(x["sigma"][0] for x in m["layers"]), max(x["sigma"][1] for x in m["layers"])
        kept = m["reconstruction"]
        known = ", ".join(f"{k}: {v:.3f}" for k, v in kept.items())
        cosine = " ".join(f"{x['cosine']:.2f}" for x in m["layers"] if x["cosine"] is not None)
        rows.append((row, f"{low:.2f} … {high:.2f}", ratios, cosine, known, f"[json]({each['file']})"))
        trade += [
            (
                row,
                a["path"],
                str(a["k"]),
                f"{a['map_success']:.0%}",
                f"{a['image_success']:.0%}",
                f"{a['like_source']:.2f}",
                f"{a['like_target']:.2f}",
            )
            for a in m["adversaries"]
        ]
    header = ("row", "σ", "ratio by layer", "cosine by layer", "correlation with the input, by features kept", "file")
    text = "`bort reproduce figures`. The numbers behind fig:1_3_recon_ratio, fig:2_1_recon and fig:3_1_topk64_recon."
    more = ("row", "path of g", "k", "map is target", "image is target", "like source", "like target")
    return (
        _section("Figures 1 to 3 in numbers", text, header, rows)
        + _lost(found)
        + "\n### Adversaries (fig:3_3_adversary): a trade-off\n\n"
        f"{good[0]['metrics']['adversaries'][0]['pairs']} random pairs of two classes. *is target*: of the pairs that the "
        "network itself tells apart, the part that it takes for what it says of the target; *like* is the correlation with "
        "source and target.\n\n" + _markdown(more, trade)
    )


def _ablation(found: Results) -> str:
    decays = sorted({r["recipe"]["optim"]["weight_decay"] for r in found})
    constraints = sorted({r["recipe"]["optim"]["constraint"] for r in found})
    rows = []
    for decay in decays:
        cells = []
        for constraint in constraints:
            wanted = (decay, constraint)
            runs = [
                r for r in found if (r["recipe"]["optim"]["weight_decay"], r["recipe"]["optim"]["constraint"]) == wanted
            ]
            cells.append(_accuracy(runs)[1] if runs else "–")
        rows.append((f"{decay:g}", *cells))
    header = ("weight decay \\ λ", *(f"{c:g}" for c in constraints))
    text = "`bort reproduce ablation`. Test accuracy in per cent; at weight decay ≥ λ > 0 a layer goes to zero. Files: "
    text += _files(found)
    data = found[0]["recipe"]["data"]["name"]
    return _section(f"fig:ablation_cifar10: weight decay by λ, on {data}", text, header, rows)


_SECTIONS: dict[str, Callable[[Results], str]] = {
    "table1": _table1,
    "lenet": _lenet,
    "settings": _settings,
    "table2": _table2,
    "table3": _table3,
    "figures": _figures,
    "ablation": _ablation,
}


def _by_row(found: Results) -> dict[str, Results]:
    rows: dict[str, Results] = {}
    for each in found:
        rows.setdefault(each["row"], []).append(each)
    order = {name: number for number, name in enumerate(train.recipes.names())}
    return dict(sorted(rows.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))


def _accuracy(runs: Results) -> tuple[float | None, str]:
    good = [100 * r["metrics"]["accuracy"] for r in runs if not r["failed"]]
    return (statistics.mean(good) if good else None), _mean(good, failed=len(runs) - len(good))


def _mean(values: list[float], failed: int = 0) -> str:
    lost = f", {failed} failed" if failed else ""
    if not values:
        return f"– (n = 0{lost})"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread} (n = {len(values)}{lost})"


def _status(runs: Results, mean: float | None, paper: float | None) -> str:
    if runs[0]["quick"]:
        return "quick, embedded digits"
    if mean is None:
        return "failed"
    if paper is None:
        return ""
    return "matches" if abs(mean - paper) <= 1 else ("above the paper" if mean > paper else "below the paper")


def _residual(runs: Results) -> str:
    known = [r["metrics"]["residual"] for r in runs if not r["failed"]]
    return f"{statistics.mean(known):.3f}" if known else "–"


def _paper(name: str) -> float | None:
    if name not in train.recipes.names():
        return None
    paper = train.recipes.get(name).paper
    return paper.top1 if paper else None


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _files(runs: Results) -> str:
    return " ".join(f"[{r['seed'] if len(runs) < 7 else n}]({r['file']})" for n, r in enumerate(runs, 1))


def _section(title: str, text: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"## {title}\n\n{text}\n\n{_markdown(header, rows)}"


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
