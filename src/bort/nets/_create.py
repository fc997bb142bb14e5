"""One name, one network."""

from __future__ import annotations

from typing import Any

from torch import nn

from bort._import_path import import_object, is_import_path
from bort.nets._acnn import ACNNBase, ACNNSmall
from bort.nets._lenet import LeNet

_NETS: dict[str, type[nn.Module]] = {"acnn-base": ACNNBase, "acnn-small": ACNNSmall, "lenet": LeNet}


def names() -> list[str]:
    """The networks of this package; "timm/<name>" and "package.module:function" name all others."""
    return list(_NETS)


def create(name: str, **options: Any) -> nn.Module:
    """The network called ``name``: "lenet", "acnn-small", "acnn-base"; "timm/<name>" for any network of timm; or
    "package.module:function" for any other, a function (or class) that takes the keywords below and returns a module.

    All take ``channels`` (of the image), ``classes`` and ``image_size``, and options of their own: ``width`` for the paper's
    ACNNs, whatever timm.create_model takes for timm's.
    """
    if name.startswith("timm/"):
        return _timm(name.removeprefix("timm/"), **options)
    if is_import_path(name):
        net = import_object(name)(**options)
        if not isinstance(net, nn.Module):
            raise ValueError(f"{name} returns a {type(net).__name__}, not a torch.nn.Module")
        return net
    if name not in _NETS:
        raise ValueError(
            f"no network is called {name!r}; there are {', '.join(_NETS)}, timm/<name> and package.module:function"
        )
    return _NETS[name](**options)


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
    wanted = {"in_chans": channels, "num_classes": classes, **options}
    if image_size is not None and _is_for_one_size(timm, name):
        wanted["img_size"] = image_size
    net: nn.Module = timm.create_model(name, **wanted)
    return net


def _is_for_one_size(timm: Any, name: str) -> bool:
    """Whether a network is built for its image size (position embeddings, windows), and so must be told of another."""
    import inspect

    source = inspect.getmodule(timm.models.model_entrypoint(name))
    return source is not None and "img_size" in inspect.getsource(source)
