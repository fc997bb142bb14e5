"""Which parameters are the matrix of a linear map, and how the matrix lies in the tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

# q, k and v one after the other. (GPT-NeoX and BLOOM call theirs query_key_value and interleave them by head.)
_QKV_NAMES = ("qkv", "Wqkv", "in_proj", "qkv_proj")


@dataclass(frozen=True)
class LinearMap:
    """The reading of a weight that :func:`bort.penalty.matrices` takes, with the kind of layer in words."""

    kind: str
    blocks: int = 1
    transposed: bool = False


def linear_map(name: str, p: Tensor, module: nn.Module, *, split_qkv: bool = False) -> LinearMap | None:
    """How parameter ``name`` of ``module`` is a linear map of the module's input; None if it is not known to be one."""
    path = name.split(".")
    if isinstance(module, nn.MultiheadAttention) and path[-1].endswith("proj_weight"):
        if path[-1] != "in_proj_weight":
            return LinearMap("attention in-projection")
        return _fused("attention in-projection", split_qkv)
    if path[-1] != "weight":
        return None
    if isinstance(module, nn.Linear):
        fused = len(path) > 1 and path[-2] in _QKV_NAMES and p.shape[0] == 3 * p.shape[1]
        return _fused("fused qkv", split_qkv) if fused else LinearMap("linear")
    if isinstance(module, _ConvNd):
        transposed = isinstance(module, _ConvTransposeNd)
        kind = "transposed convolution" if transposed else "convolution"
        if module.groups > 1:
            grouping = "depthwise" if module.groups == module.in_channels else "grouped"
            kind = f"{grouping} {kind}, {module.groups} blocks"
        return LinearMap(kind, module.groups, transposed)
    if type(module).__name__ == "Conv1D" and p.ndim == 2:  # the linear layer of Hugging Face's GPT-2 family
        whole = ", not split: q, k and v are columns here" if split_qkv and path[-2:-1] == ["c_attn"] else ""
        return LinearMap(f"linear, stored (in, out){whole}", transposed=True)
    return None


def linear_maps(model: nn.Module) -> Iterator[tuple[str, Tensor, nn.Module, LinearMap]]:
    """Each weight of a model that is a known linear map, once a module that uses it: name, weight, module, reading."""
    for prefix, module in model.named_modules():
        for name, p in module.named_parameters(prefix, recurse=False):
            linear = linear_map(name, p, module)
            if linear is not None and p.is_floating_point() and p.numel():
                yield name, p, module, linear


def _fused(kind: str, split: bool) -> LinearMap:
    return LinearMap(f"{kind}, three blocks", 3) if split else LinearMap(f"{kind}, one matrix")
