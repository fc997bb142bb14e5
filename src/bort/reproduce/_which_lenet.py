"""The part of RESULTS.md on the LeNet row: which setting comes nearest to the paper's, and which is the most accurate."""

from __future__ import annotations

from bort.reproduce._cells import Results, accuracy, cell, files, markdown, paper_top1, section

_CONSTRAINTS = (0.0, 0.01, 0.1)


def lenet(found: Results) -> str:
    rows: list[tuple[str, ...]] = []
    nearest: dict[str, tuple[float, str]] = {}
    best: dict[str, tuple[float, str]] = {}
    for (data, note), runs in _grouped(found).items():
        words = note.replace("-", ", ").replace("_", " ")
        of = {c: accuracy(_with(runs, c)) for c in _CONSTRAINTS}
        for constraint, (ours, _) in of.items():
            if ours is not None and ours > best.get(data, (-1.0, ""))[0]:
                best[data] = ours, f"{words}, {f'λ {constraint:g}' if constraint else 'SGD'}"
        gap = _gap(data, of[0.0][0], of[0.1][0])
        if gap is not None and gap < nearest.get(data, (101.0, ""))[0]:
            nearest[data] = gap, words
        cells = ("–" if ours is None else shown.replace(" (n = 1)", "") for ours, shown in of.values())
        rows.append((data, words, *cells, "–" if gap is None else f"{gap:.1f}", _links(runs)))
    told = [
        f"- {data}: the paper has {cell(paper_top1(f'{data}-lenet-sgd'))} → {cell(paper_top1(f'{data}-lenet-bort-s'))}. "
        + (f"Nearest: {nearest[data][1]} (gap {nearest[data][0]:.1f}). " if data in nearest else "")
        + f"Most accurate: {best[data][1]} ({best[data][0]:.2f}%)."
        for data in best
    ]
    text = (
        "`bort reproduce lenet`. The paper does not describe its LeNet. One seed unless n is given, else as in Table 1; "
        "weight decay 0.01, and 0.001 with λ 0.01. *gap*: mean distance to the paper's two figures, SGD and λ 0.1.\n\n"
        + "\n".join(told)
    )
    header = ("data", "LeNet, momentum, inputs", "SGD %", "λ 0.01 %", "λ 0.1 %", "gap", "files")
    return section("Which LeNet?", text, header, rows) + _dead(found)


def _grouped(found: Results) -> dict[tuple[str, str], Results]:
    groups: dict[tuple[str, str], Results] = {}
    for each in found:
        groups.setdefault((each["recipe"]["data"]["name"], each["note"]), []).append(each)
    return groups


def _with(runs: Results, constraint: float) -> Results:
    return [r for r in runs if r["recipe"]["optim"]["constraint"] == constraint]


def _links(runs: Results) -> str:
    """By λ, and by seed where there are more than one."""
    several = len({r["seed"] for r in runs}) > 1
    links = []
    for run in runs:
        name = f"λ {run['recipe']['optim']['constraint']:g}" + (f" seed {run['seed']}" if several else "")
        links.append(f"[{name}]({run['file']})")
    return " ".join(links)


def _gap(data: str, sgd: float | None, bort: float | None) -> float | None:
    """Mean distance of the two to the paper's, if all are known."""
    paper_sgd, paper_bort = (paper_top1(f"{data}-lenet-{optim}") for optim in ("sgd", "bort-s"))
    if sgd is None or bort is None or paper_sgd is None or paper_bort is None:
        return None
    return (abs(sgd - paper_sgd) + abs(bort - paper_bort)) / 2


def _dead(found: Results) -> str:
    """Seed by seed: with a last ReLU, how many classes are dead decides the accuracy."""
    counted = [r for r in found if not r["failed"] and "dead_classes" in r["metrics"]]
    if not counted:
        return ""
    rows = []
    for data, seed in sorted({(r["recipe"]["data"]["name"], r["seed"]) for r in counted}):
        runs = [r for r in counted if (r["recipe"]["data"]["name"], r["seed"]) == (data, seed)]
        cells: list[str] = []
        for constraint in (0.0, 0.1):
            metrics = [r["metrics"] for r in _with(runs, constraint)]
            cells += [f"{100 * metrics[0]['accuracy']:.2f}", str(metrics[0]["dead_classes"])] if metrics else ["–", "–"]
        rows.append((data, str(seed), *cells, files(runs)))
    header = ("data", "seed", "SGD %", "dead classes", "λ 0.1 %", "dead classes", "files")
    text = (
        "Behind a last ReLU a class whose logit is negative for every image gets no gradient: it dies, and of ten classes "
        "each dead one costs a tenth of the images. *dead*: fewer than 1% of its test images have its logit largest and "
        "alone. In accuracy k equal logits count as 1/k: of an image with all logits 0 nothing is said."
    )
    return f"\n### A ReLU at the end, seed by seed\n\n{text}\n\n{markdown(header, rows)}"
