"""What the paper leaves open, tried out: SAT's threshold γ and k, and along whose path adversaries are synthesized.

    python benchmarks/choices.py RUN [RUN …] [--images 200] --out FILE.json

For each run of `bort train`: deletion and insertion of SAT (relative logit, mean over test images) for a grid of γ and k;
and for random pairs of test images of two classes, the part that the classifier takes for the target, and the similarity to
source and target, for each path, number of rounds and k.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from bort import explain, invert, measure, train
from bort._environment import describe
from bort._table import table

THRESHOLDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
CHANNELS = (16, 64, 256)
ROUNDS = (0, 1, 3)
FEW = (4, 16, 64)


def saliency(model: torch.nn.Module, x: torch.Tensor) -> list[dict[str, Any]]:
    rows = []
    for k in CHANNELS:
        maps: dict[float, list[torch.Tensor]] = {threshold: [] for threshold in THRESHOLDS}
        for batch in torch.split(x, 20):
            tracked = explain.track(model, batch, k=k)
            for threshold in THRESHOLDS:
                maps[threshold].append(tracked.map(threshold=threshold))
        for threshold in THRESHOLDS:
            deletion, insertion = measure.deletion_insertion(model, x, torch.cat(maps[threshold])).means
            rows.append({"k": k, "threshold": threshold, "deletion": deletion, "insertion": insertion})
    return rows


def adversaries(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor, seed: int) -> list[dict[str, Any]]:
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
    pairs = labels.to(x.device) != labels[order.cpu()].to(x.device)
    source, target = x[pairs], x[order][pairs]
    layer = explain.top_layer(model, x)
    rows = []
    for k in FEW:
        for path in ("source", "target", "none"):
            for rounds in ROUNDS:
                batches = [
                    invert.synthesize(model, s, t, layer, k, path=path, rounds=rounds)
                    for s, t in zip(torch.split(source, 20), torch.split(target, 20), strict=True)
                ]
                whole = {
                    name: torch.cat([getattr(batch, name) for batch in batches])
                    for name in ("map_verdicts", "image_verdicts", "source_classes", "target_classes")
                }
                rows.append(
                    {
                        "k": k,
                        "path": path,
                        "rounds": rounds,
                        "pairs": len(source),
                        "map_is_target": _part(whole["map_verdicts"] == whole["target_classes"]),
                        "image_is_target": _part(whole["image_verdicts"] == whole["target_classes"]),
                        "image_is_source": _part(whole["image_verdicts"] == whole["source_classes"]),
                        "like_source": _part(torch.cat([batch.source_similarity for batch in batches])),
                        "like_target": _part(torch.cat([batch.target_similarity for batch in batches])),
                    }
                )
    return rows


def _part(values: torch.Tensor) -> float:
    return values.double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for path in arguments.runs:
        run = train.load(path)
        x, labels = run.examples(arguments.images, arguments.data)
        x, model = x.to(device), run.model.to(device)
        sat, synthesis = saliency(model, x), adversaries(model, x, labels, arguments.seed)
        rows.append({"recipe": run.recipe.name, "accuracy": run.accuracy, "sat": sat, "synthesis": synthesis})
        cells = [(str(r["k"]), str(r["threshold"]), f"{r['deletion']:.3f}", f"{r['insertion']:.3f}") for r in sat]
        print(run.recipe.name, table(("SAT k", "γ", "deletion", "insertion"), cells), sep="\n")
        names = ("map_is_target", "image_is_target", "image_is_source", "like_source", "like_target")
        cells = [(str(r["k"]), r["path"], str(r["rounds"]), *(f"{r[name]:.2f}" for name in names)) for r in synthesis]
        print(table(("k", "path", "rounds", *(name.replace("_", " ") for name in names)), cells), flush=True)
        facts = {"runs": rows, "images": len(x), "command": "python benchmarks/choices.py", **describe(arguments.seed)}
        arguments.out.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
