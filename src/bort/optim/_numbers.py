"""Numbers of a step in device memory: what has been launched once, or recorded in a CUDA graph, reads them there.

A rate that is an argument of a kernel is fixed in a graph; one in memory can be another one at each step. It is written by a
kernel that has the number as its argument (``fill_``), so no host memory has to stay as it is until the device has read it.
"""

from __future__ import annotations

import torch
from torch import Tensor

DTYPE = torch.float64
"""So that float64 weights have the rate that they were given. Kernels that compute in float32 round it as the host would."""


class DeviceNumber:
    """One number, always at the same address."""

    def __init__(self, device: torch.device, dtype: torch.dtype = DTYPE) -> None:
        with torch.inference_mode(False):  # a tensor made in inference mode could not be written to after it
            self.tensor = torch.zeros((), dtype=dtype, device=device)
        self._written: float | None = 0.0

    def write(self, value: float | Tensor) -> Tensor:
        """A tensor on a device is copied at every call, without waiting for it; a number is written if it is another one
        than the last time."""
        if isinstance(value, Tensor):
            if value.device.type != "cpu":
                self.tensor.copy_(value.reshape(()), non_blocking=True)
                self._written = None
                return self.tensor
            value = value.item()
        if value != self._written:
            self.tensor.fill_(value)
            self._written = value
        return self.tensor


class StepNumbers:
    """Those of one step after the other. Not to be made while a graph is captured, which would write them at each replay."""

    def __init__(self, device: torch.device) -> None:
        self.rate, self.factor = DeviceNumber(device), DeviceNumber(device)
        self.skip = DeviceNumber(device, torch.bool)

    def tensors(self) -> list[Tensor]:
        return [self.rate.tensor, self.factor.tensor, self.skip.tensor]


def fresh_number(value: float | Tensor, device: torch.device) -> Tensor:
    """In memory of its own, for a step that somebody else captures: the graph then has the launch that writes it."""
    if isinstance(value, Tensor) and value.device.type != "cpu":
        return value.detach().reshape(()).to(device, DTYPE)
    return torch.full((), float(value), dtype=DTYPE, device=device)
