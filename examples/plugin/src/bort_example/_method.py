"""A saliency method: (model, images, target, options) -> a map for each image."""

import torch
from torch import Tensor, nn


def input_gradient(
    model: nn.Module, x: Tensor, target: Tensor | int | None = None, *, times_input: bool = False
) -> Tensor:
    """(N, H, W): |∂ logit of the class / ∂ pixel|, colours added up; with ``times_input`` multiplied by the pixel."""
    leaf = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = model(leaf)
        classes = logits.argmax(dim=1) if target is None else torch.as_tensor(target, device=x.device).expand(len(x))
        (slope,) = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), leaf)
    return (slope * x if times_input else slope).abs().sum(dim=1)
