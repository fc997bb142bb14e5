"""The penalty on an NVIDIA GPU: a whole param group in four launches, where the kernels of `_triton` apply."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bort.optim import _plain_torch as _dense
from bort.optim._plain_torch import Judged, Weight

if TYPE_CHECKING:
    from bort.optim.kernels._tiles import Plan

Moves = dict[int, tuple[Tensor, Tensor]]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_SMALLEST_SIDE = 8  # a few rows would fill a tile with padding
_KEPT = 16
_LONGEST_SIDE = 2**24  # offsets inside a tile of 128 rows are int32


@dataclass(frozen=True)
class Division:
    """Which weights of a group the kernels take, with their plans, and which are left to plain torch."""

    plans: tuple[tuple[list[Weight], Plan], ...]
    rest: list[Weight]


@functools.cache
def available(device: torch.device) -> bool:
    """Whether Triton is there and the device has the tensor cores that the kernels are written for."""
    return (
        device.type == "cuda"
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and importlib.util.find_spec("triton") is not None
    )


def divide(weights: list[Weight], group: dict[str, Any], known: dict[Any, Division]) -> Division:
    """The division for these weights, out of ``known`` as long as nothing moves in memory or changes its settings.

    A few are kept: a mixture of experts gives gradients to other weights at each step.
    """
    key = (
        *[(p.data_ptr(), p.shape, p.stride()) for _, p in weights],
        *(group[name] for name in ("mode", "scale", "precision", "blocks")),
        torch.is_grad_enabled(),
    )
    if key in known:
        return known[key]
    if len(known) >= _KEPT:
        known.clear()
    by_dtype: dict[torch.dtype, list[Weight]] = {}
    rest: list[Weight] = []
    device = weights[0][1].device  # where the residuals are; a group spread over several devices is left to plain torch
    wanted = _group_fits(group)
    for weight in weights:
        if wanted and weight[1].device == device and _weight_fits(weight[1]):
            by_dtype.setdefault(weight[1].dtype, []).append(weight)
        else:
            rest.append(weight)
    if by_dtype and torch.cuda.is_current_stream_capturing():
        return Division((), weights)  # no plan was made while warming up, and tables cannot be uploaded now
    plans = []
    for found in by_dtype.values():
        from bort.optim.kernels._tiles import make_plan

        plans.append((found, make_plan(found, keep_errors=group["precision"] == "high")))
    known[key] = Division(tuple(plans), rest)
    return known[key]


def _group_fits(group: dict[str, Any]) -> bool:
    return (
        group["mode"] == "full"
        and group["scale"] != "adaptive"
        and group["precision"] != "highest"
        and group["blocks"] == 1
        and "train_mode" not in group  # schedule-free needs the move itself, for z
        and not torch.is_grad_enabled()
    )


def _weight_fits(p: Tensor) -> bool:
    rows, columns = p.shape[0], p.numel() // p.shape[0]
    return (
        available(p.device)
        and p.dtype in _DTYPES
        and min(rows, columns) >= _SMALLEST_SIDE
        and max(rows, columns) < _LONGEST_SIDE
        and p.stride(0) == columns
        and _dense_in_memory(p[0])
    )


def _dense_in_memory(row: Tensor) -> bool:
    """Whether a tensor fills its memory without gaps, in whatever order: the order of the columns does not matter."""
    order = sorted(range(row.ndim), key=row.stride, reverse=True)
    return row.permute(order).is_contiguous()


def decouple(division: Division, group: dict[str, Any], residuals: Tensor, judged: Judged, skip: Tensor | None) -> None:
    """p ← p − α·λ·direction, in place, for every weight that the kernels take."""
    if not division.plans:
        return  # also where there is no Triton to import
    from bort.optim.kernels._launch import Penalty, launch

    rate, rate_tensor = _split(judged[0])
    for weights, plan in division.plans:
        device, dtype = weights[0][1].device, weights[0][1].dtype
        here = None if skip is None else skip.to(device)
        penalty = Penalty(group["scale"], rate, rate_tensor, -rate, rate_tensor, judged[1], here)
        with torch.cuda.device(device):
            for batch in plan.batches:
                launch(batch, dtype, penalty, residuals, None)


def couple(
    division: Division, group: dict[str, Any], residuals: Tensor, judged: Judged, grad_scale: Tensor | None
) -> list[tuple[Tensor, Tensor]]:
    """(weight, its gradient + λ·direction) for every weight that the kernels take, in one new block of memory a plan."""
    if not division.plans:
        return []
    from bort.optim.kernels._launch import Penalty, launch

    rate, rate_tensor = _split(judged[0])
    strength = group["constraint"] * group["every"] * (-1.0 if group.get("maximize") else 1.0)
    results: list[tuple[Tensor, Tensor]] = []
    for weights, plan in division.plans:
        device, dtype = weights[0][1].device, weights[0][1].dtype
        here = None if grad_scale is None else grad_scale.to(device)
        penalty = Penalty(group["scale"], rate, rate_tensor, strength, here, judged[1])
        memory = torch.empty(plan.result_size, dtype=dtype, device=device)
        start, width = memory.data_ptr(), memory.element_size()
        addresses, alive = [], []
        for (_, p), (offset, shape, stride) in zip(weights, plan.results, strict=True):
            grad = p.grad
            assert grad is not None
            if grad.stride() != stride:
                grad = torch.empty_like(p).copy_(grad)
                alive.append(grad)
            results.append((p, memory.as_strided(shape, stride, offset)))
            addresses.append((grad.data_ptr(), start + width * offset))
        order = [member for batch in plan.batches for member in batch.members]
        table = _upload([address for member in order for address in addresses[member]], device).view(-1, 2)
        with torch.cuda.device(device):
            first = 0
            for batch in plan.batches:
                launch(batch, dtype, penalty, residuals, table[first : first + len(batch.members)])
                first += len(batch.members)
    return results


def directions(weights: list[Weight], group: dict[str, Any], judged: Judged, known: dict[Any, Division]) -> Moves:
    """Guarded directions and distances of whole matrices, by the kernels where they apply: {slot: (direction, distance)}.

    Weights on a GPU must stay where they are in memory: ``known`` has their plans, and keeps them.
    """
    fit = [weight for weight in weights if gives_directions(weight[1])]
    division = divide(fit, group, known) if fit else Division((), [])
    found: Moves = {}
    for mine, plan in division.plans:
        found |= _directions(mine, plan, group, judged)
    for slot, p in weights:
        if slot not in found:
            moves, sizes = _dense.direction(p.detach()[None], group, judged)
            found[slot] = (moves[0], sizes[0])
    return found


def gives_directions(matrix: Tensor) -> bool:
    """Whether the kernels may be asked for a matrix's direction: too small a number for half precision."""
    return matrix.is_cuda and matrix.dtype is torch.float32


