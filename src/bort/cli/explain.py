"""`bort explain`"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro


def explain(
    run: Path,
    images: tuple[Path, ...] = (),
    /,
    method: Annotated[tuple[str, ...], tyro.conf.arg(aliases=("--methods",))] = ("sat",),
    examples: int | None = None,
    target: int | None = None,
    layer: str | None = None,
    k: int | None = None,
    threshold: float | None = None,
    steps: int | None = None,
    masks: int | None = None,
    seed: int | None = None,
    strength: float = 0.6,
    device: str = "cpu",
    out: Path | None = None,
    data_root: Path | None = None,
) -> None:
    """Show where a network sees its evidence: saliency maps of images as PNG and npy, with a manifest.

    Args:
        run: the folder of a run.
        images: files; none: some of the run's own test images.
        method: one or several of `bort.explain.names()`, or all.
        examples: how many test images, where no files are given; 4 by default.
        target: the class to explain; what the network says by default.
        layer: for SAT and CAM: whose map; the last one with places by default.
        k: for SAT: how many channels.
        threshold: for SAT: γ, a part of each signal's maximum.
        steps: for Integrated Gradients, Guided IG and XRAI.
        masks: for RISE: how many.
        seed: for RISE: of the masks.
        strength: of the map over the image, from 0 to 1.
        device: cpu, cuda, …
        out: the folder to write; RUN/explained by default.
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
    """
    given = {"layer": layer, "k": k, "threshold": threshold, "steps": steps, "masks": masks, "seed": seed}
    given = {name: value for name, value in given.items() if value is not None}
    try:
        _explain(run, images, method, examples, target, given, strength, device, out or run / "explained", data_root)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(f"bort explain: {error}")


def _explain(
    folder: Path,
    files: tuple[Path, ...],
    method: tuple[str, ...],
    count: int | None,
    target: int | None,
    given: dict[str, Any],
    strength: float,
    device: str,
    out: Path,
    root: Path | None,
) -> None:
    import torch

    from bort import explain, train
    from bort.cli._output import Written
    from bort.cli._progress import working
    from bort.explain._common import at_once
    from bort.pictures import enlarged, npy, overlay, picture, png
    from bort.train._examples import examples
    from bort.data._view import view_of_run

    if not 0 <= strength <= 1:
        raise ValueError(f"--strength {strength}: must be from 0 (the image) to 1 (the map)")
    methods = chosen_methods(method)
    options = options_for(methods, given)
    if files and count is not None:
        raise ValueError(f"--examples {count} is for test images, but image files are given")
    run = train.load(folder)
    view, model = view_of_run(run, root), run.model.to(device)
    if files:
        x, labels = torch.cat([view.read(file) for file in files]), None
        names = _different([file.stem for file in files])
        sources: list[dict[str, Any]] = [
            {"file": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()} for file in files
        ]
    else:
        x, labels = examples(run.recipe, 4 if count is None else count, root)
        names = [f"test-{number}" for number in range(len(x))]
        sources = [{"example": number, "class": view.name(int(label))} for number, label in enumerate(labels)]
    x = x.to(device)
    with torch.no_grad():
        chances = torch.cat([model(part) for part in torch.split(x, at_once(model, x))]).softmax(dim=1)
    sure, said = chances.max(dim=1)
    pixels, found = view.pixels(x), {}
    with working() as progress:
        for which in methods:
            extra: dict[str, Any] = {}
            if "progress" in explain.options(which):
                extra["progress"] = lambda done, total, which=which: progress(which, done, total)
            found[which] = explain.get(which)(model, x, target, **options[which], **extra)
    with Written(out) as written:
        for n, name in enumerate(names):
            explained = int(said[n] if target is None else target)
            sources[n] |= {"says": view.name(int(said[n])), "probability": round(float(sure[n]), 4)}
            sources[n] |= {"explained": view.name(explained), "maps": {}}
            print(f"{name}: {sources[n]['says']}, {sure[n]:.1%}")
            written.add(f"{name}.png", png(enlarged(picture(pixels[n]))))
            for which, maps in found.items():
                written.add(f"{name}-{which}.npy", npy(maps[n]))
                written.add(f"{name}-{which}.png", png(enlarged(overlay(pixels[n], maps[n], strength))))
                sources[n]["maps"][which] = f"{name}-{which}.npy"
        manifest = written.close(
            run.recipe.seed,
            command="bort explain",
            run=str(folder),
            recipe=run.recipe.name,
            options={which: options[which] for which in methods},
            images=sources,
        )
        print(f"{len(written.files)} files, listed in {manifest}")


def chosen_methods(asked: tuple[str, ...]) -> list[str]:
    """Names as typed, "all" being all of them; checked."""
    from bort import explain

    names = explain.names() if asked == ("all",) else list(dict.fromkeys(asked))
    for name in names:
        explain.get(name)
    return names


def options_for(methods: list[str], given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What each method is told. An option that none of them has is a mistake, not something to pass over."""
    from bort import explain

    for name, value in given.items():
        if not any(name in explain.options(method) for method in methods):
            takers = [method for method in explain.names() if name in explain.options(method)]
            raise ValueError(f"--{name} {value} says nothing to {', '.join(methods)}; it is for {', '.join(takers)}")
    return {
        method: {name: value for name, value in given.items() if name in explain.options(method)} for method in methods
    }


def _different(stems: list[str]) -> list[str]:
    """Files of one name in two folders get a number."""
    names: list[str] = []
    for stem in stems:
        tries = (stem, *(f"{stem}-{number}" for number in range(2, len(stems) + 2)))
        names.append(next(name for name in tries if name not in names))
    return names
