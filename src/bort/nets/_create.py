"""Networks by name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from torch import nn

from bort._import_path import import_object, is_import_path
from bort.nets._acnn import ACNNBase, ACNNSmall
from bort.nets._lenet import LeNet

_NETS: dict[str, type[nn.Module]] = {"acnn-base": ACNNBase, "acnn-small": ACNNSmall, "lenet": LeNet}
_SHAPE = ("channels", "classes", "image_size")  # of its images: what every network is called with


def names() -> list[str]:
    """The networks of this package; "timm/<name>" and "package.module:function" name all others.

    Example:
        >>> nets.names()
        ['acnn-base', 'acnn-small', 'lenet']
    """
    return list(_NETS)


def create(name: str, **options: Any) -> nn.Module:
    """The network called ``name``: "lenet", "acnn-small", "acnn-base"; "timm/<name>" for any network of timm; or
    "package.module:function" for any other, a function (or class) that takes the keywords below and returns a module.

    All take ``channels`` (of the image), ``classes`` and ``image_size``, and options of their own: ``width`` for the paper's
    ACNNs, whatever timm.create_model takes for timm's. An option that the network does not have is a ValueError.

    Example:
        >>> model = nets.create("acnn-small", channels=3, image_size=32, width=0.05)
        >>> model(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    if name.startswith("timm/"):
        return _timm(name.removeprefix("timm/"), **options)
    if is_import_path(name):
        function = import_object(name)
        _refuse_unknown(name, function, options)
        net = function(**options)
        if not isinstance(net, nn.Module):
            raise ValueError(f"{name} returns a {type(net).__name__}, not a torch.nn.Module")
        return net
    if name not in _NETS:
        raise ValueError(
            f"no network is called {name!r}; there are {', '.join(_NETS)}, timm/<name> and package.module:function"
        )
    _refuse_unknown(name, _NETS[name], options)
    return _NETS[name](**options)


def _refuse_unknown(name: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    unknown = next((option for option in options if option not in parameters), None)
    if unknown in _SHAPE:
        raise ValueError(f"{name} has no parameter {unknown!r}: a network's function takes {', '.join(_SHAPE)}")
    if unknown is not None:
        own = [parameter for parameter in parameters if parameter not in _SHAPE]
        raise ValueError(f"{name} has no option {unknown!r}; it has {', '.join(own) or 'none'}")


def _timm(
    name: str, channels: int = 3, classes: int = 1000, image_size: int | None = None, **options: Any
) -> nn.Module:
    try:
        import timm
    except ImportError:
        raise ImportError(
            'timm/… networks come from timm, which is not installed: pip install "bort[vision]"'
        ) from None
    if not timm.is_model(name):
        near = timm.list_models(f"*{name}*")[:5]
        hint = f"; near it are {', '.join(near)}" if near else ""
        raise ValueError(f"timm has no network called {name!r}{hint}")
    arguments = {"in_chans": channels, "num_classes": classes, **options}
    if image_size is not None and _is_built_for_one_size(timm, name):
        arguments["img_size"] = image_size
    try:
        net: nn.Module = timm.create_model(name, **arguments)
    except TypeError as error:  # timm passes options on to the network's constructor, which alone knows them
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if unknown is None or unknown[1] not in options:
            raise
        raise ValueError(f"timm/{name} has no option {unknown[1]!r} ({error})") from error
    return net


def _is_built_for_one_size(timm: Any, name: str) -> bool:
    """Whether the network's weights depend on the image size (position embeddings, windows), so that it has to be given."""
    source = inspect.getmodule(timm.models.model_entrypoint(name))
    return source is not None and "img_size" in inspect.getsource(source)