def _directions(weights: list[Weight], plan: Plan, group: dict[str, Any], judged: Judged) -> Moves:
    from bort.optim.kernels._launch import Penalty, launch

    rate, rate_tensor = _split(judged[0])
    penalty = Penalty(group["scale"], rate, rate_tensor, 1.0, None, judged[1])
    device = weights[0][1].device
    distances = torch.empty(1 + max(slot for slot, _ in weights), device=device)
    memory = torch.zeros(plan.result_size, device=device)
    start, width = memory.data_ptr(), memory.element_size()
    order = [member for batch in plan.batches for member in batch.members]
    places = [start + width * plan.results[member][0] for member in order]
    table = _upload([place for place in places for _ in range(2)], device).view(-1, 2)  # 0 + direction
    with torch.cuda.device(device):
        first = 0
        for batch in plan.batches:
            launch(batch, torch.float32, penalty, distances, table[first : first + len(batch.members)])
            first += len(batch.members)
    return {
        slot: (memory.as_strided(shape, stride, offset), distances[slot])
        for (slot, _), (offset, shape, stride) in zip(weights, plan.results, strict=True)
    }


def _upload(numbers: list[int], device: torch.device) -> Tensor:
    """Numbers to the device inside the arguments of a kernel: cheaper than a copy, and a CUDA graph can capture it."""
    table = torch.zeros(len(numbers), dtype=torch.int64, device=device)
    torch._foreach_add_(list(torch.split(table, 1)), numbers)
    return table


def _split(rate: float | Tensor) -> tuple[float, Tensor | None]:
    """A rate as a number and, if it lives on the device, the tensor to multiply it with there."""
    if isinstance(rate, Tensor):
        return (rate.item(), None) if rate.device.type == "cpu" else (1.0, rate)
    return float(rate), None
