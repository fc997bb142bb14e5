"""One linear layer, taken by itself: how much of its input Wᵀ brings back (equ:reconstruction)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bort._layer_inputs import visit_inputs
from bort._precision import own_precision
from bort.invert._grid import find_layer
from bort.layers import linear_map


@dataclass(frozen=True)
class LayerReconstruction:
    """The inputs z of one layer and Wᵀ(Wz), vector by vector (equ:reconstruction).

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 2, stride=2, bias=False), nn.Flatten(), nn.Linear(16, 3))
        >>> _ = nn.init.orthogonal_(model[0].weight.data.view(4, 4))
        >>> x = torch.rand(2, 1, 4, 4)
        >>> result = invert.reconstruct_layer(model, x, "0")
        >>> result.inputs.shape, result.outputs.shape
        (torch.Size([2, 4, 4]), torch.Size([2, 4, 4]))
    """

    inputs: Tensor
    """(N, in, samples): the vectors that the layer's matrix is multiplied with; of a convolution they are patches."""
    outputs: Tensor
    """Wᵀ(Wz) of each."""
    ratio: Tensor
    """(N,): ‖z − Wᵀ(Wz)‖ / ‖z‖ of each image (section 4.2)."""


@torch.no_grad()
def reconstruct_layer(model: nn.Module, x: Tensor, layer: str) -> LayerReconstruction:
    """Wᵀ(Wz) for every input z that a linear layer or a convolution receives.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 2, stride=2, bias=False), nn.Flatten(), nn.Linear(16, 3))
        >>> _ = nn.init.orthogonal_(model[0].weight.data.view(4, 4))
        >>> x = torch.rand(2, 1, 4, 4)
        >>> bool((invert.reconstruct_layer(model, x, "0").ratio < 1e-6).all())  # WᵀW = I
        True
    """
    module = find_layer(model, layer)
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or linear_map("weight", weight, module) is None:
        raise ValueError(
            f"the layer {layer!r} is a {type(module).__name__}, not a linear map: choose a convolution or linear layer"
        )
    received: list[tuple[Tensor, Tensor]] = []
    for image in x:  # one by one: a linear layer may get the vectors of all images in one dimension
        visit_inputs(model, image[None], lambda _, w, z: received.append((w, z)), only=module)
    if len(received) != len(x):
        raise ValueError(
            f"the layer {layer!r} was used {len(received)} times for {len(x)} images: it must be used once for each"
        )
    w, inputs = received[0][0], torch.stack([z for _, z in received])
    with own_precision("highest", w.device):
        outputs = w.mT @ (w @ inputs)
    error, size = (t.flatten(1).double().norm(dim=1) for t in (inputs - outputs, inputs))
    flat = (len(x), -1, inputs.shape[-1])
    return LayerReconstruction(
        inputs.reshape(flat), outputs.reshape(flat), (error / size.clamp(min=1e-300)).to(w.dtype)
    )
