"""From what a person types to a subject."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bort._import_path import import_object, is_import_path
from bort.data import View
from bort.subject import _views
from bort.subject._images import ImageFiles
from bort.subject._look import GIVE_VIEW, checked_view, with_files
from bort.subject._subject import Subject
from bort.subject._weights import load_weights

_HUGGING_FACE = "hf:"


@dataclass(frozen=True)
class Details:
    """What a network may not say of itself. A run knows all of it but other images to look at.

    Example:
        >>> details = subject.Details(size=(64, 96), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
        >>> view = subject.resolve("timm/resnet18", details).view
        >>> view.height, view.width
        (64, 96)
    """

    weights: Path | None = None
    """Its weights: safetensors, a state dict that torch saved, or a checkpoint of Lightning or timm."""
    pretrained: bool = False
    """With the weights that timm or torchvision offer, which are downloaded."""
    images: Path | None = None
    """A folder of images to look at: files, or one folder a class."""
    size: tuple[int, ...] = ()
    """Of its input: a side, or height and width."""
    mean: tuple[float, ...] = ()
    """By which its input is normalised, a number a channel, for pixels from 0 to 1."""
    std: tuple[float, ...] = ()
    classes: Path | tuple[str, ...] | None = None
    """The names of its classes, or a file with them: one a line, or a JSON list."""
    multi_label: bool = False
    """Whether an image may have several classes; a Hugging Face checkpoint may say it itself."""

    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, read if they are in a file; empty if they are not given."""
        return self.classes if isinstance(self.classes, tuple) else _class_names(self.classes)


def resolve(
    text: str | os.PathLike[str],
    details: Details | None = None,
    *,
    name: str | None = None,
    device: str | torch.device = "cpu",
    data_root: Path | None = None,
    shared: bool = False,
) -> Subject:
    """The subject that a person named, by one of:

    - the folder of a run, for its newest checkpoint, or one of its checkpoints, RUN/checkpoints/step-…;
    - "hf:FOLDER", the folder of a Hugging Face checkpoint;
    - a network of :func:`bort.nets.create`, such as "timm/resnet50";
    - "package.module:function", a function that returns a model, or a Subject with everything that is known of it.

    Networks without a run have the weights that they start from, unless ``details`` name others. How they see an image is
    what timm, torchvision or the checkpoint's image processor say, as far as ``details`` do not say it. A Subject that a
    function returns keeps what it has itself: ``details`` that say it again are refused, unless they are ``shared`` with
    other networks.

    Example:
        >>> subject.resolve("timm/resnet18").view.size
        224
    """
    given, details = os.fspath(text), details or Details()
    path = Path(given)
    if path.is_dir():
        refuse(details, "a run has its own", "weights", "pretrained", "size", "mean", "std", "classes")
        refuse(details, "a run is trained with one class an image", "multi_label")
        subject = Subject.of_run(given, name=name, device=device, data_root=data_root)
        return subject if details.images is None else with_files(subject, ImageFiles.of(details.images))
    if path.is_file():
        raise ValueError(
            f"{given!r} is neither the folder of a run nor a network. If it holds weights, name their network, such as "
            f"timm/resnet50 or package.module:function, and give the file as weights (in a command --weights {given})"
        )
    names = details.class_names()
    model, view = _network(given, details, names)
    if isinstance(model, Subject):
        if not shared:
            refuse(details, f"the Subject that {given} returns has its own", "size", "mean", "std", "classes")
        subject = replace(model, name=name or model.name)
    else:
        view = checked_view(view, details.size, details.mean, details.std, names)
        facts = {"network": given, "parameters": f"{sum(p.numel() for p in model.parameters()):,}"}
        if view is not None:
            facts["input"] = f"{view.channels} × {view.height} × {view.width}"
        subject = Subject(name or given, model, view, facts=facts, multi_label=_views.is_multi_label(model))
    subject = replace(subject, multi_label=subject.multi_label or details.multi_label)
    if details.weights is not None:
        loaded = _with_weights(subject.model, details.weights, given, details)
        subject = replace(subject, model=loaded, facts=subject.facts | {"weights": str(details.weights)})
    subject = replace(subject, model=subject.model.to(device).eval())
    return subject if details.images is None else with_files(subject, ImageFiles.of(details.images))


def resolve_all(
    texts: Sequence[str | os.PathLike[str]],
    details: Details | Sequence[Details] | None = None,
    *,
    device: str | torch.device = "cpu",
    data_root: Path | None = None,
) -> list[Subject]:
    """Several subjects to be looked at beside each other, under short names that differ. Subjects that see different images
    are refused; networks may differ.

    Example:
        >>> [each.name for each in subject.resolve_all(["lenet", "acnn-small"])]
        ['lenet', 'acnn-small']
    """
    if not texts:
        raise ValueError("name the folder of a run, or a network")
    each = [details] * len(texts) if details is None or isinstance(details, Details) else list(details)
    subjects = [
        resolve(text, own, name=name, device=device, data_root=data_root)
        for text, own, name in zip(texts, each, _short_names(texts), strict=True)
    ]
    seen = {subject.data: subject.name for subject in subjects}
    if len(seen) > 1:
        words = "; ".join(f"{name} on {data or 'unknown images'}" for data, name in seen.items())
        raise ValueError(
            f"they are on different data ({words}): look at each by itself, or show all of them the same images with "
            "Details(images=FOLDER) (in a command --images FOLDER)"
        )
    return subjects


def refuse(details: Details, why: str, *fields: str) -> None:
    """A ValueError if one of these is given."""
    given = next((field for field in fields if getattr(details, field)), None)
    if given is not None:
        raise ValueError(f"{given} {_shown(getattr(details, given))}: {why}")


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _network(given: str, details: Details, names: tuple[str, ...]) -> tuple[nn.Module | Subject, View | None]:
    """A network without a run, and how it sees an image as far as its library says it."""
    from bort import nets

    size: Any = details.size[0] if len(details.size) == 1 else details.size
    options: dict[str, Any] = {"image_size": size} if details.size else {}
    if given.startswith(_HUGGING_FACE):
        return _hugging_face(Path(given.removeprefix(_HUGGING_FACE)), details)
    if is_import_path(given):
        function = import_object(given)
        return _call(given, function, options, details.pretrained), _views.of_torchvision(function)
    if not _is_built(given):
        raise ValueError(
            f"{given!r} is neither the folder of a run nor a network: {', '.join(nets.names())}, timm/<name>, hf:FOLDER or "
            "package.module:function"
        )
    if names:
        options["classes"] = len(names)
    if details.mean:
        options["channels"] = len(details.mean)
    if details.pretrained:
        if not given.startswith("timm/"):
            raise ValueError(f"pretrained: there are no weights of {given} to download")
        options["pretrained"] = True
    try:
        model = nets.create(given, **options)
    except (OSError, RuntimeError) as error:
        if not details.pretrained:
            raise
        raise ValueError(f"the weights of {given} could not be downloaded: {error}") from error
    return model, _views.of_timm(model) if given.startswith("timm/") else None


def _with_weights(model: nn.Module, weights: Path, given: str, details: Details) -> nn.Module:
    """The network with its weights. A network that was built with two classes has one logit if the weights are of one."""
    try:
        load_weights(model, weights)
    except ValueError:
        names = details.class_names()
        if len(names) != 2 or not _is_built(given):
            raise
        single, _ = _network(given, details, names[:1])
        assert isinstance(single, nn.Module)
        with suppress(ValueError):
            load_weights(single, weights)
            return single
        raise
    return model


def _is_built(given: str) -> bool:
    """Whether it is the name of a network that is built here, with as many classes as there are names."""
    from bort import nets

    return given in nets.names() or given.startswith("timm/")


def _call(path: str, function: Callable[..., Any], options: dict[str, Any], pretrained: bool) -> nn.Module | Subject:
    """What the function at an import path returns. It gets the size if it takes one."""
    parameters = inspect.signature(function).parameters
    options = {option: value for option, value in options.items() if option in parameters}
    if pretrained:
        if "weights" not in parameters:
            raise ValueError(f"pretrained: {path} has no parameter weights to ask for them")
        options["weights"] = "DEFAULT"
    try:
        inspect.signature(function).bind(**options)
    except TypeError as error:
        words = ", ".join(f"{name}={value}" for name, value in options.items())
        raise ValueError(f"{path}({words}) cannot be called: {error}") from error
    result = function(**options)
    if not isinstance(result, (nn.Module, Subject)):
        raise ValueError(f"{path} returns a {type(result).__name__}, not a torch.nn.Module or a bort.subject.Subject")
    return result


def _hugging_face(folder: Path, details: Details) -> tuple[nn.Module, View | None]:
    """The image classifier in a folder that `save_pretrained` wrote."""
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} is no Hugging Face checkpoint: it has no config.json")
    try:
        from transformers import AutoImageProcessor, AutoModelForImageClassification
    except ImportError:
        raise ValueError(
            'hf: networks come from transformers, which is not installed: pip install "transformers>=5.4"'
        ) from None
    try:
        model = AutoModelForImageClassification.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{folder} holds no image classifier that transformers can read: {error}") from error
    try:
        processor = AutoImageProcessor.from_pretrained(folder, local_files_only=True, backend="pil")
        view = _views.of_processor(processor, model.config)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if not (details.size and details.mean and details.std):
            raise ValueError(f"{folder} does not say how its network sees an image ({error}): {GIVE_VIEW}") from error
        view = None
    return model, view


def _class_names(file: Path | None) -> tuple[str, ...]:
    """In a file: one a line, or a JSON list, or a JSON object from numbers to names."""
    if file is None:
        return ()
    try:
        text = file.read_text()
        names: Any = json.loads(text) if file.suffix == ".json" else text.splitlines()
        if isinstance(names, dict):
            names = [names[str(number)] for number in range(len(names))]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"the names of classes in {file} cannot be read: {error}") from error
    stripped = tuple(str(name).strip() for name in names)
    while stripped and not stripped[-1]:
        stripped = stripped[:-1]
    if not stripped:
        raise ValueError(f"{file} has no names of classes in it")
    return stripped


def _short_names(texts: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The last part of a run's folder, or a network's name; numbered where two are the same."""
    names = [Path(text).resolve().name if Path(text).is_dir() else os.fspath(text) for text in texts]
    if len(set(names)) == len(names):
        return names
    return [f"{number}-{name}" for number, name in enumerate(names, 1)]
