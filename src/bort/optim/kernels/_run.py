"""The penalty of many weights on an NVIDIA GPU: the door to the kernels. Imports Triton only where weights are theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bort.optim import _plain_torch
from bort.optim._spec import PenaltySpec, Weight
from bort.optim._stability import Stability
from bort.optim.kernels._division import Division, Divisions, available
from bort.optim.kernels._tuning import Tuning

if TYPE_CHECKING:
    from bort.optim.kernels._launch import Scalars
    from bort.optim.kernels._tiles import Tiling


class Kernels:
    """The kernels, with the tables that they need for one list of weights after the other.

    Args:
        available: whether the kernels run on a device.
        tuning: the sizes at which they change the way they work.
    """

    def __init__(self, available: Callable[[torch.device], bool] = available, tuning: Tuning | None = None) -> None:
        self._available = available
        self._divisions = Divisions(available, tuning or Tuning())

    def decouple(
        self, weights: list[Weight], spec: PenaltySpec, stability: Stability, residuals: Tensor, skip: Tensor | None
    ) -> list[Weight]:
        """W ← W − α·λ·direction, in place, for the weights that the kernels take; returns the others.

        ``residuals`` get each weight's at its slot. If ``skip`` is not 0, weights and residuals stay as they are.
        """
        division = self._divisions.of(weights, spec)
        for _, tiling in division.parts:
            from bort.optim.kernels._launch import Scalars, launch

            rate, rate_tensor = _split(stability.rate, tiling.device)
            skip_here = _on_device(skip, tiling.device)
            scalars = Scalars(
                *(
                    spec.target,
                    _scales(spec, tiling),
                    rate,
                    rate_tensor,
                    -rate,
                    rate_tensor,
                    stability.limits,
                    skip_here,
                )
            )
            with _on(tiling.device):
                for batch in tiling.batches:
                    launch(batch, tiling.dtype, scalars, residuals)
        return _rest(division, weights)

    def couple(
        self,
        weights: list[Weight],
        spec: PenaltySpec,
        stability: Stability,
        residuals: Tensor,
        grad_scale: Tensor | None,
        skip: Tensor | None = None,
    ) -> tuple[list[tuple[Tensor, Tensor]], list[Weight]]:
        """(W, its gradient + λ·direction) for the weights that the kernels take, and the other weights.

        The results are in one new block of memory for each dtype. If ``skip`` is not 0, they are the gradients alone.
        """
        division = self._divisions.of(weights, spec)
        results: list[tuple[Tensor, Tensor]] = []
        for positions, tiling in division.parts:
            from bort.optim.kernels._launch import Scalars

            rate, rate_tensor = _split(stability.rate, tiling.device)
            strength = -spec.strength if spec.maximize else spec.strength
            factor, warm = _on_device(grad_scale, tiling.device), _on_device(spec.strength_tensor, tiling.device)
            if warm is not None:
                factor = warm if factor is None else factor * warm
            skip_here = _on_device(skip, tiling.device)
            scalars = Scalars(
                *(spec.target, _scales(spec, tiling), rate, rate_tensor, strength, factor, stability.limits, skip_here)
            )
            memory = torch.empty(tiling.result_size, dtype=tiling.dtype, device=tiling.device)
            start, width = memory.data_ptr(), memory.element_size()
            addresses, copies = [], []
            for position, (offset, shape, stride) in zip(positions, tiling.results, strict=True):
                p = weights[position][1]
                grad = p.grad
                assert grad is not None
                if grad.stride() != stride:
                    grad = torch.empty_like(p).copy_(grad)
                    copies.append(grad)  # kept until the kernels are launched: they know its address only
                results.append((p, memory.as_strided(shape, stride, offset)))
                addresses.append((grad.data_ptr(), start + width * offset))
            _launch_all(tiling, scalars, residuals, addresses)
        return results, _rest(division, weights)

    def directions(
        self, weights: list[Weight], spec: PenaltySpec, stability: Stability
    ) -> dict[int, tuple[Tensor, Tensor]]:
        """{slot: (direction, residual)} of whole matrices: by the kernels where they apply, otherwise by plain torch.

        On a GPU, tables are found again only for matrices that are where they were at the last call.
        """
        candidates = [weight for weight in weights if self.gives_direction(weight[1])]
        directions: dict[int, tuple[Tensor, Tensor]] = {}
        if candidates:
            for positions, tiling in self._divisions.of(candidates, spec).parts:
                directions |= _directions([candidates[i][0] for i in positions], tiling, spec, stability)
        for slot, p in weights:
            if slot not in directions:
                directions[slot] = _plain_torch.direction((slot, p), spec, stability)
        return directions

    def gives_direction(self, matrix: Tensor) -> bool:
        """Whether ``directions`` may use the kernels for a matrix. They write results in its dtype, and in half precision a
        direction may overflow before it is multiplied by α·λ."""
        return matrix.dtype is torch.float32 and self._available(matrix.device)


def _directions(
    slots: list[int], tiling: Tiling, spec: PenaltySpec, stability: Stability
) -> dict[int, tuple[Tensor, Tensor]]:
    from bort.optim.kernels._launch import Scalars

    rate, rate_tensor = _split(stability.rate, tiling.device)
    scalars = Scalars(spec.target, _scales(spec, tiling), rate, rate_tensor, 1.0, None, stability.limits)
    residuals = torch.empty(1 + max(slots), device=tiling.device)
    # A buffer of zeros as the gradient, so that the result is the direction alone, in the same buffer.
    memory = torch.zeros(tiling.result_size, device=tiling.device)
    start, width = memory.data_ptr(), memory.element_size()
    addresses = [(start + width * offset,) * 2 for offset, _, _ in tiling.results]
    _launch_all(tiling, scalars, residuals, addresses)
    return {
        slot: (memory.as_strided(shape, stride, offset), residuals[slot])
        for slot, (offset, shape, stride) in zip(slots, tiling.results, strict=True)
    }


def _launch_all(tiling: Tiling, scalars: Scalars, residuals: Tensor, addresses: list[tuple[int, int]]) -> None:
    """All batches, with the (gradient, result) addresses of each weight, in the order of the weights."""
    from bort.optim.kernels._launch import launch

    order = [member for batch in tiling.batches for member in batch.members]
    table = _upload([address for member in order for address in addresses[member]], tiling.device).view(-1, 2)
    first = 0
    with _on(tiling.device):
        for batch in tiling.batches:
            launch(batch, tiling.dtype, scalars, residuals, table[first : first + len(batch.members)])
            first += len(batch.members)


def _rest(division: Division, weights: list[Weight]) -> list[Weight]:
    return [weights[position] for position in division.rest]


def _on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Triton launches on the current device. (Triton's interpreter, in tests, works on CPU tensors.)"""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _upload(numbers: list[int], device: torch.device) -> Tensor:
    """Numbers to the device as arguments of a kernel: cheaper than a copy, and a CUDA graph can capture it."""
    table = torch.zeros(len(numbers), dtype=torch.int64, device=device)
    torch._foreach_add_(list(torch.split(table, 1)), numbers)
    return table


def _scales(spec: PenaltySpec, tiling: Tiling) -> Tensor | None:
    """A number for each slot, as the kernels read it."""
    return None if spec.scales is None else spec.scales.to(tiling.device, torch.float32)


def _split(rate: float | Tensor, device: torch.device) -> tuple[float, Tensor | None]:
    """A rate as a number and, if it is on a device, the tensor to multiply the number with there."""
    if isinstance(rate, Tensor):
        return (rate.item(), None) if rate.device.type == "cpu" else (1.0, rate.to(device))
    return float(rate), None


def _on_device(scalar: Tensor | None, device: torch.device) -> Tensor | None:
    return None if scalar is None else scalar.to(device)
