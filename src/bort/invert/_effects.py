r"""What each channel of a layer does for a class.

The effect of channel c on the logit :math:`l` is the change that switching the channel off makes,

.. math::
    e_c = l(Z \text{ with } Z_c = 0) - l(Z) \approx -\sum_p \frac{\partial l}{\partial Z_{c,p}} Z_{c,p},

so a channel that speaks for the class has a negative effect. The right side (gradient × activation) takes one way back in the
place of one way forward for each channel; it is exact where the rest of the model is linear in the channel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bort._budget import current_budget
from bort.invert._trace import Trace


def channel_effects(
    trace: Trace, target: int, channels: Sequence[int] | None = None, *, step: Callable[[int, int], None] | None = None
) -> Tensor:
    """(channels,): the change of the logit of class ``target`` when a channel is switched off, of a trace of one image.

    Args:
        channels: which; all of the layer by default. One that is 0 everywhere has no effect, and takes no time.
        step: called with (done, total) after each batch of channels. The first two are small: the rest can be timed by
            them. To stop, raise an exception there.

    Example:
        >>> trace = invert.Backtracker(nets.create("lenet").eval(), "conv2").trace(torch.rand(1, 1, 28, 28))
        >>> invert.channel_effects(trace, target=3, channels=[0, 5]).shape
        torch.Size([2])
    """
    maps = _single(trace)
    asked = torch.arange(maps.shape[1]) if channels is None else torch.as_tensor(channels, dtype=torch.long)
    active = asked[maps[0].flatten(1).any(dim=1).cpu()[asked]]
    effects = maps.new_zeros(maps.shape[1])
    clean = trace.outputs[0, target]
    largest = max(1, min(64, current_budget().cpu // maps.numel()))
    done = 0
    while done < len(active):
        size = {0: 2, 2: 4}.get(done, largest)
        part = active[done : done + size]
        edited = maps.repeat(len(part), 1, 1, 1)
        edited[torch.arange(len(part)), part] = 0
        effects[part] = trace.forward(trace.with_maps(edited))[:, target] - clean
        done += len(part)
        if step is not None:
            step(done, len(active))
    return effects[asked]


def approximate_effects(trace: Trace, target: int) -> Tensor:
    """(channels,): the same for all channels by gradient × activation, of a trace with rule "gradient".

    Example:
        >>> trace = invert.Backtracker(nets.create("lenet").eval(), "conv2", "gradient").trace(torch.rand(1, 1, 28, 28))
        >>> invert.approximate_effects(trace, target=3).shape
        torch.Size([16])
    """
    if trace.rule != "gradient":
        raise ValueError(f'effects are approximated by gradients: trace with rule="gradient", not {trace.rule!r}')
    maps = _single(trace)
    slope = trace.slope(torch.tensor([target], device=maps.device))
    return -(slope * maps)[0].flatten(1).sum(dim=1)


def _single(trace: Trace) -> Tensor:
    maps = trace.maps
    if len(maps) != 1:
        raise ValueError(f"effects are of one image, the trace is of {len(maps)}")
    return maps
