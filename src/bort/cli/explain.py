"""`bort explain`"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from bort._defaults import OVERLAY_STRENGTH
from bort.cli._errors import exit_on_error
from bort.cli._methods import chosen_methods, given_options, options_for
from bort.cli._subject_options import SubjectOptions

if TYPE_CHECKING:
    from torch import Tensor

    from bort.data import View
    from bort.subject import Subject

_EXAMPLES = 4


def explain(
    run: str,
    images: tuple[Path, ...] = (),
    /,
    method: Annotated[tuple[str, ...], tyro.conf.arg(aliases=("--methods",))] = ("sat",),
    count: int | None = None,
    target: int | None = None,
    layer: str | None = None,
    k: int | None = None,
    threshold: float | None = None,
    steps: int | None = None,
    masks: int | None = None,
    seed: int | None = None,
    option: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    strength: float = OVERLAY_STRENGTH,
    device: str = "cpu",
    out: Path | None = None,
    data_root: Path | None = None,
    look: Annotated[SubjectOptions, tyro.conf.arg(name="")] = SubjectOptions(),  # noqa: B008
) -> None:
    """Show where a network sees its evidence: saliency maps of images as PNG and npy, with a manifest.

    Args:
        run: the folder of a run; a network such as timm/resnet50; hf:FOLDER; or package.module:function, which returns a
            model.
        images: files; none: some of the run's own test images, or of --images.
        method: one or several, or all; `--method list` lists them, other packages' included.
        count: how many test images, where no files are given; 4 by default.
        target: the class to explain; what the network says by default. A single logit has maps of class 1 only.
        layer: for SAT and CAM: whose map; the last one with places by default.
        k: for SAT: how many channels.
        threshold: for SAT: γ, a part of each signal's maximum.
        steps: for Integrated Gradients, Guided IG and XRAI.
        masks: for RISE: how many.
        seed: for RISE: of the masks.
        option: any other option of a method, as NAME=VALUE; once for each.
        strength: of the map over the image, from 0 to 1.
        device: cpu, cuda, …
        out: the folder to write; RUN/explained by default.
        data_root: where the data sets are; default: $BORT_DATA, or ~/.cache/bort.
        look: what a network without a run does not say of itself.
    """
    named = {"layer": layer, "k": k, "threshold": threshold, "steps": steps, "masks": masks, "seed": seed}
    with exit_on_error("explain"):
        from bort.subject import resolve

        if not 0 <= strength <= 1:
            raise ValueError(f"--strength {strength}: must be from 0 (the image) to 1 (the map)")
        if images and count is not None:
            raise ValueError(f"--count {count} is for test images, but image files are given")
        methods = chosen_methods(method)
        options = options_for(methods, given_options(named, option))
        subject = resolve(run, *look.details([run]), device=device, data_root=data_root)
        if subject.view is None:
            raise ValueError(f"it is not known how {subject.name} sees an image: give --size, --mean and --std")
        inputs = _inputs(subject, subject.view, images, _EXAMPLES if count is None else count)
        maps = _maps(subject, inputs.x, _logit_of(target, subject, inputs.x), options)
        default = Path(run) / "explained" if Path(run).is_dir() else Path("explained")
        facts = {"run": run, "recipe": subject.recipe, "options": options}
        _write(out or default, subject, subject.view, inputs, maps, target, strength, facts)


@dataclass(frozen=True)
class _Inputs:
    x: Tensor
    """As the network sees them."""
    names: list[str]
    """Of their files."""
    sources: list[dict[str, Any]]
    """Where each comes from, for the manifest."""


def _inputs(subject: Subject, view: View, files: tuple[Path, ...], count: int) -> _Inputs:
    """The image files, or so many test images."""
    import torch

    from bort._files import sha256

    if files:
        x = torch.cat([view.read(file) for file in files]).to(subject.device, subject.dtype)
        sources: list[dict[str, Any]] = [{"file": str(file), "sha256": sha256(file)} for file in files]
        return _Inputs(x, _different([file.stem for file in files]), sources)
    x, labels = subject.test_images(count)
    sources = [{"example": number, "class": view.name(int(label))} for number, label in enumerate(labels)]
    return _Inputs(x, [f"test-{number}" for number in range(len(x))], sources)


def _logit_of(target: int | None, subject: Subject, x: Tensor) -> int | None:
    """The place of the logit that a method is to explain. For methods a single one has place 0, but it is for class 1."""
    from bort._inspect import all_outputs

    if target is None or all_outputs(subject.model, x[:1]).shape[1] > 1:
        return target
    if target != 1:
        raise ValueError(
            f"--target {target}: {subject.name} has a single logit, which is for class 1 and against class 0. Explain class 1"
        )
    return 0


def _maps(subject: Subject, x: Tensor, target: int | None, options: dict[str, dict[str, Any]]) -> dict[str, Tensor]:
    """(N, H, W) for each method."""
    from bort import explain
    from bort.cli._progress import progress_bar

    maps = {}
    with progress_bar() as say:
        for name in options:
            method = explain.get(name)
            extra: dict[str, Any] = {}
            if "progress" in method.options:
                extra["progress"] = lambda done, total, name=name: say(name, done, total)
            if subject.multi_label and "multi_label" in method.options:
                extra["multi_label"] = True
            maps[name] = method(subject.model, x, target, **extra | options[name])
    return maps


def _write(
    out: Path,
    subject: Subject,
    view: View,
    inputs: _Inputs,
    maps: dict[str, Tensor],
    target: int | None,
    strength: float,
    facts: dict[str, Any],
) -> None:
    """Pictures and numbers of every image, and the manifest."""
    from bort._inspect import all_outputs, class_of_logit, class_probabilities
    from bort.cli._output import OutputFolder
    from bort.explain import about_constant, get
    from bort.pictures import enlarged, npy, overlay, picture, png

    constant = about_constant(maps)
    logits = all_outputs(subject.model, inputs.x)
    probabilities, classes = class_probabilities(logits, multi_label=subject.multi_label).max(dim=1)
    pixels = view.pixels(inputs.x)
    with OutputFolder(out) as output:
        for n, (name, source) in enumerate(zip(inputs.names, inputs.sources, strict=True)):
            explained = class_of_logit(int(classes[n] if target is None else target), logits)
            source |= {"says": view.name(int(classes[n])), "probability": round(float(probabilities[n]), 4)}
            source |= {"explained": view.name(explained), "maps": {}}
            print(f"{name}: {source['says']}, {probabilities[n]:.1%}")
            output.add(f"{name}.png", png(enlarged(picture(pixels[n]))))
            for method, saliency in maps.items():
                shown = overlay(pixels[n], saliency[n], strength, signed=get(method).signed)
                output.add(f"{name}-{method}.npy", npy(saliency[n]))
                output.add(f"{name}-{method}.png", png(enlarged(shown)))
                source["maps"][method] = f"{name}-{method}.npy"
        for sentence in constant:
            print(sentence)
        manifest = output.close(subject, command="bort explain", **facts, images=inputs.sources, notes=constant)
        print(f"{len(output.files)} files, listed in {manifest}")


def _different(stems: list[str]) -> list[str]:
    """Names for files: those of one name in two folders get a number."""
    names: list[str] = []
    for stem in stems:
        tries = (stem, *(f"{stem}-{number}" for number in range(2, len(stems) + 2)))
        names.append(next(name for name in tries if name not in names))
    return names
