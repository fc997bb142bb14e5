"""The parts of RESULTS.md that look inside: table 3 and the figures' numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bort.measure._deletion import SCORES
from bort.reproduce._cells import Results, accuracy, files, lost, markdown, section
from bort.reproduce._paper import TABLE3


def table3(found: Results) -> str:
    good = [each for each in found if not each["failed"]]
    if not good:
        return "## Table 3: deletion and insertion\n\n" + lost(found)
    first = good[0]["metrics"]
    head = (
        f"`bort reproduce table3`. {first['images']} test images, the class that each network says, pixels to and from the "
        f"mean colour, 28 steps, RISE with {first['masks']} masks. *better* or *worse* with Bort where the difference is "
        "more than two standard errors of it over the images, = otherwise; another training may differ by more. "
        f"Files: {files(found)}.\n\n"
        f"Accuracy of the networks, which the areas depend on: {_accuracies(good)}.\n\n"
    )
    parts = [_table3_by_score(good, score) for score in ("relative", *(s for s in SCORES if s != "relative"))]
    return "## Table 3: deletion and insertion\n\n" + head + lost(found) + "\n".join(parts)


def _pairs(found: Results) -> dict[str, dict[str, Results]]:
    """What there is of both, baseline and Bort, by network."""
    pairs: dict[str, dict[str, Results]] = {}
    for each in found:
        optim = each["recipe"]["optim"]["name"]
        side = "bort" if optim.startswith("bort") else "baseline"
        pairs.setdefault(each["row"].removesuffix(f"-{optim}"), {}).setdefault(side, []).append(each)
    return {base: both for base, both in pairs.items() if len(both) == 2}


def _accuracies(found: Results) -> str:
    return "; ".join(
        f"{base} {accuracy(both['baseline'])[1]} → {accuracy(both['bort'])[1]}" for base, both in _pairs(found).items()
    ).replace(" (n = 1)", "%")


def _table3_by_score(found: Results, score: str) -> str:
    """With the relative score beside the paper's table, whose scale it alone has."""
    rows, agreed = [], ""
    for base, both in _pairs(found).items():
        data = both["bort"][0]["recipe"]["data"]["name"]
        is_small = data == "folder:tiny-imagenet-100"
        papers = TABLE3.get("imagenet" if is_small else data, {}) if score == "relative" else {}
        improved: dict[tuple[bool, bool], list[str]] = {}
        for method in both["baseline"][0]["metrics"]["methods"]:
            cells, paper = [], papers.get(method)
            for place, end in enumerate(("deletion", "insertion")):
                a, b = (_over_seeds(both[side], method, f"{score} {end}") for side in ("baseline", "bort"))
                verdict = _verdict(a, b, lower=end == "deletion")
                cells += [f"{a[0]:.3f}", f"{b[0]:.3f}", verdict]
                if score == "relative":
                    mark = " (ImageNet)" if is_small else ""
                    cells.append(f"{paper[place]:.2f} → {paper[2 + place]:.2f}{mark}" if paper else "–")
                if paper:
                    theirs = _verdict((paper[place], 0.0), (paper[2 + place], 0.0), lower=end == "deletion")
                    improved.setdefault((verdict == "better", theirs == "better"), []).append(f"{method} {end}")
            rows.append((base, method, *cells))
        agreed += _agreement(base, improved)
    more = ("paper",) if score == "relative" else ()
    deletion, insertion = ("deletion, baseline ↓", "Bort ↓", ""), ("insertion, baseline ↑", "Bort ↑", "")
    header = ("network", "method", *deletion, *more, *insertion, *more)
    return f"### Score: {score}\n\n{capital(_SCORE[score])}.\n\n" + markdown(header, rows) + (agreed and f"\n{agreed}")


def _agreement(base: str, improved: dict[tuple[bool, bool], list[str]]) -> str:
    """Which cells get better with Bort (here, in the paper)."""
    said = {(True, True): "here and in the paper", (False, True): "in the paper only", (True, False): "here only"}
    known = [f"{words}: {', '.join(improved[which])}" for which, words in said.items() if which in improved]
    return f"- {base}, better with Bort {'; '.join(known)}.\n" if known else ""


def _over_seeds(runs: Results, method: str, name: str) -> tuple[float, float]:
    """Mean of the seeds' means, and its standard error from theirs."""
    cells = [run["metrics"]["methods"][method][name] for run in runs]
    return statistics.mean(c[0] for c in cells), sum(c[1] ** 2 for c in cells) ** 0.5 / len(cells)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_SCORE = {
    "relative": "the logit divided by that of the clean image: of the three the only one with areas below 0 on the scale "
    "of the paper's table, which has such; but the paper has none above 1",
    "logit": "the logit of the class, whose scale is each network's own: compare methods, not networks",
    "probability": "the probability of the class, as RISE's authors do it",
}


def _verdict(one: Sequence[float], other: Sequence[float], *, lower: bool) -> str:
    difference, error = other[0] - one[0], (one[1] ** 2 + other[1] ** 2) ** 0.5
    if abs(difference) <= 2 * error:
        return "="
    return "better" if (difference < 0) == lower else "worse"


def figures(found: Results) -> str:
    rows: list[Sequence[str]] = []
    trade: list[Sequence[str]] = []
    drawn = [each for each in found if "pictures" in each["metrics"]]
    good = [each for each in found if not each["failed"] and each not in drawn]
    if not good:
        return "## Figures 1 to 3 in numbers\n\n" + lost(found) + pictures(drawn)
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
    text = (
        "`bort reproduce figures`. The numbers behind fig:1_3_recon_ratio, fig:2_1_recon and fig:3_1_topk64_recon. *σ*: the "
        "smallest and the largest singular value of all layers. *ratio*: the part of a layer's input that Wᵀ(Wz) fails to "
        "bring back. *cosine*: how much a weight looks like the patches that excite it most (Definition 1). Both of 256 test "
        "images."
    )
    more = ("row", "path of g", "k", "map is target", "image is target", "like source", "like target")
    return (
        section("Figures 1 to 3 in numbers", text, header, rows)
        + lost(found)
        + "\n### Adversaries (fig:3_3_adversary): a trade-off\n\n"
        f"{good[0]['metrics']['adversaries'][0]['pairs']} random pairs of two classes. *is target*: of the pairs that the "
        "network itself tells apart, the part that it takes for what it says of the target; *like* is the correlation with "
        "source and target. The chart has the first seed of each; numbers in it are the smallest and the largest k.\n\n"
        "![How many images are taken for the target, against how much they look like the source](figures/trade-off.png)\n\n"
        + markdown(more, trade)
        + pictures(drawn)
    )


def pictures(drawn: Results) -> str:
    """The figures themselves, with what they say."""
    text = ""
    for each in drawn:
        folder = each["file"].removesuffix(".json")
        text += f"\n### Drawn: {folder.rpartition('/')[2]}\n\n[json]({each['file']})\n\n"
        for one in each["metrics"]["pictures"]:
            text += (
                f"**{one['title']}** ({one['paper']}). {one['look']}\n\n![{one['alt']}]({folder}/{one['name']}.png)\n\n"
            )
    return text
