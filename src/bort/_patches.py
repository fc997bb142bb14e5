"""What the matrix of a layer is multiplied with: the vectors z of equ:reconstruction, patches in a convolution."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd

from bort.optim._linear import LinearMap


def layer_inputs(module: nn.Module, x: Tensor, linear: LinearMap) -> Iterator[Tensor]:
    """The layer's input vectors as (blocks, in, samples), one image (or one batch of rows) at a time.

    A convolution sees its padded input in overlapping patches of in·k·k numbers; a transposed one, stored (in, out, …),
    sees single pixels; a linear layer the last dimension.
    """
    if not isinstance(module, _ConvNd):
        shared = x.reshape(-1, x.shape[-1]).T.unsqueeze(0)  # the blocks of a fused qkv all read the same vector
        yield shared.expand(linear.blocks, -1, -1)
        return
    spatial = len(module.kernel_size)
    for image in x if x.ndim == spatial + 2 else x.unsqueeze(0):
        z = image if linear.transposed else _unfold(module, image)
        yield z.reshape(linear.blocks, -1, z[0].numel() if linear.transposed else z.shape[-1])


def _unfold(module: _ConvNd, image: Tensor) -> Tensor:
    """(channels, …) to (channels·k·k, patches), for any number of spatial dimensions."""
    padding = module._reversed_padding_repeated_twice
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    z = F.pad(image.unsqueeze(0), padding, mode=mode)[0] if any(padding) else image
    spatial = len(module.kernel_size)
    for axis, (k, stride, dilation) in enumerate(zip(module.kernel_size, module.stride, module.dilation, strict=True)):
        z = z.unfold(1 + axis, (k - 1) * dilation + 1, stride)[..., ::dilation]
    # now (channels, *positions, *kernel): bring the kernel next to the channels, as in the weight
    order = [0, *range(1 + spatial, 1 + 2 * spatial), *range(1, 1 + spatial)]
    positions = z.shape[1 : 1 + spatial].numel()
    return z.permute(order).reshape(-1, positions)
