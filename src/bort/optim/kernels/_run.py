"""The penalty of many weights on an NVIDIA GPU: the door to the kernels. Imports Triton only where weights are theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bort.optim import _plain_torch
from bort.optim._numbers import fresh_number
from bort.optim._spec import PenaltySpec, Weight
from bort.optim._stability import Limits, Stability
from bort.optim.kernels._division import Division, Divisions, available
from bort.optim.kernels._gradients import PenalisedGradients
from bort.optim.kernels._scalars import Scalars
from bort.optim.kernels._tuning import Tuning

if TYPE_CHECKING:
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

    def divide(self, weights: list[Weight], spec: PenaltySpec) -> Division:
        """Which of the weights the kernels take, with their tables."""
        return self._divisions.of(weights, spec)

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
                directions |= _directions([candidates[i] for i in positions], tiling, spec, stability)
        rest = [weight for weight in weights if weight[0] not in directions]
        for members, moves, residuals in _plain_torch.directions(rest, spec, stability):
            for (slot, _), move, residual in zip(members, moves, residuals, strict=True):
                directions[slot] = (move, residual)
        return directions

    def gives_direction(self, matrix: Tensor) -> bool:
        """Whether ``directions`` may use the kernels for a matrix. They write results in its dtype, and in half precision a
        direction may overflow before it is multiplied by α·λ."""
        return matrix.dtype is torch.float32 and self._available(matrix.device)


def launch(
    tiling: Tiling,
    scalars: Scalars,
    residuals: Tensor,
    gradients: PenalisedGradients | None = None,
    memory: tuple[Tensor, Tensor] | None = None,
) -> None:
    """All batches of a tiling. Without ``gradients`` the weights are moved; with them, the penalised ones are written.

    ``residuals`` get each weight's at its slot. If ``scalars.skip`` is not 0, weights and residuals stay as they are, and the
    penalised gradients are the gradients alone. ``memory`` is for scratch (`scratch_size`).
    """
    from bort.optim.kernels import _launch

    first = 0
    with _on(tiling.device):
        for batch in tiling.batches:
            last = first + len(batch.members)
            addresses = None if gradients is None else gradients.table[first:last]
            _launch.launch(batch, tiling.dtype, scalars, residuals, addresses, memory)
            first = last


def scratch_size(division: Division) -> tuple[int, int]:
    """How many numbers of half and of single precision `launch` needs for any of the division's tilings."""
    from bort.optim.kernels import _launch

    return _launch.scratch_size(batch for _, tiling in division.parts for batch in tiling.batches)


def _directions(
    members: list[Weight], tiling: Tiling, spec: PenaltySpec, stability: Stability
) -> dict[int, tuple[Tensor, Tensor]]:
    device, slots = tiling.device, [slot for slot, _ in members]
    rate, factor = fresh_number(stability.rate, device), fresh_number(1.0, device)
    scalars = scalars_of(spec, members, rate, factor, stability.limits)
    residuals = torch.empty(1 + max(slots), device=device)
    # A buffer of zeros as the gradient, so that the result is the direction alone, in the same buffer.
    gradients = PenalisedGradients(tiling, torch.zeros(tiling.result_size, device=device))
    gradients.read_from(gradients.results)
    launch(tiling, scalars, residuals, gradients)
    return {slot: (result, residuals[slot]) for slot, result in zip(slots, gradients.results, strict=True)}


def scalars_of(
    spec: PenaltySpec,
    weights: list[Weight],
    rate: Tensor,
    factor: Tensor,
    limits: Limits,
    skip: Tensor | None = None,
) -> Scalars:
    """The numbers of a step on weights of one device."""
    if spec.scale == "adaptive":
        return Scalars(1.0, _adaptive_scales(weights, spec), True, rate, factor, limits, skip)
    scales = None if spec.scales is None else spec.scales.to(weights[0][1].device, torch.float32)
    return Scalars(spec.target, scales, False, rate, factor, limits, skip)


def _adaptive_scales(weights: list[Weight], spec: PenaltySpec) -> Tensor:
    """`penalty.target` of each weight at its slot, in whatever order its columns lie in memory. Not 0, since E is divided by
    it. Nothing goes from the host to the device: these launches may be recorded."""
    means = {}
    for slot, p in weights:
        of_row = (0,) if spec.transposed else tuple(range(1, p.ndim))
        means[slot] = torch.linalg.vector_norm(p.detach(), dim=of_row, dtype=torch.float32).mean()
    spare = means[weights[0][0]]  # for the slots of other weights, which nobody reads
    scales = torch.stack([means.get(slot, spare) for slot in range(1 + max(means))])
    return scales.square_().clamp_(min=torch.finfo(torch.float32).tiny)


def _on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Triton launches on the current device. (Triton's interpreter, in tests, works on CPU tensors.)"""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
