"""Which layers of a network give its logits, as far as names tell."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from torch import nn
from torch.nn.modules.conv import _ConvNd

from bort._inspect import uncompiled_name, unwrapped

# What libraries of networks call their last layer, or the module that it is in.
_NAMES = ("head", "head_dist", "heads", "fc", "classifier")


def classifiers(model: nn.Module) -> list[str]:
    """The names of the layers that give the logits. timm's networks say it; elsewhere it is the last linear layer, or the
    last convolution, if it is called so. Names are those inside what torch.compile and DDP put around a model."""
    model = unwrapped(model)
    settings = getattr(model, "default_cfg", None)
    own = settings.get("classifier") if isinstance(settings, dict) else None
    if own:
        return [own] if isinstance(own, str) else list(own)
    for kind in (nn.Linear, _ConvNd):
        layers = [uncompiled_name(name) for name, module in model.named_modules() if isinstance(module, kind)]
        if layers and _is_called_so(layers):
            return layers[-1:]
    return []


def _is_called_so(layers: Sequence[str]) -> bool:
    """Whether the name of the last layer says that it is the classifier: "net.fc", "_fc" and "classifier.6" do. "blocks.5.fc"
    does not if there is a "blocks.0.fc" as well: then every block has one."""
    path = layers[-1].split(".")
    place = next((place for place, part in enumerate(path) if part.strip("_") in _NAMES), None)
    if place is None:
        return False
    starts = {".".join(layer.split(".")[: place + 1]) for layer in layers}
    pattern = ".".join("*" if part.isdecimal() else part for part in path[: place + 1])
    return len(fnmatch.filter(starts, pattern)) == 1
