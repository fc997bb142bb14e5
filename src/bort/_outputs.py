"""The logits in what a model returns: a tensor, a tuple, a dict, Hugging Face's ModelOutput, torchvision's named tuples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

_REMEDY = "Write a module around it whose forward returns the logits (N, classes)"


def logits_of(output: object) -> Tensor:
    """The logits in a model's output.

    - a tensor is the logits;
    - a dict, a named tuple or another object has them under "logits", the first two else under their only name that ends so;
    - in a tuple or list they are the only tensor of two dimensions, or the first of several that have one shape: the main
      head, before auxiliary ones. Tensors of several shapes may be logits, features or other logits, in any order: refused.
      Without any of two dimensions they are its first tensor.
    """
    if isinstance(output, Tensor):
        return output
    named = _named(output)
    logits = named.get("logits")
    if isinstance(logits, Tensor):
        return logits
    ending = _tensors(value for name, value in named.items() if name.endswith("logits"))
    if len(ending) == 1:
        return ending[0]
    if isinstance(output, (tuple, list)):
        tensors = _tensors(output)
        tables = [tensor for tensor in tensors if tensor.ndim == 2]
        if len({tensor.shape for tensor in tables}) == 1:
            return tables[0]
        if tensors and not tables and isinstance(output[0], Tensor):
            return tensors[0]
    raise ValueError(f"the model returns {_description(output, named)}: {_reason(output, named)}")


def per_image(logits: Tensor, images: int) -> Tensor:
    """(N, classes) from the forms that say the same: (N,) of a head with one logit, (classes,) of a single image, and
    (N, classes, 1, 1). Others stay as they are."""
    if not logits.is_floating_point():
        raise ValueError(
            f"the model returns numbers in {logits.dtype}, which are no logits: write a module around it whose forward "
            "returns the logits (N, classes) that it decides by"
        )
    if logits.ndim > 2 and all(side == 1 for side in logits.shape[2:]):
        return logits.flatten(1)
    if logits.ndim < 2 and images == 1:
        return logits.reshape(1, -1)
    return logits[:, None] if logits.shape == (images,) else logits


def _tensors(values: Iterable[object]) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor)]


def _named(output: object) -> dict[str, Any]:
    if isinstance(output, Mapping):
        return {str(name): value for name, value in output.items()}
    if isinstance(output, tuple) and hasattr(output, "_asdict"):  # a named tuple
        return dict(output._asdict())
    return {"logits": output.logits} if hasattr(output, "logits") else {}


def _description(output: object, named: dict[str, Any]) -> str:
    """What the output is made of, as in "dict of out (2, 21, 64, 64), aux (2, 21, 64, 64)"."""
    if named:
        parts = [f"{name} {_shape(value)}" for name, value in named.items() if value is not None]
    elif isinstance(output, (tuple, list)):
        parts = [_shape(value) for value in output]
    else:
        parts = []
    shown = ", ".join(parts[:6]) + (", …" if len(parts) > 6 else "")
    return type(output).__name__ + (f" of {shown}" if shown else "")


def _shape(value: object) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__


def _reason(output: object, named: dict[str, Any]) -> str:
    """Why there are no logits in it, and what to do."""
    places = named.get("out")
    if isinstance(places, Tensor) and places.ndim == 4:
        return (
            "one score for each class and pixel. It segments images and does not classify them: write a module around it "
            'that returns (N, classes), for example the mean of "out" over the pixels'
        )
    first = output[0] if isinstance(output, (tuple, list)) and output else None
    if isinstance(first, Mapping) and "boxes" in first:
        return "boxes. It detects objects and does not classify images: write a module around it that returns one score"
    if "last_hidden_state" in named or "pooler_output" in named:
        return (
            "features, no logits. Take the model with a classifier (in transformers …ForImageClassification), or write a "
            "module around it that returns logits (N, classes)"
        )
    if isinstance(output, (tuple, list)) and len(_tensors(output)) > 1:
        return f"any of them may be the logits. {_REMEDY}"
    return f"there are no logits in it. {_REMEDY}"
