"""Weights from a file into a network, whoever saved them: a state dict, a checkpoint of Lightning or timm, safetensors."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import Tensor, nn

_INSIDE = ("state_dict", "model_state_dict", "model", "net", "weights", "module")
"""Where training loops keep the network in a checkpoint; Lightning and timm have it under the first."""
_WRAPPERS = ("module.", "_orig_mod.")
"""Prefixes that DataParallel, DDP and torch.compile put before names."""
_SHOWN = 5


def load_weights(model: nn.Module, file: Path) -> None:
    """Put the weights of a file into a model, all of them: a name or shape that does not fit is a ValueError."""
    found = _read(file)
    own = model.state_dict()
    fitting = _renamed(found, own, file)
    missing = [name for name in own if name not in fitting]
    unknown = [name for name in fitting if name not in own]
    shapes = [
        f"{name} ({'×'.join(map(str, value.shape))} in the file, {'×'.join(map(str, own[name].shape))} in the network)"
        for name, value in fitting.items()
        if name in own and value.shape != own[name].shape
    ]
    problems = [
        f"{what}: {', '.join(names[:_SHOWN])}{f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''}"
        for what, names in (
            ("of another shape", shapes),
            ("missing in the file", missing),
            ("only in the file", unknown),
        )
        if names
    ]
    if problems:
        raise ValueError(f"the weights in {file} do not fit the network. {'; '.join(problems)}")
    model.load_state_dict(fitting)
    broken = next(
        (name for name, value in fitting.items() if value.is_floating_point() and not value.isfinite().all()), ""
    )
    if broken:
        raise ValueError(f"the weights in {file} have diverged: {broken} has NaN or Inf in it")


def _read(file: Path) -> dict[str, Tensor]:
    """The state dict in a file."""
    if not file.is_file():
        raise ValueError(f"there is no file {file}")
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: object = load_file(file)
        else:
            with _lightning():
                content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "global" not in str(error).lower():  # torch names the class that it refuses so
            raise ValueError(f"{file} cannot be read: it is neither of torch nor safetensors") from error
        raise ValueError(
            f"{file} holds Python objects besides tensors, which may run code when they are read, and are refused. Save "
            "the weights alone: torch.save(model.state_dict(), …), or safetensors"
        ) from error
    except Exception as error:  # damaged files make readers raise anything
        raise ValueError(f"{file} cannot be read: {error}") from error
    state = content
    for key in _INSIDE:
        if isinstance(state, Mapping) and not _is_state(state) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not _is_state(state):
        raise ValueError(f"{file} holds no state dict: save model.state_dict(), alone or under the name state_dict")
    return {str(name): value for name, value in state.items()}


def _lightning() -> AbstractContextManager[None]:
    """Lightning keeps hyperparameters in a class of its own, which is harmless; allowed if Lightning is there."""
    allowed = []
    for module in ("lightning.fabric.utilities.data", "lightning_fabric.utilities.data"):
        try:
            allowed.append(__import__(module, fromlist=["AttributeDict"]).AttributeDict)
        except ImportError:
            continue
    context: AbstractContextManager[None] = torch.serialization.safe_globals(allowed)
    return context


def _is_state(content: Mapping[object, object]) -> bool:
    return bool(content) and all(isinstance(value, Tensor) for value in content.values())


def _renamed(found: dict[str, Tensor], own: Mapping[str, Tensor], file: Path) -> dict[str, Tensor]:
    """The state with the prefix taken off that makes the most names fit: of wrappers, or the attribute under which
    a LightningModule keeps its network. Entries beside such a network, as of a loss or a metric, are left out. Two networks
    that fit, such as a teacher and a student, are a ValueError."""
    parts = _by_prefix(found, own)
    if not parts:
        return dict(found)
    shapes = {prefix: sum(found[name].shape == own[to].shape for to, name in parts[prefix].items()) for prefix in parts}
    best = max(sorted(parts), key=lambda prefix: (shapes[prefix], len(parts[prefix]), -len(prefix)))
    whole = [prefix for prefix in sorted(parts) if shapes[prefix] == len(own)]
    others = [prefix for prefix in whole if prefix != best]
    if any(_differ(found[parts[prefix][name]], found[parts[best][name]]) for prefix in others for name in own):
        places = " and ".join(f"{prefix}*" if prefix else "names without a prefix" for prefix in whole)
        raise ValueError(
            f"the weights in {file} fit the network more than once, as {places}, and are not the same: save the ones to look "
            "at in a file of their own, torch.save(network.state_dict(), …)"
        )
    fitting = {name: to for to, name in parts[best].items()}
    return {
        fitting.get(name, _plain(name.removeprefix(best))): value
        for name, value in found.items()
        if name.startswith(best)
    }


def _differ(one: Tensor, other: Tensor) -> bool:
    """Where both are NaN they agree: weights that have diverged are to be called that."""
    return not torch.equal(one, other) and not bool(((one == other) | (one.isnan() & other.isnan())).all())


def _by_prefix(found: Iterable[str], own: Iterable[str]) -> dict[str, dict[str, str]]:
    """For each prefix after which names in the file are names of the network: the names there by those of the network. The
    network may be wrapped itself; but a part of it may also be called module, as in torch's AveragedModel."""
    names = {_plain(name): name for name in own} | {_without_wrappers_inside(name): name for name in own}
    parts: dict[str, dict[str, str]] = {}
    for name in found:
        words = name.split(".")
        for n in range(len(words)):
            to = names.get(_without_wrappers_inside(".".join(words[n:])))
            if to is not None:
                parts.setdefault("".join(f"{word}." for word in words[:n]), {})[to] = name
    return parts


def _plain(name: str) -> str:
    """A name without what wrappers put into it."""
    name = _without_wrappers_inside(name)
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper)
    return name


def _without_wrappers_inside(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(f".{wrapper}", ".")
    return name
